"""The form of a pass and its source, for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from timelapse.analysis.result import PassProgram
from timelapse.kernels.native.lowering.form import Keep, Leave, Look, Node, Occupy, Save, names_used
from timelapse.kernels.native.lowering.lower import lowered
from timelapse.kernels.native.lowering.printing import line_of, printed
from timelapse.kernels.native.lowering.unit import Column, Unit
from timelapse.program.program import Program


@dataclass
class Shown:
    """A pass as the compiler has it."""

    form: dict[str, list[str]] = field(default_factory=dict)
    """For each type of event what is done with one, in lines: look-ups and undo entries by the states that they are of."""
    columns: dict[str, str] = field(default_factory=dict)
    """What the columns are that form and source name."""
    source: str = ""
    """What Numba compiles."""
    left: dict[str, str] = field(default_factory=dict)
    """The types of events that are left to Python, and why."""

    def add(self, unit: Unit, event: str, body: Sequence[Node]) -> None:
        """Note the form of an event's code."""
        self.form[event] = printed(body, 0, partial(_line, unit))
        used = names_used(body)
        for n, column in enumerate(unit.columns):
            if f"col{n}" in used:
                self.columns[f"col{n}"] = _column(unit, column)


def shown(program: Program, work: PassProgram, *, final: bool) -> Shown:
    """A pass as the compiler has it. Raises Refused where it does not compile."""
    found = Shown()
    unit = lowered(program, work, final=final, show=found.add)
    found.source, found.left = unit.source, dict(unit.left)
    return found


def _line(unit: Unit, node: Node) -> str:
    match node:
        case Look(row=row, table=table, key=key):
            made = ", which has one from here on" if node.makes else ""
            return f"{row} = row of {_key(key)} in {_states(unit, table)}{made}"
        case Occupy(row=row, known=known, table=table, key=key):
            return f"{row} = row of {_key(key)} in {_states(unit, table)}, which takes {known} if it has none"
        case Save(row=row, state=state):
            return f"undo entry: {row} of {unit.states[state]}"
        case Keep(row=row, table=table):
            return f"copy for readers: {row} of {_states(unit, table)}"
        case Leave(reason=reason):
            return f"leave: reason {reason}"
        case _:
            return line_of(node)


def _column(unit: Unit, column: Column) -> str:
    told = f"{unit.table_of(column.event)}.{column.field}"
    if column.computed is not None:
        return f"computed for {told} in Python, before the pass"
    if column.test:
        told = f"{column.test} of {told}" + (f", {column.operand!r}" if column.operand else "")
    return f"{told}: {column.part}" if column.part else told


def _states(unit: Unit, table: int) -> str:
    return " + ".join(unit.tables[table])


def _key(key: Sequence[str]) -> str:
    return key[0] if len(key) == 1 else f"({', '.join(key)})"
