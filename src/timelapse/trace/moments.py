"""Moments of a run: the states between two events, by running a part of a slice again."""

from __future__ import annotations

import bisect
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa

from timelapse.analysis import PassProgram, analyse, build_pass, final_pass
from timelapse.analysis.onward import onward_states
from timelapse.errors import HandlerError, ReplayError, TimelapseError
from timelapse.kernels.base import Tick
from timelapse.kernels.choose import foresee
from timelapse.kernels.source import Source
from timelapse.kernels.walk import WAYS, TooSlow, Visit, Walk, slower_start, walker
from timelapse.kinds.base import ABSENT
from timelapse.kinds.grouped import Grouped, Under
from timelapse.log.without import reader_without
from timelapse.model.events import Event
from timelapse.program.program import spec_of
from timelapse.program.times import span_of
from timelapse.progress import Progress, Silent
from timelapse.results.stored import StoredRun
from timelapse.segments.reader import EventReader
from timelapse.segments.types import heard
from timelapse.tables.table import state_table
from timelapse.trace import timed
from timelapse.trace.columns import BLOCK, Columns, Seqs
from timelapse.trace.focus import Focus
from timelapse.trace.knowledge import Ask, Knowledge, Place, Uncompiled, Unfocused
from timelapse.trace.matter import LONGEST, beginning, newest
from timelapse.trace.telling import going
from timelapse.trace.thin import LEAST, Thinned, thinned

_SOON = 1 << 18
"""Where a way through a slice may end long before its last stop, tables get room for what so many events bring."""
_PATIENCE, _COMPILER = 1.5, 5.0
"""Seconds that a way runs as Python before it is asked how long the question takes so, and those that the compiler takes, about."""
_ALONE = 2048
"""Keys that are looked up one by one in what a slice begins with."""


class _Thin(NamedTuple):
    """What the events that matter were found for. `work`: which pass."""

    lo: int
    hi: int
    places: frozenset[Place]
    seqs: frozenset[int]
    work: int


class Past:
    """A run's slices, to be gone through again. Start states are read once."""

    def __init__(self, run: StoredRun, progress: Progress | None = None) -> None:
        self.run, self.progress = run, progress or Silent()
        self.program, self._tuning = run.need_program(), run.tuning
        self.spec = spec_of(self.program)
        self.reader, self.cuts = self._log()
        self.quarantine = None if self.spec.times else run.manifest.quarantined
        self._analysis = analyse(self.program)
        self._work = final_pass(self._analysis)
        self._refused: frozenset[int] | None = None
        self._starts: dict[int, dict[str, pa.Table]] = {}
        self._columns: Columns | None = None
        self._focus: Focus | None = None
        self._last_thin: tuple[_Thin, Thinned | None] | None = None
        self.slow = 0
        """Events that were gone through as Python."""
        self.deep: set[str] = set()
        """States of which it was given up to find out read by read what is read of them."""

    def _log(self) -> tuple[EventReader, Sequence[int]]:
        """The log and its slices."""
        reader = self.run.need_reader()
        if self.spec.times:
            reader = reader_without(reader, self.run.stored_quarantined()["seq"].to_pylist())
        return reader, self.run.manifest.cuts

    def slice_of(self, seq: int) -> int:
        """The slice that an event lies in; the last one for what lies behind the log."""
        return max(0, min(bisect.bisect_right(self.cuts, seq) - 1, len(self.cuts) - 2))

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """The fields that the program reads, by event type."""
        return self._work.columns

    def refused(self) -> frozenset[int]:
        """The events that had no effect: rejected, or taken out of the log."""
        if self._refused is None:
            tables = [self.run.stored_rejected(["seq"]), self.run.stored_quarantined()]
            self._refused = frozenset(seq for t in tables for seq in t.column("seq").to_pylist())
        return self._refused

    # --- a few keys -----------------------------------------------------------------------------------

    @cached_property
    def knowledge(self) -> Knowledge:
        """What says which events matter to a key. Raises Unfocused where that cannot be said."""
        return Knowledge(self)

    @cached_property
    def onward(self) -> frozenset[str]:
        """The states of which no key gets a value back that it has left."""
        return onward_states(self._analysis)

    def settled(self, place: Place, end: int) -> int:
        """Before which event a key was written last, at the latest, of those before `end`: a slice that left a key of an onward state
        as it was has not written it."""
        name, key = place
        if name not in self.onward or isinstance(key, Under):
            return end
        cuts = self.run.manifest.cuts
        slice_id = min(bisect.bisect_left(cuts, end), len(cuts) - 1) - 1
        while slice_id >= 0 and not self.run.changed(name, key, slice_id):
            end = cuts[slice_id]
            slice_id -= 1
        return end

    def last_held(self, place: Place, end: int) -> Any:
        """What a key held at the end of the slice of the run that an event lies in, or begins with. A key of an onward state that holds that is
        not written any more before the event."""
        cuts = self.run.manifest.cuts
        return self.run.value_at_cut(*place, min(bisect.bisect_left(cuts, end), len(cuts) - 1))

    def focus_on(self, stops: Sequence[int]) -> Focus:
        """A few keys before some events (ascending) of a slice. Raises Unfocused."""
        return self.focus(self.slice_of(stops[0]), stops[-1])

    def focus(self, slice_id: int, end: int) -> Focus:
        """A few keys in a slice, up to before event `end`. Raises Unfocused."""
        if self._focus is None or (self._focus.slice_id, self._focus.end) != (slice_id, end):
            self._focus = Focus(self, slice_id, end, self.refused())
        return self._focus

    def forget(self, focus: Focus) -> None:
        """A focus is of no use any more."""
        if self._focus is focus:
            self._focus = None

    def columns_of(self, lo: int, hi: int, fields: Mapping[str, Collection[str]]) -> Columns:
        """These columns of a stretch of the log, as far as it has such types. Those of the last stretch are kept."""
        logged = {t.name for t in self.reader.types}
        fields = {name: own for name, own in fields.items() if name in logged}
        if self._columns is None or not self._columns.within(lo, hi):
            # What is stored together is read whole. Of the rest the next question about the same events may need a few.
            self._columns = Columns(
                self.reader, lo, max(hi, min(hi + BLOCK - hi % BLOCK, self.cuts[-1])), fields
            )
        self._columns.add(fields)
        return self._columns

    @cached_property
    def chooses(self) -> bool:
        """Whether windows show one of several values: which operation that was is told by its number among all."""
        views = (self.spec.states[use.state] for use in self.spec.times if use.what == "last")
        return any(spec.kind.window_form in ("best", "first") for spec in views)

    patience = 1
    """So many times as many stops are worth making, rather than going through a slice again."""

    def telling(self, asks: Collection[Ask]) -> list[Ask]:
        """Those about states of which analysis tells who writes them."""
        try:
            tell = {name: self._tells(name) for name in {ask.place[0] for ask in asks}}
        except Unfocused:
            return []
        return [ask for ask in asks if tell[ask.place[0]]]

    def likely(self, asks: Collection[Ask], lo: int, hi: int) -> Mapping[Ask, Seqs] | None:
        """For each question events lo <= seq < hi that may have written the place, at least the newest, if that can be said."""
        if hi - lo > LONGEST:
            return None
        try:
            known, names = self.stepwise, {ask.place[0] for ask in asks}
            if not all(map(self._tells, names)):
                return None
            return newest(known, self.columns_of(lo, hi, known.fields_of(names)), asks, lo, hi)
        except Unfocused:
            return None

    def _tells(self, state: str) -> bool:
        """Whether analysis tells more of who writes a state than what fields that are equal to a key do."""
        key = self.spec.states[state].key
        return key is None or all(any(p.parts) for p in self.stepwise.writers_of(state))

    def used_at(self, event: Event) -> Collection[Place]:
        """The keys that an event is likely to use, as far as that can be said."""
        del event
        return ()

    def ends(self, state: str, event: Event) -> Collection[int]:
        """Before which events a state is asked for who wrote it, where an event reads it."""
        del state
        return (event.seq,)

    def end(self, until: int) -> int:
        """The first event after a time."""
        return self.reader.seq_at(until + 1)

    def look(self, slice_id: int, stops: Sequence[int], visit: Visit) -> None:
        """Stop before a few events of a slice (ascending): by the keys that they read, else by going through it.

        `visit` may be called several times for a stop; the last time counts.
        """
        try:
            self.focus(slice_id, stops[-1] + 1).walk(stops, visit)
        except Unfocused:
            self.walk(slice_id, stops, visit)

    # --- by what matters ------------------------------------------------------------------------------

    @cached_property
    def stepwise(self) -> Knowledge:
        """What says which events matter to a key, of any kind. Raises Unfocused where that cannot be said."""
        return Knowledge(self, any_kind=True)

    def named(self, name: str, ts: int) -> timed.Target:
        """Where steps of a name lie at a time."""
        types, wanted = {t.name for t in self.reader.types}, [(name, ts)]
        tick = None
        for handler in self.spec.handlers:
            if handler.name == name and handler.every is not None:
                tick = ts
            if handler.name == name and handler.after is not None:
                lag = span_of(self.program, handler.after)
                wanted += [(event.__name__, ts - lag) for event in handler.events]
        seqs: set[int] = set()
        for kind, at in wanted:
            if kind in types:
                for chunk in self.reader.chunks(
                    self.reader.seq_at(at), self.reader.seq_at(at + 1), {kind: []}
                ):
                    if kind in chunk.tables:
                        seqs.update(chunk.tables[kind]["seq"].to_pylist())
        return timed.Target(tuple(sorted(seqs)), tick, ts + 1)

    def first_after(self, target: timed.Target) -> int:
        """The first event of the log that comes after the steps of a target."""
        last = self.cuts[-1] if target.before is None else self.reader.seq_at(target.before)
        return max(target.seqs) + 1 if target.before is None and target.seqs else last

    # --- all of it ------------------------------------------------------------------------------------

    def changed(self, state: str, key: Any, slice_id: int) -> bool:
        """Whether a slice left a key otherwise than it was before."""
        return self.run.changed(state, key, slice_id)

    def held(self, state: str, key: Any, slices: int) -> Any:
        """What a state held under a key after so many slices; ABSENT: nothing."""
        return self.run.value_at_cut(state, key, slices)

    def rows(self, end: int) -> dict[str, int]:
        """How many keys states have had before an event, at least: new ones are met more rarely as time goes on."""
        part = end / max(end, self.cuts[-1], 1)
        return {name: int(all_.rows * part) for name, all_ in self.run.manifest.content.items()}

    def by_slice(self, seqs: Iterable[int]) -> Iterator[tuple[int, list[int]]]:
        """Ascending seqs, by slice."""
        for slice_id, found in groupby(seqs, self.slice_of):
            yield slice_id, list(found)

    def starts(self, slice_id: int, states: Collection[str]) -> dict[str, pa.Table]:
        """These states at a slice's start."""
        if slice_id not in self._starts:
            self._starts.clear()  # one slice's states may be large
            self._starts[slice_id] = {}
        known = self._starts[slice_id]
        if slice_id:
            known |= {n: self.run.table_at_cut(n, slice_id) for n in states if n not in known}
        return {name: known[name] for name in states if name in known}

    def _starts_of(self, slice_id: int, work: PassProgram, thin: Thinned) -> dict[str, pa.Table]:
        """What matters of the states at a slice's start."""
        keys = {name: own for name, own in thin.places.items() if name not in thin.whole}
        alone = {
            name
            for name, own in keys.items()
            if len(own) <= _ALONE and not any(isinstance(k, Under) for k in own)
        }
        wanted = work.exact & (keys.keys() | thin.whole)
        whole = wanted & set(thin.whole)
        found = dict(self.starts(slice_id, sorted(whole)))
        for name in sorted(wanted - whole - alone) if slice_id else ():
            only = beginning(self.spec.states[name], keys[name])
            found[name] = self.run.table_at_cut(name, slice_id, only)
        for name in wanted & alone if slice_id else ():
            held = [(key, self.run.value_at_cut(name, key, slice_id)) for key in keys[name]]
            found[name] = state_table(self.spec.states[name], [h for h in held if h[1] is not ABSENT])
        return found

    def work(self, states: Collection[str] | None, events: int) -> PassProgram:
        """What runs where a slice is gone through for these states (None: for all): the statements that they need, without
        those that put something out. The whole program where events were taken out, which may fail in the rest, and where that
        is compiled already and the other is not, for few events."""
        if states is None:
            # Windows, numbers and lists of members are kept where statements look at them, which may put something out.
            if self.spec.times or any(issubclass(s.kind, Grouped) for s in self.spec.states.values()):
                return self._work
            states = self.spec.states
        if self.run.manifest.quarantined or self._analysis.opaque or not states:
            return self._work
        cut = build_pass(self._analysis, "look", sorted(states), ())
        return self._work if slower_start(self.program, cut, self._work, events, self._tuning) else cut

    def walk(
        self, slice_id: int, stops: Sequence[int], visit: Visit, *, states: Collection[str] | None = None,
        whole: bool = False, places: Collection[Place] | None = None, events: Collection[Event] = (), soon: bool = False,
    ) -> None:  # fmt: skip
        """Go through a slice up to the last of the stops (ascending; each is the seq of the event after it).

        `states`: those that are looked at; None: any. `whole`: the whole program runs. `places`: only these are looked at, and what is
        done at `events`: then the others of the slice may be left out, and all stops be visited again should that not do. `soon`: a visit
        may end it long before the last stop.
        """
        reader = None
        if stops and places is not None:
            reader = self.thin(slice_id, stops[-1], states, places, events, whole=whole)
        if reader is not None:
            try:
                self._pass(slice_id, reader, stops, visit, states, whole=whole, soon=soon)
                return
            except (TimelapseError, Uncompiled):
                pass  # it does not run alone
        self._pass(slice_id, self.reader, stops, visit, states, whole=whole, soon=soon)

    def thin(
        self, slice_id: int, hi: int, states: Collection[str] | None, places: Collection[Place],
        events: Collection[Event] = (), *, whole: bool = False,
    ) -> Thinned | None:  # fmt: skip
        """What is left of a slice where only events seq < `hi` happen that matter; None: all of them do. See `walk`."""
        lo = self.cuts[slice_id]

        def work() -> PassProgram:
            return self._work if whole else self.work(states, hi - lo)

        return self._thinned(lo, hi, frozenset(places), events, work)

    def _thinned(
        self, lo: int, hi: int, places: frozenset[Place], events: Collection[Event], work: Callable[[], PassProgram]
    ) -> Thinned | None:  # fmt: skip
        """See `thinned`: what was found for a way serves the next ones, which go no further and look at no more. `work` is asked late: the
        compiler's modules are loaded while events are looked for."""
        seqs = frozenset(event.seq for event in events)
        if self._last_thin is not None:
            known, found = self._last_thin
            if (known.lo, known.work) == (lo, id(work())) and hi <= known.hi and seqs <= known.seqs:
                if found is None and (hi, places, seqs) == (known.hi, known.places, known.seqs):
                    return None
                if found is not None and places <= known.places:
                    return found
        large = lo > 0 and sum(self.rows(lo).values()) >= LEAST
        found = thinned(self, lo, hi, places, events, lambda: work().columns, short=large)
        self._last_thin = _Thin(lo, hi, places, seqs, id(work())), found
        return found

    def _pass(
        self, slice_id: int, reader: EventReader, stops: Sequence[int], visit: Visit, states: Collection[str] | None,
        *, whole: bool, soon: bool, waits: bool = False,
    ) -> None:  # fmt: skip
        """`waits`: for the compiler, however few events there are."""
        lo = self.cuts[slice_id]
        hi = max(lo, stops[-1] + 1) if stops else lo
        work = self._work if whole else self.work(states, hi - lo)
        columns = work.columns
        classes: dict[str, Any] = {
            e.__name__: e for e in heard(self.spec, reader.types) if e.__name__ in columns
        }
        source = Source(reader, lo, hi, classes, columns)
        thin = reader if isinstance(reader, Thinned) else None
        starts = (
            self.starts(slice_id, sorted(work.exact))
            if thin is None
            else self._starts_of(slice_id, work, thin)
        )
        kernel = walker(
            self.program, work, starts, hi - lo, final=work is self._work,
            quarantine=self.quarantine if thin is None else None, slow=self.slow, waits=waits, tuning=self._tuning,
        )  # fmt: skip
        if thin is None:
            kernel.expect(self.rows(min(hi, lo + _SOON) if soon else hi), soon=soon)
        else:
            kernel.expect(thin.known)
        walk = Walk(kernel, source)
        if not walk.compiled:
            self.slow += hi - lo if thin is None else len(thin.seqs)
        try:
            slowly = (
                ""
                if walk.compiled
                else f"the slice is gone through as Python, for {walk.why_python or 'the program does not run compiled'}"
            )
            count = hi - lo if thin is None else len(thin.seqs)
            with going(self.progress, f"through slice {slice_id}", count, slowly=slowly) as tick:
                if not (walk.compiled or waits):
                    tick = self._watched(walk, work, count, tick)
                self._go(walk, stops, visit, tick)
        except TooSlow:
            self.progress.note("its events take long as Python: it begins again, compiled")
            self._pass(slice_id, reader, stops, visit, states, whole=whole, soon=soon, waits=True)
        except HandlerError as error:
            raise ReplayError(
                "a handler failed where it did not fail before", hint=str(error), code="TL607"
            ) from error  # fmt: skip

    def _watched(self, walk: Walk, work: PassProgram, count: int, tick: Tick) -> Tick:
        """A tick that ends a way as Python where its events are found to take long, as those do that send thousands each."""
        began, done, next_ = time.process_time(), 0, _PATIENCE

        def watched(events: int) -> None:
            nonlocal done, next_
            tick(events)
            done += events
            passed = time.process_time() - began
            if passed < next_:
                return
            next_ *= 2
            if passed / done * (WAYS * count - done) > _COMPILER:
                next_ = math.inf  # it is asked once
                own = self._tuning
                walk.left = foresee(
                    self.program, work, own.cold_events, final=work is self._work, tuning=own
                ).compiled

        return watched

    def _go(self, walk: Walk, stops: Sequence[int], visit: Visit, tick: Tick) -> None:
        walk.run(stops, visit, tick)
