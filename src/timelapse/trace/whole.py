"""Moments of a run whose program has windows: the log is gone through compiled, from its beginning.

A slice's start state does not say what windows hold, and compiled windows begin with the log. So the whole log counts as one
slice here. What does not run compiled, or reaches into other times in other ways, is left to the serial loop (`timed.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from timelapse.analysis import PassProgram, analyse, build_pass, final_pass
from timelapse.env.machine import cores
from timelapse.kernels.base import Abandoned, Tick
from timelapse.kernels.choose import SliceKernel, choice
from timelapse.kernels.source import Source
from timelapse.kernels.walk import WAYS, Visit, Walk, slower_start
from timelapse.kinds.grouped import Grouped
from timelapse.model.events import Event
from timelapse.program.program import spec_of
from timelapse.program.times import VIEWS, span_of, width_of
from timelapse.progress import Progress
from timelapse.results.stored import StoredRun
from timelapse.segments.reader import EventReader
from timelapse.segments.types import heard
from timelapse.trace.focus import Focus
from timelapse.trace.knowledge import Place, Uncompiled, Unfocused
from timelapse.trace.moments import Past
from timelapse.trace.telling import going
from timelapse.trace.thin import Thinned, thinned

if TYPE_CHECKING:
    from timelapse.kernels.native.walking import NativeWalk

_SLOWER = 2
"""So many events are gone through in the time that a member of a set takes to be loaded and linked, about."""
_SOON = 100_000
"""From so many events on the compiler is waited for: what is left else is the serial loop."""


def past_of(run: StoredRun, progress: Progress | None = None) -> Past:
    """The moments of a run. Raises Uncompiled where only the serial loop knows; going through it may do so too."""
    if any(use.what != "derive" for use in spec_of(run.need_program()).times):
        return WholePast(run, progress)
    return FromBeginning(run, progress) if _slow_starts(run) else Past(run, progress)


def _slow_starts(run: StoredRun) -> bool:
    """Whether what slices begin with takes longer to load than the log to go through: members that are listed are linked one by one."""
    large = {
        name
        for name, spec in spec_of(run.need_program()).states.items()
        if issubclass(spec.kind, Grouped)
        and name in run.manifest.content
        and _SLOWER * run.manifest.content[name].rows > run.events
    }
    if run.slices < 2 or not large or run.certificate["passes"]["final"] != "compiled":
        return False
    from timelapse.kernels.choose import choice
    from timelapse.kernels.native.lowered import loaded_whole

    program = run.need_program()
    work = final_pass(analyse(program))
    return choice(program, work, final=True).compiled and not large.isdisjoint(
        loaded_whole(program, work, compiled=True)
    )


class FromBeginning(Past):
    """A run's log as one slice."""

    def _log(self) -> tuple[EventReader, Sequence[int]]:
        return super()._log()[0], (0, self.run.manifest.cuts[-1])

    @cached_property
    def _in_slices(self) -> Past:
        return Past(self.run, self.progress)

    def focus_on(self, stops: Sequence[int]) -> Focus:
        """Of a few keys it is soon known what the run's own slice begins with."""
        own = self._in_slices
        if own.slice_of(stops[0]) != own.slice_of(stops[-1]):
            raise Unfocused("they lie in several slices")
        return own.focus_on(stops)

    def changed(self, state: str, key: Any, slice_id: int) -> bool:
        return any(self.run.changed(state, key, own) for own in range(self.run.slices))

    def held(self, state: str, key: Any, slices: int) -> Any:
        return self.run.value_at_cut(state, key, self.run.slices if slices else 0)

    def starts(self, slice_id: int, states: Collection[str]) -> dict[str, pa.Table]:
        return {}


class WholePast(FromBeginning):
    """The same for programs that reach into other times: going through it is compiled, or raises Uncompiled."""

    patience = 4

    def __init__(self, run: StoredRun, progress: Progress | None = None) -> None:
        super().__init__(run, progress)
        self.slow = run.tuning.cold_events // WAYS - _SOON
        self._left: tuple[int, set[int], Thinned] | None = None

    def used_at(self, event: Event) -> Collection[Place]:
        try:
            return list(self.knowledge.used_at(event))
        except Unfocused:
            return ()

    def ends(self, state: str, event: Event) -> Collection[int]:
        """Those of looks back, too."""
        uses = (u for u in self.spec.times if u.what == "ago" and u.state == state)
        lags = {width_of(self.program, use) for use in uses}
        return {event.seq, *(self.end(event.ts - lag) for lag in lags)}

    def focus_on(self, stops: Sequence[int]) -> Focus:
        raise Unfocused("windows take the whole log")

    def focus(self, slice_id: int, end: int) -> Focus:
        raise Unfocused("windows take the whole log")

    def walk(
        self, slice_id: int, stops: Sequence[int], visit: Visit, *, states: Collection[str] | None = None,
        whole: bool = False, places: Collection[Place] | None = None, events: Collection[Event] = (), soon: bool = False,
    ) -> None:  # fmt: skip
        """Raises Uncompiled, also where there is more than the log's events."""
        if not self.looks_only:
            raise Uncompiled("not only the log's events happen")
        super().walk(
            slice_id, stops, visit, states=states, whole=whole, places=places, events=events, soon=soon
        )

    # --- all steps ------------------------------------------------------------------------------------

    @property
    def looks_only(self) -> bool:
        """Whether there are windows and looks back, and nothing happens but log events."""
        return all(use.what in VIEWS for use in self.spec.times)

    @property
    def steps(self) -> bool:
        """Whether ticks or `after=` handlers are called, and nothing is dated."""
        what = {use.what for use in self.spec.times}
        return bool(what & {"after", "every"}) and what <= {*VIEWS, "after", "every", "derive"}

    @property
    def why_no_steps(self) -> str:
        """Why steps are not gone through compiled, where `steps` is not so."""
        told = {*VIEWS, "after", "every", "derive"}
        dated = next((use for use in self.spec.times if use.what not in told), None)
        return "there are only windows and looks back" if dated is None else f"it uses {dated.text_of_what}"

    def _why_python(self, work: PassProgram, found: str) -> str:
        """Why a pass does not run compiled. `found`: what trying has shown."""
        refused = choice(self.program, work, final=True).reason
        return (
            f"it does not run compiled: {refused}"
            if refused
            else found or "for so few events machine code is not worth loading"
        )

    def cut(self, states: Collection[str], events: int) -> PassProgram:
        """What runs where so many events are gone through for who wrote these states: the statements that they need. A tick that goes over
        all keys to put them out takes longer than all else."""
        if self.run.manifest.quarantined or self._analysis.opaque:
            return self._work
        cut = build_pass(self._analysis, "look", sorted(states), ())
        slower = slower_start(self.program, cut, self._work, events, self.run.tuning)
        return self._work if slower or not choice(self.program, cut, final=False).compiled else cut

    def stepping(
        self, hi: int, end: int, thin: Thinned | None = None, states: Collection[str] | None = None, *, ticks: bool = True
    ) -> tuple[NativeWalk, Source]:  # fmt: skip
        """A way through all steps up to a time, compiled, and what it reads: events seq < `hi`, or those of them that are left. `states`: those that
        are asked for; None: any. `ticks`: whether those are asked for that write nothing. Raises Uncompiled."""
        from timelapse.kernels.native.walking import NativeWalk

        work = self._work if states is None else self.cut(states, hi)
        # A question goes this way several times, and what is left else is the serial loop: machine code that is there is
        # worth loading sooner, and the compiler worth waiting for.
        own = self.run.tuning
        share = max(hi, own.warm_events) if hi >= own.flat_events else hi
        kernel = SliceKernel(
            self.program, work, {}, hi, final=work is self._work, prefetch=cores() > 1, alone=True, rows=False, asked=(), share=share,
            tuning=replace(own, times=WAYS if hi >= own.warm_events else 1),
        )  # fmt: skip
        _, native = kernel.parts
        if native is None or (work is self._work and not native.unit.steps):
            raise Uncompiled(self._why_python(work, kernel.why_python))
        native.expect(self.rows(hi) if thin is None else thin.known)
        classes = {c.__name__: c for c in heard(self.spec, self.reader.types) if c.__name__ in work.columns}
        reader = self.reader if thin is None else thin
        return NativeWalk(native), Source(
            reader, 0, hi, classes, work.columns, begin=self.reader.ts_first, end=end, ticks=ticks or self._ticks_matter
        )  # fmt: skip

    @cached_property
    def _ticks_matter(self) -> bool:
        """Whether a tick may write anything, or send what does."""
        return any(use.what == "derive" for use in self.spec.times) or self.ticks_write(self.spec.states)

    def steps_alone(
        self, hi: int, places: Collection[Place], events: Collection[Event] = ()
    ) -> Thinned | None:
        """What is left of the log where only events seq < `hi` happen that matter to places, and to what is done at events; None: all of them
        do. What was found for steps that were looked at tells who wrote what they read, too."""
        seqs = {event.seq for event in events}
        if self._left is not None:
            end, known, left = self._left
            if hi <= end and seqs <= known and left.covers(places):
                return left
        found = thinned(self, 0, hi, places, events, lambda: self.columns, refused=())
        if found is not None:
            self._left = hi, seqs, found
        return found

    def going(self, events: int) -> AbstractContextManager[Tick]:
        """Progress through so many events of the log."""
        return going(self.progress, "through the log", events)

    @cached_property
    def last_step(self) -> int:
        """The time up to which the run went."""
        last, until = self.reader.ts_before(self.cuts[-1]), self.run.manifest.until
        assert last is not None
        return last if until is None else max(last, until)

    @cached_property
    def longest_lag(self) -> int:
        """How long after an event of the log what stems from it may happen."""
        return max(
            (span_of(self.program, h.after) for h in self.spec.handlers if h.after is not None), default=0
        )

    def refused_steps(self) -> frozenset[tuple[int, int, int]]:
        """Time, phase and root of the steps that were rejected."""
        rows = self.run.stored_rejected(["ts", "phase", "seq"])
        return frozenset(zip(*(rows.column(n).to_pylist() for n in ("ts", "phase", "seq")), strict=True))

    def ticks_write(self, states: Collection[str]) -> bool:
        """Whether ticks may write some of these states."""
        logged = {t.name for t in self.reader.types}
        try:
            return any(p.type not in logged for name in states for p in self.knowledge.writers_of(name))
        except Unfocused:
            return True

    def _go(self, walk: Walk, stops: Sequence[int], visit: Visit, tick: Tick) -> None:
        if not walk.compiled:
            raise Uncompiled(self._why_python(self._work, walk.why_python))
        try:
            walk.run(stops, visit, tick)
        except Abandoned as why:
            raise Uncompiled(why.reason) from why

    def _tells(self, state: str) -> bool:
        return True
