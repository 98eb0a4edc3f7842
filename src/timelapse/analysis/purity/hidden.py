"""State that a name does not show: a closure's own variable, an iterator, an object that its methods change."""

from __future__ import annotations

import ast
import contextvars
import types
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from timelapse.analysis.purity.names import is_installed, name_of
from timelapse.analysis.purity.shared import change_through
from timelapse.analysis.result import Severity
from timelapse.code.source import all_nodes, function_source

if TYPE_CHECKING:
    from timelapse.analysis.purity.rules import Finding
    from timelapse.analysis.purity.walk import Scope


class OuterVariables:
    """TL106: `global` and `nonlocal` in what handlers call, where the variable outlives the call."""

    code: ClassVar[str] = "TL106"

    def check(self, node: ast.AST, scope: Scope) -> Iterator[Finding]:
        from timelapse.analysis.purity.rules import Finding

        if not isinstance(node, ast.Global | ast.Nonlocal):
            return
        word = "global" if isinstance(node, ast.Global) else "nonlocal"
        captured = scope.unit.function.__code__.co_freevars
        for name in node.names:
            if word == "global" or name in captured:  # else it is a variable of this call
                yield Finding(
                    self.code, Severity.ERROR, node.lineno,
                    f"`{word} {name}` is state that Timelapse does not see", f"Declare {name} as a state of the program.",
                )  # fmt: skip


class CatchesReject:
    """TL106: an `except` in a helper that catches what `reject` raises."""

    code: ClassVar[str] = "TL106"

    def check(self, node: ast.AST, scope: Scope) -> Iterator[Finding]:
        from timelapse.analysis.purity.rules import Finding

        if scope.unit.receiver is None or not isinstance(node, ast.ExceptHandler):
            return
        caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        if all(c is not None and not (isinstance(c, ast.Name) and c.id == "BaseException") for c in caught):
            return
        yield Finding(
            self.code, Severity.ERROR, node.lineno, f"this catches {scope.unit.receiver}.reject too",
            "Catch Exception or something narrower.",
        )  # fmt: skip


class MovingObjects:
    """TL117: iterators, context variables, and objects whose methods change them, that outlive an event."""

    code: ClassVar[str] = "TL117"

    def check(self, node: ast.AST, scope: Scope) -> Iterator[Finding]:
        from timelapse.analysis.purity.rules import Finding

        if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
            return
        found = scope.resolve(node)
        if found is None or not found.has_value:
            return
        why = _moves(found.value, _used_as(node, scope.parents))
        if why is not None:
            text = ast.unparse(node)
            yield Finding(
                self.code, Severity.ERROR, node.lineno,
                f"uses {text}, {why}: the change does not reach other slices",
                f"Declare what {text} holds as a state of the program, or derive it from the event (e.seq counts events).",
            )  # fmt: skip


def _used_as(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> str | None:
    """The method by which an object is used at a node: `f` of `x.f(...)`, `__call__` of `x(...)`, `__next__` of `next(x)`,
    `__getitem__` of `x[...]`.
    """
    parent = parents.get(node)
    if isinstance(parent, ast.Subscript) and parent.value is node:
        return "__getitem__" if isinstance(parent.ctx, ast.Load) else None
    if isinstance(parent, ast.Attribute) and isinstance(parent.ctx, ast.Load):
        call = parents.get(parent)
        return parent.attr if isinstance(call, ast.Call) and call.func is parent else None
    if isinstance(parent, ast.Call):
        if parent.func is node:
            return "__call__"
        return "__next__" if isinstance(parent.func, ast.Name) and parent.func.id == "next" else None
    if isinstance(parent, ast.For | ast.comprehension) and parent.iter is node:
        return "__iter__"
    return None


def _moves(value: Any, method: str | None) -> str | None:
    """Why using an object changes it, as far as can be seen."""
    kind = type(value)
    if isinstance(value, contextvars.ContextVar):
        return "a context variable"
    if kind.__module__ in ("builtins", "itertools") and hasattr(kind, "__next__"):
        what = name_of(value).removesuffix("()").removeprefix("builtins.")
        return f"an iterator ({what}) that every use moves on"
    if isinstance(value, types.MethodType):
        line = _changes_itself(type(value.__self__), value.__func__.__name__, set())
    elif method == "__getitem__" and isinstance(value, defaultdict) and value.default_factory is not None:
        return "a defaultdict, to which each missing key that is read is added"
    elif method == "__getitem__" and isinstance(value, dict):
        line = _changes_itself(kind, method, set()) or _changes_itself(kind, "__missing__", set())
    elif method is not None and not isinstance(value, type | types.ModuleType | types.FunctionType):
        line = _changes_itself(kind, method, set())
    else:
        return None
    return None if line is None else f"an object that this changes (line {line})"


def _changes_itself(kind: type, method: str, seen: set[str]) -> int | None:
    """The line at which a method, or one of the same object that it calls, changes the object."""
    member = next((vars(c)[method] for c in kind.__mro__ if method in vars(c)), None)
    if (
        method in seen
        or not isinstance(member, types.FunctionType)
        or is_installed(member.__code__.co_filename)
    ):
        return None
    seen.add(method)
    node = function_source(member).node
    if node is None or not node.args.args:
        return None
    receiver = node.args.args[0].arg
    parents = {child: n for n in all_nodes(node) for child in ast.iter_child_nodes(n)}
    for at in parents:
        if not (isinstance(at, ast.Name) and at.id == receiver):
            continue
        if change_through(at, parents) is not None:
            called = _used_as(at, parents)
            if called is None or called not in dir(kind):
                return at.lineno
        called = _used_as(at, parents)
        if called is not None and (line := _changes_itself(kind, called, seen)) is not None:
            return line
        held = parents.get(at)
        if isinstance(held, ast.Attribute) and _used_as(held, parents) == "__next__":
            return at.lineno
    return None
