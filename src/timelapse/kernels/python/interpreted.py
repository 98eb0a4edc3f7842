"""The kernel that runs handlers as ordinary Python."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, NoReturn

import pyarrow as pa

from timelapse.analysis.result import PassProgram
from timelapse.errors import HandlerError, UsageError
from timelapse.ids import Phase
from timelapse.kernels.base import (
    PassResult,
    Tick,
)
from timelapse.kernels.python.collected import Collected
from timelapse.kernels.python.derived import Derived
from timelapse.kernels.python.held import Held, Live, nobody_else
from timelapse.kernels.python.windows import Windows
from timelapse.kernels.source import Source
from timelapse.kinds.effects import Journal, undo
from timelapse.model.events import Event, Record
from timelapse.program.binding import bind
from timelapse.program.failure import handler_error, is_reproducible, quarantined_row
from timelapse.program.pending import WRITES
from timelapse.program.program import Program, Rejection, rejection, runtime, spec_of
from timelapse.program.times import check_sent
from timelapse.tables.apply import Change

RECORDER = "tl_record"
"""The name of handlers that put out what others read (cache/reads.py)."""
FIRST_TICK, _TICK = 64, 8192
"""After how many events progress is told, at first and at most."""
_OFTEN, _SELDOM = 0.1, 0.5
"""Seconds between two such moments: below the one there may be more events between them, above the other fewer."""


class InterpretedKernel:
    """Runs a pass's handlers over events, one by one.

    `starts` holds, for each exact state, its value per key at the start; the kernel takes the
    dicts over. A state missing there starts empty. `live` may give other objects for some states:
    those are kept by somebody else, and what they collect is not in the results. With `quarantine` an
    event at which a handler raises is undone and listed, and the next one follows; at most so many of a slice: the
    next one fails, and its error has them (HandlerError.taken). `journal`: the one that those states write to, where they have one. `rows`: whether
    what a slice did to states that are looked back on is asked for; `folder`: where such rows may wait. `room`: bytes of states and windows from which on windows can be put away (None: never).
    """

    def __init__(
        self, program: Program, work: PassProgram, starts: Mapping[str, dict[Any, Any]], *, final: bool,
        quarantine: int | None = None, live: Live = nobody_else, journal: Journal | None = None, rows: bool = True,
        folder: Path | None = None, room: int | None = None,
    ) -> None:  # fmt: skip
        self._program = program
        self._work = work
        self._final = final
        self._spec = spec_of(program)
        self._quarantine = quarantine
        self._journal: Journal | None = journal
        if journal is None and (work.rejects or quarantine is not None):
            self._journal = []
        windows: Windows | None = None
        if work.logs or (WRITES in self._spec.states and not work.timeless):
            windows = Windows(program, work, self._journal, final=final, folder=folder, keep=rows, room=room)
        self.windows = windows
        """Its views of the past, where the program has any."""
        self._held = Held(
            self._spec.states, work, starts, final=final, journal=self._journal, windows=windows, live=live
        )
        self.states = self._held.states
        """What handlers see."""
        self._emitted: list[Record] = []
        self.collected = Collected()
        self._turn = 0
        self.derived = Derived(self._spec)
        self.open = False
        """Open: a slice goes on from run to run until `changes` is called; runs give what was put out."""
        records = any(h.name == RECORDER for h in work.handlers)
        emit = self._emit_or_read if records else self.emit
        runtime = {
            "emit": emit if final else _drop, "reject": _reject, "now": 0, "send": self._send,
            "cancel": self._cancel,
        }  # fmt: skip
        self._bound = bind(program, self.states, runtime, work.members)
        if windows is not None:
            windows.use(self._bound.__dict__)
        self._by_type: dict[type[Event], tuple[Any, ...]] = {}
        self._names: dict[CodeType, str] = {}
        for handler in work.handlers:
            self._names[handler.function.__code__] = handler.name
            for event in handler.events:
                self._by_type[event] = (*self._by_type.get(event, ()), handler.function)

    @runtime("emit")
    def emit(self, record: Record) -> None:
        """A handler puts something out."""
        if not isinstance(record, Record):
            raise not_a_record(record)
        self._emitted.append(record)

    @runtime("emit")
    def _emit_or_read(self, record: Record) -> None:
        """In a pass that records what handlers read: that is no output, and has no place among them."""
        if isinstance(record, Record) and record.__reads__:
            self.collected.read(record)
        else:
            self.emit(record)

    @runtime("send")
    def _send(
        self, event: Event, *, after: int | None = None, at: int | None = None, key: Any = None
    ) -> None:
        if (after, at, key) != (None, None, None):
            refuse_dated()
        check_sent(self._spec, event)
        self.derived.add(event)

    @runtime("cancel")
    def _cancel(self, event: type[Event], *, key: Any) -> None:
        refuse_dated()

    def _settle(self) -> None:
        """A transaction with derived events is over, in one way or the other."""
        self.derived.settle()

    def close(self) -> None:
        """Let go of states and windows. Handlers' `self` holds them, and it: without that nothing waits for a search for cycles."""
        if bound := vars(self).get("_bound"):
            bound.__dict__.clear()
        vars(self).clear()

    @property
    def held(self) -> Held:
        """Its states."""
        return self._held

    @property
    def turn(self) -> object:
        """What the loop over events is at, roughly: the time of the event, and which round of how many events."""
        return (self._turn, self._bound.__dict__["now"]) if self._turn % 2 else None

    @property
    def journal(self) -> Journal | None:
        """What the event under way has written, if it may have to be undone."""
        return self._journal

    @property
    def state_bytes(self) -> int:
        """What the exact states and their windows take in memory, roughly."""
        return self.held.nbytes

    def begin(self) -> None:
        """A new slice begins, or the next part of one."""
        if not (self.open and self._held.is_begun):
            self._held.begin()
        self.collected.begin()

    def run(self, events: Iterator[Event], tick: Tick) -> PassResult:
        """Process one slice. After a failure the kernel's state is of no use."""
        self.begin()
        return self.go_on(events, tick)

    def run_source(self, source: Source, tick: Tick) -> PassResult:
        """The same for events that are read from somewhere."""
        return self.run(source.events(), tick)

    def go_on_source(self, source: Source, tick: Tick) -> PassResult:
        """Process the rest of the slice that was begun, read from somewhere."""
        return self.go_on(source.events(), tick)

    def one(self, event: Event, shown: Callable[[], Event] | None) -> HandlerError | None:
        """Process a single event; the failure, if it fails and stays in the log, at the event as it is `shown`. None: as it is here, and
        without a traceback."""
        _, failure, _ = self._chunk(iter((event,)))
        if failure is None or self._take_out(event, failure):
            return None
        return self._fatal(event if shown is None else shown(), failure, brief=shown is None)

    def go_on(self, events: Iterator[Event], tick: Tick) -> PassResult:
        """Process the rest of the slice that was begun."""
        result = PassResult()
        size = FIRST_TICK
        while True:
            began = time.perf_counter()
            done, failure, event = self._chunk(islice(events, size))
            result.events += done
            if failure is not None:
                if event is None:
                    raise failure  # reading the log failed, no handler did
                if self._take_out(event, failure):
                    tick(done)
                    continue
                result.failure = self._fatal(event, failure)
                result.failed_seq, result.quarantined = self._seq_in_log(event), self.collected.quarantined
                return result
            tick(done)
            if done < size:
                break
            size = next_size(size, time.perf_counter() - began)
        self._finish(result)
        return result

    def _finish(self, result: PassResult) -> None:
        """What the slice, or a part of it, did and put out."""
        result.quarantined = self.collected.quarantined
        if not self.open:
            self.changes(result)
        if self._final:
            result.outputs, result.rejected = self.put_out()

    def changes(self, result: PassResult, later: int = 0) -> None:
        """What the slice did to states. It ends here. `later`: it is found at once."""
        if not self._held.is_begun:
            self.begin()
        self._held.end(result, self._changed)

    def _changed(self, name: str) -> tuple[pa.Table, Change]:
        """What the slice did to an exact state."""
        return self._held.changed(name)

    def go_through(self, events: Iterator[Event]) -> None:
        """Process events for the states alone: what they put out is forgotten. Raises HandlerError."""
        while True:
            _, failure, event = self._chunk(events)
            self.collected.rows.clear()
            self.collected.refused.clear()
            if failure is None:
                return
            if event is None:
                raise failure  # reading the log failed, no handler did
            if not self._take_out(event, failure):
                raise self._fatal(event, failure)

    def give_up(self) -> None:
        """An event has failed that stays in the log, and was undone by somebody else: nothing is left of it, nor of what was put out before."""
        if self._journal is not None:
            self._journal.clear()
        self._emitted.clear()
        self._settle()
        self.collected.rows.clear()
        self.collected.refused.clear()

    def take_back(self) -> None:
        """An event has failed that stays in the log: undo it. Nothing is left of what was put out before."""
        if self._journal is not None:
            undo(self._journal)
        self.give_up()

    def put_out(self) -> tuple[dict[type[Record], pa.Table], pa.Table]:
        """The records and the rejections of the slice so far."""
        return self.collected.tables()

    def _take_out(self, event: Event, failure: Exception) -> bool:
        """Undo an event that failed, if such events are to be taken out of the log."""
        if (
            self._quarantine is None
            or not is_reproducible(failure)
            or not self._handler_of(failure.__traceback__)
        ):
            return False
        assert self._journal is not None
        if len(self.collected.quarantined) >= self._quarantine:
            return False
        undo(self._journal)
        self._emitted.clear()
        self.collected.quarantined.append(quarantined_row(self._failed(event, failure, brief=True)))
        self._settle()
        return True

    def _seq_in_log(self, event: Event) -> int:
        """The seq of what failed, if it comes from the log itself: then it can be shown with all its fields."""
        return event.seq if self.derived.current is None else -1

    def _fatal(self, event: Any, failure: Exception, *, brief: bool = False) -> HandlerError:
        """The error for what stays in the log; with what was taken out before, where this is one too many."""
        error = self._failed(event, failure, brief=brief)
        full = self._quarantine is not None and len(self.collected.quarantined) >= self._quarantine
        if full and error.seq >= 0 and error.reproducible:
            error.taken = tuple(self.collected.quarantined)
        return error

    def _failed(self, event: Event, failure: Exception, *, brief: bool = False) -> HandlerError:
        handler = self._handler_of(failure.__traceback__)
        if not handler and _beyond(failure.__traceback__):
            raise failure  # reading the log failed, no handler did
        current = event if self.derived.current is None else self.derived.current
        return handler_error(self._program, current, handler, failure, (event.ts, event.seq), brief=brief)

    def _chunk(self, events: Iterator[Event]) -> tuple[int, Exception | None, Event | None]:
        """The hot loop. Returns the number of events done, and what failed at which event."""
        done = 0
        by_type = self._by_type
        bound = self._bound
        live = bound.__dict__
        emitted = self._emitted
        journal = self._journal
        rows, refused = self.collected.rows, self.collected.refused
        derived, waiting = self.derived, self.derived.waiting
        rejects = self._work.rejects
        event: Event | None = None
        self._turn += 1
        try:
            for event in events:
                done += 1
                live["now"] = event.ts
                try:
                    for handler in by_type.get(type(event), ()):
                        handler(bound, event)
                    if waiting:
                        while waiting:
                            current = derived.next(event.ts, event.seq)
                            for handler in by_type.get(type(current), ()):
                                handler(bound, current)
                        self._settle()
                except Rejection as refusal:
                    if journal is None or not rejects:
                        raise RuntimeError("an event was rejected in a pass that rejects none") from refusal
                    undo(journal)
                    self._settle()
                    emitted[:] = [] if refusal.record is None or not self._final else [refusal.record]
                    name = self._handler_of(refusal.__traceback__)
                    place = (event.ts, Phase.LOG_EVENT, event.seq)
                    refused.append((*place, type(event).__name__, name, refusal.reason))
                if journal:
                    journal.clear()
                if emitted:
                    for ordinal, record in enumerate(emitted):
                        row = (event.ts, Phase.LOG_EVENT, event.seq, ordinal, record)
                        rows.setdefault(type(record), []).append(row)
                    emitted.clear()
        except Exception as error:
            return done, error, event
        finally:
            self._turn += 1
        return done, None, None

    def _handler_of(self, trace: TracebackType | None) -> str:
        """The handler that a traceback from the hot loop passes through."""
        while trace is not None:
            name = self._names.get(trace.tb_frame.f_code)
            if name is not None:
                return name
            trace = trace.tb_next
        return ""


def refuse_dated(*_: Any, **__: Any) -> NoReturn:
    """What `self.cancel`, and `self.send` to another time, do where nobody knew of them when the program was defined."""
    raise UsageError(
        "self.send to another time, or self.cancel, outside the program's methods",
        hint="call it in a method of the program: what reaches into other times is found when the class is defined",
        code="TL865",
    )  # fmt: skip


def _beyond(trace: TracebackType | None) -> bool:
    """Whether something was raised in code that the hot loop called, not in the loop itself."""
    return trace is not None and trace.tb_next is not None


@runtime("emit")
def _drop(record: Record) -> None:
    """Outputs of a pass that is not the final one go nowhere; what is none raises as it does there."""
    if not isinstance(record, Record):
        raise not_a_record(record)


def not_a_record(value: object) -> TypeError:
    return TypeError(f"emit takes a tl.Record, not {type(value).__name__}")


@runtime("reject")
def _reject(reason: str | Record = "") -> None:
    raise rejection(reason)


def next_size(size: int, seconds: float) -> int:
    """How many events until progress is told again, after so many took so long: handlers may take milliseconds each."""
    if seconds < _OFTEN:
        return min(_TICK, size * 4)
    return max(1, size // 4) if seconds > _SELDOM else size
