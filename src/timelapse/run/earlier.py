"""Going on from a run: a replay of what follows its log, with the result of one replay over all of it.

The slices of the run stay as they are: the new run has their files too, linked where the disk can. Later slices begin with
the states at the run's end, with what is pending there and what is dated, and with the rows of states that are looked
back on (engine/boundary.py). Calls of `after=` handlers and ticks follow from the log and the calendar.

Where the run's log has changed since (late events, events that were forgotten), only the slices before the first change stay, and the
replay goes on behind the last of them: its start state is what these slices left (run/untouched.py).

Where a run does not have all of that, everything is replayed, and the new run says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from timelapse.analysis import Analysis, final_pass
from timelapse.engine.boundary import Boundary, rows_before
from timelapse.engine.digest import hash_outputs, hash_rejected
from timelapse.engine.job import ROWS, Job, change_path, rows_name, schema_of
from timelapse.engine.outcome import Outcome
from timelapse.errors import EventOrderError, LogError, Place, ReplayError, UsageError
from timelapse.log import Log, MemoryLog
from timelapse.log.part import rank
from timelapse.model.events import Event
from timelapse.moments import shown_time
from timelapse.program.fingerprint import fingerprint
from timelapse.program.program import Program, spec_of
from timelapse.program.times import has_own_times, kept
from timelapse.results.data import DirectoryData
from timelapse.results.manifest import REMEDY, RunManifest
from timelapse.results.parameters import params_text
from timelapse.results.reload import log_of
from timelapse.run.run import Run
from timelapse.run.source import Source, open_source
from timelapse.run.untouched import Untouched, untouched
from timelapse.segments.joined import joined, version_with
from timelapse.segments.reader import EventReader
from timelapse.segments.without import base_of
from timelapse.store.moves import link_or_copy
from timelapse.store.parts import CheckedFile, Part
from timelapse.store.scratch import process_folder
from timelapse.tables import merge
from timelapse.tables.apply import NO_CHANGE, empty
from timelapse.tables.effectlog import PRESENT, since
from timelapse.tables.rowhash import HashSum
from timelapse.tables.table import read_table, write_table

_TAKEN = ("outputs/", "state/", "rejected/", "quarantined/")
"""What a run's slices wrote."""


@dataclass(frozen=True)
class Earlier:
    """The run that a replay starts from. `reason`: why all of the log is replayed nevertheless; empty where it is not."""

    run: Run
    events: int
    """So many events of the log it was over."""
    reason: str = ""
    parts: dict[str, Part | None] = field(default_factory=dict)
    """Its files that are of use, by their names; those of an older version have no checksums."""
    changed: Untouched | None = None
    """Where the log has changed since: what of the run holds."""

    @property
    def manifest(self) -> RunManifest:
        return self.run.manifest

    @property
    def whole(self) -> bool:
        """Whether all of the run's slices stay."""
        return self.slices == self.run.slices

    @property
    def slices(self) -> int:
        """So many of its slices stay, from the first on."""
        return self.run.slices if self.changed is None else self.changed.slices

    @property
    def cuts(self) -> list[int]:
        """Where these begin, and where the last of them ends."""
        return self.manifest.cuts[: self.slices + 1]

    @property
    def clocks(self) -> dict[int, int]:
        """How far the clock had gone on at the ends of slices that stay (RunManifest.clocks)."""
        found = {slices: clock for slices, clock in self.manifest.clocks.items() if slices <= self.slices}
        if self.whole and self.manifest.until is not None:
            found[self.slices] = self.manifest.until
        return found

    @property
    def clock(self) -> int | None:
        """The time to which the clock went on at the end of the slices that stay; None where that is their last event's."""
        return self.clocks.get(self.slices)

    @cached_property
    def taken(self) -> int:
        """Events that it took out of the log because a handler raised."""
        if self.whole or not self.manifest.quarantined:
            return self.manifest.quarantined or 0
        return int(DirectoryData(self._folder, self.manifest).first_quarantined(self.slices).num_rows)

    @property
    def _folder(self) -> Path:
        assert self.run.path is not None
        return self.run.path

    @property
    def known(self) -> dict[str, Part]:
        """The files that the new run has as they are, with their checksums. Rows are cut anew where they are kept again."""
        return {
            name: part for name, part in self.parts.items() if part is not None and name.startswith(_TAKEN)
        }

    def begin(self, job: Job) -> None:
        """Put what the later slices stand on into a job's folders. From here on the run may go away, or be replaced.

        Raises StorageError (TL931) for a file that was altered.
        """
        folder = self._folder
        (job.scratch / ROWS).mkdir(exist_ok=True)
        for name, part in self.parts.items():
            target = (job.scratch if name.startswith(f"{ROWS}/") else job.out) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(folder / name, target)
            if part is not None:
                CheckedFile(target, part, REMEDY).need()

    def put_starts(self, job: Job) -> None:
        """Write the states at the run's end, and those that look-backs begin with, for tasks that start at a slice."""
        boundary = Boundary.of(job, job.given)
        wanted = {(job.given, name) for name in boundary.states}
        # A later slice looks back less far: it may begin with the state at any slice from the first on.
        for row in boundary.rows:
            if row.form == PRESENT:
                wanted |= {(index, row.state) for index in range(max(1, row.first), job.given)}
        for slice_id, name in sorted(wanted):
            spec, path = spec_of(job.program).states[name], job.start_path(slice_id, name)
            path.parent.mkdir(exist_ok=True)
            changes = [change_path(job.out, index, name) for index in range(slice_id)]
            tables = [read_table(change) for change in changes if change.exists()]
            merge.fold_to(spec, empty(spec), tables, path, job.memory)

    def add_to(self, outcome: Outcome, job: Job) -> None:
        """Add what the run did to what the later slices did."""
        totals = outcome.totals
        data = DirectoryData(job.out, self.manifest)  # its own folder may be gone by now
        for entry in self.manifest.records:
            if not entry.rows:
                continue
            schema = schema_of(entry.schema)
            there = entry.sum()
            if not self.whole:
                there = hash_outputs(entry.name, data.first_outputs(entry.name, schema, self.slices))
            if there.rows:
                found = totals.outputs.get(entry.name)
                totals.outputs[entry.name] = there if found is None else there + found
                outcome.schemas.setdefault(entry.name, schema)
        refused = self.manifest.rejected_sum
        totals.rejected = totals.rejected + (
            refused.sum()
            if self.whole and refused is not None
            else hash_rejected(data.first_rejected(self.slices))
        )
        for name in spec_of(job.program).states:
            held = self.manifest.content.get(name) if self.whole else None
            content = self._content(job, name) if held is None else held.sum()
            found = totals.content.get(name)
            totals.content[name] = content if found is None else content + found
        totals.quarantined += self.taken

    def _content(self, job: Job, name: str) -> HashSum:
        """The hash of a state at the run's end, where its manifest does not have it."""
        spec = spec_of(job.program).states[name]
        changes = [change_path(job.out, index, name) for index in range(job.given)]
        tables = [read_table(path) for path in changes if path.exists()]
        return sum(merge.prefix(spec, empty(spec), tables, [None] * len(tables)), NO_CHANGE).content

    def describe(self) -> dict[str, Any]:
        """For the new run's certificate."""
        return {
            "run": str(self.run.path),
            "digest": self.run.digest,
            "events": self.events,
            "slices": self.slices,
            "of": self.run.slices,
            "reason": self.reason,
            "changed_from": None if self.changed is None else self.changed.first,
        }


def open_after(
    given: Run | str | Path, log: Any, program: Program, analysis: Analysis, *, quarantine: bool,
    most: int | None = None,
) -> tuple[Source, Earlier]:  # fmt: skip
    """What a replay that starts from a run reads, and what of the run it stands on: of `most` of its slices at most.

    `log` is the run's log, to which events were appended, or another one that follows it. Raises ReplayError (TL515) where
    the run is of another program, EventOrderError (TL408) where the events do not follow it.
    """
    run = Run.of(given)
    manifest = run.manifest
    if run.path is None:
        raise UsageError(
            "start_from= (--start-from) is a run that is only in memory", code="TL810",
            hint="start from a run that tl.replay returned, or from its folder",
        )  # fmt: skip
    if manifest.fingerprint != fingerprint(program) or manifest.params != params_text(program):
        raise ReplayError(
            f"the run is of another program, version or parameters than this {spec_of(program).name}",
            place=Place(str(run.path)), code="TL515",
            hint="start from a run of the same code and parameters, or replay without it",
        )  # fmt: skip
    if manifest.quarantined and not quarantine:
        raise ReplayError(
            f"the run took {manifest.quarantined:,} events out of the log at which a handler raised",
            place=Place(str(run.path)), hint="pass quarantine=True (--quarantine) here too", code="TL515",
        )  # fmt: skip
    source, changed = _source_after(run, log, program)
    earlier = Earlier(run, 0, "", {}, changed)
    if most is not None and earlier.slices > most:
        earlier = _first(earlier, most)
    while not earlier.whole and earlier.slices and _is_before_clock(earlier, source.reader):
        earlier = _first(earlier, earlier.slices - 1)
    changed = earlier.changed
    cuts, seq = earlier.cuts, source.reader.seq_after(source.reader.count)
    if earlier.whole:
        events = manifest.events + (0 if not has_own_times(program) else manifest.quarantined or 0)
    else:
        events = rank(source.reader, cuts[-1])
    if source.reader.count > events and earlier.clock is not None:
        _refuse_before(source.reader, events, earlier.clock, run.path)
    reason = _unfit(run, program, analysis, quarantine=quarantine)
    if not earlier.whole:
        reason = reason or _too_little(earlier)
    parts: dict[str, Part | None] = {}
    if not reason:
        known = dict(_files(run))
        parts = {name: part for name, part in known.items() if _of_slices(name, earlier.slices)}
        probe = Job(
            program, (final_pass(analysis),), source.reader, (*cuts, seq), Path(), Path(),
            given=earlier.slices, clock=earlier.clock,
        )  # fmt: skip
        rows = [name for name in Boundary.of(probe, earlier.slices).names() if name.startswith(f"{ROWS}/")]
        if any(name not in known for name in rows):
            reason = "it was not made with resumable=True (--resumable), and the program looks back on states"
    if reason:
        return source, Earlier(run, events, reason, {}, changed)
    counts = {t.name: source.reader.rows(t.name, cuts[-1], seq) for t in source.reader.types}
    return replace(source, counts=counts, begin=events), replace(earlier, events=events, parts=parts)


def _first(earlier: Earlier, slices: int) -> Earlier:
    """The same run, of which only so many slices stay."""
    known, end = earlier.changed, earlier.manifest.cuts[slices]
    version, first = (0, None) if known is None else (known.version, known.first)
    return Earlier(earlier.run, 0, "", {}, Untouched(version, first, slices, end))


def _is_before_clock(earlier: Earlier, reader: EventReader) -> bool:
    """Whether the first event behind the slices that stay is before the time to which their clock went on."""
    if earlier.clock is None:
        return False
    first = reader.ts_before(reader.seq_after(rank(reader, earlier.cuts[-1]) + 1))
    return first is not None and first < earlier.clock


def _too_little(earlier: Earlier) -> str:
    """Why nothing of a run holds whose log has changed since; empty where something does."""
    assert earlier.changed is not None
    if earlier.manifest.files is None:
        return "a version that kept no list of its files made it, and its log has changed since"
    if not earlier.slices:
        return (
            f"its log has changed since from event {earlier.changed.first:,} on, which is in the run's first slice "
            "(a run in more slices, slices= or --slices, has more places to go on from)"
        )  # fmt: skip
    return ""


_SLICE = re.compile(r"(?:part-)?([0-9]{6,})[-.]")


def _of_slices(name: str, slices: int) -> bool:
    """Whether a file of a run is what one of its first slices wrote, or the rows that one left."""
    found = _SLICE.match(name.rpartition("/")[2])
    return name.startswith((*_TAKEN, f"{ROWS}/")) and found is not None and int(found[1]) < slices


def _refuse_before(reader: EventReader, events: int, until: int, path: Path) -> None:
    """Raise EventOrderError where the first event after a run is before the time to which its clock went on."""
    first = reader.ts_before(reader.seq_after(events + 1))
    if first is not None and first < until:
        raise EventOrderError(
            f"an event at {shown_time(first)} follows a run whose clock went on to {shown_time(until)}",
            place=Place(str(path)), hint="replay without start_from, or make the run without until", code="TL408",
        )  # fmt: skip


def _unfit(run: Run, program: Program, analysis: Analysis, *, quarantine: bool) -> str:
    """Why a run's states are of no use; empty where they are."""
    if analysis.serial_only is not None:
        return "the program runs as the serial loop, which begins with the log's first event"
    if has_own_times(program) and (quarantine or run.manifest.quarantined is not None):
        return "an event that fails after its own time is taken out with all that stems from it"
    return ""


def _files(run: Run) -> Iterator[tuple[str, Part | None]]:
    """The run's files by their names."""
    if run.manifest.files is not None:
        yield from run.manifest.files.items()
        return
    assert run.path is not None
    for path in sorted(run.path.rglob("*")):
        if path.is_file():
            yield path.relative_to(run.path).as_posix(), None


# --- the log ------------------------------------------------------------------------------------------


def _source_after(run: Run, log: Any, program: Program) -> tuple[Source, Untouched | None]:
    """What is read, and what of the run holds where its log has changed since."""
    manifest = run.manifest
    if isinstance(log, str | Path):
        log = Log.open(log)
    if manifest.part and manifest.part[0]:
        raise ReplayError(
            f"the run is over a part of its log, from event {manifest.part[0]:,} on, and what follows is numbered from the log's beginning",
            place=Place(str(run.path)), hint="start from a run that began with its log's first event", code="TL515",
        )  # fmt: skip
    if isinstance(log, Log):
        found = untouched(manifest, log)
        if log.part is not None and log.part[0]:
            raise _wrong_part("it begins where that run ended, and nowhere else", "leave --from (since=) out")
        if log.part is not None and log.part[1] < manifest.cuts[-1]:
            raise _wrong_part("the part of the log ends before that run did", "give a later --to (before=)")
        if found is None and (log.part is not None or manifest.part or log.only_types or manifest.types):
            raise _wrong_part(
                "parts of logs do not follow one another",
                "go on over the run's own log, whole or up to a later time",
            )
        if list(log.only_types) != manifest.types:
            own = ",".join(manifest.types)
            raise _wrong_part(
                f"it is over {f'events of type {own} only' if own else 'events of all types'}",
                f"go on over the same: Log.only (--types {own})" if own else "leave Log.only (--types) out",
            )
        if found is not None:
            return open_source(log, program), None if found.first is None else found
        if _is_older(log, manifest):
            raise LogError(
                f"the run is over a later version of this log than version {log.version}", place=Place(str(log.path)),
                hint="go on with the version of the run, or a later one", code="TL440",
            )  # fmt: skip
        return _open_joined(run, log, program, lasting=manifest.log is not None), None
    later = open_source(log, program).reader
    assert isinstance(later, MemoryLog)
    before = run.need_reader()
    if isinstance(before, MemoryLog):
        end = before.seq_after(before.count)
        classes = list(dict.fromkeys([*before.classes, *later.classes]))
        events = [*_all(before), *(e._at(e.ts, end + e.seq) for e in _all(later))]
        return open_source(MemoryLog(events, classes), program), None
    return _open_joined(run, _stored(later), program, lasting=False), None


def _wrong_part(why: str, hint: str) -> UsageError:
    return UsageError(f"a replay cannot start from that run: {why}", hint=hint, code="TL810")


def _is_older(log: Log, manifest: RunManifest) -> bool:
    """Whether a run is over a later version of a log than this one."""
    if manifest.log_id is None or manifest.logs:
        return False
    found = version_with(log.path, base_of(manifest.log_id))
    return found is not None and found.version > log.version


def _log_before(run: Run) -> Log:
    """The log of a run as it was."""
    if run.manifest.log is not None:
        return log_of(run.manifest)
    reader = run.need_reader()
    assert isinstance(reader, MemoryLog)
    return _stored(reader)


def _stored(reader: MemoryLog) -> Log:
    """Events in memory as a log that lasts as long as this process."""
    events = _all(reader)
    if events and (events[0].seq != 0 or events[-1].seq != len(events) - 1):
        raise UsageError(
            "the events have numbers (seq) with gaps, and a log numbers its events from 0", code="TL810",
            hint="leave seq out: it is given in the order of the list",
        )  # fmt: skip
    return Log.from_events(process_folder("log", large=True) / "log", events, reader.classes)


def _all(reader: MemoryLog) -> list[Event]:
    end = reader.seq_after(reader.count)
    return list(reader.events(0, end, {cls.__name__: cls for cls in reader.classes}))


def _open_joined(run: Run, later: Log, program: Program, *, lasting: bool) -> Source:
    """The run's log followed by another. `lasting`: both can be opened again."""
    before = _log_before(run)
    whole = joined([(before.path, before.manifest), (later.path, later.manifest)])
    left = (*before.left_out, *(before.manifest.count + seq for seq in later.left_out))
    found = open_source(Log(before.path, whole, left), program)
    if not lasting:
        return replace(found, path=None)
    names = run.manifest.logs or [[str(before.path), before.manifest.id]]
    names = [*names, [str(later.path), later.manifest.id]]
    return replace(found, logs=tuple((path, log_id) for path, log_id in names))


# --- what a later run needs ---------------------------------------------------------------------------


def keep_rows(job: Job, out: Path) -> str:
    """Keep, beside a run, the rows that a run which starts from it looks back on: from the end of any slice, as its log may
    change behind that. Returns why not, if it cannot be."""
    rows = Boundary.of(job, job.slices).rows
    end = job.end_of(job.slices - 1)
    if end is None:
        return ""
    widths = kept(job.program)
    for row in rows:
        needed = rows_before(job, job.slices, widths[row.state])
        for index in range(job.slices):
            path, target = (
                job.rows_path(index, row.state, row.form),
                out / rows_name(index, row.state, row.form),
            )
            if not path.is_file():
                if index in needed:
                    return f"the rows of {row.state} were not written"
                continue  # the run that this one started from did not keep them
            target.parent.mkdir(exist_ok=True)
            table = read_table(path)
            # A later slice looks back from its own start, which is at the end of this one or behind it.
            ends = job.end_of(index)
            recent = [] if ends is None else since([table], ends - widths[row.state])
            if row.form == PRESENT or (recent and recent[0].num_rows == table.num_rows):
                link_or_copy(path, target)
            else:
                write_table(recent[0] if recent else table.slice(0, 0), target)
    return ""
