"""Handlers rewritten so that they tell what they evaluate, and do the same.

Every expression `e` that is of interest becomes `_tl.value(n, e)`, which returns what it is given: order of
evaluation, short circuits and results stay. Each part of a condition becomes `_tl.test(n, e)`, which returns
`bool(e)`: the one conversion that the condition would have made. A call of `_tl.at(n)` stands before each statement.
`_tl` is a variable of the function's closure, under a name that the function does not use.

Nested functions, lambdas, classes and patterns are left as they are. A function whose source is not to be had runs as
it is; then only what it reads and writes is told.
"""

from __future__ import annotations

import ast
import copy
import types
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from timelapse.analysis.views import is_view, viewed
from timelapse.code.functions import compiled_within, remade
from timelapse.code.source import function_source
from timelapse.depth import roomy
from timelapse.kept import Kept

_LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)


@dataclass
class Site:
    """A place in a function: an expression, a condition or a statement.

    `state`: the state that the expression itself uses. `assigns`: the local variable that takes its value.
    `children`: sites of its parts. `then` and `other`: what the ways of a branch do, see `Way`.
    """

    index: int
    node: ast.AST
    function: str
    line: int
    state: str | None = None
    method: str | None = None
    view: str | None = None
    """`last` or `ago`, where the expression uses that view of the state."""
    assigns: str | None = None
    children: list[int] = field(default_factory=list)
    then: Way | None = None
    other: Way | None = None
    text: str | None = None
    """The expression as it stands in the program, once somebody has asked."""


@dataclass(frozen=True)
class Way:
    """What one way of a branch leads to: whether there is an `emit` on it, whether it leaves before one that follows."""

    emits: bool
    leaves: bool


class Sites:
    """All places that functions were rewritten at.

    `objects` are the names of states that handlers see as objects (`self.sent[k]`), `plain` of those that they see as
    values (`self.total`), `emitting` of methods that emit, `viewed` of states that handlers look back on.
    """

    def __init__(
        self, objects: Iterable[str], plain: Iterable[str], emitting: Iterable[str], viewed: Iterable[str] = ()
    ) -> None:  # fmt: skip
        self.objects, self.plain, self.viewed = frozenset(objects), frozenset(plain), frozenset(viewed)
        self.emitting = frozenset({"emit", *emitting})
        self.all: list[Site] = []

    def add(self, node: ast.AST, function: str, parent: Site | None) -> Site:
        site = Site(len(self.all), node, function, getattr(node, "lineno", 0))
        self.all.append(site)
        if parent is not None:
            parent.children.append(site.index)
        return site


def instrumented(
    function: types.FunctionType, sites: Sites, told: Any, *, method: bool = True
) -> types.FunctionType:
    """The function, telling `told` (a `Recorder`) what it evaluates; itself where its source is not to be had.

    `method`: its first argument is the program.
    """
    source = function_source(function)
    if source.node is None or isinstance(source.node, ast.AsyncFunctionDef):
        return function
    used = {n.id for n in ast.walk(source.node) if isinstance(n, ast.Name)}
    used |= {a.arg for a in ast.walk(source.node) if isinstance(a, ast.arg)}
    name = "_tl"
    while name in used:
        name += "_"
    known, tree = len(sites.all), source.node
    key = (
        id(function.__code__), function.__qualname__, method, known,
        sites.objects, sites.plain, sites.emitting, sites.viewed,
    )  # fmt: skip

    @roomy
    def rewritten() -> _Rewritten:
        del sites.all[known:]
        code = _compiled(function, _Rewriter(tree, sites, name, method=method).function(), name)
        return function.__code__, code, tuple(sites.all[known:])

    _, code, sites.all[known:] = _REWRITTEN.get(key, rewritten)
    return remade(function, code, {name: types.CellType(told)})


_Rewritten = tuple[types.CodeType, types.CodeType, tuple[Site, ...]]
_REWRITTEN: Kept[Any, _Rewritten] = Kept(256)
"""How functions were rewritten, by their code (which is held, so that no other gets its id) and all that goes in besides."""


def _compiled(function: types.FunctionType, node: ast.FunctionDef, name: str) -> types.CodeType:
    """The code of the rewritten function, with the variable `name` in its closure: same file, lines, and names of private attributes."""
    free = [n for n in function.__code__.co_freevars if n != "__class__"]
    parts = function.__qualname__.split(".")
    owner = parts[-2] if len(parts) > 1 and parts[-2] != "<locals>" else None
    return compiled_within(node, [*free, name], function, owner=owner)


class _Rewriter:
    """Rewrites one function."""

    def __init__(self, node: ast.FunctionDef, sites: Sites, name: str, *, method: bool) -> None:
        self._node, self._sites, self._name = node, sites, name
        args = [*node.args.posonlyargs, *node.args.args]
        self._receiver = args[0].arg if args and method else ""
        self._emits = sorted((n.lineno, n.col_offset) for n in ast.walk(node) if self._emit(n))

    def function(self) -> ast.FunctionDef:
        a = self._node.args
        bare = ast.arguments(
            [ast.arg(x.arg) for x in a.posonlyargs], [ast.arg(x.arg) for x in a.args],
            None if a.vararg is None else ast.arg(a.vararg.arg), [ast.arg(x.arg) for x in a.kwonlyargs],
            [None for _ in a.kwonlyargs], None if a.kwarg is None else ast.arg(a.kwarg.arg), [],
        )  # fmt: skip
        made = ast.FunctionDef(self._node.name, bare, self._block(self._node.body), [])
        return ast.copy_location(made, self._node)

    # --- statements -------------------------------------------------------------------------------

    def _block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for statement in body:
            site = self._sites.add(statement, self._node.name, None)
            call = ast.Expr(self._call("at", site))
            if not isinstance(statement, ast.Nonlocal | ast.Global):
                made.append(ast.copy_location(call, statement))
            made.append(self._statement(statement))
        return made

    def _statement(self, node: ast.stmt) -> ast.stmt:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return copy.deepcopy(node)
        made = copy.copy(node)
        match made:
            case ast.If() | ast.While():
                made.test = self._branch(
                    made.test, self._way(made.body, made.end_lineno), self._way(made.orelse, made.end_lineno)
                )
                made.body, made.orelse = self._block(made.body), self._block(made.orelse)
            case ast.For():
                made.iter = made.iter if self._is_object(made.iter) else self._value(made.iter, None)
                made.body, made.orelse = self._block(made.body), self._block(made.orelse)
            case ast.Assert():
                made.test = self._branch(made.test, Way(False, False), Way(False, True))
                made.msg = None if made.msg is None else self._value(made.msg, None)
            case ast.With():
                made.items = [
                    ast.withitem(self._value(i.context_expr, None), copy.deepcopy(i.optional_vars)) for i in made.items
                ]  # fmt: skip
                made.body = self._block(made.body)
            case ast.Try():
                made.body, made.orelse = self._block(made.body), self._block(made.orelse)
                made.finalbody = self._block(made.finalbody)
                made.handlers = [
                    ast.copy_location(ast.ExceptHandler(copy.deepcopy(h.type), h.name, self._block(h.body)), h)
                    for h in made.handlers
                ]  # fmt: skip
            case ast.Match():
                made.subject = self._value(made.subject, None)
                made.cases = [self._case(c) for c in made.cases]
            case ast.Assign():
                made.targets = copy.deepcopy(made.targets)
                target = made.targets[0]
                name = target.id if len(made.targets) == 1 and isinstance(target, ast.Name) else None
                made.value = self._value(made.value, None, name)
            case ast.AugAssign():
                made.target, made.value = copy.deepcopy(made.target), self._value(made.value, None)
            case ast.AnnAssign() | ast.Return():
                made.value = None if made.value is None else self._value(made.value, None)
            case ast.Expr():
                made.value = self._value(made.value, None)
            case ast.Raise():
                made.exc = None if made.exc is None else self._value(made.exc, None)
                made.cause = None if made.cause is None else self._value(made.cause, None)
            case _:
                return copy.deepcopy(node)
        return made

    def _case(self, case: ast.match_case) -> ast.match_case:
        guard = None
        if case.guard is not None:
            guard = self._branch(case.guard, self._way(case.body, None), Way(False, False))
        return ast.match_case(copy.deepcopy(case.pattern), guard, self._block(case.body))

    def _emit(self, node: ast.AST) -> TypeGuard[ast.Call]:
        return (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in self._sites.emitting
        )  # fmt: skip

    def _way(self, body: Sequence[ast.stmt], end: int | None) -> Way:
        emits = False
        if body:  # by place: the rest of a long `elif` chain is not walked at each of its branches
            last = body[-1]
            first = bisect_left(self._emits, (body[0].lineno, body[0].col_offset))
            emits = first < bisect_left(self._emits, (last.end_lineno or 0, last.end_col_offset or 0))
        leaves = any(isinstance(s, _LEAVING) or _rejects(s) for s in body)
        return Way(emits, leaves and bool(self._emits) and self._emits[-1][0] > (end or 0))

    # --- conditions -------------------------------------------------------------------------------

    def _branch(self, node: ast.expr, then: Way, other: Way) -> ast.expr:
        site = self._sites.add(node, self._node.name, None)
        site.then, site.other = then, other
        return self._call("branch", site, self._test(node, site))

    def _test(self, node: ast.expr, parent: Site) -> ast.expr:
        """A condition, each of whose parts is told when it has been evaluated."""
        site = self._sites.add(node, self._node.name, parent)
        if isinstance(node, ast.BoolOp):
            parts = [self._test(value, site) for value in node.values]
            return self._call("both", site, ast.copy_location(ast.BoolOp(node.op, parts), node))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = ast.UnaryOp(node.op, self._test(node.operand, site))
            return self._call("both", site, ast.copy_location(inner, node))
        return self._call("test", site, self._value(node, site))

    # --- expressions ------------------------------------------------------------------------------

    def _value(self, node: ast.expr, parent: Site | None, assigns: str | None = None) -> ast.expr:
        """An expression that tells its value, if it is one to tell."""
        if not self._tells(node):
            return self._parts(node, parent)
        site = self._sites.add(node, self._node.name, parent)
        site.assigns = assigns
        site.state, site.method, site.view = self._state_of(node)
        return self._call("value", site, self._parts(node, site))

    def _tells(self, node: ast.expr) -> bool:
        match node:
            case ast.Call(func=ast.Name(id="super")):
                return False
            case ast.Name(id=name):
                return name != self._receiver
            case ast.Attribute():
                return not self._is_object(node)
            case ast.UnaryOp(operand=ast.Constant()):
                return False
            case ast.Tuple(elts=found):
                return not any(isinstance(e, ast.Slice) for e in found)
            case ast.Compare() | ast.BoolOp() | ast.BinOp() | ast.UnaryOp() | ast.IfExp() | ast.Call():
                return True
            case ast.Subscript() | ast.NamedExpr():
                return True
        return False

    def _own(self, node: ast.AST, names: frozenset[str]) -> bool:
        return (
            isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
            and node.value.id == self._receiver and node.attr in names
        )  # fmt: skip

    def _is_object(self, node: ast.AST) -> bool:
        return self._own(node, self._sites.objects)

    def _is_view(self, node: ast.AST) -> bool:
        return is_view(node) and self._own(viewed(node), self._sites.viewed)  # type: ignore[arg-type]

    def _used(self, node: ast.AST) -> tuple[str, str | None] | None:
        """The state that stands there, and which view of it, if it is one."""
        owner: ast.AST = viewed(node) if self._is_view(node) else node  # type: ignore[arg-type]
        if not isinstance(owner, ast.Attribute) or not self._is_object(owner):
            return None
        call: Any = node
        return owner.attr, None if owner is node else call.func.attr

    def _state_of(self, node: ast.expr) -> tuple[str | None, str | None, str | None]:
        """The state that an expression itself uses, the operation where it is a method, and which view of the state."""
        used: list[tuple[ast.AST, str]] = []
        match node:
            case ast.Subscript(value=owner):
                used.append((owner, "getitem"))
            case ast.Call(func=ast.Attribute(value=owner, attr=method)) if not self._is_view(node):
                used.append((owner, method))
            case ast.Attribute() if self._own(node, self._sites.plain):
                return node.attr, "read", None
            case ast.Compare(comparators=found):
                used += [(other, "contains") for other in found]
        for place, operation in used:
            state = self._used(place)
            if state is not None:
                return state[0], operation, state[1]
        return None, None, None

    def _parts(self, node: ast.expr, site: Site | None) -> ast.expr:
        """A copy of an expression whose parts tell their values."""
        if isinstance(node, ast.Lambda):
            return copy.deepcopy(node)
        made = copy.copy(node)
        match made:
            case ast.Attribute():
                made.value = self._base(made.value, site)
            case ast.Subscript():
                made.value, made.slice = self._base(made.value, site), self._value(made.slice, site)
            case ast.Call():
                made.func = self._callee(made.func, site)
                made.args = [self._value(a, site) for a in made.args]
                made.keywords = [ast.keyword(k.arg, self._value(k.value, site)) for k in made.keywords]
            case ast.Compare():
                made.left = self._value(made.left, site)
                made.comparators = [self._compared(c, site) for c in made.comparators]
            case ast.IfExp():
                made.test = self._branch(made.test, Way(False, False), Way(False, False))
                made.body, made.orelse = self._value(made.body, site), self._value(made.orelse, site)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                made.generators = [self._loop(g) for g in made.generators]
                made.elt = self._value(made.elt, None)
            case ast.DictComp():
                made.generators = [self._loop(g) for g in made.generators]
                made.key, made.value = self._value(made.key, None), self._value(made.value, None)
            case _:
                for name, inner in ast.iter_fields(node):
                    setattr(made, name, self._inner(inner, site))
        return made

    def _compared(self, node: ast.expr, site: Site | None) -> ast.expr:
        """What something is compared with: a state itself has nothing to tell."""
        if self._is_object(node):
            return node
        return self._parts(node, site) if self._is_view(node) else self._value(node, site)

    def _inner(self, inner: Any, site: Site | None) -> Any:
        if isinstance(inner, list):
            return [self._inner(i, site) for i in inner]
        return self._value(inner, site) if isinstance(inner, ast.expr) and not _stored(inner) else inner

    def _loop(self, loop: ast.comprehension) -> ast.comprehension:
        made = copy.copy(loop)
        made.iter = self._value(loop.iter, None)
        made.ifs = [self._branch(test, Way(False, False), Way(False, False)) for test in loop.ifs]
        return made

    def _base(self, node: ast.expr, site: Site | None) -> ast.expr:
        """What stands before a dot or a bracket: names and states are not told, they are part of the text."""
        if isinstance(node, ast.Name) or self._is_object(node):
            return node
        return self._value(node, site)

    def _callee(self, node: ast.expr, site: Site | None) -> ast.expr:
        if isinstance(node, ast.Attribute):
            callee = copy.copy(node)
            callee.value = self._base(node.value, site)
            return callee
        return node if isinstance(node, ast.Name) else self._value(node, site)

    def _call(self, method: str, site: Site, *args: ast.expr) -> ast.expr:
        name = ast.Attribute(ast.Name(self._name, ast.Load()), method, ast.Load())
        call = ast.Call(name, [ast.Constant(site.index), *args], [])
        return ast.copy_location(call, site.node)


def _stored(node: ast.expr) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)


def _rejects(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="reject"))):
            return True
    return False
