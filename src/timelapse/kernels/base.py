"""What a kernel returns of a slice, `PassResult`, and the columns in which outputs and rejected events are stored.

Everything is Arrow, so that a compiled kernel and an interpreted one look the same to the engine (`kernel.py` has the contract).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from timelapse.errors import HandlerError
from timelapse.ids import Phase
from timelapse.model.events import Record, arrow_schema
from timelapse.program.failure import Quarantined
from timelapse.tables.apply import Change

Tick = Callable[[int], None]
"""Called with the number of events done since the last call."""


def no_tick(events: int) -> None:
    """Nobody watches."""


POSITION_FIELDS = [
    pa.field("ts", pa.int64(), nullable=False),
    pa.field("phase", pa.int8(), nullable=False),
    pa.field("seq", pa.int64(), nullable=False),
    pa.field("ordinal", pa.int64(), nullable=False),
]
REJECTED_SCHEMA = pa.schema(
    [
        *POSITION_FIELDS[:3],
        pa.field("event", pa.large_string(), nullable=False),
        pa.field("handler", pa.large_string(), nullable=False),
        pa.field("reason", pa.large_string(), nullable=False),
    ]
)
QUARANTINED_SCHEMA = pa.schema(
    [
        *POSITION_FIELDS[:3],
        pa.field("event", pa.large_string(), nullable=False),
        pa.field("handler", pa.large_string(), nullable=False),
        pa.field("error", pa.large_string(), nullable=False),
        pa.field("file", pa.large_string()),
        pa.field("line", pa.int64()),
    ]
)


def quarantined_table(rows: Sequence[Quarantined]) -> pa.Table:
    """The rows as a table, in the stored columns."""
    return table_of(QUARANTINED_SCHEMA, rows)


def table_of(schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Rows as a table."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def output_schema(record: type[Record]) -> pa.Schema:
    """Columns of a record type's outputs as stored: the position, then the fields."""
    return pa.schema([*POSITION_FIELDS, *arrow_schema(record)])


class Abandoned(Exception):
    """A pass whose events were shared out by key has to run without that: why."""

    def __init__(self, reason: str, *, is_bug: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.is_bug = reason, is_bug


@dataclass
class Repaired:
    """What repairing a slice took."""

    events: int = 0
    """That were recorded."""
    again: int = 0
    """That ran again because they would have decided otherwise."""
    depth: int = 0
    """The longest chain of such events, each of which touches what the one before wrote."""
    rest: int = 0
    """That ran as in a chain, after it was given up."""
    reason: str = ""
    """Why it was given up, or not begun."""


@dataclass
class PassResult:
    """What one pass did over one slice.

    `effects` holds an effect table per target state; `changes` the hashes of those that were kept
    exactly. `outputs` (by record type) and `rejected` come from the final pass only. `failure` is
    the first failing event; then nothing else counts.
    """

    events: int = 0
    effects: dict[str, pa.Table] = field(default_factory=dict)
    changes: dict[str, Change] = field(default_factory=dict)
    rows: dict[tuple[str, str], pa.Table] = field(default_factory=dict)
    """Of the states that are looked back on, by form: the rows of their logs (tables/effectlog.py), where asked for."""
    outputs: dict[type[Record], pa.Table] = field(default_factory=dict)
    rejected: pa.Table | None = None
    failure: HandlerError | None = None
    failed_seq: int = -1
    quarantined: list[Quarantined] = field(default_factory=list)
    """Events at which a handler raised, and that were taken out of the log."""
    pending: dict[str, int] = field(default_factory=dict)
    """What lies ahead at the end of the slice, by state, event type and handler."""
    beside: list[PassResult | None] = field(default_factory=list)
    """What output parts of other programs have put out that ran beside it (companions.py); None where one was given up."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Where the time went, by phase (read, decode, kernel, write), as far as the kernel tells them apart."""
    late: Callable[[PassResult, int], None] | None = None
    """Adds what the slice did to states, in so many threads, where that is still to be found (Source.later)."""

    repaired: Repaired | None = None
    """Of a slice that was guessed: what repairing it took."""

    def settle(self, threads: int = 1) -> None:
        """Have all of it there. May be called in any thread, and in several, also while the kernel runs the next slice."""
        late = self.late
        if late is not None:
            late(self, threads)
            self.late = None

    @property
    def nbytes(self) -> int:
        """What its tables take, as far as they are there."""
        tables = [*self.effects.values(), *self.rows.values(), *self.outputs.values()]
        rejected = 0 if self.rejected is None else self.rejected.nbytes
        return int(sum(table.nbytes for table in tables) + rejected)

    def join(self, outputs: Mapping[type[Record], pa.Table], rejected: pa.Table | None) -> None:
        """Add what other events of the slice put out. No event's rows are on both sides.

        Records of reads have no position: those here come before the others.
        """
        for cls, table in outputs.items():
            if cls not in self.outputs:
                self.outputs[cls] = table
            elif cls.__reads__:
                parts = [t.select([f.name for f in cls.__fields__]) for t in (self.outputs[cls], table)]
                self.outputs[cls] = pa.concat_tables(parts, promote_options="permissive")
            else:
                self.outputs[cls] = _by_seq([self.outputs[cls], table])
        if self.rejected is not None and rejected is not None:
            self.rejected = _by_seq([self.rejected, rejected])


def _by_seq(parts: Sequence[pa.Table]) -> pa.Table:
    """The rows of tables that are in order, in order."""
    whole = pa.concat_tables([t for t in parts if t.num_rows] or list(parts[:1]))
    seq = whole.column("seq").to_numpy()
    phase = whole.column("phase").to_numpy()
    if (phase != Phase.LOG_EVENT).any():  # what is dated, and ticks, are not in the order of the log
        ts = whole.column("ts").to_numpy()
        return whole.take(pa.array(np.lexsort((seq, phase, ts)))).combine_chunks()
    if (seq[1:] < seq[:-1]).any():
        whole = whole.take(pa.array(np.argsort(seq, kind="stable")))
    return whole.combine_chunks()
