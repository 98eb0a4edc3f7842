"""What recognisers share: pure expressions, keys that stay the same between a test and a write."""

from __future__ import annotations

import ast
import types
from dataclasses import dataclass, field
from typing import Protocol

from timelapse.analysis.depend import Graph
from timelapse.analysis.ir import FunctionIR, Node, StateWrite, Vertex
from timelapse.analysis.library import Library
from timelapse.analysis.tables import PURE_BUILTINS, builtin_name, is_math
from timelapse.code import cfg
from timelapse.code.scope import Scope
from timelapse.code.source import all_nodes, function_source
from timelapse.kinds.base import StateSpec


@dataclass(frozen=True)
class Guard:
    """A test and the write after it, as a recogniser gets them."""

    graph: Graph
    state: StateSpec
    fn: FunctionIR
    test: ast.expr
    """One test between short circuits, `not` taken off."""
    write: StateWrite
    node: Node
    """Where the write is."""


@dataclass(frozen=True)
class Verdict:
    """Under the opposite outcome of the test the write, as this effect, changes nothing."""

    outcome: bool
    """The outcome of the test under which the write is meant to happen."""
    effect: str
    value: ast.expr | None = None


@dataclass
class Rewritten:
    """A single write that says the same as an effect without reading the state."""

    effect: str
    value: ast.expr
    absorbed: list[ast.AST] = field(default_factory=list)
    negate: bool = False


class GuardRule(Protocol):
    """Recognises a test that only spares a write which would change nothing."""

    name: str

    def guard(self, found: Guard) -> Verdict | None: ...


class WriteRule(Protocol):
    """Recognises a write whose value is the state's own, updated."""

    name: str

    def write(
        self, graph: Graph, state: StateSpec, vertex: Vertex, write: StateWrite
    ) -> Rewritten | None: ...


def same(a: ast.expr | None, b: ast.expr | None) -> bool:
    """Whether two expressions are written the same."""
    if a is None or b is None:
        return a is b
    return ast.dump(_loads(a)) == ast.dump(_loads(b))


def _loads(node: ast.expr) -> ast.AST:
    return ast.parse(ast.unparse(node), mode="eval").body


def is_pure(graph: Graph, fn: FunctionIR, node: ast.expr | None, library: Library | None = None) -> bool:
    """Whether evaluating it again gives the same, as long as the locals in it are not set anew.

    `library`: what is known of the expressions in it, by default by how the function names the event."""
    if node is None:
        return True
    scope = Scope.of(fn.function, fn.receiver)
    known = library or fn.library
    spec = graph.functions.spec

    def pure(part: ast.AST) -> bool:
        match part:
            case (
                ast.Constant()
                | ast.Name()
                | ast.expr_context()
                | ast.operator()
                | ast.unaryop()
                | ast.boolop()
                | ast.cmpop()
            ):
                return not (isinstance(part, ast.Name) and part.id == fn.receiver)
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name == fn.receiver:
                return attr == "now" or (attr in spec.params and spec.params[attr].text != "resource")
            case ast.Attribute(value=value):
                return pure(value)
            case ast.Call(func=func, args=args, keywords=keywords):
                inner = all(pure(a) for a in args) and all(pure(k.value) for k in keywords)
                method = known is not None and known.same_again(part) and pure(func)
                return inner and (method or _pure_function(scope, part, known))
            case (
                ast.Tuple()
                | ast.Slice()
                | ast.JoinedStr()
                | ast.FormattedValue()
                | ast.BinOp()
                | ast.UnaryOp()
                | ast.Compare()
                | ast.IfExp()
                | ast.BoolOp()
                | ast.Subscript()
            ):
                return all(pure(c) for c in ast.iter_child_nodes(part))
        return False

    return pure(node)


def _pure_function(scope: Scope, call: ast.Call, known: Library | None, depth: int = 0) -> bool:
    target = scope.resolve(call.func)
    name = builtin_name(target)
    if name in PURE_BUILTINS - {"map", "filter", "id", "hash", "zip", "enumerate", "reversed"} or is_math(
        target
    ):
        return True
    if isinstance(target, type) and issubclass(target, tuple):
        return True
    if not isinstance(target, types.FunctionType) or depth > 4:
        return False
    source = function_source(target, lambdas=True)
    if source.node is None or target.__code__.co_flags & 0x2A0:
        return False
    inner = Scope.of(target)
    its = Library(inner, source.node.body, given=known.arguments(target, call) if known is not None else {})
    allowed = (
        ast.Return, ast.If, ast.Assign, ast.AnnAssign, ast.Expr, ast.expr, ast.expr_context, ast.operator,
        ast.unaryop, ast.cmpop, ast.boolop, ast.arguments, ast.arg, ast.keyword,
    )  # fmt: skip
    refused = (ast.Lambda, ast.Await, ast.Yield, ast.YieldFrom, ast.GeneratorExp, ast.List, ast.Dict, ast.Set)
    for statement in source.node.body:
        for node in all_nodes(statement):
            if not isinstance(node, allowed) or isinstance(node, refused):
                return False
            if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
                return False
            if isinstance(node, ast.Call) and not (
                its.same_again(node) or _pure_function(inner, node, its, depth + 1)
            ):
                return False
    return True


def unchanged_between(
    graph: Graph, fn: FunctionIR, test: Node, write: Node, state: str, used: set[str]
) -> bool:
    """Whether on every way from the test to the write neither the state nor a used local is written."""
    if not still(graph, fn, test, write, state, used):
        return False
    writes = [w for w in write.main.found.writes if w.state == state]
    inside = any(state in graph.writing[s.callee] for s in write.main.found.calls)
    return len(writes) == 1 and not inside and not used & write.main.found.weak and not (
        test.strong | test.weak
    )  # fmt: skip


def still(graph: Graph, fn: FunctionIR, since: Node, until: Node, state: str, used: set[str]) -> bool:
    """The same of what lies between two nodes, whatever they do themselves."""
    real = [[e.target for e in n.edges if e.real] for n in fn.nodes]
    cut = [[] if i in (until.index,) else [t for t in out if t != since.index] for i, out in enumerate(real)]
    after: set[int] = set()
    for target in real[since.index]:
        if target != since.index:
            after |= cfg.reachable(cut, target)
    before = cfg.reachable(cfg.reverse(cut), until.index)
    between = (after & before) - {until.index, since.index}
    for index in between:
        node = fn.nodes[index]
        if used & (node.strong | node.weak) or any(state in graph.may_write(v) for v in node.vertices):
            return False
    return True


def names_of(fn: FunctionIR, *nodes: ast.expr | None) -> set[str]:
    """The names in expressions."""
    return {
        n.id for node in nodes if node is not None for n in all_nodes(node)
        if isinstance(n, ast.Name) and n.id != fn.receiver
    }  # fmt: skip


def reads_state(fn: FunctionIR, node: ast.expr, state: StateSpec) -> tuple[bool, ast.expr | None]:
    """Whether an expression is `self.X[key]` (or `self.X`, without a key), and the key."""
    match node:
        case ast.Subscript(value=ast.Attribute(value=ast.Name(id=name), attr=attr), slice=key):
            if name == fn.receiver and attr == state.name and state.key is not None:
                return True, key
        case ast.Attribute(value=ast.Name(id=name), attr=attr):
            if (
                name == fn.receiver
                and attr == state.name
                and state.key is None
                and state.kind.attribute_style
            ):
                return True, None
    return False, None
