"""A live run, as others read it: what is committed, at one moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from timelapse.engine.job import schema_of
from timelapse.errors import Place, RunError, UsageError, meant
from timelapse.log import Log
from timelapse.model.events import Event, Record
from timelapse.program.program import Program
from timelapse.run.run import Run
from timelapse.streaming import chain
from timelapse.streaming.arrivals import PLACE
from timelapse.streaming.declared import joined, put_out
from timelapse.streaming.format import Epoch, LiveRun
from timelapse.streaming.journal import as_live, journal
from timelapse.streaming.pack import Pack
from timelapse.streaming.parity import Parity, parity
from timelapse.streaming.place import LivePlace, live_place
from timelapse.streaming.programs import program_now
from timelapse.streaming.sums import digest_of
from timelapse.streaming.versions import EPOCH, at_places, net, with_seq

if TYPE_CHECKING:
    from timelapse.trace import Explanation


class Reading:
    """A live run's directory: its epochs, outputs, late rows, journal. It may be running, in this process or another."""

    def __init__(self, place: LivePlace, program: Program | None = None) -> None:
        self.path = place.path
        self._place = place
        self._run, self._hash = chain.read_run(self._place)
        self._program = program

    @classmethod
    def open(cls, out: str | Path, program: Program | None = None) -> Reading:
        """Open a live run for reading: a folder, or a URL of an object store. Raises RunError (TL940)."""
        return Reading(live_place(out), program)

    @property
    def place(self) -> LivePlace:
        """Where its files are."""
        return self._place

    @property
    def run(self) -> LiveRun:
        """What the run says of itself."""
        return self._run

    @property
    def program_name(self) -> str:
        """The program's name."""
        return self._run.program

    @property
    def program(self) -> Program:
        """The program. Raises RunError where it cannot be found again."""
        if self._program is None:
            self._program = program_now(self._place, self._run, self.last)
        return self._program

    @property
    def last(self) -> Epoch | None:
        """The last committed epoch; None before the first."""
        number = chain.newest(self._place)
        return chain.read_epoch(self._place, number).about if number else None

    @property
    def digest(self) -> str | None:
        """The digest of all that was put out so far: that of a replay of the journal."""
        last = self.last
        return None if last is None else digest_of(last)

    def epochs(self, first: int = 1, last: int | None = None) -> Iterator[Pack[Epoch]]:
        """Epochs in order. Raises StorageError (TL931) for one that is damaged."""
        yield from chain.epochs(self._place, first, chain.newest(self._place) if last is None else last)

    def outputs(self, record: type[Record] | str, *, after: int = 0) -> pa.Table:
        """Outputs of a record type in the stored columns: ts, phase, seq, ordinal, fields. `after`: of later epochs only.

        Where late rows were corrected: those that count now, in the newest version's numbering; then `after` must not lie before a correction.

        Raises UsageError for a record that the run has not put out, where it has put out others.
        """
        name = _name(record)
        last = self.last
        if last is not None and last.last_correction > after:
            if after:
                raise UsageError(
                    f"what was put out before epoch {after:,} was corrected since", code="TL810",
                    hint="read the feed of additions and retractions: feed(record, after=...)",
                )  # fmt: skip
            published = net(self.epochs(1, last.number)).of(name)
            found = [] if published is None else [with_seq(published)]
        else:
            found = self._sections(f"out/{name}", after)
        return joined(found) if found else self._none_of(name, last)

    def _none_of(self, name: str, last: Epoch | None) -> pa.Table:
        """No outputs of a record type. Raises UsageError where there is none of that name."""
        if last is not None and name in last.schemas:
            return schema_of(last.schemas[name]).empty_table()
        had = {} if last is None else put_out(self._place, last)  # by versions of the program before, too
        if name in had:
            return pa.schema(list(had[name].items())).empty_table()
        known = sorted(had)
        raise UsageError(
            f"nothing was put out as {name}", place=Place(str(self.path)), code="TL810",
            hint=f"{meant(name, known)}records so far: {', '.join(known) or 'none'}",
        )  # fmt: skip

    def feed(self, record: type[Record] | str, *, after: int = 0, additions: bool = False) -> pa.Table:
        """What was published of a record type, epoch by epoch: additions and retractions, or additions only.

        Columns: `@epoch` (of the change), `@change` (1: added, -1: retracted), `@of` (the epoch in which the row was added), then the
        stored columns of the row as it was added. A row is known for good by its record type, `@of`, ts, phase, seq and ordinal: additions minus retractions are what a
        replay of the newest version of the journal puts out, but for `seq`, which moves without being published again.
        Raises UsageError as `outputs` does.
        """
        name, last = _name(record), self.last
        found: list[pa.Table] = []
        for pack in self.epochs(after + 1, 0 if last is None else last.number):
            if not additions and f"retracted/{name}" in pack.sections:
                table = pack.table(f"retracted/{name}")
                of = table.column(EPOCH)
                found.append(_change(table.drop_columns([EPOCH]), pack.about.number, -1, of))
            if f"out/{name}" in pack.sections:
                found.append(_change(pack.table(f"out/{name}"), pack.about.number, 1, None))
        if not found:
            return _change(self._none_of(name, last), 0, 1, None)
        return joined(found)

    def newest(self, record: type[Record]) -> pa.Table:
        """Of the outputs that count now, the newest of each key of the record (`class R(tl.Record, key=...)`), in the order of outputs.

        Raises UsageError as `outputs` does, and for a record without a key.
        """
        table = self.outputs(record)
        keys = record.__key__
        if not keys:
            raise UsageError(
                f"{record.__name__} has no key",
                hint='declare it: class R(tl.Record, key="user")',
                code="TL810",
            )
        rows: dict[tuple[Any, ...], int] = {}
        for at, key in enumerate(zip(*(table.column(k).to_pylist() for k in keys), strict=True)):
            rows.pop(key, None)
            rows[key] = at
        return table.take(pa.array(list(rows.values()), pa.int64()))

    def late(self, event: type[Event] | str) -> pa.Table | None:
        """Late rows of an event type, with their places; None where there are none."""
        name = event if isinstance(event, str) else event.__name__
        found = self._sections(f"late/{name}", 0)
        return joined(found) if found else None

    def aside(self) -> dict[str, pa.Table]:
        """Rows that were put aside: `bad`, and by event type those of an absurd time, those that a filter fits, and those that came before."""
        found: dict[str, list[pa.Table]] = {}
        for pack in self.epochs():
            for name in pack.names(
                "inserted"
            ):  # rows that were left out and count now, where late ones were put into their places
                table = pack.table(f"inserted/{name}")
                own = found.get(f"duplicate/{name}", [])
                own[:] = [part.filter(pa.array(~at_places(part, table)[0])) for part in own]
            for name in pack.sections:
                if name == "bad" or name.startswith(("absurd/", "filtered/", "duplicate/")):
                    found.setdefault(name, []).append(pack.table(name))
            for name in pack.names("removed"):
                table = pack.table(f"removed/{name}").drop_columns(["seq"])
                order = ["ts", *PLACE]
                table = table.select([*order, *(c for c in table.column_names if c not in order)])
                found.setdefault(f"duplicate/{name}", []).append(table)
        joint = {name: joined(tables) for name, tables in found.items()}
        return {name: table for name, table in joint.items() if table.num_rows}

    def _sections(self, name: str, after: int) -> list[pa.Table]:
        return [pack.table(name) for pack in self.epochs(after + 1) if name in pack.sections]

    def journal(self) -> Log:
        """The journal as a log, up to the last epoch."""
        return journal(self._place)[0]

    def replay(self, **options: Any) -> Run:
        """Replay the journal: a run, to ask `why`, `state` and `diff` of. Options are those of `tl.replay`.

        Raises RunError (TL943) where the program was changed on the way: one program does not tell what was done.
        """
        from timelapse.run import replay

        log, last = journal(self._place)
        if last is not None and last.last_change:
            raise RunError(
                f"the program was changed at epoch {last.last_change:,}: no replay of the whole journal gives what was put out",
                place=Place(str(self.path)), code="TL943",
                hint="timelapse parity checks what came since; timelapse replay PROGRAM OUT/journal tells what one version does with all of it",
            )  # fmt: skip
        if last is not None:
            options = as_live(log, last, self._run.start_from, takes_out=last.quarantined > 0) | options
        return replay(self.program, log, **options)

    def why(self, output: str | int, *, depth: int = 1, last: int = 3) -> Explanation:
        """Why the run put out a record: `Spam:88121`, as `Run.why`. It replays the journal, and raises as `replay` does."""
        return self.replay(spark=False).why(output, depth=depth, last=last)

    def why_not(self, event: str | int, *, depth: int = 1, last: int = 3) -> Explanation:
        """Why it put out nothing at an event of the journal, as `Run.why_not`. It replays the journal."""
        return self.replay(spark=False).why_not(event, depth=depth, last=last)

    def parity(self, *, spark: Any = False) -> Parity:
        """Replay the journal and compare."""
        return parity(self._place, self.program, spark=spark)


def _name(record: type[Record] | str) -> str:
    return record if isinstance(record, str) else record.__name__


def _change(table: pa.Table, epoch: int, change: int, of: pa.ChunkedArray | None) -> pa.Table:
    """Rows of a feed."""
    count = table.num_rows
    first = [pa.array(np.full(count, epoch)), pa.array(np.full(count, change, np.int8))]
    columns = [*first, pa.array(np.full(count, epoch)) if of is None else of, *table.columns]
    return pa.table(columns, [EPOCH, "@change", "@of", *table.column_names])
