"""Values that events share without their being a state: mutable globals, closures, defaults; and who changes them."""

from __future__ import annotations

import ast
import linecache
import types
from collections import deque
from collections.abc import Iterator, MutableMapping, MutableSequence, MutableSet
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from timelapse.analysis.purity.names import Reference
from timelapse.code.source import all_nodes
from timelapse.program.load import user_modules

if TYPE_CHECKING:
    from timelapse.analysis.purity.walk import Scope

_BUILTIN = types.BuiltinFunctionType

_MUTATORS = frozenset(
    (
        "append", "appendleft", "extend", "extendleft", "insert", "remove", "pop", "popleft", "popitem", "clear",
        "update", "setdefault", "add", "discard", "sort", "reverse", "rotate", "fill", "put", "resize", "itemset",
        "intersection_update", "difference_update", "symmetric_difference_update", "subtract", "push",
    )
)  # fmt: skip


@dataclass(frozen=True)
class SharedState:
    """A use of something mutable that outlives an event."""

    line: int | None
    message: str
    remedy: str
    written: bool

    @classmethod
    def at(cls, node: ast.AST, scope: Scope) -> Iterator[SharedState]:
        """The uses at one node of a function."""
        if node is scope.node:
            yield from _defaults(scope)
        if not isinstance(node, ast.Name) or scope.is_local(node, node.id):
            return
        target, found = _past_modules(node, scope)
        if found is None or not found.has_value or isinstance(found.value, _BUILTIN):
            return
        free = node.id in scope.unit.function.__code__.co_freevars
        own = change_through(target, scope.parents)
        if own is not None and own.endswith("()") and isinstance(found.value, type):
            own = None  # a class's method, which is looked at by itself
        other = None if free or target is not node else _module_changes(scope).get(node.id)
        where = "the enclosing function" if free else "the module"
        name = ast.unparse(target)
        if own is not None:
            yield cls(
                node.lineno, f"changes {own}, which belongs to {where}: the change does not reach other slices",
                f"Declare {name} as a state of the program.", True,
            )  # fmt: skip
        elif other is not None and not isinstance(found.value, types.ModuleType | types.FunctionType | type):
            changer, line = other
            yield cls(
                node.lineno, f"reads {name}, which {changer} changes (line {line}): slices may see different values",
                f"Declare {name} as a state, or pass its value as a parameter.", True,
            )  # fmt: skip
        elif is_mutable(found.value) and not found.name.startswith(("sys.", "os.")):
            doubt = _doubt(found.value, target, scope)
            if doubt is None and not free:
                return
            yield cls(
                node.lineno, f"reads {name}, a mutable {type(found.value).__name__} of {where}{doubt or ''}",
                f"Make it {_frozen_form(found.value)}, or a parameter.", False,
            )  # fmt: skip


def is_mutable(value: Any) -> bool:
    """Whether a value is a container that can be changed in place."""
    if isinstance(value, MutableSequence | MutableMapping | MutableSet | bytearray | deque):
        return True
    return (
        type(value).__module__ == "numpy"
        and type(value).__name__ == "ndarray"
        and bool(value.flags.writeable)
    )


def _frozen_form(value: Any) -> str:
    if isinstance(value, MutableMapping):
        return "a types.MappingProxyType"
    if isinstance(value, MutableSet):
        return "a frozenset"
    return "bytes" if isinstance(value, bytearray) else "a tuple"


def _defaults(scope: Scope) -> Iterator[SharedState]:
    """Mutable default arguments: one object for all calls."""
    function = scope.unit.function
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    given = function.__defaults__ or ()
    pairs = [
        *zip(names[len(names) - len(given) :], given, strict=True),
        *(function.__kwdefaults__ or {}).items(),
    ]
    for name, value in pairs:
        if not is_mutable(value):
            continue
        uses = [n for n in scope.parents if isinstance(n, ast.Name) and n.id == name]
        changed = next((n for n in uses if change_through(n, scope.parents) is not None), None)
        verb = "changes" if changed is not None else "has"
        yield SharedState(
            (changed or scope.node).lineno, f"{verb} the default of {name}, a {type(value).__name__} that all calls share",
            f"Use None or {_frozen_form(value)} as the default.", changed is not None,
        )  # fmt: skip


def _past_modules(node: ast.Name, scope: Scope) -> tuple[ast.expr, Reference | None]:
    """The first thing that is not a module in a chain like `settings.CACHE`, and what it is."""
    target: ast.expr = node
    found = scope.resolve(node)
    while found is not None and isinstance(found.value, types.ModuleType):
        parent = scope.parents.get(target)
        if not isinstance(parent, ast.Attribute) or not isinstance(parent.ctx, ast.Load):
            break
        target, found = parent, scope.resolve(parent)
    return target, found


def change_through(node: ast.expr, parents: dict[ast.AST, ast.AST]) -> str | None:
    """What is changed in place through an expression: `cache[...]`, `cache.append()`, `config.limit`; or None."""
    at = node
    text = ast.unparse(node)
    while True:
        parent = parents.get(at)
        if isinstance(parent, ast.Subscript) and parent.value is at:
            text += "[...]"
        elif isinstance(parent, ast.Attribute):
            call = parents.get(parent)
            if isinstance(call, ast.Call) and call.func is parent:
                return f"{text}.{parent.attr}()" if parent.attr in _MUTATORS else None
            text += f".{parent.attr}"
        else:
            return None
        if isinstance(parent.ctx, ast.Store | ast.Del):
            return text
        at = parent


_READERS = frozenset(("get", "items", "keys", "values", "index", "count", "copy"))
_TAKERS = frozenset((
    "len", "sorted", "min", "max", "sum", "any", "all", "tuple", "frozenset", "set", "list", "dict", "bool", "enumerate",
))  # fmt: skip


def _doubt(value: Any, target: ast.expr, scope: Scope) -> str | None:
    """Why it cannot be shown that nothing changes a module's container; None where it is shown.

    It is, where its items are immutable, one loaded module of the user's holds it, and every function there only reads it.
    """
    items = list(value.values()) if isinstance(value, MutableMapping) else list(value)[:10_000]
    if any(
        not isinstance(i, int | float | str | bytes | bool | type(None) | frozenset) and not _frozen(i)
        for i in items
    ):
        return ": what is in it can be changed"
    names = {n for n, v in scope.unit.function.__globals__.items() if v is value}
    if not isinstance(target, ast.Name) or names != {target.id}:
        return ": it is known under more than one name"
    own = scope.unit.function.__globals__.get("__name__")
    for module in user_modules():
        if module.__name__ != own and any(v is value for v in list(vars(module).values())):
            return f": module {module.__name__} has it too"
    lines = linecache.getlines(scope.file, scope.unit.function.__globals__)
    line = _handed_on("".join(lines), target.id)
    return None if line is None else f": line {line} may hand it on to what changes it"


def _frozen(item: Any) -> bool:
    return isinstance(item, tuple) and all(
        isinstance(i, int | float | str | bytes | bool | type(None)) for i in item
    )


@lru_cache(maxsize=256)
def _handed_on(text: str, name: str) -> int | None:
    """The first line in a function of a module that does more with a name than read from what it stands for."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return 0
    parents = {child: n for n in all_nodes(tree) for child in ast.iter_child_nodes(n)}
    functions = (
        n for n in all_nodes(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    )
    for node in (n for f in functions for n in all_nodes(f)):
        if isinstance(node, ast.Name) and node.id == name and not _reads(node, parents):
            return node.lineno
    return None


def _reads(node: ast.Name, parents: dict[ast.AST, ast.AST]) -> bool:
    parent = parents[node]
    match parent:
        case ast.Subscript(value=value, ctx=ast.Load()):
            return value is node
        case ast.Attribute(attr=name, ctx=ast.Load()):
            call = parents.get(parent)
            return name in _READERS and isinstance(call, ast.Call) and call.func is parent
        case ast.Call(func=ast.Name(id=called)):
            return called in _TAKERS and parent.func is not node
        case ast.Compare() | ast.If() | ast.IfExp() | ast.BoolOp():
            return not isinstance(parent, ast.BoolOp)
        case ast.For(iter=it) | ast.comprehension(iter=it):
            return it is node
    return False


# --- changes by anybody in a module ---------------------------------------------------------------


def _module_changes(scope: Scope) -> dict[str, tuple[str, int]]:
    lines = linecache.getlines(scope.file, scope.unit.function.__globals__)
    return _changes_in("".join(lines)) if lines else {}


@lru_cache(maxsize=64)
def _changes_in(text: str) -> dict[str, tuple[str, int]]:
    """Module-level names that a function of the module rebinds or changes in place: (function, line)."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return {}
    found: dict[str, tuple[str, int]] = {}
    for function in all_nodes(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        parents: dict[ast.AST, ast.AST] = {}
        for node in all_nodes(function):
            for child in ast.iter_child_nodes(node):
                parents[child] = node
        globals_ = {n for g in all_nodes(function) if isinstance(g, ast.Global) for n in g.names}
        names = [n for n in all_nodes(function) if isinstance(n, ast.Name)]
        arguments = {a.arg for a in all_nodes(function) if isinstance(a, ast.arg)}
        stored = {n.id for n in names if isinstance(n.ctx, ast.Store | ast.Del)}
        local = (stored | arguments) - globals_
        for name in names:
            rebound = name.id in globals_ and isinstance(name.ctx, ast.Store | ast.Del)
            if name.id not in local and (rebound or change_through(name, parents) is not None):
                found.setdefault(name.id, (function.name, name.lineno))
    return found
