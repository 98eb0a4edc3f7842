"""Ticks and `after=` handlers: a slice as a sequence of steps, merged from the log and what is behind or above it.

Neither needs a state. What `after=` calls for is the log itself, read a second time with a second cursor
that is one lag behind; ticks are computed. A slice owns the instants after the last event of the slice before it,
up to and including its own last event (of whatever type).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from heapq import merge
from itertools import chain
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NamedTuple

from timelapse.analysis.result import PassProgram
from timelapse.analysis.views import LOOKING
from timelapse.errors import HandlerError
from timelapse.ids import INT64_MAX, Phase
from timelapse.kernels.base import PassResult, Tick
from timelapse.kernels.python.held import Live, nobody_else
from timelapse.kernels.python.interpreted import InterpretedKernel, refuse_dated
from timelapse.kernels.python.pending import Pending, Writes, as_given
from timelapse.kernels.source import Source
from timelapse.kinds.effects import undo
from timelapse.model.events import Event
from timelapse.program.failure import handler_error
from timelapse.program.pending import PENDING, WRITES, DatedWrite
from timelapse.program.program import HandlerSpec, Program, Rejection, runtime, spec_of
from timelapse.program.times import calendar_of, check_sent, due_at, not_a_type, span_of, timer_of

_BEHIND = 1 << 30
"""More than any handler's place."""


class Step(NamedTuple):
    """One transaction. Steps compare by the order of instants; no two stand at the same place."""

    ts: int
    phase: int
    seq: int
    """That of the log event; -1 for ticks."""
    order: tuple[int, ...]
    """Among those of one instant and root: the handler's place in the program; behind them pending events, in the order
    in which they were sent."""
    event: Any
    """An event, a dated write (DatedWrite), or None: a tick."""


class SteppingKernel(InterpretedKernel):
    """Runs a pass of a program with ticks or `after=` handlers, step by step.

    With `quarantine` an event that fails in its own step is taken out, if the pass goes through the log from its first
    event on. What fails later, and stems from an event, fails the pass: that event has had its effects. `gone` has the
    events taken out so far, for whoever goes on from here.
    """

    def __init__(
        self, program: Program, work: PassProgram, starts: Any, *, final: bool, rows: bool = True,
        folder: Path | None = None, live: Live = nobody_else,
        quarantine: int | None = None, gone: set[int] | None = None, room: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            program, work, starts, final=final, rows=rows, folder=folder, live=live, quarantine=quarantine, room=room,
        )  # fmt: skip
        self.gone: set[int] = set() if gone is None else gone
        self.log_begins: int | None = None
        specs = {h.name: (n, h) for n, h in enumerate(self._spec.handlers)}
        self._at_once: dict[type[Event], tuple[Any, ...]] = {}
        self._alone: dict[int, tuple[HandlerSpec, Any]] = {}
        """Handlers that are a step by themselves, by their place in the program."""
        for handler in work.handlers:
            place, spec = specs.get(handler.name, (-1, None))  # what records reads is none of the program's
            if spec is not None and (spec.after is not None or spec.every is not None):
                self._alone[place] = (spec, handler.function)
                continue
            for event in handler.events:
                self._at_once[event] = (*self._at_once.get(event, ()), handler.function)
        self._by_type = self._at_once  # what derived events are handled by, too
        self._sent: set[type[Event]] = set()
        """Types of events that may be sent, as far as it was asked."""
        self._pending: Pending | None = None
        self._root = -1
        if PENDING in work.exact:
            self._pending = Pending(
                self._held.stores[PENDING], starts.get(PENDING, {}).items(), self._spec.events
            )
        self._writes: Writes | None = None
        if WRITES in work.exact:
            self._writes = Writes(self._held.stores[WRITES], starts.get(WRITES, {}).items())
        if WRITES in self._spec.states:
            assert self.windows is not None
            self.windows.date = self._date_write
        self._place: tuple[int, int, int] | None = None
        self._ordinal = 0

    def run_steps(self, source: Source, tick: Tick) -> PassResult:
        """Process one slice. After a failure the kernel's state is of no use."""
        self._place, self._ordinal = None, 0
        self.log_begins = source.begin
        result = self.run(self._steps(source), tick)  # type: ignore[arg-type]  # steps stand for events here
        if self._final and source.is_last and result.failure is None:
            result.pending = self._count_pending(source)
        return result

    def _steps(self, source: Source) -> Iterator[Step]:
        streams: list[Iterable[Step]] = [_log(source.between(self._at_once, source.lo, source.hi))]
        end = source.end
        if end is not None and source.begin is not None:
            for place, (spec, _) in self._alone.items():
                if spec.every is not None:
                    streams.append(ticks_of(self._program, spec, place, source))
                else:
                    streams.append(_later(self._program, spec, place, source, source.since, end))
        if end is None or (self._pending is None and self._writes is None):
            return merge(*streams)
        return self._with_pending(merge(*streams), end)

    def _with_pending(self, steps: Iterable[Step], end: int) -> Iterator[Step]:
        """The steps, with the pending events whose time comes. What is sent meanwhile lies ahead of all."""
        last = Step(end, Phase.LOG_EVENT, INT64_MAX, (), None)
        for step in chain(steps, (last,)):
            while (due := self._next_write(step) or self._next_pending(step)) is not None:
                yield due
            if step is not last:
                yield step

    def _next_pending(self, before: Step) -> Step | None:
        """The next pending event, if it comes before a step. It is pending no more, even if it should be rejected."""
        first = None if self._pending is None else self._pending.first()
        if first is None:
            return None
        assert self._pending is not None
        order = (_BEHIND, first.issued, first.number)
        if (first.due, Phase.DATED_EVENT, first.root, order) >= before[:4]:
            return None
        event = self._pending.take()
        if self._journal is not None:
            self._journal.clear()
        return Step(first.due, Phase.DATED_EVENT, first.root, order, event)

    def _next_write(self, before: Step) -> Step | None:
        """The next dated write, if it comes before a step and before the next pending event."""
        first = None if self._writes is None else self._writes.first()
        if first is None:
            return None
        assert self._writes is not None
        event = None if self._pending is None else self._pending.first()
        if (first.due, Phase.DATED_WRITE) >= before[:2] or (event is not None and event.due < first.due):
            return None
        write = self._writes.take()
        if self._journal is not None:
            self._journal.clear()
        return Step(first.due, Phase.DATED_WRITE, first.root, (_BEHIND, first.issued, first.number), write)

    def _date_write(self, state: str, at: int, method: str, arguments: tuple[Any, ...]) -> None:
        if self._writes is not None:
            write = DatedWrite(state, method, arguments, self._handler_under_way())
            self._writes.date(write, at, self._bound.__dict__["now"], self._root)

    def _handler_under_way(self) -> str:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            name = self._names.get(frame.f_code)
            if name is not None:
                return name
            frame = frame.f_back
        return ""

    @runtime("send")
    def _send(
        self, event: Event, *, after: int | None = None, at: int | None = None, key: Any = None
    ) -> None:
        cls, now = type(event), self._bound.__dict__["now"]
        if cls not in self._sent:
            self._sent.add(check_sent(self._spec, event))
        due = due_at(now, after, at)
        if key is not None and (due == now or self._pending is None):
            self._cancel(cls, key=key)
        if due == now:
            self.derived.add(event)
        elif self._pending is not None:
            self._pending.date(event, due, now, self._root, key)
        elif PENDING not in self._spec.states:
            refuse_dated()

    @runtime("cancel")
    def _cancel(self, event: type[Event], *, key: Any) -> None:
        if not (isinstance(event, type) and issubclass(event, Event)):
            raise not_a_type()
        if self._pending is not None:
            self._pending.disarm(event, key)
        else:
            timer_of(event, key)
            if PENDING not in self._spec.states:
                refuse_dated()

    def _count_pending(self, source: Source) -> dict[str, int]:
        """How many calls of `after=` handlers and dated events lie beyond the end."""
        found = Counter[str]() if self._pending is None else self._pending.counted()
        found += Counter() if self._writes is None else self._writes.counted()
        handlers = [spec for spec, _ in self._alone.values()]
        found.update(calls_ahead(self._program, handlers, source, self.gone))
        return dict(sorted(found.items()))

    @property
    def numbered(self) -> tuple[tuple[int, int, int] | None, int]:
        """The instant and event that records were put out at last, and how many."""
        return self._place, self._ordinal

    @numbered.setter
    def numbered(self, place: tuple[tuple[int, int, int], int]) -> None:
        self._place, self._ordinal = place

    def one_step(self, step: Step, shown: Callable[[], Event] | None) -> HandlerError | None:
        """Process a single step; the failure, if it fails, at the step's event as it is `shown`. See `one`."""
        _, failure, _ = self._chunk(iter((step,)))
        if failure is None or self._take_out(step, failure):
            return None
        if step.event is not None and shown is not None:
            step = step._replace(event=shown())
        return self._fatal(step, failure, brief=shown is None)

    def _take_out(self, event: Any, failure: Exception) -> bool:
        step: Step = event
        if step.phase != Phase.LOG_EVENT:
            return False
        if step.ts == self.log_begins and any(spec.every is not None for spec in self._spec.handlers):
            return False  # where the log begins with another event, ticks do too
        if not super()._take_out(event, failure):
            return False
        self.gone.add(step.seq)
        return True

    def _chunk(self, events: Iterator[Any]) -> tuple[int, Exception | None, Any]:
        """The hot loop, over steps."""
        done = 0
        live = self._bound.__dict__
        bound, emitted, journal = self._bound, self._emitted, self._journal
        windows, gone = self.windows, self.gone
        step: Step | None = None
        self._turn += 1
        try:
            for step in events:
                done += 1
                ts, phase, seq, order, event = step
                if seq in gone:
                    continue  # the call of an `after=` handler
                live["now"] = ts
                self._root = seq
                if windows is not None:
                    windows.tick = event is None
                try:
                    if event is None:
                        self._alone[order[0]][1](bound)
                    elif phase == Phase.DATED_WRITE:
                        if event.state in self._work.exact:  # to others it does not matter
                            getattr(self.states[event.state], event.method)(*event.arguments)
                    elif phase == Phase.LOG_EVENT or order[0] == _BEHIND:
                        for handler in self._at_once.get(type(event), ()):
                            handler(bound, event)
                    else:
                        self._alone[order[0]][1](bound, event)
                    if self.derived.waiting:
                        while self.derived.waiting:
                            current = self.derived.next(ts, seq)
                            for handler in self._at_once.get(type(current), ()):
                                handler(bound, current)
                        self._settle()
                except Rejection as refusal:
                    if journal is None:
                        raise RuntimeError("an event was rejected in a pass that rejects none") from refusal
                    undo(journal)
                    self._settle()
                    emitted[:] = [] if refusal.record is None or not self._final else [refusal.record]
                    name = "tick" if event is None else type(event).__name__
                    handler_name = self._handler_of(refusal.__traceback__)
                    self.collected.refused.append((ts, phase, seq, name, handler_name, refusal.reason))
                if journal:
                    journal.clear()
                if emitted:
                    if self._place != (ts, phase, seq):
                        self._place, self._ordinal = (ts, phase, seq), 0
                    for record in emitted:
                        row = (ts, phase, seq, self._ordinal, record)
                        self.collected.rows.setdefault(type(record), []).append(row)
                        self._ordinal += 1
                    emitted.clear()
        except Exception as error:
            return done, error, step
        finally:
            self._turn += 1
        return done, None, None

    def _seq_in_log(self, event: Any) -> int:
        is_sent = self.derived.current is not None or event.order[:1] == (_BEHIND,)
        return -1 if is_sent else int(event.seq)

    def _failed(self, event: Any, failure: Exception, *, brief: bool = False) -> HandlerError:
        if event.phase == Phase.DATED_WRITE:
            write: DatedWrite = event.event
            arguments = as_given(self._spec.states[write.state], write.arguments)
            shown = f"the write {write.state}.{write.method}{arguments!r} dated {event.ts}"
            return handler_error(self._program, shown, write.handler, failure, (event.ts, event.seq))
        handler = self._handler_of(failure.__traceback__)
        if not handler and _deep(failure.__traceback__):
            raise failure  # reading the log failed, no handler did
        current = event.event if self.derived.current is None else self.derived.current
        return handler_error(
            self._program,
            "a tick" if current is None else current,
            handler,
            failure,
            (event.ts, event.seq),
            brief=brief,
        )


def has_steps(program: Program) -> bool:
    """Whether a program has ticks, `after=` handlers, dated events or writes, or timers."""
    return any(use.what not in ("derive", *LOOKING) for use in spec_of(program).times)


def _deep(trace: TracebackType | None) -> bool:
    return trace is not None and trace.tb_next is not None


def _log(source: Source) -> Iterator[Step]:
    for event in source.events():
        yield Step(event.ts, Phase.LOG_EVENT, event.seq, (), event)


def ticks_of(program: Program, spec: HandlerSpec, place: int, source: Source) -> Iterator[Step]:
    """The ticks of a handler that a slice owns."""
    if source.begin is None or source.end is None:
        return
    calendar = calendar_of(program, spec)
    at = calendar.first(source.begin if source.since is None else max(source.begin, source.since + 1))
    while at <= source.end:
        yield Step(at, Phase.TICK, -1, (place,), None)
        at = calendar.after(at)


def calls_ahead(
    program: Program, handlers: Iterable[HandlerSpec], source: Source, gone: Collection[int] = ()
) -> dict[str, int]:
    """How many calls of `after=` handlers lie beyond the end, by handler: none for events that are `gone`."""
    found: dict[str, int] = {}
    for spec in handlers:
        if spec.after is not None and source.end is not None:
            lag = span_of(program, spec.after)
            behind = source.between(spec.events, _seq_after(source, source.end - lag), INT64_MAX)
            if count := sum(event.seq not in gone for event in behind.events()):
                found[spec.name] = count
    return found


def _later(
    program: Program, spec: HandlerSpec, place: int, source: Source, since: int | None, end: int
) -> Iterator[Step]:
    """The second cursor: events whose call falls after `since`, up to and including `end`."""
    assert spec.after is not None
    lag = span_of(program, spec.after)
    lo = 0 if since is None else _seq_after(source, since - lag)
    hi = _seq_after(source, end - lag)
    for event in source.between(spec.events, lo, hi).events():
        yield Step(event.ts + lag, Phase.DATED_EVENT, event.seq, (place,), event)


def _seq_after(source: Source, ts: int) -> int:
    """The first seq whose event is later than a time."""
    return source.reader.seq_at(ts + 1)
