"""Variables that take their value on each of several ways.

Every operand is a name that is assigned once on each way (but for what loops carry), so operands can
be repeated and kept. Where ways join, a `Join` collects what each of them brings; its variables are
named when all are known, and `Moves` in the code become assignments to them.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from timelapse.kernels.native.lowering.form import Assign, Node, names_in, parsed
from timelapse.kernels.native.lowering.values import NOT_CONSTANT, Env, Value, common, fitted
from timelapse.model.events import Record


class Join:
    """A value that comes from several ways. `found`: None where they have no common shape."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: list[Value] = []
        self.found: Value | None = None

    def finish(self) -> Value | None:
        """All ways are known: the value that they share."""
        first, *rest = self.values
        if all(v == first for v in rest):
            self.found = first
            return first
        shape: Value | None = first
        for value in rest:
            shape = None if shape is None else common(shape, value)
        self.found = None if shape is None else variables(shape, self.name)
        return self.found


@dataclass(eq=False)
class Moves(Node):
    """Assignments of values to joins, or to variables, all at once."""

    pairs: list[tuple[Join | Value, Value]] = field(default_factory=list)

    def resolved(self) -> list[Node]:
        """The assignments, when all joins are finished."""
        assigned: list[tuple[str, str]] = []
        for target, value in self.pairs:
            shape = target.found if isinstance(target, Join) else target
            if shape is not None:
                words = zip(shape.words, fitted(value, shape).words, strict=True)
                assigned += [(name, code) for name, code in words if name != code]
        targets = {name for name, _ in assigned}
        if len(assigned) > 1 and any(targets & names_in(code) for _, code in assigned):
            copies = [(f"{name}_new", code) for name, code in assigned]
            assigned = [*copies, *((name, new) for (name, _), (new, _) in zip(assigned, copies, strict=True))]
        return [Assign(name, code) for name, code in assigned]


def resolved(body: Sequence[Node]) -> list[Node]:
    """Statements with assignments for the moves, when all joins are finished."""
    found: list[Node] = []
    for node in body:
        for block in node.blocks:
            block[:] = resolved(block)
        found += node.resolved() if isinstance(node, Moves) else [node]
    return found


def variables(shape: Value, stem: str) -> Value:
    """Variables for a value of this shape."""
    if shape.kind in ("none", "list"):  # which list it is, is known
        return shape
    if shape.is_compound:
        items = tuple(variables(item, f"{stem}_{i}") for i, item in enumerate(shape.items))
        return Value(shape.kind, items=items, cls=shape.cls)
    return Value(shape.kind, stem)


@dataclass(frozen=True)
class Rejected:
    """A place that rejects: the event's type, and the record that it puts out, with its fields' names. Or one that raises:
    then `fields` are the words of which the error's text is made."""

    event: int
    record: type[Record] | None
    fields: list[str]
    raises: bool = False


@dataclass
class Level:
    """A loop of the generated code that is being written."""

    number: int
    outs: list[tuple[Env, Moves]] = field(default_factory=list)
    carried: dict[str, Value] = field(default_factory=dict)
    begun: dict[str, Value] = field(default_factory=dict)
    """What the variables that it carries begin with."""
    user: bool = False
    """Whether it is a loop that the user wrote: what `break` and `continue` mean."""
    hidden: frozenset[str] = frozenset()
    """Names that mean nothing behind it."""
    again: Level | None = None
    """What `continue` leaves where the rounds of the loop are written out one after the other."""


class Widened(Exception):
    """A variable that a loop carries turned out to be of a wider shape."""

    def __init__(self, level: Level, name: str, shape: Value) -> None:
        super().__init__(name)
        self.level, self.name, self.shape = level, name, shape


def is_name(value: Value) -> bool:
    """Whether the code of a scalar is a name, or an element of one."""
    return _is_element(parsed(value.code), most=None)


def is_simple(value: Value) -> bool:
    """Whether the code of a scalar costs nothing to repeat."""
    return value.const is not NOT_CONSTANT or _is_element(parsed(value.code), most=1)


def _is_element(code: ast.expr, most: int | None) -> bool:
    """Whether an expression is a name or a number, or an element of one at such a place. `most`: of elements of elements, so many."""
    match code:
        case ast.Name() | ast.Constant(value=int()):
            return True
        case ast.Subscript(value=value, slice=place):
            less = None if most is None else most - 1
            return most != 0 and _is_element(value, less) and _is_element(place, less)
    return False
