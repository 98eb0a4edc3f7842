"""`tl.live`: a program on streams, epoch by epoch."""

from __future__ import annotations

import shutil
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import pyarrow as pa

from timelapse.errors import Place, RunError, SourceError, UsageError
from timelapse.model.events import Record
from timelapse.moments import Moment, micros
from timelapse.program.fingerprint import fingerprint
from timelapse.program.program import Program, as_program
from timelapse.progress import Progress, Silent
from timelapse.run.request import Engine
from timelapse.run.run import Run
from timelapse.segments.types import event_types
from timelapse.store.scratch import scratch_folder
from timelapse.streaming import chain
from timelapse.streaming.choosing import Slicing
from timelapse.streaming.correction import refuse_seq
from timelapse.streaming.declared import (
    Unfit,
    declared_records,
    differences,
    grown,
    put_out,
    types_of,
    unsafe,
)
from timelapse.streaming.early import Copies, EarlyResults, checked_every
from timelapse.streaming.evolution import Migration
from timelapse.streaming.filters import Filter, changed, other, read_filter
from timelapse.streaming.format import RUN, Epoch
from timelapse.streaming.handover import Origin, origin_of
from timelapse.streaming.head import Head
from timelapse.streaming.health import Health
from timelapse.streaming.lease import EVERY
from timelapse.streaming.loop import Loop, Timing
from timelapse.streaming.once import unique_fields
from timelapse.streaming.opening import (
    begin_run,
    check_change,
    check_options,
    check_sources,
    event_classes,
    layouts_of,
    newest_epoch,
    numbered,
    refuse_impure,
    refuse_sinks,
    sources_of,
    streams_before,
)
from timelapse.streaming.place import LivePlace, live_place
from timelapse.streaming.published import Published, latest, published_in
from timelapse.streaming.reading import Reading
from timelapse.streaming.rules import Rules
from timelapse.streaming.sinks.base import Follower, Sink, SinkError, check_sinks
from timelapse.streaming.sinks.callback import Callback
from timelapse.streaming.sources.push import Push
from timelapse.streaming.spans import Span, micros_of
from timelapse.streaming.spread import Told
from timelapse.streaming.states import States
from timelapse.streaming.streams import Limits
from timelapse.streaming.successor import successor

Late = Literal["side", "drop", "correct"]


def live(
    program: Program | type[Program], streams: Mapping[Any, Any], out: str | Path, *, lateness: Span = 0,
    trigger: Span = "500ms", trigger_rows: int | None = None, idle: Span | None = "10s", late: Late = "side", ahead: Span | None = "1h",
    not_before: Moment | None = None, checkpoint: Span = "30s", quarantine: bool = False, max_quarantined: int = 1000,
    once: bool = False, correct_every: Span = "10s", correct_rows: int | None = None, correct_within: Span | None = "1d", unique_within: Span = "10m", start_from: Run | str | Path | None = None, sinks: Sequence[Sink] = (), standby: Span | None = None,
    evolve: bool | Migration = False, reprocess_from: Moment | None = None, promote: str | None = None, rebuild: bool = False, slice_rows: int | None = None, engine: Engine = "auto", filters: Sequence[str] | None = None, early: Span | None = None, allow_impure: bool = False, progress: Progress | None = None,
) -> Live:  # fmt: skip
    """Run a program on streams. Returns when it has begun; it goes on in the background until it is stopped.

    `streams` says where each event type comes from: a folder or pattern of files (new ones are read as they appear), one
    text file that grows, a streaming DataFrame of Spark, `tl.Source(...)` with the layout of either, `tl.Push()` for rows that are sent, or {name: source} for several. The order
    of types orders rows of the same time, and then that of names.

    `out` is the run's directory, or a URL of an object store (`s3://bucket/live`). Where a live run of the same program is there, this one goes on behind its last epoch.

    A row may come `lateness` after later ones of its partition; one that comes later still is late: put aside ("side"),
    counted with its place ("drop"), or put into its place after all ("correct"): the journal gets a new version, and what that changes is published as
    retractions and additions (`Live.feed`). That is done `correct_every`, or once there are `correct_rows` of them; rows that are `correct_within` or more behind
    their partition's mark are put aside (None: none is). Rows further than `ahead` ahead of now, or before `not_before`, are put aside before they
    count. Of rows that have the same values in the fields that their source says (`unique` of tl.Source) one counts, the first in the order of the journal, if the others are
    no more than `unique_within` later. A partition without rows for `idle` no longer holds the others back (None: it does). An epoch is committed every `trigger` at most; with `trigger_rows`
    once there are so many rows, and `trigger` after it began in any case. A checkpoint is written every `checkpoint`. Lengths of time are "500ms", "5s", "1h", or seconds.

    With `quarantine` an event at which a handler raises is taken out, and the run goes on; at most `max_quarantined` of an epoch. `once`: what
    sources have now is processed to its end, and the run ends; a `tl.Push` ends when it is closed. `start_from`: a run that the live run goes on from: its log has all rows up to its
    end, so those that streams still have are skipped and counted.

    `sinks` take outputs besides the run's own files (timelapse.streaming.sinks): each epoch exactly once, behind the run at their own pace.

    `standby`: follow the process that runs this live run, serve reads, and take over once it has not been heard of for so long ("3s").

    `filters`: rows that are put aside as they come, before the program sees them: "Message: sender == 512", and others (None: as the run that is there has
    recorded; (): none). `Live.keep_out` changes it while the run goes on.

    `early`: every so often ("1s") what rows that still wait would put out is computed, on a copy of the program's states: `Live.early`.

    Epochs of many rows (a backlog, a load spike) can be processed as time slices, on Spark's executors or all cores, with the same result: where it is foretold
    to be quicker (`slice_rows=None`), from so many rows on, or never (0). `engine`: "auto" takes Spark where there is a session, "spark" starts one, "local" does
    without.

    `evolve`: this is the next version of the program of the live run that is there: an epoch records the change, and states of the same name and declaration go on;
    a Migration says what becomes of others. What is unsafe is refused (TL847). With `reprocess_from` it takes over from
    that time on: the journal's rows since go through it, and what it puts out takes the place of what was put out, as retractions and additions (`Live.feed`). `promote`: the same, with the states of the shadow of this name, which has seen all of the journal.
    `rebuild`: use no checkpoint, and run the journal again from its beginning, or from where the program changed.

    Raises UsageError, RunError (TL943) where another program's run is at `out`, ImpureProgram. What happens later is raised by `Live.wait`.
    """
    given = as_program(program)
    check_options(late, correct_rows, trigger_rows, slice_rows, engine)
    check_change(evolve=bool(evolve), promote=promote, again=reprocess_from is not None)
    since = None if reprocess_from is None else micros(reprocess_from, "reprocess_from= (--reprocess-from)")
    every = 0.0 if early is None else checked_every(given, early)
    if late == "correct":
        refuse_seq(given)
        refuse_sinks(sinks, "corrections of late rows bring", "leave late rows aside (--late side)")
    if since is not None:
        refuse_sinks(sinks, "reprocess_from= (--reprocess-from) brings", "leave the sink out for good")
    refuse_impure(given, allowed=allow_impure)
    types = event_classes(given, streams)
    declared = event_types(types)
    rules = Rules(
        micros_of(lateness, "lateness= (--lateness)"), late,
        Limits(
            None if ahead is None else micros_of(ahead, "ahead= (--ahead)"),
            None if not_before is None else micros(not_before, "not_before="),
        ),
        max_quarantined if quarantine else None,
        None if correct_within is None else micros_of(correct_within, "correct_within= (--correct-within)"),
        unique_fields(((kind, layouts_of(streams, cls)) for kind, cls in zip(declared, types, strict=True))),
        micros_of(unique_within, "unique_within= (--unique-within)"),
    )  # fmt: skip
    timing = Timing(
        micros_of(trigger, "trigger= (--trigger)") / 1e6,
        trigger_rows,
        None if idle is None else micros_of(idle, "idle= (--idle)") / 1e6,
        micros_of(checkpoint, "checkpoint= (--checkpoint)") / 1e6,
        micros_of(correct_every, "correct_every= (--correct-every)") / 1e6,
        correct_rows,
        None if standby is None else micros_of(standby, "standby= (--standby)") / 1e6,
        promote is not None or bool(evolve),
    )
    if timing.standby is not None and timing.standby < 2 * EVERY:
        raise UsageError(
            f"standby= (--standby) is {standby!r}: who runs a live run says so every {EVERY} s",
            hint="give 1s or more",
            code="TL810",
        )
    wanted = None if filters is None else [read_filter(text, declared) for text in filters]
    place = live_place(out)
    origin = None if start_from is None else Origin(Run.of(start_from), given)
    made = sources_of(streams, place, once=once, trigger=timing.trigger)
    if engine == "spark" and slice_rows != 0:
        from timelapse.env.spark_session import session

        session()
    slicing = Slicing(slice_rows, engine=engine)
    heard_by = Silent() if progress is None else progress
    if not place.exists(RUN):
        try:
            check_sinks(sinks, list(declared_records(given)))
            check_sources(made, declared, heard_by.note)
        except (SinkError, SourceError):
            if not place.exists(
                RUN
            ):  # else another process has begun this run meanwhile: what sinks have is of it
                raise
    run, run_hash = begin_run(place, given, types, origin)
    if origin is None:
        origin = origin_of(place, run, given)
    elif run.start_from != str(origin.path.absolute()):
        raise RunError(
            "the live run that is there goes on from another run, or from none", place=Place(str(place)), code="TL943",
            hint="leave start_from= (--start-from) out, or write to another directory",
        )  # fmt: skip
    before = types_of(place, run, newest_epoch(place))
    try:
        known = grown(before, declared)
    except Unfit as error:
        raise unsafe(given, error.what, error.hint) from None
    names = [kind.name for kind in declared]
    if (order := [kind.name for kind in known if kind.name in names]) != names:
        raise RunError(
            f"the live run orders rows of the same time by the event types {', '.join(order)}, and these streams are given as {', '.join(names)}",
            place=Place(str(place)), code="TL943", hint="give them in the run's order, new ones last",
        )  # fmt: skip
    if known != before and promote is None and not evolve:
        raise RunError(
            f"the live run has other event types: {'; '.join(differences(before, known, declared))}",
            place=Place(str(place)), code="TL943",
            hint="say that this is the next version with evolve=True (--evolve), or write to another directory",
        )  # fmt: skip
    folder = scratch_folder("live", large=True)
    change = successor(
        place,
        run,
        before,
        known,
        declared,
        given,
        evolve,
        promote,
        origin,
        heard_by.note,
        since,
        rules.quarantine,
    )
    last = newest_epoch(place)
    if since is not None and last is not None and last.fingerprint == fingerprint(given) and known == before:
        heard_by.note("the live run is of this version already: nothing is processed again")

    def make_head(wait: Callable[[str, float], None]) -> Head:
        for attempt in range(_CHANGES):
            try:
                return Head(
                    place, given, run, run_hash, known, rules, wait=wait, tell=heard_by.note, folder=folder, origin=origin, change=change,
                    rebuild=rebuild, slicing=slicing,
                )  # fmt: skip
            except chain.Overtaken:  # the version before goes on, and was quicker
                if change is None or attempt + 1 == _CHANGES:
                    raise
        raise AssertionError

    for sink in sinks:
        if isinstance(sink, Callback):
            sink.use(place)
    sources = numbered(made, streams_before(place))
    followers = [Follower(sink, place, run.run, heard_by.note) for sink in sinks]
    copies = Copies(given, known, quarantine=rules.quarantine, folder=folder)
    shown = None if early is None else EarlyResults(every, copies, heard_by.note)
    loop = Loop(make_head, place, given, sources, timing, heard_by, followers, types=declared, early=shown)
    if wanted is not None:
        loop.keep_out(other(wanted))
    loop.cleanup = lambda: shutil.rmtree(folder, ignore_errors=True)
    found = Live(place, given, loop)
    loop.thread.start()
    return found


_CHANGES = 20
"""So often it is tried to follow a version of the program that still runs."""


class Live(Reading):
    """A live run that goes on in the background. Use it with `with`: it is stopped at the end.

    What it has put out (`outputs`, `digest`) and its states (`state`, `look`) are read as of its last committed epoch.
    """

    def __init__(self, place: LivePlace, program: Program, loop: Loop) -> None:
        super().__init__(place, program)
        self._loop = loop
        self.states = States(loop)
        """Reads of its states."""
        self._told = False
        weakref.finalize(self, loop.stop)

    @property
    def health(self) -> Health:
        """How it goes."""
        return self._loop.health

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended; whether it has. Raises what made it fail."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self._loop.done:
            with self._loop.changed:
                left = 1.0 if end is None else min(1.0, end - time.monotonic())
                if left <= 0:
                    return False
                if not self._loop.done:
                    self._loop.changed.wait(left)
        self._loop.thread.join()
        if self._loop.error is not None:
            self._told = True
            raise self._loop.error
        return True

    def until(self, condition: Callable[[Epoch], bool], timeout: float = 60.0) -> Epoch:
        """Wait for an epoch of which something holds. Raises TimeoutError, and what made the run fail."""
        end = time.monotonic() + timeout
        while True:
            head = self._loop.head
            last = None if head is None else head.last
            if last is not None and condition(last):
                return last
            if self._loop.done:
                if self._loop.error is not None:
                    raise self._loop.error
                raise TimeoutError("the live run has ended before")
            if time.monotonic() > end:
                raise TimeoutError(f"not within {timeout} seconds; the last epoch: {last and last.number}")
            with self._loop.changed:
                self._loop.changed.wait(0.05)

    def keep_out(self, *filters: str, timeout: float = 10.0) -> bool:
        """From the next epoch on, put aside rows that one of these fits as they come, and no others: "Message: sender == 512".

        Rows that have come before are processed. Returns whether an epoch has recorded it yet: not while the run is paused. Raises UsageError (TL808).
        """
        wanted = self._read_filters(filters)
        self._loop.keep_out(other(wanted))
        return self._recorded(lambda e: e.filters == wanted, timeout)

    def filter(self, add: Sequence[str] = (), remove: Sequence[str] = (), *, timeout: float = 10.0) -> bool:
        """The same for some filters, and whatever else holds stays: several operators do not undo what others did.

        One that is removed and does not hold is no error. Raises UsageError (TL808).
        """
        new, old = self._read_filters(add), self._read_filters(remove)
        self._loop.keep_out(changed(new, old))
        return self._recorded(
            lambda e: all(f in e.filters for f in new) and not any(f in e.filters and f not in new for f in old), timeout
        )  # fmt: skip

    def _read_filters(self, texts: Sequence[str]) -> list[Filter]:
        types = types_of(self._place, self._run, self.last)
        return list(dict.fromkeys(read_filter(text, types) for text in texts))

    def _recorded(self, holds: Callable[[Epoch], bool], timeout: float) -> bool:
        with suppress(TimeoutError):
            self.until(holds, timeout)
            return True
        return False

    @property
    def early_results(self) -> EarlyResults | None:
        """Where early results are computed; None where that was not asked for."""
        return self._loop.early

    def early(self, record: type[Record] | str) -> pa.Table:
        """What rows that wait would put out if no others came, as of the epoch in the column `@early`; then the stored columns.

        They are replaced as a whole again and again, and go away as their times become complete. Raises UsageError where the run was begun without `early`.
        """
        if self._loop.early is None:
            raise UsageError(
                "the run has no early results", hint="begin it with early= (--early)", code="TL810"
            )
        return self._loop.early.shown(record)

    @property
    def filters(self) -> list[Filter]:
        """What rows are put aside for, as of the last epoch."""
        last = self.last_here
        return [] if last is None else last.filters

    def stop(self) -> None:
        """Stop after the epoch that is being made, and write a checkpoint. Raises what made it fail."""
        self._loop.stop()
        self.wait()

    def pause(self) -> None:
        """Ask sources for nothing more until `resume`."""
        self._loop.pause()

    def resume(self) -> None:
        """Go on after `pause`."""
        self._loop.resume()

    def state(self, name: str) -> dict[Any, Any]:
        """What a state holds after the last epoch. Raises UsageError for a state that is not there."""
        return self.states.all(name)

    def get(self, name: str, key: Any) -> Any:
        """What a state holds under one key after the last epoch, as a handler would read it; in a Set, whether it has the key."""
        return self.read(name, key)[0]

    def read(self, name: str, key: Any) -> tuple[Any, Epoch | None]:
        """The same, and the epoch of which it is."""
        found, epoch = self.look({name: [key]})
        return found[name][0], epoch

    def look(self, asked: Mapping[str, Sequence[Any]]) -> tuple[dict[str, list[Any]], Epoch | None]:
        """What states hold under some keys, each as a handler would read it, all after the same epoch, and that epoch.

        It does not wait for an epoch that is being processed, or that cannot be committed; but where the program runs as the serial loop, and after very many writes.
        """
        return self.states.look(asked)

    def listed(self, name: str, most: int) -> tuple[list[tuple[Any, Any]], bool, Epoch | None]:
        """Some keys of a state with what is stored under them, whether there are more, and the epoch of which that is."""
        rows, epoch = self.states.some(name, most + 1)
        return rows[:most], len(rows) > most, epoch

    def latest(self, record: str, most: int) -> tuple[pa.Table, Epoch | None]:
        """The last outputs of a record type that count now, the newest first, and the last epoch. Raises UsageError as `outputs` does."""
        last = self.last_here
        if last is None or not (record in last.schemas or record in put_out(self._place, last)):
            return self.outputs(record), last
        found = latest(self._place, record, last.number, most)
        return self._none_of(record, last) if found is None else found, last

    def published_after(self, record: str, epoch: int, most: int) -> list[Published]:
        """What each of the next epochs has added and retracted of a record type."""
        last = self.last_here
        end = 0 if last is None else last.number
        numbers = range(epoch + 1, min(end, epoch + most) + 1)
        return [published_in(chain.read_epoch(self._place, n), record) for n in numbers]

    def push_of(self, kind: str, name: str) -> Push | None:
        """The stream that takes rows of a type, by its name; None where there is none."""
        return self._loop.push_of(kind, name)

    @property
    def last_here(self) -> Epoch | None:
        """The last epoch that this process has committed or found, without asking the disk."""
        head = self._loop.head
        return None if head is None else head.last

    @property
    def waiting(self) -> tuple[int, int]:
        """Rows that wait until all before them is complete, and the bytes they take."""
        head = self._loop.head
        return (0, 0) if head is None else head.waiting

    @property
    def compiled(self) -> bool | None:
        """Whether handlers run as machine code; None before it has begun."""
        return None if self._loop.head is None else self._loop.head.on.opened.compiled

    @property
    def why_python(self) -> str:
        """Why they do not."""
        head = self._loop.head
        return "" if head is None else head.on.opened.why_python

    @property
    def sliced(self) -> Told:
        """Epochs that were processed as time slices since it was opened, where, and why the last one of many rows was or was not."""
        head = self._loop.head
        return Told() if head is None else head.spread.told

    def follow(self, each: Callable[[Epoch, Mapping[str, Any]], None]) -> None:
        """Have a function called with each committed epoch and its sections, in the run's own thread: it must be quick."""
        self._loop.followers.append(each)

    @property
    def sinks(self) -> list[tuple[str, int, BaseException | None]]:
        """Each sink: where it is, the epoch up to which it has outputs, what made it fail."""
        return [(f.sink.text, f.epoch, f.error) for f in self._loop.sinks]

    def end(self) -> None:
        """Ask it to stop after the epoch that is being made, and do not wait."""
        self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.stop()
        self._loop.thread.join()
        if kind is None and self._loop.error is not None and not self._told:
            raise self._loop.error
