"""Corrections: rows that came late are put into their places in the journal, and what that changes is published.

A correction replays the newest version of the journal with these rows from a checkpoint before the first of them, beside the
program that goes on. Its epoch then has the rows, and the difference between what is published and what the new version
puts out: rows that are retracted, and rows that are added. A row that only stands at another seq is neither.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from timelapse.errors import Place, UsageError
from timelapse.kernels.base import quarantined_table
from timelapse.program.fingerprint import Writer, write_program
from timelapse.program.program import Program, params_of, spec_of
from timelapse.program.silence import is_silent
from timelapse.segments.types import EventType
from timelapse.streaming import chain
from timelapse.streaming.counting import Counting
from timelapse.streaming.format import Correction, Epoch
from timelapse.streaming.pack import Pack
from timelapse.streaming.place import RunPlace
from timelapse.streaming.recovery import PutOut
from timelapse.streaming.running import Running
from timelapse.streaming.streams import I64, Admitted, Bools
from timelapse.streaming.versions import EPOCH, REJECTED, Inserted, Published, Shift, common, net


class Pending:
    """Late rows that wait for a correction, by the epoch in which they came."""

    def __init__(self, types: Sequence[EventType]) -> None:
        self._types = types
        self._epochs: list[tuple[int, dict[str, pa.Table]]] = []

    def add(self, number: int, sections: Mapping[str, pa.Table], policy: str) -> None:
        """Late rows of an epoch, whose sections these are."""
        own = {n.removeprefix("late/"): t for n, t in sections.items() if n.startswith("late/")}
        if own and policy == "correct":
            self._epochs.append((number, own))

    def follow(self, pack: Pack[Epoch]) -> None:
        """An epoch that was committed."""
        if pack.about.correction is not None:
            self.drop(pack.about.correction.upto)
        sections = {f"late/{name}": pack.table(f"late/{name}") for name in pack.names("late")}
        self.add(pack.about.number, sections, pack.about.late_rows)

    def drop(self, upto: int) -> None:
        """Those of epochs up to one are in the journal."""
        self._epochs = [(number, own) for number, own in self._epochs if number > upto]

    def upto(self, number: int) -> int:
        """The epoch up to which none wait, of those up to `number`."""
        return self._epochs[0][0] - 1 if self._epochs else number

    @property
    def rows(self) -> int:
        """How many wait."""
        return sum(table.num_rows for _, own in self._epochs for table in own.values())

    def all(self) -> Inserted:
        """All that wait."""
        found = Inserted(self._types)
        for _, own in self._epochs:
            for name, table in own.items():
                found.add(name, table)
        return found


@dataclass
class Plan:
    """What a correction is to do: the late rows, which of them count, and the newest epoch when it was begun."""

    late: Inserted
    counting: Counting
    last: Epoch

    @property
    def change(self) -> Inserted:
        """What it inserts into the journal, and removes."""
        return self.counting.change


@dataclass
class Prepared:
    """A correction that has run up to the end of an epoch (`at`). `running`: None where none of the late rows counts."""

    plan: Plan
    running: Running | None
    found: PutOut
    at: Epoch


def to_correct(
    program: Program, ts: I64, found: Admitted, *, complete: int | None, begin: int | None, horizon: int | None, floor: int | None
) -> tuple[Admitted, Bools]:  # fmt: skip
    """Of late rows: those whose time is still to come are accepted; and those that are never corrected (the second result).

    These are `horizon` or more behind their partition's mark, at or before `floor`, or so far before the journal's first row
    (`begin`) that time would stand still for longer than the program allows.
    """
    accepted = found.accepted | (found.late if complete is None else found.late & (ts > complete))
    late = found.late & ~accepted
    stale = np.zeros(len(ts), np.bool_)
    if horizon is not None:
        stale |= late & (found.marks - ts >= horizon)
    if floor is not None:
        stale |= late & (ts <= floor)
    for at in np.flatnonzero(late & ~stale) if begin is not None else ():
        stale[at] = begin is not None and ts[at] < begin and is_silent(program, int(ts[at]), begin)
    return found._replace(accepted=accepted, late=late & ~stale), stale


def sections_of(place: RunPlace, prepared: Prepared, last: Epoch) -> tuple[Correction, dict[str, pa.Table]]:
    """What the epoch of a correction has, behind the epoch `last`."""
    running, found, plan = prepared.running, prepared.found, prepared.plan
    before, upto = last.last_correction, plan.last.number
    left = {f"duplicate/{name}": pa.concat_tables(own) for name, own in plan.counting.left.items()}
    if running is None:  # the journal is what it was
        assert last.complete is not None
        return Correction(last.version, last.complete + 1, last.number, last.end_seq, before, upto), left
    cut = plan.change.first
    about = Correction(last.version + 1, cut, running.start, running.first, before, upto)
    rows = {f"inserted/{name}": pa.concat_tables(own) for name, own in found.inserted.items()}
    rows |= {f"removed/{name}": pa.concat_tables(own) for name, own in found.removed.items()}
    return about, rows | left | replaced(place, running.start + 1, last, cut, Shift.of(rows), found)


def replaced(
    place: RunPlace, first: int, last: Epoch, cut: int, shift: Shift, found: PutOut
) -> dict[str, pa.Table]:
    """The sections of an epoch after which `found` stands in the place of what epochs from `first` to `last` have put out from the time `cut` on.

    `shift`: where rows have moved meanwhile.
    """
    sections: dict[str, pa.Table] = {}
    feed = net(chain.epochs(place, first, last.number), cut)
    feed.shift(shift)
    now = {**found.outputs, REJECTED: found.rejected}
    for name in sorted({*feed.names, *(n for n, tables in now.items() if tables)}):
        new = pa.concat_tables(now[name]) if now.get(name) else None
        gone, more = difference(feed.of(name), new, cut)
        if gone is not None:
            sections["unrejected" if name == REJECTED else f"retracted/{name}"] = gone
        if more is not None:
            sections["rejected" if name == REJECTED else f"out/{name}"] = more
    if found.quarantined:
        sections["quarantined"] = quarantined_table(found.quarantined)
    return sections


def difference(
    old: Published | None, new: pa.Table | None, cut: int
) -> tuple[pa.Table | None, pa.Table | None]:
    """Rows of one record type that are retracted, and rows that are added; None for none. `new` from the time `cut` on."""
    if new is not None:
        new = new.filter(pa.array(new.column("ts").to_numpy() >= cut)).combine_chunks()
    stays = np.zeros(0 if old is None else len(old.seq), np.bool_)
    again = np.zeros(0 if new is None else new.num_rows, np.bool_)
    if old is not None and new is not None and set(old.table.column_names) == set(new.column_names):
        seq = pa.chunked_array([pa.array(old.seq)])
        left = [seq if name == "seq" else old.table.column(name) for name in new.column_names]
        stays, again = common(left, new.columns)
    gone = more = None
    if old is not None and not stays.all():
        gone = old.table.filter(pa.array(~stays)).append_column(
            pa.field(EPOCH, pa.int64(), nullable=False), pa.array(old.epoch[~stays])
        )
    if new is not None and not again.all():
        more = new.filter(pa.array(~again))
    return gone, more


def refuse_seq(program: Program) -> None:
    """Raise UsageError (TL846) for a program whose code reads `seq`: rows that are inserted move the others' seqs."""
    writer = Writer()
    write_program(writer, type(program), params_of(program))
    for met in writer.met:
        if isinstance(met, types.FunctionType) and (line := _line_of(met.__code__)) is not None:
            raise UsageError(
                f"{spec_of(program).name} reads `seq`, which changes for all later events where a late row is put into its place",
                place=Place(met.__code__.co_filename, line), code="TL846",
                hint='use a field of the event that names it, or late="side" (--late side)',
            )  # fmt: skip


def _line_of(code: types.CodeType) -> int | None:
    """The line at which code, or code within it, may read an attribute `seq`."""
    if "seq" in code.co_names or "seq" in code.co_consts:
        return code.co_firstlineno
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType) and (line := _line_of(constant)) is not None:
            return line
    return None
