"""The events of a pass: those of the log, what is called later, ticks."""

from __future__ import annotations

from timelapse.analysis.result import PassHandler
from timelapse.kernels.native.lowering.context import Context
from timelapse.kernels.native.lowering.unit import Instant, Later, Ticking
from timelapse.kernels.native.refused import Refused
from timelapse.kinds.grouped import Grouped
from timelapse.model.events import Event
from timelapse.program.times import span_of


def events_of(ctx: Context, *, ticks_apart: bool) -> list[list[PassHandler]]:
    """Find the unit's events; each one's handlers. What is called later is an event of its own, and so is a tick.

    `ticks_apart`: handlers of ticks run as Python.
    """
    unit, specs = ctx.unit, {h.name: (n, h) for n, h in enumerate(ctx.spec.handlers)}
    at_once: list[PassHandler] = []
    ticking: list[tuple[int, PassHandler]] = []
    late: list[tuple[type[Event], Later, PassHandler]] = []
    for handler in ctx.work.handlers:
        place, spec = specs.get(handler.name, (0, None))
        if spec is not None and spec.every is not None:
            if ticks_apart:
                unit.ticks = True
            else:
                ticking.append((place, handler))
        elif spec is not None and spec.after is not None:
            later = Later(span_of(ctx.program, spec.after), handler.name, place)
            late += [(event, later, handler) for event in handler.events]
        else:
            at_once.append(handler)
    unit.events = list(dict.fromkeys(e for h in at_once for e in h.events))
    own = [at_once for _ in unit.events]
    for event, later, handler in late:
        if any(unit.events[n] is event and known.lag == later.lag for n, known in unit.later.items()):
            raise Refused(f"{handler.name}: a second handler with after= of the same length")
        unit.later[len(unit.events)] = later
        unit.events.append(event)
        own.append([handler])
    for place, handler in ticking:
        unit.ticking[len(unit.events)] = Ticking(handler.name, place)
        unit.events.append(Instant)
        own.append([handler])
    if unit.ticks and not ctx.final:
        raise Refused("handlers of ticks run as Python in this pass")
    if unit.ticks:
        for state in ctx.spec.states.values():
            if issubclass(state.kind, Grouped):
                raise Refused(f"@tl.every beside {state.name}, which may need an index")
    return own
