"""Looking into programs with ticks or `after=` where too many events matter: the log is gone through compiled up to the steps in
question, and these run as Python under observation, on what is there then."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from timelapse.errors import TimelapseError
from timelapse.ids import Phase
from timelapse.model.events import Event
from timelapse.program.times import calendar_of
from timelapse.trace import timed
from timelapse.trace.few import Few, events_of, number_of
from timelapse.trace.knowledge import Uncompiled, Unfocused
from timelapse.trace.logged import events_at
from timelapse.trace.lookup import merged
from timelapse.trace.passing import Passing, Stepped, newest_writes
from timelapse.trace.steps import Tick
from timelapse.trace.tracer import Tracer
from timelapse.trace.whole import WholePast

if TYPE_CHECKING:
    from timelapse.kernels.native.kernel import NativeKernel


class Through:
    """A way to look at steps (timed.Way). Raises Uncompiled."""

    def __init__(self, past: WholePast, end: int) -> None:
        """`end`: events from there on are not asked about."""
        if not past.steps:
            raise Uncompiled(past.why_no_steps)
        self._past, self._end = past, end
        self._ticks = False

    def observed(
        self, tracer: Tracer, target: timed.Target, wanted: Callable[[], Callable[[timed.Step], bool]],
        enough: Callable[[list[timed.Told]], bool],
    ) -> list[timed.Told]:  # fmt: skip
        """See timed.Way: the ticks of one time, in the order of their handlers; or what stems from log events."""
        if target.tick is not None:
            self._ticks = True
            steps: Iterable[timed.Told] = self._ticked(tracer, target.tick, wanted())
        elif target.seqs or target.ticks:
            steps = self._logged(tracer, target, wanted, enough)
        else:
            raise Uncompiled("the step is neither a tick nor stems from an event that is named")
        found: list[timed.Told] = []
        for one in steps:
            if any(shown is not None for shown in one.trace.shown.values()):
                raise Uncompiled("a window shows single operations")  # which one is counted otherwise here
            found.append(one)
            if enough(found):
                break
        return found

    def newest(self, asks: Collection[timed.Ask], before: int | None, last: int) -> timed.Newest:
        """See timed.Way. Who wrote what a tick read is told by the events that matter, if these are few."""
        if not asks:
            return {}, {}
        if self._ticks:
            with suppress(Unfocused):
                return Few(self._past, self._end).newest(asks, before, last)
        return newest_writes(self._past, asks, before, last), {}

    def events(self, steps: Iterable[timed.Step]) -> dict[int, Event]:
        """See timed.Way."""
        own = list(steps)
        return events_of(self._past, own) if own else {}

    # --- observing ------------------------------------------------------------------------------------

    def _ticked(self, tracer: Tracer, at: int, fits: Callable[[timed.Step], bool]) -> Iterator[timed.Told]:
        past, ordinal = self._past, 0
        kernel = self._before(at)
        for place, handler in enumerate(past.spec.handlers):
            if handler.every is None or calendar_of(past.program, handler).first(at) != at:
                continue
            number = number_of(at, Phase.TICK, -1, place)
            step = timed.Step(number, Tick()._at(at, -1), (handler,), at, Phase.TICK, -1, ordinal)
            asked = fits(step)
            trace, ordinal = tracer.trace_step(step, place, None, kernel)
            if asked:
                yield timed.Told(step, trace)

    def _before(self, at: int) -> NativeKernel:
        """A kernel that has done everything before a time."""
        passing = Passing(self._past, self._past.reader.seq_at(at), at - 1, ticks=False)
        passing.go(lambda batch: ())
        return passing.kernel

    def _logged(
        self, tracer: Tracer, target: timed.Target, wanted: Callable[[], Callable[[timed.Step], bool]],
        enough: Callable[[list[timed.Told]], bool],
    ) -> list[timed.Told]:  # fmt: skip
        """All steps that stem from some events of the log are done under observation, so that records are numbered through;
        and all ticks at some times. Other events happen only if they matter to these steps, where that can be said."""
        past = self._past
        given = events_at(past.reader, past.program, sorted(target.seqs))
        last = max([*target.ticks, *(e.ts + past.longest_lag for e in given.values())])
        end = min(last, past.last_step if target.before is None else min(past.last_step, target.before - 1))
        if not target.ticks:  # these may read every key
            own = [max(e.ts for e in given.values())] if target.before is None else []
            for until in dict.fromkeys([*own, end]):  # mostly the events' own steps are meant
                found = self._alone(tracer, given, until, wanted(), enough)
                if found is not None and enough(found):
                    return found
        passing = Passing(past, past.reader.seq_at(end + 1), end, ticks=bool(target.ticks))
        if target.ticks and passing.kernel.unit.ticks:
            raise Uncompiled("ticks are looked at together with events")  # they are no steps of a batch
        return self._seen(tracer, given, passing, target.ticks, wanted(), enough)

    def _alone(
        self, tracer: Tracer, given: Mapping[int, Event], end: int, fits: Callable[[timed.Step], bool],
        enough: Callable[[list[timed.Told]], bool],
    ) -> list[timed.Told] | None:  # fmt: skip
        """The steps that stem from given events, up to a time, with those events before them alone that matter; None: that cannot be said, or
        these do not run alone."""
        hi = self._past.reader.seq_at(end + 1)
        thin = self._past.steps_alone(hi, (), given.values())
        if thin is None:
            return None
        try:
            passing = Passing(self._past, hi, end, thin, ticks=False)
            return self._seen(tracer, given, passing, (), fits, enough)
        except (TimelapseError, Uncompiled):
            return None

    def _seen(
        self, tracer: Tracer, given: Mapping[int, Event], passing: Passing, ticks: Sequence[int],
        fits: Callable[[timed.Step], bool], enough: Callable[[list[timed.Told]], bool],
    ) -> list[timed.Told]:  # fmt: skip
        """The steps that stem from given events, and the ticks, on one way through the log."""
        found = list[timed.Told]()
        seqs = np.asarray(sorted(given), np.int64)
        ordinals: dict[tuple[int, int, int], int] = {}

        def stops(batch: Stepped) -> Iterator[tuple[int, Callable[[], bool]] | None]:
            for at in merged([batch.stemming(seqs), batch.ticking(ticks)]).tolist():
                yield at, lambda at=at: visit(batch, at)  # type: ignore[misc]
                if enough(found):
                    yield None

        def visit(batch: Stepped, at: int) -> bool:
            step, place = batch.step(at, given), batch.where(at)[3]
            where = (step.ts, step.phase, step.root)
            step = replace(step, ordinal=ordinals.get(where, 0))
            asked = fits(step)
            alone = None if step.phase == Phase.LOG_EVENT else place
            trace, ordinals[where] = tracer.trace_step(step, alone, given.get(step.root), passing.kernel)
            if asked:
                found.append(timed.Told(step, trace))
            return True

        passing.go(stops)
        if not enough(found) and any(not self._is_step(event) for event in given.values()):
            raise Uncompiled("only after= handlers listen to the event")  # at its own time there is no step
        return found

    def _is_step(self, event: Event) -> bool:
        return any(h.after is None for h in self._past.spec.handlers_of(type(event)))


__all__ = ["Through"]
