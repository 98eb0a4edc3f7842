"""The compiled form of a pass: its generated source and what its function takes."""

from __future__ import annotations

from dataclasses import dataclass, field

from timelapse.model.events import Event, Record


@dataclass(frozen=True)
class Column:
    """One column that the function reads.

    `test`: "" for the field itself, else what is computed from the field for each row beforehand:
    contains, startswith, endswith (with `operand`, giving a bool) or length.
    """

    event: int
    field: str
    kind: str
    test: str = ""
    operand: str | bytes = ""


@dataclass
class Unit:
    """One pass. The function's arguments, in order: see `Lowering.arguments`.

    `claims` bounds how many rows one event can add to each state's table, `emits` how many records
    of each class it can put out.
    """

    events: list[type[Event]] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    params: list[tuple[str, str]] = field(default_factory=list)
    records: list[type[Record]] = field(default_factory=list)
    texts: list[str | bytes] = field(default_factory=list)
    claims: dict[str, int] = field(default_factory=dict)
    emits: dict[type[Record], int] = field(default_factory=dict)
    source: str = ""
