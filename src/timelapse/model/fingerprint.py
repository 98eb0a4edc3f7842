"""A fingerprint of a program: equal only for programs that do the same with the same parameters.

It covers declarations, parameter values, and the code of every handler, method and user function
that they reach, with captured constants. Libraries are taken by name and not looked into.
"""

from __future__ import annotations

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
        writer.function(handler.function)
    for base in type(program).__mro__:
        if base in (object, Program):
            continue
        for name, member in sorted(base.__dict__.items()):
            if not name.startswith("__"):
                writer.value(f"member:{base.__qualname__}.{name}", member)
    return writer.digest()


class _Writer:
    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._seen: set[int] = set()

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
        else:
            self.add(name, type(value).__qualname__, _text(value))

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
        elif not issubclass(cls, Program):
            for key, member in sorted(cls.__dict__.items()):
                if isinstance(member, types.FunctionType | property | staticmethod | classmethod):
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
        for name in _names(function.__code__):
            if name in function.__globals__:
                self.value(f"global:{name}", function.__globals__[name])

    def _code(self, code: types.CodeType) -> None:
        self.add(code.co_name, code.co_code.hex(), *code.co_names, *code.co_varnames)
        for const in code.co_consts:
            if isinstance(const, types.CodeType):
                self._code(const)
            else:
                self.add(type(const).__qualname__, _text(const))


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


def _text(value: Any) -> str:
    if isinstance(value, frozenset | set):
        return repr(sorted(map(repr, value)))
    if callable(value):  # a library's function or object: its name, never its address
        return (
            f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
        )
    text = repr(value)
    return f"{type(value).__module__}.{type(value).__qualname__}" if " at 0x" in text else text
