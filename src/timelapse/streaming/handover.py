"""From replay to live: a live run that goes on where a run ended, without gap or repeat.

The run's log holds exactly what is at or before its end T. Rows at or before T that streams still have are skipped and counted; the journal goes on
behind the log, and what the run put out counts as put out. States, what is pending, what windows see, calls of `after=` handlers: all goes on.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from timelapse.analysis import analyse, final_pass
from timelapse.engine.boundary import Boundary
from timelapse.engine.digest import hash_rejected
from timelapse.engine.job import Job, SumRow, change_path, rows_name
from timelapse.errors import Place, ReplayError
from timelapse.ids import INT64_MAX
from timelapse.program.fingerprint import fingerprint
from timelapse.program.program import Program, spec_of
from timelapse.program.times import has_own_times
from timelapse.results.manifest import REMEDY
from timelapse.results.parameters import params_text
from timelapse.run.run import Run
from timelapse.store.parts import CheckedFile
from timelapse.streaming.format import LiveRun
from timelapse.streaming.place import LivePlace
from timelapse.streaming.programs import program_of
from timelapse.streaming.stand import Seen, Stand
from timelapse.streaming.sums import Sums
from timelapse.streaming.window import Block
from timelapse.tables import merge
from timelapse.tables.apply import empty
from timelapse.tables.effectlog import PRESENT
from timelapse.tables.table import read_table


class Origin:
    """The run that a live run goes on from. Raises ReplayError (TL515) where it is of another program, or lacks what the
    program looks back on."""

    def __init__(self, run: Run, program: Program) -> None:
        self._run, self._program, manifest = run, program, run.manifest
        if run.path is None or manifest.log is None:
            raise _unfit(
                run, "it is not stored, or its log is not", "replay a stored log into a folder: --out"
            )
        if manifest.fingerprint != fingerprint(program) or manifest.params != params_text(program):
            raise _unfit(
                run,
                f"it is of another program, version or parameters than this {spec_of(program).name}",
                "start from a run of the same code and parameters",
            )
        if manifest.quarantined and has_own_times(program):
            raise _unfit(
                run,
                "events were taken out of its log, and the program acts at other times than theirs",
                "begin live without it",
            )
        analysis = analyse(program)
        if analysis.serial_only is not None:
            raise _unfit(
                run,
                "the program runs as the serial loop, which begins with the log's first event",
                "begin live without it",
            )
        self.path: Path = run.path
        self._reader = run.need_reader()
        self.count = manifest.cuts[-1]
        """The journal's first row has this seq."""
        self.complete = _end_of(run)
        """Everything up to this time has happened."""
        self.begin = self._reader.ts_first
        job = Job(
            program, (final_pass(analysis),), self._reader, tuple(manifest.cuts), Path(), Path(), given=run.slices, clock=manifest.until
        )  # fmt: skip
        self._job, self._rows = job, Boundary.of(job, run.slices).rows
        for row in self._rows:
            for index in range(row.first, run.slices):
                if not (self.path / rows_name(index, row.state, row.form)).is_file():
                    raise _unfit(
                        run,
                        "it does not have what the program looks back on",
                        "replay it again with resumable=True (--resumable)",
                    )

    def is_over_the_events_of(self, other: Run) -> bool:
        """Whether another run has processed the same events, up to the same time."""
        mine, theirs = (
            (m.log_id, m.cuts[-1], m.part, m.types, m.without, _end_of(run))
            for run, m in ((self._run, self._run.manifest), (other, other.manifest))
        )
        return mine == theirs

    def sums(self) -> Sums:
        """What the run has put out."""
        manifest = self._run.manifest
        outputs, schemas = {}, {}
        for entry in manifest.records:
            if entry.rows:
                outputs[entry.name], schemas[entry.name] = SumRow.of(entry.sum()), entry.schema
        rejected = manifest.rejected_sum
        if rejected is None:
            rejected = SumRow.of(hash_rejected(self._run.stored_rejected()))
        return Sums(outputs, schemas, rejected, manifest.quarantined or 0)

    def stand(self) -> Stand:
        """Where the run ended. Raises StorageError (TL931) for a file of it that was altered."""
        specs, slices = spec_of(self._program).states, self._run.slices
        firsts = {(row.state, row.form): row.first for row in self._rows}
        changes = {name: [self._change(name, index) for index in range(slices)] for name in specs}

        def folded(name: str, end: int) -> pa.Table:
            own = [table for table in changes[name][:end] if table is not None]
            return merge.fold(specs[name], empty(specs[name]), own)

        seen, stood = [], {}
        for index in range(min(firsts.values(), default=slices), slices):
            end = self._job.end_of(index)
            assert end is not None
            own = [at for at, first in firsts.items() if first <= index]
            rows = {at: self._table(rows_name(index, *at)) for at in own}
            effects = {state: changes[state][index] for state, form in own if form == PRESENT}
            seen.append(
                Seen(end, rows, {name: table for name, table in effects.items() if table is not None})
            )
        for (state, form), first in firsts.items():
            if form == PRESENT:
                stood[state] = folded(state, first)
        return Stand({name: folded(name, slices) for name in specs}, tuple(seen), stood, self.complete)

    def _change(self, name: str, index: int) -> pa.Table | None:
        path = change_path(self.path, index, name)
        return self._table(path.relative_to(self.path).as_posix()) if path.exists() else None

    def _table(self, name: str) -> pa.Table:
        part = (self._run.manifest.files or {}).get(name)
        if part is not None:
            CheckedFile(self.path / name, part, REMEDY).need()
        return read_table(self.path / name)

    def blocks(self, since: int) -> list[Block]:
        """The log's rows that are later than a time, as the end of a journal."""
        lo = self._reader.seq_at(since + 1)
        chunks = self._reader.chunks(lo, self.count, {t.name: None for t in self._reader.types})
        return [Block.of(chunk.seq_lo, chunk.seq_hi, chunk.tables) for chunk in chunks if chunk.tables]


def _end_of(run: Run) -> int | None:
    last = run.need_reader().ts_before(INT64_MAX)
    return max((ts for ts in (last, run.manifest.until) if ts is not None), default=None)


def origin_of(place: LivePlace, live: LiveRun, program: Program) -> Origin | None:
    """The run that a live run goes on from, as the program that the live run began with reads it; None where there is none. `program`: what it is now."""
    if live.start_from is None:
        return None
    first = program if live.fingerprint == fingerprint(program) else program_of(place, live)
    return Origin(Run.open(live.start_from), first)


def _unfit(run: Run, why: str, hint: str) -> ReplayError:
    return ReplayError(
        f"live cannot go on from this run: {why}", place=Place(str(run.path or "")), hint=hint, code="TL515"
    )
