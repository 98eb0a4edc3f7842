"""What the names in a function stand for."""

from __future__ import annotations

import ast
import builtins
import inspect
import types
from dataclasses import dataclass
from typing import Any

UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda self: "UNKNOWN"})()
"""What a name stands for when it cannot be told."""


@dataclass(frozen=True)
class Scope:
    """The names that a function sees: its locals are opaque here, globals and free variables resolve."""

    function: types.FunctionType
    locals: frozenset[str]
    receiver: str | None = None

    @classmethod
    def of(cls, function: types.FunctionType, receiver: str | None = None) -> Scope:
        code = function.__code__
        return cls(function, frozenset({*code.co_varnames, *code.co_cellvars}), receiver)

    def name(self, name: str) -> Any:
        """The object a global, builtin or free variable stands for; UNKNOWN for locals."""
        if name in self.locals:
            return UNKNOWN
        free = self.function.__code__.co_freevars
        if name in free:
            try:
                return (self.function.__closure__ or ())[free.index(name)].cell_contents
            except ValueError:
                return UNKNOWN
        if name in self.function.__globals__:
            return self.function.__globals__[name]
        return getattr(builtins, name, UNKNOWN)

    def resolve(self, node: ast.expr) -> Any:
        """The object that a name or a dotted name stands for, through modules and classes only."""
        if isinstance(node, ast.Name):
            return self.name(node.id)
        if isinstance(node, ast.Attribute):
            owner = self.resolve(node.value)
            if isinstance(owner, types.ModuleType):
                if owner.__name__ == "timelapse":  # it imports its names when they are first used
                    return getattr(owner, node.attr, UNKNOWN)
                return owner.__dict__.get(node.attr, UNKNOWN)
            if isinstance(owner, type):
                found = inspect.getattr_static(owner, node.attr, UNKNOWN)
                return found.__func__ if isinstance(found, staticmethod) else found
        return UNKNOWN


def root_of(node: ast.expr) -> str | None:
    """The name at the bottom of `a.b[c].d`, if there is one."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
