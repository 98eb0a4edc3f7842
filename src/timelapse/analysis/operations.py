"""Which operation on which state a piece of syntax is."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import NamedTuple

from timelapse.analysis.opaque import Opaque
from timelapse.analysis.views import is_view, viewed
from timelapse.code.syntax import signature, tuple_of
from timelapse.kinds.base import Op, StateSpec
from timelapse.program.pending import WRITES
from timelapse.program.program import ProgramSpec


def plain_state(spec: StateSpec) -> bool:
    """Whether the state is used as a plain attribute (`self.total += 1`)."""
    return spec.key is None and spec.kind.attribute_style


class Operation(NamedTuple):
    """A call of a state's method: the state, the operation, the key and the value that it is given."""

    state: StateSpec
    op: Op
    key: ast.expr | None
    value: ast.expr | None
    dated: bool = False
    """It is a write with `at=`."""


@dataclass(frozen=True)
class States:
    """A program's states, as the syntax of one function names them. `receiver` is its name for `self`, if it has it."""

    spec: ProgramSpec
    receiver: str | None

    def named(self, node: ast.AST) -> StateSpec | None:
        """The state that `self.X` names."""
        if isinstance(node, ast.Attribute) and self.is_self(node.value):
            return self.spec.states.get(node.attr)
        return None

    def is_self(self, node: ast.AST) -> bool:
        """Whether this is the program itself."""
        return isinstance(node, ast.Name) and self.receiver is not None and node.id == self.receiver

    def subscripted(self, node: ast.AST) -> StateSpec | None:
        """The keyed state that `self.X[...]` is an element of."""
        if not isinstance(node, ast.Subscript):
            return None
        seen = node.value
        state = self.named(viewed(seen) if isinstance(node.ctx, ast.Load) else seen)
        return state if state is not None and not plain_state(state) else None

    def called(self, node: ast.AST) -> Operation | None:
        """`self.X.method(...)` as an operation. Raises Opaque for one that is none, or whose arguments cannot be told apart."""
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            return None
        seen = viewed(node.func.value)
        state = self.named(seen)
        method = node.func.attr
        op = None if state is None else state.kind.ops.get(method)
        if state is None or plain_state(state) or (op is None and seen is node.func.value and is_view(node)):
            return None
        if op is not None and op.effect is not None and seen is not node.func.value:
            raise Opaque("TL310", node, f"a view of {state.name} is only read", "write to the state itself")
        if op is None or not hasattr(state.kind, method):
            raise Opaque("TL310", node, f"{state.kind.__name__} has no operation {method!r} that analysis knows",
                         "use the operations of the kind's table")  # fmt: skip
        dated = op.effect is not None and any(k.arg == "at" for k in node.keywords)
        if dated and WRITES not in self.spec.states:
            raise Opaque(
                "TL314",
                node,
                f"{method}(at=) reaches into another time, and so does a method that cannot be read",
                "write that method in a file",
            )
        names, defaults = signature(getattr(state.kind, method))
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            raise Opaque("TL310", node, f"the arguments of {method!r} are unpacked", "write them out")
        given: dict[str, ast.expr] = dict(zip(names, node.args, strict=False))
        given.update({k.arg: k.value for k in node.keywords if k.arg is not None})
        order = [names.index(k.arg) for k in node.keywords if k.arg in names]
        if order != sorted(order):
            raise Opaque("TL310", node, f"the arguments of {method!r} are given out of order",
                         "write the key before the value")  # fmt: skip
        if state.key is None and op.value is not None and names and names[-1] not in given:
            # `add(v)` of an un-keyed state
            return Operation(state, op, None, given.get(names[0]), dated)
        key: ast.expr | None = None
        if isinstance(op.key, tuple):
            key = tuple_of(node, [given[names[i]] for i in op.key if names[i] in given])
        elif op.key is not None and op.key < len(names):
            key = given.get(names[op.key])
        value = given.get(names[op.value]) if op.value is not None and op.value < len(names) else None
        if op.value is not None and value is None and isinstance(defaults.get(names[op.value]), int):
            value = ast.copy_location(ast.Constant(defaults[names[op.value]]), node)
        return Operation(state, op, None if state.key is None else key, value, dated)


def need(state: StateSpec, op: str, node: ast.AST) -> None:
    """Raise Opaque where a state's kind has no such operation."""
    if op not in state.kind.ops:
        raise Opaque("TL310", node, f"{state.kind.__name__} has no operation {op!r}",
                     "use the operations of the kind's table")  # fmt: skip
