"""A fingerprint of a program: equal only for programs that do the same with the same parameters.

It covers declarations, parameter values, and the code of every handler, method and user function
that they reach, with captured constants. Libraries are taken by name and not looked into.

A *strict* writer is for those who take equal hashes for equal behaviour and run nothing to check it:
it raises Unsure for what it cannot hash completely (a library's object, an attribute that is made up
when asked for), and takes by name only what comes with Python and depends on its arguments alone.
"""

from __future__ import annotations

import datetime
import decimal
import dis
import enum
import fractions
import functools
import hashlib
import re
import site
import sys
import sysconfig
import types
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from timelapse.code.source import wrapped
from timelapse.kinds.base import ABSENT, StateOptions
from timelapse.model.events import Event, Record
from timelapse.model.resource import Resource
from timelapse.program.program import GAP, Program, params_of, spec_of


def fingerprint(program: Program) -> str:
    """A hex digest (SHA-256) of what the program does."""
    writer = Writer()
    write_program(writer, type(program), params_of(program))
    return writer.digest()


def write_program(
    writer: Writer, cls: type[Program], params: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """Hash a program's declarations, its code, and these values of parameters."""
    spec = spec_of(cls)
    writer.add("program", spec.name)
    for name, value in params.items():
        writer.value(f"param:{name}", value)
    if spec.times:
        writer.add("loop", str(spec.loop), *(f"{s.name}:{s.history}" for s in spec.declared.values()))
    if spec.gap != GAP:
        writer.add("gap", str(spec.gap))
    for state in spec.declared.values():
        writer.add("state", state.name, state.text, repr(state.default))
    for handler in spec.handlers:
        writer.add("handler", handler.name, *(e.__name__ for e in handler.events))
        if handler.after is not None or handler.every is not None:
            writer.add("times", repr(handler.after), repr(handler.every), handler.zone)
        for event in handler.events:
            writer.value("event", event)
        writer.function(handler.function)
    for base in cls.__mro__:
        if base in (object, Program):
            continue
        for name, member in sorted(base.__dict__.items()):
            if not name.startswith("__"):
                writer.value(f"member:{base.__qualname__}.{name}", member)


_PLAIN = (int, float, str, bytes, bool, tuple, frozenset, type(None))
_EXACT = (int, float, complex, str, bytes, bool, type(None), type(...), range, slice)
_KNOWN = frozenset({
    "abc", "builtins", "bisect", "collections", "collections.abc", "contextlib", "dataclasses", "datetime", "decimal", "enum",
    "fractions", "functools", "itertools", "math", "operator", "re", "string", "struct", "typing",
    "unicodedata", "_operator", "_functools", "_bisect", "_struct", "zlib", "hashlib", "base64", "ipaddress",
    "heapq", "_heapq", "textwrap", "statistics", "numbers", "__future__", "types",
})  # fmt: skip
"""Modules of Python whose functions depend on their arguments alone (and on Python's version)."""
_REPR = (re.Pattern, datetime.date, datetime.time, datetime.timedelta, datetime.timezone, decimal.Decimal,
         fractions.Fraction)  # fmt: skip
"""Objects whose repr says everything."""


class Unsure(Exception):
    """Something that a strict writer cannot hash completely: what it is."""


class Writer:
    """Hashes code and what it reaches. `names` collects every name that the code uses."""

    def __init__(self, *, strict: bool = False, mro: tuple[type, ...] = ()) -> None:
        self._hash = hashlib.sha256()
        self._seen: dict[int, int] = {}
        self._keep: list[Any] = []
        self._open: set[int] = set()
        self._strict = strict
        self._mro = mro
        self.names: dict[str, None] = {}

    def digest(self) -> str:
        return self._hash.hexdigest()

    @property
    def met(self) -> list[Any]:
        """The functions, classes and users' objects that it went through."""
        return self._keep

    def _met(self, value: Any) -> bool:
        """Whether it was hashed before; then which one it was is hashed."""
        number = self._seen.get(id(value))
        if number is not None:
            self.add("seen", str(number))
            return True
        self._seen[id(value)] = len(self._seen)
        self._keep.append(value)  # an id must not be given to something else meanwhile
        return False

    def _by_name(self, module: str | None, what: str) -> None:
        """Something of a library is taken by its name."""
        if self._strict and module not in _KNOWN and (module or "").partition(".")[0] != "timelapse":
            raise Unsure(f"{what} of {module}" if module else what)

    def add(self, *parts: str) -> None:
        self._hash.update(_framed(parts))

    def value(self, name: str, value: Any) -> None:
        if isinstance(value, property):
            value = value.fget
        elif isinstance(value, staticmethod | classmethod):
            value = value.__func__
        if self._strict and self._exactly(name, value):
            return
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
            self.add(name, type(value).__qualname__, *sorted(map(self._digest_of, value)))
        elif isinstance(value, functools.partial):
            self.add(name, "partial")
            self.value("part", (value.func, value.args, value.keywords))
        elif isinstance(value, types.MethodType):
            self.add(name, "method")
            self.value("part", (value.__func__, value.__self__))
        elif isinstance(inner := wrapped(value), types.FunctionType):
            self.add(name, "wrapped")
            self.value("part", inner)
        elif not _is_library(type(value).__module__) and hasattr(value, "__dict__"):
            self._object(name, value)
        else:
            self.add(name, type(value).__qualname__, _text(value))

    def _exactly(self, name: str, value: Any) -> bool:
        """Strictly: hash what needs care here, and refuse what the rest would only take by name."""
        kind = type(value)
        if isinstance(value, types.ModuleType):
            if _is_library(value.__name__):
                self._by_name(value.__name__, "the module")
            elif hasattr(value, "__getattr__"):
                raise Unsure(f"the module {value.__name__}, which makes up attributes")
        elif isinstance(value, Resource):
            raise Unsure("a resource")
        elif kind is StateOptions:
            self.add(name, "options")
            for option in fields(value):
                said = getattr(value, option.name)
                self.value(option.name, None if said is ABSENT else (said,))
            return True
        elif isinstance(value, _REPR):
            if not isinstance(value, re.Pattern) and _is_library(kind.__module__) is False:
                raise Unsure(f"an object of {kind.__qualname__}")
            flags = str(value.flags) if isinstance(value, re.Pattern) else ""
            pattern = value.pattern if isinstance(value, re.Pattern) else value
            self.add(name, kind.__qualname__, repr(pattern), flags)
            return True
        elif isinstance(value, dict | list | set | frozenset) or (
            isinstance(value, tuple) and not hasattr(kind, "_fields")
        ):
            if kind not in (dict, list, set, frozenset, tuple):
                raise Unsure(f"an object of {kind.__qualname__}")
        elif isinstance(value, tuple):
            self._class(name, kind)
        elif isinstance(value, types.FunctionType):
            if _is_library(value.__module__):
                self._by_name(value.__module__, f"the function {value.__qualname__}")
        elif isinstance(value, types.BuiltinFunctionType):
            owner = value.__self__
            if isinstance(owner, types.ModuleType):
                self._by_name(owner.__name__, f"the function {value.__qualname__}")
            else:  # a method of an object, such as a compiled pattern's
                self.add(name, "bound", value.__name__)
                self.value("owner", owner)
                return True
        elif not isinstance(value, (*_EXACT, type, functools.partial, types.MethodType)):
            wrapped = getattr(value, "__wrapped__", None)
            if isinstance(wrapped, types.FunctionType):
                if kind is not functools._lru_cache_wrapper:
                    raise Unsure(f"the decorated function {wrapped.__qualname__}")
            elif _is_library(kind.__module__) or not hasattr(value, "__dict__"):
                raise Unsure(f"an object of {kind.__module__}.{kind.__qualname__}")
        elif isinstance(value, _EXACT) and kind not in _EXACT:
            self._class(name, kind)  # an IntEnum, say
        return False

    def _digest_of(self, value: Any) -> str:
        """The digest of one value, for sets: their order differs from process to process."""
        writer = Writer(strict=self._strict, mro=self._mro)
        writer.value("", value)
        self.names.update(writer.names)
        self._keep += writer._keep
        return writer.digest()

    def _object(self, name: str, value: Any) -> None:
        """An object of a user's class: its class and its attributes."""
        self._class(name, type(value))
        if self._met(value):
            return
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
            self._by_name(cls.__module__, f"the class {cls.__qualname__}")
            self.add(name, "class", cls.__module__, cls.__qualname__)
            return
        self.add(name, "class", cls.__qualname__)
        if self._met(cls):
            return
        if issubclass(cls, Event | Record):
            for f in cls.__fields__:
                self.add(f.name, f.type.text)
        if issubclass(cls, Program):
            if self._strict and cls not in self._mro:
                raise Unsure(f"the program {cls.__qualname__}")
            return
        if self._strict:
            self._complete(cls)
        for base in cls.__bases__:
            self._class("base", base)
        for key, member in sorted(cls.__dict__.items()):
            is_code = isinstance(member, types.FunctionType | property | staticmethod | classmethod)
            if is_code or (not key.startswith("__") and isinstance(member, _PLAIN)):
                self.value(f"member:{key}", member)

    def _complete(self, cls: type) -> None:
        """Strictly: refuse a class of which members would be left out."""
        if not isinstance(cls, enum.EnumMeta) and (
            type(cls).__getattribute__ is not type.__getattribute__ or hasattr(type(cls), "__getattr__")
        ):
            raise Unsure(f"the class {cls.__qualname__}, which makes up attributes")
        if cls.__dict__.get("__slots__", ()):
            raise Unsure(f"the class {cls.__qualname__}, which has slots")
        for key, member in cls.__dict__.items():
            if key.startswith("__") or isinstance(member, (*_PLAIN, types.FunctionType, property)):
                continue
            if isinstance(member, staticmethod | classmethod) or type(member).__name__ == "_tuplegetter":
                continue
            if key == "_abc_impl" or (issubclass(cls, enum.Enum) and key.startswith("_")):
                continue  # what the library keeps for itself
            self.value(f"member:{key}", member)

    def function(self, function: types.FunctionType) -> None:
        """A user's function: its code, its defaults, what its names mean."""
        if self._met(function):
            return
        if self._strict and function.__dict__.get("__wrapped__") is not None:
            self.value("wrapped", function.__wrapped__)  # type: ignore[attr-defined]
        self._hash.update(_code(function.__code__))
        for default in (function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items():
            self.value("default", default)
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:
                continue
            if not (isinstance(content, type) and issubclass(content, Program)):  # super()'s class
                self.value("cell", content)
            elif self._strict and content not in self._mro:
                raise Unsure(f"the program {content.__qualname__}")
        names = _names(function.__code__)
        self.names.update(dict.fromkeys(names))
        for name in _not_attributes(function.__code__):
            if name in function.__globals__:
                found = function.__globals__[name]
                self.value(f"global:{name}", found)
                if isinstance(found, types.ModuleType):
                    self._module(found, names)


def _framed(parts: Iterable[str]) -> bytes:
    """Texts one after the other, such that no others give the same bytes."""
    found: list[bytes] = []
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        found += (len(data).to_bytes(8, "little"), data)
    return b"".join(found)


class _Written:
    """In place of a hash: keeps what is hashed."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.update = self.parts.append


_CODES: dict[int, tuple[weakref.ref[types.CodeType], bytes]] = {}
"""What is hashed of code, by where that is: it never changes, and holds nothing but constants."""


def _code(code: types.CodeType) -> bytes:
    known = _CODES.get(id(code))
    if known is not None and known[0]() is code:
        return known[1]
    writer, written = Writer(), _Written()
    writer._hash = written  # type: ignore[assignment]
    writer.add(code.co_name, code.co_code.hex(), code.co_exceptiontable.hex(), str(code.co_flags))
    writer.add(str(code.co_argcount), str(code.co_posonlyargcount), str(code.co_kwonlyargcount))
    for names in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars):
        writer.add(str(len(names)), *names)
    writer.add(str(len(code.co_consts)))
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            written.update(_code(const))
        else:
            writer.value("const", const)
    place, found = id(code), b"".join(written.parts)
    _CODES[place] = weakref.ref(code, lambda _: _CODES.pop(place, None)), found
    return found


@lru_cache(maxsize=1024)
def _is_library(module: str | None) -> bool:
    """Whether a module is installed (or built in): taken by name, not looked into."""
    if module is None or module == "__main__":
        return False
    if module.partition(".")[0] == "timelapse":
        return True  # of a class that is made of a log's types, no module is there
    file = getattr(sys.modules.get(module), "__file__", None)
    if not isinstance(file, str):
        return module in sys.builtin_module_names
    roots = {*sysconfig.get_paths().values(), *site.getsitepackages(), str(Path(__file__).parents[1])}
    return any(Path(file).resolve().is_relative_to(Path(root).resolve()) for root in roots)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Code, and all code that is made in it."""
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _codes(const)


def _names(code: types.CodeType) -> list[str]:
    return [name for one in _codes(code) for name in one.co_names]


_OF_OBJECTS = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "STORE_ATTR", "DELETE_ATTR")


@lru_cache(maxsize=4096)
def _not_attributes(code: types.CodeType) -> tuple[str, ...]:
    """The names that code uses otherwise than as attributes, which are no globals: the file's `n` is not the `n` of `self.n`."""
    used = {
        step.argval
        for one in _codes(code)
        for step in dis.get_instructions(one)
        if step.opcode in dis.hasname and step.opname not in _OF_OBJECTS
    }
    return tuple(name for name in _names(code) if name in used)


def _text(value: Any) -> str:
    if callable(value):  # a library's function or object: its name, never its address
        return (
            f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
        )
    text = repr(value)
    return f"{type(value).__module__}.{type(value).__qualname__}" if " at 0x" in text else text
