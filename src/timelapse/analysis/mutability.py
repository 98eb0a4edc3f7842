"""Which locals may hold something that can be changed in place, and which share it.

Flow-insensitive and cautious: a local has one kind for the whole function, and locals that may hold
(parts of) one mutable object form one group. A change in place counts as a possible definition of
every local in the group.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from functools import lru_cache
from typing import Any

from timelapse.analysis.library import UNCHANGING, Library
from timelapse.analysis.tables import (
    GIVES_IMMUTABLE,
    GIVES_LIST,
    NOT_CONSUMING,
    PURE_BUILTINS,
    READING_METHODS,
    builtin_name,
    is_math,
)
from timelapse.code.scope import UNKNOWN, Scope, root_of
from timelapse.code.source import all_nodes, function_source
from timelapse.model.events import Event, Record


class Kind(IntEnum):
    """What a local may hold, from the least to the most that can go wrong."""

    IMMUTABLE = 0
    BOX = 1
    """A list, set or dict of immutable values."""
    CONTAINER = 2
    """A list, set or dict of anything."""
    ANYTHING = 3
    """For instance an iterator, which reading uses up."""


_FIXED = (
    int, float, bool, str, bytes, complex, type(None), tuple, frozenset, range, type, types.FunctionType,
    types.BuiltinFunctionType, types.ModuleType, type(Ellipsis),
)  # fmt: skip

_RAISED = "%raised"
"""Stands for the exceptions that the function raises: they may carry what they were made from."""

SelfKind = Callable[[ast.expr], "Kind | None"]
"""Tells the kind of an expression that begins with the receiver; None for other expressions."""


class Mutability:
    """Kinds and groups of one function's locals."""

    def __init__(
        self,
        scope: Scope,
        body: Iterable[ast.stmt],
        params: Mapping[str, Kind],
        self_kind: SelfKind = lambda _: None,
        library: Library | None = None,
    ) -> None:
        self.scope = scope
        self._library = library or Library(scope, body)
        self.kinds: dict[str, Kind] = dict(params)
        self._self_kind = self_kind
        self._parent: dict[str, str] = {}
        self.mutated: set[str] = set()
        nodes = [n for s in body for n in all_nodes(s)]
        self._catches = any(isinstance(n, ast.ExceptHandler) and n.name for n in nodes)
        shared = [p for p, k in params.items() if k > Kind.IMMUTABLE]
        self._union(shared)
        for _ in range(12):
            before = (dict(self.kinds), dict(self._parent), set(self.mutated))
            for node in nodes:
                self._visit(node)
            if before == (self.kinds, self._parent, self.mutated):
                break

    def group(self, names: Iterable[str]) -> set[str]:
        """All locals that may share a mutable object with one of these."""
        roots = {self._find(n) for n in names}
        return {n for n in {*self._parent, *self.kinds} if self._find(n) in roots} | set(names)

    def returns(self, body: Iterable[ast.stmt]) -> Kind:
        """The kind of what the function returns."""
        found = [
            self.kind(n.value) for s in body for n in all_nodes(s) if isinstance(n, ast.Return) and n.value
        ]
        return max(found, default=Kind.IMMUTABLE)

    # --- expressions ---------------------------------------------------------------------------

    def kind(self, node: ast.expr) -> Kind:
        """The kind of an expression's value."""
        own = self._self_kind(node)
        if own is not None:
            return own
        match node:
            case ast.Constant() | ast.JoinedStr() | ast.Compare() | ast.FormattedValue():
                return Kind.IMMUTABLE
            case ast.Name(id=name):
                if name in self.scope.locals or name in self.kinds:  # or a comprehension's variable
                    return self.kinds.get(name, Kind.IMMUTABLE)
                value = self.scope.name(name)
                return _kind_of_value(value)
            case ast.Attribute():
                value = self.scope.resolve(node)
                if value is not UNKNOWN:
                    return _kind_of_value(value)
                return Kind.IMMUTABLE if self.kind(node.value) == Kind.IMMUTABLE else Kind.ANYTHING
            case ast.Subscript():
                return self.element(node.value)
            case ast.UnaryOp(op=ast.Not()):
                return Kind.IMMUTABLE
            case ast.UnaryOp(operand=operand):
                return self.kind(operand)
            case ast.BinOp(left=left, right=right):
                return max(self.kind(left), self.kind(right))
            case ast.BoolOp(values=values):
                return max(self.kind(v) for v in values)
            case ast.IfExp(body=body, orelse=orelse):
                return max(self.kind(body), self.kind(orelse))
            case ast.NamedExpr(value=value):
                return self.kind(value)
            case ast.Starred(value=value):
                return self.element(value)
            case ast.Tuple(elts=elts):
                inner = max((self.kind(e) for e in elts), default=Kind.IMMUTABLE)
                return Kind.IMMUTABLE if inner == Kind.IMMUTABLE else Kind.ANYTHING
            case ast.List(elts=elts) | ast.Set(elts=elts):
                return _box(self.kind(e) for e in elts)
            case ast.Dict(values=values):
                return _box(self.kind(v) for v in values)
            case ast.ListComp(elt=elt) | ast.SetComp(elt=elt):
                return _box([self.kind(elt)])
            case ast.DictComp(value=value):
                return _box([self.kind(value)])
            case ast.Slice():
                return Kind.IMMUTABLE
            case ast.Call():
                return self._call_kind(node)
        return Kind.ANYTHING

    def element(self, node: ast.expr) -> Kind:
        """The kind of what iterating over (or indexing) an expression gives."""
        if isinstance(node, ast.Call):
            name = builtin_name(self.scope.resolve(node.func))
            if name in ("enumerate", "zip", "reversed", "sorted", "list", "tuple", "set", "iter"):
                return max((self.element(a) for a in node.args), default=Kind.IMMUTABLE)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return max((self.kind(e) for e in node.elts), default=Kind.IMMUTABLE)
        if isinstance(node, ast.GeneratorExp):
            return self.kind(node.elt)
        kind = self.kind(node)
        return Kind.IMMUTABLE if kind <= Kind.BOX else Kind.ANYTHING

    def _call_kind(self, node: ast.Call) -> Kind:
        target = self.scope.resolve(node.func)
        args = max((self.kind(a) for a in _arguments(node)), default=Kind.IMMUTABLE)
        name = builtin_name(target)
        if (name in GIVES_IMMUTABLE and (name != "type" or len(node.args) == 1)) or is_math(target):
            return Kind.IMMUTABLE
        if name in ("min", "max", "sum", "abs", "round", "divmod", "pow"):
            inner = max(
                (self.element(a) if len(node.args) == 1 else self.kind(a) for a in node.args), default=0
            )
            return Kind.IMMUTABLE if inner == Kind.IMMUTABLE else Kind.ANYTHING
        if name in ("tuple", "frozenset"):
            inner = max((self.element(a) for a in node.args), default=Kind.IMMUTABLE)
            return Kind.IMMUTABLE if inner == Kind.IMMUTABLE else Kind.ANYTHING
        if name in ("list", "set", "sorted", "dict"):
            named = [self.kind(k.value) for k in node.keywords] if name == "dict" else []
            return _box([*(self.element(a) for a in node.args), *named])
        if isinstance(target, type) and issubclass(target, Event | Record | tuple):
            return Kind.IMMUTABLE if args == Kind.IMMUTABLE else Kind.ANYTHING
        words = self._library.words(node)
        if words and words <= UNCHANGING:
            return Kind.IMMUTABLE
        if words == frozenset({"plains"}):
            return Kind.BOX
        if isinstance(target, types.FunctionType):
            return helper(target, args)[1]
        if isinstance(node.func, ast.Attribute) and self.scope.resolve(node.func) is UNKNOWN:
            owner = self.kind(node.func.value)
            if owner == Kind.IMMUTABLE and node.func.attr in READING_METHODS:
                return Kind.BOX if node.func.attr in GIVES_LIST else Kind.IMMUTABLE
            if owner == Kind.BOX and node.func.attr in ("get", "count", "index", "pop"):
                return args
        return Kind.ANYTHING

    def names(self, node: ast.AST) -> set[str]:
        """The locals in an expression that may hold something mutable."""
        return {
            n.id for n in all_nodes(node)
            if isinstance(n, ast.Name) and n.id != self.scope.receiver
            and self.kinds.get(n.id, Kind.IMMUTABLE) > Kind.IMMUTABLE
        }  # fmt: skip

    # --- changes in place -----------------------------------------------------------------------

    def changes(self, node: ast.AST) -> set[str]:
        """The locals that executing this one node (not what is inside it) may change in place."""
        match node:
            case ast.Call():
                return self._call_changes(node)
            case ast.For(target=target, iter=it) | ast.comprehension(target=target, iter=it):
                return self._used_up(it) | self._stored(target)
            case ast.Compare(ops=ops, comparators=right):
                inside = [c for op, c in zip(ops, right, strict=True) if isinstance(op, ast.In | ast.NotIn)]
                return {n for c in inside for n in self._used_up(c)}
            case ast.Starred(value=value):
                return self._used_up(value)
            case ast.Assign(targets=targets, value=value):
                found = {n for t in targets for n in self._stored(t)}
                return found | (
                    self._used_up(value)
                    if any(isinstance(t, ast.Tuple | ast.List) for t in targets)
                    else set()
                )
            case ast.AnnAssign(target=target):
                return self._stored(target)
            case ast.AugAssign(target=target):
                if isinstance(target, ast.Name):
                    return {target.id} if self.kinds.get(target.id, 0) > Kind.IMMUTABLE else set()
                return self._stored(target)
            case ast.Delete(targets=targets):
                return {n for t in targets for n in self._stored(t)}
            case ast.withitem(context_expr=expr, optional_vars=vars_):
                return self.names(expr) | (self._stored(vars_) if vars_ is not None else set())
        return set()

    def _stored(self, target: ast.expr) -> set[str]:
        if isinstance(target, ast.Tuple | ast.List):
            return {n for t in target.elts for n in self._stored(t)}
        if isinstance(target, ast.Starred):
            return self._stored(target.value)
        if isinstance(target, ast.Attribute | ast.Subscript):
            root = root_of(target)
            return {root} if root in self.scope.locals and root != self.scope.receiver and root else set()
        return set()

    def _used_up(self, node: ast.expr) -> set[str]:
        """The locals that iterating over an expression's value may change."""
        if isinstance(node, ast.GeneratorExp):
            return self.names(node)
        if isinstance(node, ast.Call):
            target = self.scope.resolve(node.func)
            name = builtin_name(target)
            if name in PURE_BUILTINS and name not in ("map", "filter"):
                return {n for a in node.args for n in self._used_up(a)}
            owner = node.func.value if isinstance(node.func, ast.Attribute) and target is UNKNOWN else None
            if owner is not None and node.func.attr in READING_METHODS:  # type: ignore[attr-defined]
                return self._used_up(owner)
            if isinstance(target, types.FunctionType):
                worst = max((self.kind(a) for a in _arguments(node)), default=Kind.IMMUTABLE)
                return self.names(node) if not helper(target, worst)[0] else set()
            return self.names(node)  # perhaps a generator, which goes on only now
        return {n for n in self.names(node) if self.kinds.get(n, 0) == Kind.ANYTHING}

    def _call_changes(self, node: ast.Call) -> set[str]:
        arguments = {n for a in _arguments(node) for n in self.names(a)}
        target = self.scope.resolve(node.func)
        name = builtin_name(target)
        if name in PURE_BUILTINS:
            if name in NOT_CONSUMING:
                return set()
            # A method handed over (`map(xs.append, ...)`, `key=xs.append`) may be called.
            methods = {n for a in _arguments(node) if isinstance(a, ast.Attribute) for n in self.names(a)}
            return methods | {n for n in arguments if self.kinds.get(n, 0) == Kind.ANYTHING}
        if is_math(target) or (isinstance(target, type) and issubclass(target, Event | Record | tuple)):
            return set()
        if self._library.same_again(node):
            return {n for n in arguments if self.kinds.get(n, 0) == Kind.ANYTHING}
        if isinstance(target, types.FunctionType):
            worst = max((self.kind(a) for a in _arguments(node)), default=Kind.IMMUTABLE)
            return set() if helper(target, worst)[0] else arguments
        if isinstance(node.func, ast.Attribute) and target is UNKNOWN:
            owner = self.kind(node.func.value)
            roots = self.names(node.func.value)
            if owner <= Kind.CONTAINER and node.func.attr in READING_METHODS:
                return {n for n in arguments if self.kinds.get(n, 0) == Kind.ANYTHING}
            return roots | arguments
        return arguments | self.names(node.func)

    # --- the fixed point ------------------------------------------------------------------------

    def _visit(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._bind(target, value)
            case ast.AugAssign(target=ast.Name(id=name), value=value):
                self._set(name, max(self.kind(value), self.kinds.get(name, Kind.IMMUTABLE)), value)
            case ast.NamedExpr(target=ast.Name(id=name), value=value):
                self._set(name, self.kind(value), value)
            case ast.For(target=target, iter=it) | ast.comprehension(target=target, iter=it):
                self._bind_all(target, self.element(it), it)
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                self._bind_all(target, Kind.ANYTHING, value)
            case ast.Raise() | ast.Call() if self._catches:
                self._union({_RAISED, *self.names(node)})
            case ast.ExceptHandler(name=str() as name):
                self._set(name, Kind.ANYTHING, None)
                self._union({_RAISED, name})
            case ast.Match(subject=subject):
                for inner in (n for c in node.cases for n in all_nodes(c.pattern)):
                    captured = getattr(inner, "name", None) or getattr(inner, "rest", None)
                    if isinstance(captured, str):
                        immutable = self.kind(subject) == Kind.IMMUTABLE
                        self._set(captured, Kind.BOX if immutable else Kind.ANYTHING, subject)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                self._set(name, Kind.ANYTHING, None)
                self._union({name, *self.names(node)})
            case ast.Lambda():
                pass
        changed = self.changes(node)
        if changed:
            inside = self.names(node) if isinstance(node, ast.Call) else set()
            if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value is not None:
                inside = self.names(node.value)
                stored = self.kind(node.value)
            elif isinstance(node, ast.Call):
                stored = max((self.kind(a) for a in _arguments(node)), default=Kind.IMMUTABLE)
            else:
                stored = Kind.IMMUTABLE
            if stored > Kind.IMMUTABLE:
                for name in changed:
                    if self.kinds.get(name) == Kind.BOX:
                        self.kinds[name] = Kind.CONTAINER
            self._union(changed | inside)
            self.mutated |= changed

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            self._bind_all(target, self.element(value), value)
        elif isinstance(target, ast.Name):
            self._set(target.id, self.kind(value), value)

    def _bind_all(self, target: ast.expr, kind: Kind, value: ast.expr) -> None:
        for node in all_nodes(target):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self._set(node.id, kind, value)
            if isinstance(node, ast.Starred) and isinstance(node.value, ast.Name):
                self._set(node.value.id, _box([kind]), value)

    def _set(self, name: str, kind: Kind, value: ast.expr | None) -> None:
        self.kinds[name] = max(kind, self.kinds.get(name, Kind.IMMUTABLE))
        if kind > Kind.IMMUTABLE and value is not None and not self._is_fresh(value):
            self._union({name, *self.names(value)})

    def _is_fresh(self, node: ast.expr) -> bool:
        """Whether the value is a new container that shares nothing mutable with what it is made of."""
        if self.kind(node) != Kind.BOX:
            return False
        if isinstance(node, ast.Call):
            return builtin_name(self.scope.resolve(node.func)) in ("dict", "list", "set", "sorted")
        made = ast.List | ast.Set | ast.Dict | ast.ListComp | ast.SetComp | ast.DictComp
        return isinstance(node, made) and not any(isinstance(n, ast.NamedExpr) for n in all_nodes(node))

    def _find(self, name: str) -> str:
        while self._parent.get(name, name) != name:
            name = self._parent[name]
        return name

    def _union(self, names: Iterable[str]) -> None:
        roots = sorted({self._find(n) for n in names})
        for root in roots:
            self._parent[root] = roots[0]


def _box(kinds: Iterable[Kind]) -> Kind:
    return Kind.BOX if max(kinds, default=Kind.IMMUTABLE) == Kind.IMMUTABLE else Kind.CONTAINER


def _arguments(node: ast.Call) -> list[ast.expr]:
    return [*node.args, *(k.value for k in node.keywords)]


def _kind_of_value(value: Any) -> Kind:
    if isinstance(value, _FIXED) or value is UNKNOWN:
        return Kind.IMMUTABLE
    return Kind.ANYTHING


_IN_PROGRESS: set[types.CodeType] = set()


@lru_cache(maxsize=1024)
def helper(function: types.FunctionType, arguments: Kind) -> tuple[bool, Kind]:
    """Of a plain function called with arguments of this kind: whether it leaves them alone, and the
    kind of its result. (False, ANYTHING) where its source cannot tell."""
    code = function.__code__
    if code in _IN_PROGRESS:
        return False, Kind.ANYTHING
    source = function_source(function, lambdas=True)
    generator = code.co_flags & 0x220  # a generator or an async function
    if source.node is None or generator or not isinstance(source.node, ast.FunctionDef):
        return False, Kind.ANYTHING
    _IN_PROGRESS.add(code)
    try:
        a = source.node.args
        params = {p.arg: arguments for p in (*a.posonlyargs, *a.args, *a.kwonlyargs)}
        for extra in (a.vararg, a.kwarg):
            if extra is not None:
                params[extra.arg] = _box([arguments])
        found = Mutability(Scope.of(function), source.node.body, params)
        quiet = not found.group(found.mutated) & set(params) if found.mutated else True
        return quiet, found.returns(source.node.body)
    finally:
        _IN_PROGRESS.discard(code)
