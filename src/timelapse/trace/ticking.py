"""Ticks that cannot be told by the events that matter, as one that reads every key: the log is gone through compiled up to
their time, and they themselves run as Python under observation, on what is there then."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from timelapse.analysis import analyse, final_pass
from timelapse.env.machine import cores
from timelapse.errors import HandlerError, ReplayError
from timelapse.ids import Phase
from timelapse.kernels.base import Abandoned
from timelapse.kernels.choose import SliceKernel
from timelapse.kernels.source import Source
from timelapse.log.types import heard
from timelapse.model.events import Event
from timelapse.model.times import calendar_of
from timelapse.trace import timed
from timelapse.trace.few import Few, number_of
from timelapse.trace.knowledge import Place
from timelapse.trace.steps import Tick
from timelapse.trace.telling import going
from timelapse.trace.tracer import Tracer
from timelapse.trace.whole import Uncompiled, WholePast

if TYPE_CHECKING:
    from timelapse.kernels.native.kernel import NativeKernel


class Ticking:
    """A way to look at ticks (timed.Way). Who wrote what they read is found by the events that matter. Raises Uncompiled."""

    def __init__(self, past: WholePast, end: int) -> None:
        """`end`: events from there on are not asked about."""
        self._past, self._end = past, end

    def observed(
        self, tracer: Tracer, target: timed.Target, wanted: Callable[[], Callable[[timed.Step], bool]],
        enough: Callable[[list[timed.Told]], bool],
    ) -> list[timed.Told]:  # fmt: skip
        """See timed.Way: the ticks of one time, in the order of their handlers."""
        at = target.tick
        if at is None:
            raise Uncompiled
        found: list[timed.Told] = []
        native, fits, ordinal = self._before(at), wanted(), 0
        for place, handler in enumerate(self._past.spec.handlers):
            if handler.every is None or calendar_of(self._past.program, handler).first(at) != at:
                continue
            number = number_of(at, Phase.TICK, -1, place)
            step = timed.Step(number, Tick()._at(at, -1), (handler,), at, Phase.TICK, -1, ordinal)
            asked = fits(step)
            trace, ordinal = tracer.trace_tick(step, place, native)
            if asked:
                found.append(timed.Told(step, trace))
            if enough(found):
                break
        return found

    def writes(
        self, places: Collection[Place], number: int | None, before: int | None
    ) -> tuple[dict[Place, list[timed.Written]], dict[Place, list[timed.Step]]]:
        """See timed.Way. Raises Unfocused."""
        return self._few.writes(places, number, before) if places else ({}, {})

    def events(self, steps: Iterable[timed.Step]) -> dict[int, Event]:
        """See timed.Way."""
        own = list(steps)
        return self._few.events(own) if own else {}

    @cached_property
    def _few(self) -> Few:
        return Few(self._past, self._end)

    def _before(self, at: int) -> NativeKernel:
        """A kernel that has done everything before a time."""
        past = self._past
        work = final_pass(analyse(past.program))
        end = past.reader.seq_at(at)
        kernel = SliceKernel(
            past.program, work, {}, end, final=True, prefetch=cores() > 1, alone=True, rows=False, asked=()
        )  # fmt: skip
        _, native = kernel.parts
        if native is None:
            raise Uncompiled
        classes = {c.__name__: c for c in heard(past.spec, past.reader.types) if c.__name__ in work.columns}
        source = Source(past.reader, 0, end, classes, work.columns, begin=past.reader.ts_first, end=at - 1)
        try:
            with going(past.progress, "through the log", end) as tick:
                failure = kernel.run(source, tick).failure
        except Abandoned as why:
            raise Uncompiled from why
        if isinstance(failure, HandlerError):
            raise ReplayError(
                "a handler failed where it did not fail before", hint=str(failure), code="TL607"
            ) from failure
        return native


__all__ = ["Ticking"]
