"""A replay job: everything that a task needs to know, on whatever machine it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa

from timelapse.analysis.result import PassProgram
from timelapse.errors import ReplayError
from timelapse.kernels.companions import Companion
from timelapse.kernels.tuning import USUAL, KernelTuning
from timelapse.model.events import Event, Record
from timelapse.program.program import Program, spec_of
from timelapse.segments.reader import EventReader
from timelapse.segments.types import heard
from timelapse.store.parts import Part
from timelapse.tables.apply import Change
from timelapse.tables.rowhash import ZERO, HashSum


@dataclass
class Aside:
    """Output parts of other programs that run beside a final pass that is one task.

    The reports of its slices tell what they did (SliceReport.aside). Their files lie in `folder`, as those of an attempt.
    """

    companions: tuple[Companion, ...]
    folder: Path

    def scratch(self, number: int) -> Path:
        """Where the results of one of them are, laid out as in a job's scratch."""
        return self.folder / str(number)


@dataclass(frozen=True)
class Job:
    """One replay. Shipped whole to executors; `scratch` and `out` lie on storage that all of them see."""

    program: Program
    passes: tuple[PassProgram, ...]
    """The delta and chain passes, by index; the last one is the final pass."""
    reader: EventReader
    cuts: tuple[int, ...]
    """Slice i is the events with cuts[i] <= seq < cuts[i + 1]."""
    scratch: Path
    out: Path
    memory: int | None = None
    """Bytes that a task's states should not exceed by much; None: what its machine has for it."""
    careful: bool = False
    """Whether that is what the user asked for: then it is measured what events take where nobody knows it."""
    quarantine: int | None = None
    """At most so many events at which a handler raises are taken out of the log; None: the first one fails the run."""
    until: int | None = None
    """The time to which the clock goes on after the last event."""
    lasting: bool = True
    """Whether the run is to outlive the process: then results are durable when a task ends."""
    aside: Aside | None = None
    """What runs beside the final pass."""
    given: int = 0
    """So many slices at the beginning are those of a run that this one starts from: they do not run."""
    clock: int | None = None
    """The time to which the clock of that run went on after its last event."""
    ends: tuple[int | None, ...] = ()
    """The times up to which given slices go, where the log does not have their events any more."""
    resumable: bool = False
    """Whether rows of states that are looked back on are wanted at the end, for a run that starts from this one."""
    marks: bool = False
    """Whether tasks say what they are done with, for a replay that goes on where this one is killed (engine/resume.py)."""
    tuning: KernelTuning = USUAL
    """Thresholds of the kernels that tasks open."""
    runs: tuple[int, ...] = ()
    """The slices at which tasks begin, if a staged run takes several slices together; (): each is a task's own."""

    @property
    def slices(self) -> int:
        return len(self.cuts) - 1

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The slices that tasks take together: the first and the last of each."""
        begins = self.runs or range(self.slices)
        return tuple(zip(begins, (*(b - 1 for b in begins[1:]), self.slices - 1), strict=True))

    @property
    def classes(self) -> dict[str, type[Event]]:
        return {cls.__name__: cls for cls in heard(spec_of(self.program), self.reader.types)}

    def end_of(self, slice_id: int) -> int | None:
        """The time up to which a slice goes: its last event's, of whatever type, or `until`."""
        if slice_id < len(self.ends):
            return self.ends[slice_id]
        if slice_id not in self._last_times:
            self._last_times[slice_id] = self.reader.ts_before(self.cuts[slice_id + 1])
        last = self._last_times[slice_id]
        if slice_id == self.given - 1 and self.clock is not None:
            return self.clock if last is None else max(last, self.clock)
        if slice_id < self.slices - 1 or self.until is None:
            return last
        return self.until if last is None else max(last, self.until)

    @cached_property
    def _last_times(self) -> dict[int, int | None]:
        """When slices' last events were, as far as it was asked: a cut within a block is found by reading the block."""
        return {}

    def effects_path(self, attempt: str, slice_id: int, state: str) -> Path:
        """What one attempt at a pass found a slice to do to a state; by key, to one worker's part of it."""
        return self.scratch / EFFECTS / f"{attempt}-{slice_id:06d}-{state}.arrow"

    def start_path(self, slice_id: int, state: str) -> Path:
        """The state at a slice's start (no file for slice 0: it is empty)."""
        return self.scratch / start_name(slice_id, state)

    def recording_path(self, attempt: str) -> Path:
        """What one attempt at a pass found the events of a slice to do from a guessed start (kernels/iterate/recording.py)."""
        return self.scratch / "recordings" / attempt

    def rows_path(self, slice_id: int, state: str, form: str) -> Path:
        """What a slice did to a state that is looked back on (tables/effectlog.py)."""
        return self.scratch / rows_name(slice_id, state, form)

    def attempt_rows_path(self, attempt: str, slice_id: int, state: str, form: str) -> Path:
        """The same, as one attempt at a pass found it, ahead or final; by key, by one worker."""
        return self.rows_folder / f"{attempt}-{slice_id:06d}-{form}-{state}.arrow"

    @property
    def rows_folder(self) -> Path:
        return self.scratch / ROWS

    def attempt_path(self, attempt: str) -> Path:
        """Where one attempt at the final pass of a slice puts its results, laid out as in a run."""
        return self.scratch / RESULTS / attempt


STARTS, ROWS, EFFECTS, RESULTS = "starts", "rows", "effects", "results"
"""Folders in a job's scratch."""


def start_name(slice_id: int, state: str) -> str:
    """Where a state at a slice's start is, in a job's scratch."""
    return f"{STARTS}/{slice_id:06d}-{state}.arrow"


def rows_name(slice_id: int, state: str, form: str) -> str:
    """Where the rows of what a slice did to a state are."""
    return f"{ROWS}/{slice_id:06d}-{form}-{state}.arrow"


def change_path(run: Path, slice_id: int, state: str) -> Path:
    """Where a run keeps what a slice changed of a state."""
    return run / "state" / state / f"{slice_id:06d}.arrow"


def outputs_path(run: Path, record: str, slice_id: int) -> Path:
    """Where a run keeps a slice's outputs of one record type."""
    return run / "outputs" / record / f"part-{slice_id:06d}.parquet"


def rejected_path(run: Path, slice_id: int) -> Path:
    """Where a run keeps a slice's rejected events."""
    return run / "rejected" / f"part-{slice_id:06d}.parquet"


def quarantined_path(run: Path, slice_id: int) -> Path:
    """Where a run keeps a slice's events that were taken out of the log."""
    return run / "quarantined" / f"part-{slice_id:06d}.parquet"


class Task(msgspec.Struct, frozen=True):
    """One piece of work.

    - `pass`: run pass `index` over slices `first` to `last` as if they were one, write its effects
    - `chain`: run pass `index` over slices `first` to `last`, one after the other, from the
      state at `first`, and write each one's effects; with `parts` only worker `part`'s share of the events
    - `guess`: run pass `index` over slice `first`, its own states as they are at the start of slice `seed`, and record
      what each event did
    - `repair`: what `chain` does, by going through the recordings of `guess`
    - `merge`: apply to the start of slice `first` of state `state` what slices `first` to `last` do to it, and write the
      start of the next. With `leads` the effects are what `attempts` at the final pass changed, one for each slice, else what
      `attempts` at pass `index` found slice `first` to do, one for each worker by key
    - `final`: the final pass over slices `first` to `last`
    - `final_chain`: the final pass over slices `first` to `last`, from the changes before `first`

    `threads`: how many cores the task has for itself. `ahead`: its start states may turn out to be wrong, so each
    event has a budget (kernels/budget.py). `share`: how many events the pass has for the process that runs the task, in
    this task and others; 0: those of the task. It tells whether machine code is worth having. `attempts`: whose files it reads: of a
    repair those of the guesses, one for each slice, "" where there is none. `files`: sizes and checksums of files that it reads, by
    their paths in the job's scratch. `start`: what it begins from, as `Known.start` tells it. `again`: so many others were begun for
    the same work before.

    Whoever runs a task, and how often, writes under a name of that attempt's own (SliceReport.attempt), and only files of attempts
    whose result the driver took are ever read.
    """

    id: int
    kind: Literal["pass", "chain", "guess", "repair", "merge", "final", "final_chain"]
    name: str
    index: int = 0
    first: int = 0
    last: int = 0
    state: str = ""
    events: int = 0
    attempts: tuple[str, ...] = ()
    threads: int = 1
    ahead: bool = False
    part: int = 0
    parts: int = 1
    seed: int = 0
    share: int = 0
    leads: bool = False
    files: dict[str, Part] = {}
    start: str = ""
    again: int = 0


class SumRow(msgspec.Struct, frozen=True):
    """A HashSum as it travels."""

    low: int
    high: int
    rows: int

    @classmethod
    def of(cls, total: HashSum) -> SumRow:
        return cls(total.low, total.high, total.rows)

    def sum(self) -> HashSum:
        return HashSum(self.low, self.high, self.rows)


class RepairRow(msgspec.Struct, frozen=True):
    """What repairing a slice took: see kernels.repair.Repaired."""

    events: int
    again: int
    depth: int
    rest: int
    reason: str


class SliceReport(msgspec.Struct):
    """What a task says of one slice.

    `moved` and `content`: see tables.apply.Change. `attempt` names the folder of its results, and of a pass that runs ahead its
    files; `classes` maps the names of the record types in it to the classes.
    """

    slice: int
    events: int = 0
    attempt: str = ""
    classes: dict[str, str] = msgspec.field(default_factory=dict)
    moved: dict[str, SumRow] = msgspec.field(default_factory=dict)
    content: dict[str, SumRow] = msgspec.field(default_factory=dict)
    outputs: dict[str, SumRow] = msgspec.field(default_factory=dict)
    schemas: dict[str, bytes] = msgspec.field(default_factory=dict)
    rejected: SumRow = SumRow(0, 0, 0)
    parts: dict[str, Part] = msgspec.field(default_factory=dict)
    """The files of the run that it wrote, by their paths in its attempt's folder, which are those in the run: sizes and checksums."""
    beside: dict[str, Part] = {}
    """The files that other tasks read, by their paths in the job's scratch."""
    quarantined: int = 0
    pending: dict[str, int] = {}
    """What lies ahead at its end."""
    repaired: RepairRow | None = None
    """What repairing it took."""
    aside: dict[int, SliceReport] | None = None
    """Of output parts that ran beside it (Job.aside): what each did, by its number. One that was given up has none. None: they did not run."""

    def put_changes(self, changes: Mapping[str, Change]) -> None:
        self.moved = {name: SumRow.of(c.moved) for name, c in changes.items()}
        self.content = {name: SumRow.of(c.content) for name, c in changes.items()}


class Failure(msgspec.Struct):
    """A handler's exception, as it travels: the fields of HandlerError.

    `spent`: there was none; an event of a task that ran ahead spent its budget.
    """

    slice: int
    message: str
    file: str | None
    line: int | None
    what: str | None
    hint: str | None
    code: str
    ts: int
    seq: int
    handler: str
    event: str
    traceback: str
    event_type: str = ""
    cause: str = ""
    reproducible: bool = True
    spent: bool = False
    taken: tuple[tuple[int, int, int, str, str, str, str | None, int | None], ...] = ()
    """What was taken out before, where this event was one too many (HandlerError.taken)."""
    before: tuple[tuple[int, int, int, str, str, str, str | None, int | None], ...] = ()
    """What the task had taken out before in all its slices."""


class TaskResult(msgspec.Struct):
    """What a task returns to the driver: numbers only; tables lie in files.

    `seconds`: where its time went, by phase (engine/account.py); `total` is all of it.
    """

    id: int
    reports: list[SliceReport] = msgspec.field(default_factory=list)
    failure: Failure | None = None
    seconds: dict[str, float] = msgspec.field(default_factory=dict)
    compiled: bool = False
    """Whether the pass ran compiled, to its end."""
    why_python: str = ""
    """Why not, where only trying has shown it."""
    workers: int = 1
    """By key: how many threads shared out the events."""
    abandoned: str = ""
    """Why it was given up by key, and run again without."""
    abandoned_is_bug: bool = False


@dataclass
class Totals:
    """Sums over the slices of a finished run."""

    outputs: dict[str, HashSum] = field(default_factory=dict)
    rejected: HashSum = ZERO
    content: dict[str, HashSum] = field(default_factory=dict)
    quarantined: int = 0

    def add(self, report: SliceReport) -> None:
        for name, row in report.outputs.items():
            self.outputs[name] = self.outputs.get(name, ZERO) + row.sum()
        for name, row in report.content.items():
            self.content[name] = self.content.get(name, ZERO) + row.sum()
        self.rejected = self.rejected + report.rejected.sum()
        self.quarantined += report.quarantined


def schema_bytes(schema: pa.Schema) -> bytes:
    return bytes(schema.serialize())


def schema_of(data: bytes) -> pa.Schema:
    """The schema that `schema_bytes` has written."""
    return pa.ipc.read_schema(pa.py_buffer(data))


def same_name(name: str) -> ReplayError:
    """The error for two record classes that a run could not tell apart."""
    return ReplayError(
        f"two record types are called {name}: a run keeps outputs by that name", hint="rename one of them",
        code="TL509",
    )  # fmt: skip


def record_name(record: type[Record]) -> str:
    return record.__name__


def task_bytes(value: Any) -> bytes:
    return msgspec.json.encode(value)
