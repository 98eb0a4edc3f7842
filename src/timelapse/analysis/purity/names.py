"""Names for what code refers to: `dt.now`, `from random import random as r`, a module-level `rng = Random()`.

A reference has a dotted name as its users write it (`datetime.datetime.now`, `random.random`). What is reached
through an instance has `()` in it: `random.Random().random`.
"""

from __future__ import annotations

import ast
import builtins
import functools
import os
import sys
import sysconfig
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CODE_TYPES = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)
"""Nodes without a place: parts of other nodes' meaning, shared between them."""

_MISSING: Any = object()

_RENAMED = {
    "posixpath": "os.path", "ntpath": "os.path", "genericpath": "os.path", "posix": "os", "nt": "os", "_io": "io",
    "_socket": "socket", "_random": "random", "_datetime": "datetime", "_pydatetime": "datetime",
    "pandas._libs.tslibs.timestamps": "pandas", "pandas._libs.tslibs.nattype": "pandas",
}  # fmt: skip
_BUILTINS = {id(v): k for k, v in vars(builtins).items() if callable(v)}


@dataclass(frozen=True)
class Reference:
    """A dotted name and, where it could be found without running anything, the object itself."""

    name: str
    value: Any = _MISSING
    depth: int = 0
    """How many attributes away from the name in the code."""

    @property
    def has_value(self) -> bool:
        return self.value is not _MISSING

    @classmethod
    def of(cls, value: Any) -> Reference:
        while isinstance(value, functools.partial) and not isinstance(value.func, type):
            value = value.func  # it is called where the partial is
        return cls(name_of(value), value)

    @classmethod
    def named(cls, dotted: str) -> Reference:
        """A name from an import inside a function; its object if its module is loaded already."""
        module, _, attribute = dotted.rpartition(".")
        value = vars(sys.modules[module]).get(attribute, _MISSING) if module in sys.modules else _MISSING
        return cls(dotted, value) if value is _MISSING else cls.of(value)

    def attribute(self, name: str) -> Reference:
        """What `.name` of it is. Only modules and classes are looked into: their attributes are plain look-ups."""
        value: Any = _MISSING
        if isinstance(self.value, types.ModuleType):
            value = vars(self.value).get(name, _MISSING)
        elif isinstance(self.value, type):
            value = next((vars(c)[name] for c in self.value.__mro__ if name in vars(c)), _MISSING)
            value = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        dotted = f"{self.name}.{name}"
        if isinstance(value, types.ModuleType):
            dotted = name_of(value)
        return Reference(dotted, value, self.depth + 1)


def name_of(value: Any) -> str:
    """The dotted name of an object; of an instance, its type's name and `()`."""
    for name, known in (
        ("os.environ", os.environ), ("os.environb", getattr(os, "environb", None)), ("sys.argv", sys.argv),
        ("sys.stdin", sys.stdin), ("sys.stdout", sys.stdout), ("sys.stderr", sys.stderr), ("sys.path", sys.path),
    ):  # fmt: skip
        if value is known and known is not None:
            return name
    if isinstance(value, types.ModuleType):
        return _renamed(value.__name__)
    if isinstance(value, type):
        return f"{_renamed(value.__module__)}.{value.__qualname__}"
    if id(value) in _BUILTINS and getattr(builtins, _BUILTINS[id(value)]) is value:
        return f"builtins.{_BUILTINS[id(value)]}"
    if isinstance(value, types.FunctionType):
        return f"{_renamed(value.__module__ or '')}.{value.__qualname__}"
    if isinstance(value, types.BuiltinFunctionType | types.MethodType):
        owner = value.__self__
        name = value.__name__
        if owner is None or isinstance(owner, types.ModuleType):
            return f"{_renamed(value.__module__ or '')}.{name}"
        if isinstance(owner, type):  # `from datetime import datetime; now = datetime.now`
            return f"{name_of(owner)}.{name}"
        module = _renamed(type(owner).__module__)
        # The functions of `random` and `numpy.random` are methods of one hidden, shared generator.
        return f"{module}.{name}" if module in ("random", "numpy.random") else f"{name_of(owner)}.{name}"
    return f"{_renamed(type(value).__module__)}.{type(value).__qualname__}()"


def _renamed(module: str) -> str:
    if module.startswith("numpy.random"):
        return "numpy.random"
    return _RENAMED.get(module, module)


def root_of(node: ast.expr) -> ast.Name | None:
    """The name at the start of `a.b.c`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node if isinstance(node, ast.Name) else None


def resolve_chain(node: ast.expr, root: Reference) -> Reference:
    """Follow the attributes of `a.b.c` from what `a` is."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    for name in reversed(names):
        root = root.attribute(name)
    return root


_LIBRARY = tuple(
    str(Path(p).resolve())
    for k, p in sysconfig.get_paths().items()
    if k in ("stdlib", "platstdlib", "purelib", "platlib")
)


def is_installed(file: str) -> bool:
    """Whether a file belongs to Python or to an installed package."""
    return str(Path(file).resolve()).startswith(_LIBRARY)
