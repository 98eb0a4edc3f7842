"""What a live run's files say: the run, its epochs, its checkpoints. docs/format.md describes them."""

from __future__ import annotations

import msgspec

from timelapse.engine.job import SumRow
from timelapse.streaming.filters import Filter
from timelapse.streaming.streams import Partition, StreamEntry

FORMAT = 1
RUN = "live.json"
EPOCHS, CHECKPOINTS, VERSIONS, NEWEST = "epochs", "checkpoints", "versions", "newest"
REMEDY = "restore it from a copy; `timelapse live` goes on from the newest epoch that is whole"
_DIGITS = 20


class LiveRun(msgspec.Struct, frozen=True):
    """`live.json`: what does not change in the life of a run."""

    format: int
    timelapse: str
    run: str
    """A random name: what sinks know the run by."""
    program: str
    source: str | None
    fingerprint: str
    params: dict[str, str]
    types: list[tuple[str, list[tuple[str, str]]]]
    """Event types by number, with their fields: this order orders rows of the same time."""
    created: str
    start_from: str | None = None
    """The folder of the run that it goes on from."""
    first_seq: int = 0
    """The seq of the journal's first row."""


class Correction(msgspec.Struct, frozen=True):
    """What makes an epoch a correction: rows that came late were put into their places in the journal."""

    version: int
    """The journal's version that begins here; the first one is 0."""
    cut: int
    """The least time of the inserted rows: before it the journal, states and outputs are what they were."""
    start: int
    """The epoch from whose end it was replayed; 0: from where the run began."""
    first: int
    """The seq from which it was replayed."""
    before: int
    """The epoch of the correction before; 0 where there was none."""
    upto: int
    """The epoch up to whose late rows it has all."""


class Change(msgspec.Struct, frozen=True):
    """What makes an epoch a change of the program: from its end on another version runs.

    The epoch's sections have where that begins, as a whole checkpoint does. Sums of what was put out begin anew.
    """

    program: str
    source: str | None
    fingerprint: str
    params: dict[str, str]
    before: int
    """The change before; 0 where there was none."""
    seen: list[int]
    """The ends of the parts whose rows windows may still see."""
    types: list[tuple[str, list[tuple[str, str]]]] = []
    """The event types from here on, where they change (declared.py)."""


class Epoch(msgspec.Struct, frozen=True):
    """The manifest of an epoch. All counts and sums are of the run from its beginning to this epoch's end."""

    number: int
    run: str
    previous: str
    """The hash of the epoch before; of the first one, that of `live.json`."""
    writer: str
    attempt: str
    written: int
    """Wall clock, microseconds."""
    fingerprint: str
    lateness: int
    late_rows: str
    """What is done with late rows: drop, side or correct."""
    complete: int | None
    """The time up to which everything has happened."""
    begin: int | None
    """The time of the journal's first row."""
    first_seq: int
    rows: int
    """The journal's rows of this epoch."""
    streams: list[StreamEntry]
    partitions: list[Partition]
    held: int
    held_from: int
    """The oldest epoch in which rows arrived that still wait; this one's number where there are none."""
    outputs: dict[str, SumRow]
    schemas: dict[str, bytes]
    rejected: SumRow
    quarantined: int
    decisions: list[str] = []
    """What a clock or an operator has decided for this epoch, for people."""
    notes: list[tuple[int, str]] = []
    """What sources need to know again: the stream's number, a text of the source's own."""
    ended: bool = False
    """Whether all streams have ended."""
    version: int = 0
    """The journal's version."""
    last_correction: int = 0
    """The newest epoch up to this one that is a correction; 0 where none is."""
    corrected: int = 0
    """The epoch up to whose late rows all are in the journal or aside."""
    correction: Correction | None = None
    last_change: int = 0
    """The newest epoch up to this one at which the program changed; 0 where none did. Counts and sums of outputs are from there on."""
    change: Change | None = None
    filters: list[Filter] = []
    """Which rows were put aside as they came (filters.py)."""

    @property
    def end_seq(self) -> int:
        """The number of rows in the journal."""
        return self.first_seq + self.rows


class Checkpoint(msgspec.Struct, frozen=True):
    """The header of a checkpoint: where the program stood after an epoch.

    A whole one has all states; another has what was done to them since its `parent`, or since the journal began.
    """

    run: str
    epoch: int
    hash: str
    """That of the epoch."""
    complete: int
    fingerprint: str
    whole: bool
    parent: str = ""
    seen: list[int] = []
    """Of a whole one: the ends of the parts whose rows windows may still see."""
    notes: list[tuple[int, str]] = []
    """Of a whole one: what sources have noted in all epochs so far."""
    noted: bool = False
    """Whether `notes` has all that. Without it all epochs are asked."""


def epoch_name(number: int) -> str:
    """Where an epoch is."""
    return f"{EPOCHS}/{number:0{_DIGITS}d}"


def checkpoint_name(number: int, attempt: str) -> str:
    """Where a checkpoint is. Each attempt has a name of its own."""
    return f"{CHECKPOINTS}/{number:0{_DIGITS}d}-{attempt}"
