"""A fingerprint of a program: equal only for programs that do the same with the same parameters.

It covers declarations, parameter values, and the code of every handler, method and user function
that they reach, with captured constants. Libraries are taken by name and not looked into.
"""

from __future__ import annotations

import functools
import hashlib
import site
import sys
import sysconfig
import types
from functools import lru_cache
from pathlib import Path
from typing import Any

from timelapse.model.events import Event, Record
from timelapse.model.program import Program, params_of, spec_of
from timelapse.model.resource import Resource


def fingerprint(program: Program) -> str:
    """A hex digest (SHA-256) of what the program does."""
    spec = spec_of(program)
    writer = _Writer()
    writer.add("program", spec.name)
    for name, value in params_of(program).items():
        writer.value(f"param:{name}", value)
    for state in spec.states.values():
        writer.add("state", state.name, state.text, repr(state.default))
    for handler in spec.handlers:
        writer.add("handler", handler.name, *(e.__name__ for e in handler.events))
        for event in handler.events:
            writer.value("event", event)
        writer.function(handler.function)
    for base in type(program).__mro__:
        if base in (object, Program):
            continue
        for name, member in sorted(base.__dict__.items()):
            if not name.startswith("__"):
                writer.value(f"member:{base.__qualname__}.{name}", member)
    return writer.digest()


_PLAIN = (int, float, str, bytes, bool, tuple, frozenset, type(None))


class _Writer:
    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._seen: set[int] = set()
        self._open: set[int] = set()

    def digest(self) -> str:
        return self._hash.hexdigest()

    def add(self, *parts: str) -> None:
        for part in parts:
            data = part.encode("utf-8", "surrogatepass")
            self._hash.update(len(data).to_bytes(8, "little") + data)

    def value(self, name: str, value: Any) -> None:
        if isinstance(value, property):
            value = value.fget
        elif isinstance(value, staticmethod | classmethod):
            value = value.__func__
        if isinstance(value, types.FunctionType) and not _is_library(value.__module__):
            self.add(name, "function")
            self.function(value)
        elif isinstance(value, type):
            self._class(name, value)
        elif isinstance(value, Resource):
            self.add(name, "resource", value.fingerprint)
        elif isinstance(value, types.ModuleType):
            self.add(name, "module", value.__name__)
        elif isinstance(value, tuple | list):
            self.add(name, type(value).__qualname__, str(len(value)))
            for item in value:
                self.value("item", item)
        elif isinstance(value, dict):
            self.add(name, type(value).__qualname__, str(len(value)))
            for key, item in value.items():
                self.value("key", key)
                self.value("item", item)
        elif isinstance(value, frozenset | set):
            self.add(name, type(value).__qualname__, *sorted(map(_digest_of, value)))
        elif isinstance(value, functools.partial):
            self.add(name, "partial")
            self.value("part", (value.func, value.args, value.keywords))
        elif isinstance(value, types.MethodType):
            self.add(name, "method")
            self.value("part", (value.__func__, value.__self__))
        elif isinstance(getattr(value, "__wrapped__", None), types.FunctionType):
            self.add(name, "wrapped")
            self.value("part", value.__wrapped__)
        elif not _is_library(type(value).__module__) and hasattr(value, "__dict__"):
            self._object(name, value)
        else:
            self.add(name, type(value).__qualname__, _text(value))

    def _object(self, name: str, value: Any) -> None:
        """An object of a user's class: its class and its attributes."""
        self._class(name, type(value))
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        for key, item in sorted(vars(value).items()):
            self.value(f"attribute:{key}", item)

    def _module(self, module: types.ModuleType, names: list[str]) -> None:
        """What code that uses these names can reach of a user's module."""
        if _is_library(module.__name__):
            return
        for name in names:
            if name in vars(module):
                found = vars(module)[name]
                if isinstance(found, types.ModuleType):
                    if found is not module and id(found) not in self._open:
                        self._open.add(id(found))
                        self._module(found, names)
                        self._open.discard(id(found))
                else:
                    self.value(f"of:{name}", found)

    def _class(self, name: str, cls: type) -> None:
        """A class by its name, without its module: a file is imported under more than one name."""
        if _is_library(cls.__module__):
            self.add(name, "class", cls.__module__, cls.__qualname__)
            return
        self.add(name, "class", cls.__qualname__)
        if id(cls) in self._seen:
            return
        self._seen.add(id(cls))
        if issubclass(cls, Event | Record):
            for f in cls.__fields__:
                self.add(f.name, f.type.text)
        if issubclass(cls, Program):
            return
        for base in cls.__bases__:
            self._class("base", base)
        for key, member in sorted(cls.__dict__.items()):
            is_code = isinstance(member, types.FunctionType | property | staticmethod | classmethod)
            if is_code or (not key.startswith("__") and isinstance(member, _PLAIN)):
                self.value(f"member:{key}", member)

    def function(self, function: types.FunctionType) -> None:
        if id(function) in self._seen:
            return
        self._seen.add(id(function))
        self._code(function.__code__)
        for default in (function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items():
            self.value("default", default)
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:
                continue
            if not (isinstance(content, type) and issubclass(content, Program)):  # super()'s class
                self.value("cell", content)
        names = _names(function.__code__)
        for name in names:
            if name in function.__globals__:
                found = function.__globals__[name]
                self.value(f"global:{name}", found)
                if isinstance(found, types.ModuleType):
                    self._module(found, names)

    def _code(self, code: types.CodeType) -> None:
        self.add(code.co_name, code.co_code.hex(), *code.co_names, *code.co_varnames)
        for const in code.co_consts:
            if isinstance(const, types.CodeType):
                self._code(const)
            else:
                self.value("const", const)


@lru_cache(maxsize=1024)
def _is_library(module: str | None) -> bool:
    """Whether a module is installed (or built in): taken by name, not looked into."""
    if module is None or module == "__main__":
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    if not isinstance(file, str):
        return module in sys.builtin_module_names
    roots = {*sysconfig.get_paths().values(), *site.getsitepackages(), str(Path(__file__).parents[1])}
    return any(Path(file).resolve().is_relative_to(Path(root).resolve()) for root in roots)


def _names(code: types.CodeType) -> list[str]:
    names = list(code.co_names)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            names.extend(_names(const))
    return names


def _digest_of(value: Any) -> str:
    """The digest of one value, for sets: their order differs from process to process."""
    writer = _Writer()
    writer.value("", value)
    return writer.digest()


def _text(value: Any) -> str:
    if callable(value):  # a library's function or object: its name, never its address
        return (
            f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
        )
    text = repr(value)
    return f"{type(value).__module__}.{type(value).__qualname__}" if " at 0x" in text else text
