"""Cutting a function down to what a pass needs."""

from __future__ import annotations

import ast
import copy
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from timelapse.analysis.depend import Closure, Relaxed
from timelapse.analysis.ir import CallSite, FunctionIR, Node, StateWrite, Vertex
from timelapse.code.functions import compiled_within, remade
from timelapse.code.source import all_nodes


@dataclass
class Cut:
    """How functions are cut: what is kept, which states are written as effects."""

    keep: Closure
    relaxed: Relaxed
    delta: frozenset[str]
    attributes: frozenset[str]
    """States used as plain attributes."""
    members: dict[str, tuple[FunctionIR, str]] = field(default_factory=dict)
    """Methods that kept code calls: name in the pass -> function, how it is called."""
    replaced: Mapping[int, ast.expr] = field(default_factory=dict)
    """id of an expression -> what stands in its place."""

    def member(self, site: CallSite) -> str:
        """The name under which the pass calls a function."""
        fn = site.callee
        plain = fn.function.__name__
        name = plain
        if site.style in ("super", "helper"):
            owner = fn.function.__qualname__.rpartition(".")[0].rpartition(".")[2]
            name = f"_{site.style}_{owner + '_' if owner and owner != '<locals>' else ''}{plain}"
        elif isinstance(site.node, ast.Attribute):
            name = site.node.attr
        elif isinstance(site.node, ast.Call) and isinstance(site.node.func, ast.Attribute):
            name = site.node.func.attr
        while name in self.members and self.members[name] != (fn, site.style):
            name += "_"
        self.members[name] = (fn, site.style)
        return name


class Cutter:
    """Makes the kept part of one function as a new syntax tree."""

    def __init__(self, fn: FunctionIR, cut: Cut) -> None:
        self.fn = fn
        self.cut = cut
        self._sites: dict[int, CallSite] = {}
        self._writes: dict[int, StateWrite] = {}
        for node in fn.nodes:
            for site in node.main.found.calls:
                self._sites[id(site.node)] = site
            for write in node.main.found.writes:
                if write.state in cut.delta:
                    self._writes[id(write.node)] = write
        self._temporaries = 0

    def body(self) -> list[ast.stmt]:
        """The kept statements."""
        return self._block(self.fn.body)

    # --- statements -----------------------------------------------------------------------------

    def _block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        return [new for s in body for new in self._statement(s)]

    def _filled(self, body: Sequence[ast.stmt], like: ast.AST) -> list[ast.stmt]:
        return self._block(body) or [ast.copy_location(ast.Pass(), like)]

    def _kept(self, vertex: Vertex) -> bool:
        return vertex in self.cut.keep

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        match node:
            case ast.If():
                return self._if(node)
            case ast.While():
                return self._while(node)
            case ast.For():
                return self._for(node)
            case ast.Try():
                return self._try(node)
            case ast.With():
                body = self._block(node.body)
                made = self.fn.by_ast.get(id(node))
                if made is None or not self._kept(made.main):
                    return self._effects(made)
                items = [self._copy(i) for i in node.items]
                return [_at(ast.With(items, body or [_at(ast.Pass(), node)]), node)]
            case ast.Match():
                made = self.fn.by_ast.get(id(node))
                if made is None or not self._kept(made.main):
                    return self._effects(made)
                cases = [
                    ast.match_case(
                        self._copy(c.pattern), self._copy(c.guard) if c.guard is not None else None,
                        self._filled(c.body, node),
                    ) for c in node.cases
                ]  # fmt: skip
                return [_at(ast.Match(self._copy(node.subject), cases), node)]
        made = self.fn.by_ast.get(id(node))
        if made is None or not self._kept(made.main):
            return self._effects(made)
        if made.kind == "reject" and not made.guarded:
            assert isinstance(node, ast.Expr)
            assert isinstance(node.value, ast.Call)
            return [_at(ast.Expr(_at(ast.Call(self._copy(node.value.func), [], []), node)), node)]
        if isinstance(node, ast.Delete | ast.Assign | ast.AugAssign | ast.AnnAssign):
            write = self._writes.get(id(node))
            if write is not None:
                return self._effect(write, node)
        return [self._copy(node)]

    def _effects(self, made: Node | None) -> list[ast.stmt]:
        """The kept effects inside a node that is not kept itself, as statements."""
        if made is None or made.index not in self.fn.live:
            return []
        kept = [v.expr for v in made.subs if self._kept(v) and v.expr is not None]
        inner = {id(n) for e in kept for n in all_nodes(e) if n is not e}
        return [_at(ast.Expr(self._copy(e)), e) for e in kept if id(e) not in inner]

    def _if(self, node: ast.If) -> list[ast.stmt]:
        body, orelse = self._block(node.body), self._block(node.orelse)
        if not body and not orelse:
            return self._loose(node.test)
        test = self._test(node.test)
        if isinstance(test, ast.Constant) and isinstance(test.value, bool):
            return body if test.value else orelse
        if not body:
            return [_at(ast.If(_not(test), orelse, []), node)]
        return [_at(ast.If(test, body, orelse), node)]

    def _loose(self, test: ast.expr) -> list[ast.stmt]:
        """What a condition that decides nothing any more still has to do."""
        if isinstance(test, ast.BoolOp):
            kept = [self._needs_test(v) for v in test.values]
            if any(kept[1:]):
                return [_at(ast.Expr(self._test(test, loose=True)), test)]
            return self._loose(test.values[0])
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self._loose(test.operand)
        made = self.fn.by_ast.get(id(test))
        if made is not None and self._kept(made.main):
            return [_at(ast.Expr(self._copy(test)), test)]
        return self._effects(made)

    def _needs_test(self, test: ast.expr) -> bool:
        for node in all_nodes(test):
            made = self.fn.by_ast.get(id(node))
            if made is not None and any(self._kept(v) for v in made.vertices):
                return True
        return False

    def _test(self, test: ast.expr, *, loose: bool = False) -> ast.expr:
        """A condition, with guards that idioms dropped replaced by their outcome.

        `loose`: its outcome does not matter.
        """
        if isinstance(test, ast.BoolOp):
            is_and = isinstance(test.op, ast.And)
            kept: list[ast.expr] = []
            for value in test.values:
                part = self._test(value, loose=loose)
                if isinstance(part, ast.Constant) and isinstance(part.value, bool):
                    if part.value == is_and:
                        continue
                    kept.append(part)
                    break
                kept.append(part)
            if not kept:
                return _at(ast.Constant(is_and), test)
            return kept[0] if len(kept) == 1 else _at(ast.BoolOp(test.op, kept), test)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return _not(self._test(test.operand, loose=loose))
        made = self.fn.by_ast.get(id(test))
        if made is None or self._kept(made.main):
            same: ast.expr = self._copy(test)
            return same
        outcome = self.cut.relaxed.guards.get(made.main)
        if outcome is not None:
            return _at(ast.Constant(outcome), test)
        if not loose:
            raise AssertionError(
                f"{self.fn.name}: a slice keeps what {ast.unparse(test)!r} decides, but not it"
            )
        effects = [s.value for s in self._effects(made) if isinstance(s, ast.Expr)]
        if not effects:
            return _at(ast.Constant(True), test)
        return _at(ast.Subscript(
            _at(ast.Tuple([*effects, _at(ast.Constant(True), test)], ast.Load()), test),
            _at(ast.UnaryOp(ast.USub(), _at(ast.Constant(1), test)), test), ast.Load(),
        ), test)  # fmt: skip

    def _while(self, node: ast.While) -> list[ast.stmt]:
        body, orelse = self._block(node.body), self._block(node.orelse)
        if not body and not self._needs_test(node.test):
            return orelse
        return [_at(ast.While(self._test(node.test), body or [_at(ast.Pass(), node)], orelse), node)]

    def _for(self, node: ast.For) -> list[ast.stmt]:
        loop = self.fn.by_ast.get(id(node))
        if loop is None or not self._kept(loop.main):
            return [*self._effects(self.fn.iters.get(id(node))), *self._block(node.orelse)]
        target, it = self._copy(node.target), self._copy(node.iter)
        return [_at(ast.For(target, it, self._filled(node.body, node), self._block(node.orelse)), node)]

    def _try(self, node: ast.Try) -> list[ast.stmt]:
        body, orelse, final = self._block(node.body), self._block(node.orelse), self._block(node.finalbody)
        handlers = [
            _at(ast.ExceptHandler(
                self._copy(h.type) if h.type is not None else None, h.name, self._filled(h.body, h)
            ), h) for h in node.handlers
        ]  # fmt: skip
        if not body:
            return [*orelse, *final]
        if not handlers and not final:
            return body
        if not handlers:
            return [_at(ast.Try(body, [], [], final), node)]
        return [_at(ast.Try(body, handlers, orelse, final), node)]

    # --- effects --------------------------------------------------------------------------------

    def _effect(self, write: StateWrite, like: ast.stmt) -> list[ast.stmt]:
        value = self._value(write)
        key = self._key(write, like)
        if value is not None and not isinstance(like, ast.AugAssign) and self._order_shows(key, value):
            # An assignment evaluates its value before its key (an augmented one its key first).
            self._temporaries += 1
            name = f"_tl_value{self._temporaries}"
            first = _at(ast.Assign([_at(ast.Name(name, ast.Store()), like)], value), like)
            call = self._call(write, key, _at(ast.Name(name, ast.Load()), like), like)
            return [first, _at(ast.Expr(call), like)]
        return [_at(ast.Expr(self._call(write, key, value, like)), like)]

    def _order_shows(self, key: ast.expr, value: ast.expr) -> bool:
        """Whether evaluating the key before the value may give something else."""
        if isinstance(value, ast.Constant) or isinstance(key, ast.Constant):
            return False
        if any(isinstance(n, ast.NamedExpr) for n in all_nodes(value)) or self._has_call(key):
            return True
        return self._has_call(value) and any(isinstance(n, ast.Subscript) for n in all_nodes(key))

    def _has_call(self, node: ast.expr) -> bool:
        """Whether evaluating it may change something: a call, a walrus, a property of the program."""
        return any(
            isinstance(n, ast.Call | ast.NamedExpr)
            or (
                isinstance(n, ast.Attribute)
                and isinstance(n.value, ast.Name)
                and n.value.id == self.fn.receiver
            )
            for n in all_nodes(node)
        )

    def _value(self, write: StateWrite) -> ast.expr | None:
        key = id(write.node)
        value: Any = self.cut.relaxed.values.get(key, write.value)
        if value is None:
            return None
        made: ast.expr = self._copy(value)
        if self.cut.relaxed.negated.get(key, write.negate):
            made = _at(ast.UnaryOp(ast.USub(), made), made)
        return made

    def _key(self, write: StateWrite, like: ast.AST) -> ast.expr:
        return self._copy(write.key) if write.key is not None else _at(ast.Tuple([], ast.Load()), like)

    def _call(self, write: StateWrite, key: ast.expr, value: ast.expr | None, like: ast.AST) -> ast.Call:
        effect = self.cut.relaxed.effects.get(id(write.node), write.effect)
        receiver = _at(ast.Name(self.fn.receiver or "self", ast.Load()), like)
        state = _at(ast.Attribute(receiver, write.state, ast.Load()), like)
        method = _at(ast.Attribute(state, f"_e_{effect}", ast.Load()), like)
        return _at(ast.Call(method, [key] if value is None else [key, value], []), like)

    # --- copies ---------------------------------------------------------------------------------

    def _copy(self, node: Any) -> Any:
        """A copy of a tree in which calls of cut functions and effects are replaced."""
        if isinstance(node, list):
            return [self._copy(n) for n in node]
        if not isinstance(node, ast.AST):
            return node
        if id(node) in self.cut.replaced:
            return _at(copy.deepcopy(self.cut.replaced[id(node)]), node)
        write = self._writes.get(id(node)) if isinstance(node, ast.Call) else None
        if write is not None:
            return self._call(write, self._key(write, node), self._value(write), node)
        made = type(node)(**{name: self._copy(value) for name, value in ast.iter_fields(node)})
        if "lineno" in node._attributes:
            ast.copy_location(made, node)
        site = self._sites.get(id(node))
        if site is not None:
            self._redirect(site, made)
        return made

    def _redirect(self, site: CallSite, made: ast.AST) -> None:
        name = self.cut.member(site)
        if site.style in ("super", "helper"):
            assert isinstance(made, ast.Call)
            receiver = _at(ast.Name(self.fn.receiver or "self", ast.Load()), made)
            made.func = _at(ast.Attribute(receiver, name, ast.Load()), made)
        elif isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute):
            made.func.attr = name
        elif isinstance(made, ast.Attribute):
            made.attr = name
        made._tl_callee = site.callee  # type: ignore[attr-defined]  # for `columns`


def definition(fn: FunctionIR, body: list[ast.stmt]) -> ast.FunctionDef:
    """A function definition with this body; defaults and annotations live in the function object."""
    a = fn.args

    def bare(arg: ast.arg | None) -> ast.arg | None:
        return None if arg is None else _at(ast.arg(arg.arg), arg)

    args = ast.arguments(
        posonlyargs=[x for x in map(bare, a.posonlyargs) if x], args=[x for x in map(bare, a.args) if x],
        vararg=bare(a.vararg), kwonlyargs=[x for x in map(bare, a.kwonlyargs) if x],
        kw_defaults=[None for _ in a.kwonlyargs], kwarg=bare(a.kwarg), defaults=[],
    )  # fmt: skip
    made = ast.FunctionDef(fn.function.__name__, args, body or [ast.Pass()], [], None, None)
    made.lineno = made.end_lineno = fn.line
    made.col_offset = made.end_col_offset = 0
    return ast.fix_missing_locations(made)


def compiled(fn: FunctionIR, node: ast.FunctionDef) -> types.FunctionType:
    """The function of a cut definition: same globals, defaults, closure, file and lines."""
    function = fn.function
    made = remade(function, compiled_within(node, function.__code__.co_freevars, function))
    made.__dict__["__tl_text__"] = ast.unparse(node)  # what was cut has no source in any file
    made.__dict__["__tl_tree__"] = _bare(node)  # the same with the lines of the file
    return made


def _bare(node: Any) -> Any:
    """A copy of a tree without what the analysis hung on it: it travels to workers."""
    if isinstance(node, list):
        return [_bare(n) for n in node]
    if not isinstance(node, ast.AST):
        return node
    return _at(type(node)(**{name: _bare(value) for name, value in ast.iter_fields(node)}), node)


def _not(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.Constant) and isinstance(test.value, bool):
        return _at(ast.Constant(not test.value), test)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    return _at(ast.UnaryOp(ast.Not(), test), test)


N = TypeVar("N", bound=ast.AST)


def _at(new: N, old: ast.AST) -> N:
    if "lineno" in getattr(old, "_attributes", ()):
        return ast.copy_location(new, old)
    return new
