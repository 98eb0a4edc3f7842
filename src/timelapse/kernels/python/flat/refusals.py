"""Rejecting an event: whether anything has to be taken back, and `self.reject` in handlers without an exception.

A pass that rejects events keeps a journal of what an event has written. Where every reject comes before the first write,
as in a program that looks first and then acts, there is never anything in it: `takes_back` finds that in the handlers' text.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from timelapse.analysis.views import LOOKING
from timelapse.code.source import all_nodes
from timelapse.kernels.python.flat.infer import tree_of
from timelapse.kernels.python.flat.rows import refuse as refuse_row
from timelapse.kinds.base import StateSpec

if TYPE_CHECKING:
    from timelapse.kernels.python.flat.rewrite import Rewriter

_DEPTH = 8
_LAZY = (ast.Yield, ast.YieldFrom)
_HARMLESS = ("emit", "now")
"""What a handler puts out is taken back by its place in the log."""


def reject(at: Rewriter, args: Sequence[ast.expr], handler: str, node: ast.stmt) -> list[ast.stmt] | None:
    """`self.reject(...)` as a statement of a handler, which then returns True (loop.py); None where it stays an exception."""
    if len(args) > 1 or any(isinstance(a, ast.Starred) for a in args):
        return None
    if args:
        made = refuse_row(at, args[0], handler, node)
        if made is not None:
            return made
        return at.statements(
            [f"_tl_refuse_with(N, {handler!r})", "return True"], node, N=at.rewritten(args[0])
        )
    return at.statements([f"_tl_refuse('', {handler!r})", "return True"], node)


def takes_back(
    handlers: Iterable[tuple[types.FunctionType, Iterable[Any]]], specs: Mapping[str, StateSpec],
    params: Iterable[str], member: Callable[[str], Any],
) -> bool:  # fmt: skip
    """Whether some event may be rejected after something was written.

    `handlers`: in their order, each with the events that it is called for. `member`: what the class has under a name.
    """
    order = _Order(specs, frozenset(params), member)
    written: dict[Any, bool] = {}
    for function, events in handlers:
        for event in events:
            written[event] = order.function(function, written.get(event, False))
            if order.found:
                return True
    return False


class _Order:
    """Goes through functions in the order in which they run, and notes whether a write can come before a reject."""

    def __init__(
        self, specs: Mapping[str, StateSpec], params: frozenset[str], member: Callable[[str], Any]
    ) -> None:
        self._specs, self._params, self._member = specs, params, member
        self.found = False
        self._depth = 0
        self._written = False
        self._returned = False
        """Whether something may be written where the function returns early."""
        self._guarded = 0
        """How many `try` there are around, whose other parts come after a return as well."""
        self._rejects = 0
        """How many rejects there were so far."""
        self._receiver = ""

    def function(self, function: types.FunctionType, written: bool) -> bool:
        """Whether something is written when the function returns, given whether something was before."""
        tree = tree_of(function)
        known = isinstance(tree, ast.FunctionDef) and tree.args.args and self._depth < _DEPTH
        if tree is None or not known or any(isinstance(n, _LAZY) for n in all_nodes(tree)):
            self.found = True
            return True
        kept = (self._receiver, self._written, self._returned, self._guarded)
        self._receiver = tree.args.args[0].arg
        self._depth += 1
        self._written, self._returned, self._guarded = written, False, 0
        self._block(tree.body)
        self._depth -= 1
        after = self._written or self._returned
        self._receiver, self._written, self._returned, self._guarded = kept
        return after

    def _block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.If():
                self._look(node.test)
                before = self._written
                self._block(node.body)
                # What is written on a way that ends here lies before what follows the function, not before what follows here.
                ends = isinstance(node.body[-1], ast.Return) and not self._guarded
                after = before if ends else self._written
                self._written = before
                self._block(node.orelse)
                self._written |= after
            case ast.For() | ast.While():
                self._again(node)
            case ast.Return():
                self._parts(node)
                self._returned |= self._written
            case ast.Try() | ast.TryStar():
                self._guarded += 1
                self._try(node)
                self._guarded -= 1
            case ast.With():
                self._guarded += 1
                self._parts(node)
                self._guarded -= 1
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                if any(isinstance(n, ast.Name) and n.id == self._receiver for n in all_nodes(node)):
                    self._anything()
            case _:
                self._parts(node)

    def _try(self, node: ast.Try | ast.TryStar) -> None:
        """A reject leaves it like any exception: what its other parts write then comes after the reject, and has happened."""
        before = self._rejects
        self._block(node.body)
        self._block(node.orelse)
        others = [*node.handlers, *node.finalbody]
        for part in others:
            self._part(part)
        if self._rejects > before:
            written, self._written = self._written, False
            for part in others:
                self._part(part)
            self.found |= self._written
            self._written |= written

    def _parts(self, node: ast.AST) -> None:
        for part in ast.iter_child_nodes(node):
            self._part(part)

    def _again(self, node: ast.AST) -> None:
        """What may run several times: the second time after what the first has written."""
        for _ in range(2):
            self._parts(node)

    def _part(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt):
            self._statement(node)
        else:
            self._look(node)

    def _anything(self) -> None:
        """Somebody has the program and may do whatever it can."""
        self.found = self._written = True

    def _state(self, node: ast.AST) -> StateSpec | None:
        if isinstance(node, ast.Attribute) and self._is_self(node.value):
            return self._specs.get(node.attr)
        return None

    def _is_self(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id == self._receiver

    def _look(self, node: ast.AST) -> None:
        """An expression, or a part of a statement."""
        match node:
            case ast.Call(func=ast.Attribute(value=base, attr=name), args=args, keywords=named):
                for part in (*args, *named):
                    self._look(part)
                spec = self._state(base)
                if spec is not None:
                    op = spec.kind.ops.get(name)
                    self._written |= (op is None or op.effect is not None) and name not in LOOKING
                elif self._is_self(base):
                    self._call(name)
                else:
                    self._look(base)
            case ast.Subscript(value=base, slice=key) if self._state(base) is not None:
                self._look(key)
                self._written |= not isinstance(node.ctx, ast.Load)
            case ast.Compare(left=left, comparators=others):
                for part in (left, *others):
                    if self._state(part) is None:
                        self._look(part)
            case ast.Attribute(value=base, attr=name) if self._is_self(base):
                spec = self._specs.get(name)
                if spec is not None and not (spec.kind.attribute_style and spec.key is None):
                    self._anything()
                elif not isinstance(node.ctx, ast.Load):
                    self._written = True
                elif spec is None and name not in self._params and name not in _HARMLESS:
                    self._attribute(name)
            case ast.Name(id=name) if name in (self._receiver, "super"):
                self._anything()
            case ast.Lambda():
                if any(isinstance(n, ast.Name) and n.id == self._receiver for n in all_nodes(node)):
                    self._anything()
            case ast.ListComp() | ast.SetComp() | ast.DictComp():
                self._again(node)
            case ast.GeneratorExp():  # nobody knows when it goes on
                before, written = self._rejects, self._written
                self._written = False
                self._parts(node)
                self.found |= self._written or self._rejects > before
                self._written |= written
            case _:
                self._parts(node)

    def _call(self, name: str) -> None:
        """`self.name(...)`."""
        if name == "reject":
            self._rejects += 1
            self.found |= self._written
        elif name not in _HARMLESS:
            found = self._member(name)
            if isinstance(found, types.FunctionType):
                self._written = self.function(found, self._written)
            elif not isinstance(found, staticmethod):
                self._anything()  # also what is sent: its handlers come after this one

    def _attribute(self, name: str) -> None:
        found = self._member(name)
        if isinstance(found, property) and isinstance(found.fget, types.FunctionType):
            self._written = self.function(found.fget, self._written)
        elif callable(found) or hasattr(type(found), "__get__") or name == "reject":
            self._anything()
