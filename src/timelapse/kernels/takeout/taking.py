"""Which events are taken out of a log where what stems from one may fail long after it.

The meaning is that of beginning again without each such event. The serial loop keeps what its recent steps read and wrote, and
has the event and all that stems from it undone there (kernels/takeout/undoing.py). Where that is not kept, it goes back to
a copy of itself from before the event, and on from there without it: the log before the event is the same with it and
without.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from timelapse.env.garbage import collected_rarely
from timelapse.env.machine import memory_alone
from timelapse.errors import HandlerError
from timelapse.ids import INT64_MAX, INT64_MIN, Phase, Position
from timelapse.kernels.takeout.steplog import NotedLoop, Step
from timelapse.kernels.takeout.undoing import CannotUndo, Undoing
from timelapse.kernels.tuning import TAKING, TakingTuning
from timelapse.model.decimals import in_usual_context
from timelapse.model.events import Event
from timelapse.program.failure import Quarantined, quarantined_row, too_many, with_traceback
from timelapse.program.program import Program, spec_of
from timelapse.program.times import acts_later
from timelapse.segments.reader import EventReader
from timelapse.segments.types import heard
from timelapse.serial import Loop, Output, Refusal, SerialOutcome

_STEP_BYTES = 2048
"""What a step takes, roughly. Measured: 1,150 to 1,900, with its part of what lies ahead."""
_SHARE_OF_MEMORY, _UNASKED_SHARE = 4, 16
"""Such parts of the memory may go to steps."""
_KEPT_EVENTS = 1 << 17
"""So many events are kept at most, so as not to read them again."""
_FORGOTTEN = 1 << 14
"""So many outputs are held where nobody wants them."""


class Tape:
    """A log's events in order, which can go back to an earlier one. `keeps`: which it is likely to do soon."""

    def __init__(self, read: Callable[[int], Iterator[Event]], *, keeps: bool) -> None:
        self._read, self._keeps = read, keeps
        self._rest = read(INT64_MIN)
        self._kept: list[Event] = []
        self._place = 0

    def events(self) -> Iterator[Event]:
        """The events from where it stands, wherever it goes meanwhile."""
        if self._keeps:
            yield from iter(self._next, None)
            return
        while True:
            rest = self._rest
            for event in rest:
                yield event
                if self._rest is not rest:
                    break
            else:
                return

    def _next(self) -> Event | None:
        """The next event; None at the end."""
        if self._place == len(self._kept):
            event = next(self._rest, None)
            if event is None:
                return None
            if len(self._kept) >= _KEPT_EVENTS:
                del self._kept[: _KEPT_EVENTS // 2]
                self._place = len(self._kept)
            self._kept.append(event)
        self._place += 1
        return self._kept[self._place - 1]

    def go_to(self, seq: int) -> None:
        """The next event is the first one from this seq on."""
        if self._kept and self._kept[0].seq <= seq <= self._kept[-1].seq:
            self._place = bisect_left(self._kept, seq, key=lambda event: event.seq)
            return
        self._rest, self._kept, self._place = self._read(seq), [], 0


@dataclass
class _Mark:
    """The loop before an event, and what had come of it."""

    seq: int
    loop: Loop
    outputs: int
    refused: int
    done: int
    reached: int
    """The time of the last event before, also if that was taken out."""


@dataclass(frozen=True)
class _Asked:
    program: Program
    reader: EventReader
    most: int
    until: int | None
    keep: bool
    told: Callable[[int, int, int], None]
    memory: int
    tuning: TakingTuning

    def steps(self, *, unasked: bool) -> int:
        """So many steps may be kept. `unasked`: nothing has failed late."""
        if unasked:
            return min(
                self.tuning.unasked_steps,
                self.tuning.most_steps,
                self.memory // _UNASKED_SHARE // _STEP_BYTES,
            )
        return min(self.tuning.most_steps, self.memory // _SHARE_OF_MEMORY // _STEP_BYTES)


@in_usual_context
@collected_rarely(seldom=True)
def without_failing(
    program: Program, reader: EventReader, *, most: int, until: int | None = None, keep: bool = True,
    told: Callable[[int, int, int], None] = lambda done, total, taken: None, tuning: TakingTuning = TAKING,
) -> tuple[SerialOutcome, list[Quarantined]]:  # fmt: skip
    """What the loop gives over the log without the events that fail or from which something stems that does, and these,
    by rising seq.

    `most`: at most so many of them. `keep`: whether the outcome is wanted; else it is none in particular. `told` is called now and
    then with the number of events that the loop is through with, of all, and of those taken out.

    Raises HandlerError for a tick that fails and for what another machine would not meet, TooManyQuarantined.
    """
    asked = _Asked(program, reader, most, until, keep, told, memory_alone(), tuning)
    taken: dict[int, Quarantined] = {}
    outcome = None
    if acts_later(program):
        try:
            undo = _Undo(asked, taken)
            try:
                outcome = undo.run()
            finally:
                undo.end()
        except CannotUndo:
            outcome = None
    if outcome is None:
        outcome = _GoBack(asked, taken).run()
    return outcome, [taken[seq] for seq in sorted(taken)]


class _Taking:
    """What both ways share."""

    _goes_back: bool

    def __init__(self, asked: _Asked, taken: dict[int, Quarantined]) -> None:
        self._asked, self._program, self._reader = asked, asked.program, asked.reader
        classes = {cls.__name__: cls for cls in heard(spec_of(self._program), self._reader.types)}
        self._tape = Tape(lambda seq: asked.reader.events(seq, INT64_MAX, classes), keeps=self._goes_back)
        self._ticks = any(handler.every is not None for handler in spec_of(self._program).handlers)
        self._taken = taken
        self._outputs: list[Output] = []
        self._refused: list[Refusal] = []
        self._leading = self._trailing = 0
        """So many events at the log's beginning, and at its end, are known to be taken out."""
        self._first_time = self._reader.ts_first
        self._begin: int | None = None
        self._since = self._done = 0
        self._reached = INT64_MIN

    def _take(self, failure: HandlerError) -> None:
        """Note that an event is taken out. Raises the failure where none can be, TooManyQuarantined."""
        if failure.seq < 0 or failure.seq in self._taken or not failure.reproducible:
            raise with_traceback(failure)
        self._taken[failure.seq] = quarantined_row(failure)
        if len(self._taken) > self._asked.most:
            rows = (self._taken[seq] for seq in sorted(self._taken))
            raise too_many(rows, self._asked.most) from failure

    def _left(self) -> Iterator[Event]:
        """The events from where the tape stands, without those that are taken out, which may become more on the way; now and then a pause."""
        taken, spacing = self._taken, self._asked.tuning.spacing_events
        for event in self._tape.events():
            seq = event.seq
            if seq in taken:
                continue
            self._since += 1
            if self._since >= spacing:
                self._pause(seq)
            self._reached = event.ts
            yield event

    def _pause(self, seq: int) -> None:
        """Between two events, of which the next one has this seq."""
        raise NotImplementedError

    def _from_start(self, loop: Loop) -> None:
        """Have the loop, and all that is known of how far it is, stand before the first event."""
        self._outputs.clear()
        self._refused.clear()
        self._since = self._done = 0
        self._reached = INT64_MIN
        self._begin = self._first()
        if self._begin is not None:
            loop.begin(self._begin)
        self._tape.go_to(INT64_MIN)

    def _tell(self) -> None:
        self._done += self._since
        self._since = 0
        self._asked.told(self._done, self._reader.count, len(self._taken))

    # --- when the log begins and ends -------------------------------------------------------------

    def _first(self) -> int | None:
        """The time of the first event that is left. Of others than that of the log it only matters for ticks."""
        reader, leading = self._reader, self._leading
        while self._ticks and leading < reader.count and reader.seq_after(leading) in self._taken:
            leading += 1
        if leading != self._leading:
            self._leading = leading
            gone = leading == reader.count
            self._first_time = None if gone else reader.ts_before(reader.seq_after(leading) + 1)
        return self._first_time

    def _end(self) -> int | None:
        """The time to which the clock goes: that of the last event that is left, of whatever type, or later."""
        count = self._reader.count
        while self._trailing < count:
            seq = self._reader.seq_after(count - 1 - self._trailing)
            if seq not in self._taken:
                last = self._reader.ts_before(seq + 1)
                assert last is not None
                return last if self._asked.until is None else max(last, self._asked.until)
            self._trailing += 1
        return None


class _Undo(_Taking):
    """Has the loop undo them. Raises CannotUndo where it does not keep as much as it would need."""

    _goes_back = False

    def __init__(self, asked: _Asked, taken: dict[int, Quarantined]) -> None:
        super().__init__(asked, taken)
        self._loop = self._new_loop()
        self._most_steps = asked.steps(unasked=True)
        self._late = False
        """Whether anything has failed late: else steps need not be kept where they are many."""

    def run(self) -> SerialOutcome | None:
        """None where the outcome is wanted and is another one: the clock has gone on beyond the last event that is left."""
        self._restarts = 0
        self._begin_again()
        while True:
            self._go()
            end = self._end()
            if end is None or self._reached > end:
                break
            if self._do(partial(self._loop.advance, end), None) and end == self._end():
                break
        if not self._asked.keep:
            return self._loop.outcome
        if end is not None and self._reached > end:
            return None
        self._loop.give_all()
        outcome = self._loop.outcome
        outcome.outputs, outcome.refused = self._outputs, self._refused
        outcome.pending = self._loop.count_pending()
        return outcome

    def _go(self) -> None:
        for event in self._left():
            try:
                self._loop.step(event)
            except HandlerError as failure:
                if self._without(failure, event) is None:
                    self._do(partial(self._loop.step, event), event)

    def _pause(self, seq: int) -> None:
        self._tell()
        if not self._loop.forget(self._most_steps):
            if self._late:
                raise CannotUndo
            self._loop.keeps = False

    def _do(self, act: Callable[[], None], event: Event | None) -> bool:
        """Go on, and take out what fails: False where the loop has begun again instead."""
        while True:
            try:
                act()
            except HandlerError as failure:
                if (found := self._without(failure, event)) is not None:
                    return found
            else:
                return True

    def _without(self, failure: HandlerError, event: Event | None) -> bool | None:
        """Take out what has failed while an event was to be done: whether it is done with; None where it is to be tried again, False
        where the loop has begun again."""
        self._take(failure)
        self._loop.failed()
        own = event is not None and failure.seq == event.seq
        if own:
            self._loop.outcome.events -= 1
        else:
            self._late = self._loop.keeps = True
            self._most_steps = self._asked.steps(unasked=False)
            try:
                self._undoing.take_out(failure.seq)
            except CannotUndo:
                self._restarts += 1
                if self._restarts > self._asked.tuning.most_restarts:
                    raise
                self._begin_again()
                return False
        if self._begin != self._first():  # it began with an event that is not there
            self._begin_again()
            return False
        return True if own else None

    def end(self) -> None:
        """Nothing is undone any more."""
        self._loop.end()

    def _begin_again(self) -> None:
        self._loop.end()
        self._loop = self._new_loop()
        self._undoing = Undoing(self._program, self._loop, self._take)
        self._last: tuple[int, int, int] | None = None
        self._from_start(self._loop)

    def _new_loop(self) -> NotedLoop:
        return NotedLoop(self._program, self._put_out if self._asked.keep else None, self._asked.tuning)

    def _put_out(self, step: Step) -> None:
        ts, phase, _, _ = step.key
        if phase != Phase.DATED_WRITE and self._last != (ts, phase, step.root):
            self._last, self._ordinal = (ts, phase, step.root), 0
        for record in step.emitted:
            self._outputs.append(Output(Position(ts, phase, step.root, self._ordinal), record))
            self._ordinal += 1
        if step.refusal is not None:
            self._refused.append(step.refusal)


class _GoBack(_Taking):
    """Goes back to a copy of the loop from before the event."""

    _goes_back = True

    def __init__(self, asked: _Asked, taken: dict[int, Quarantined]) -> None:
        super().__init__(asked, taken)
        self._marking = acts_later(self._program)
        self._marks: list[_Mark] = []
        self._cost = self._marked = 0.0
        self._loop = Loop(self._program)

    def run(self) -> SerialOutcome:
        self._begin_again()
        while True:
            try:
                self._go()
                end = self._end()
                if end is None or self._reached <= end:
                    if end is not None:
                        self._loop.advance(end)
                    break
                # The last events were taken out: what was due between the last one that is left and them has not come yet.
                self._back_to_time(end)
            except HandlerError as failure:
                self._take(failure)
                self._back_to(failure.seq)
        outcome = self._loop.outcome
        outcome.pending = self._loop.count_pending()
        return outcome

    def _go(self) -> None:
        """Go on to the end of the log. Raises HandlerError for what fails after its event's own step."""
        for event in self._left():
            try:
                self._loop.step(event)
            except HandlerError as failure:
                if failure.seq != event.seq:
                    raise
                self._take(failure)
                self._loop.outcome.events -= 1
                if self._begin != self._first():  # it began with an event that is not there
                    self._begin_again()

    # --- going back -------------------------------------------------------------------------------

    def _pause(self, seq: int) -> None:
        """Between two events: say how far it is, and keep a copy of the loop unless that takes too much of the time."""
        now = time.perf_counter()
        self._tell()
        if not self._asked.keep and len(self._outputs) + len(self._refused) > _FORGOTTEN:
            self._outputs.clear()
            self._refused.clear()
        if not self._marking or now - self._marked < self._asked.tuning.copy_share * self._cost:
            return
        lengths = len(self._outputs), len(self._refused)
        self._marks.append(_Mark(seq, self._loop.copy(), *lengths, self._done, self._reached))
        if len(self._marks) > self._asked.tuning.most_copies:
            self._thin()
        self._marked = time.perf_counter()
        self._cost = self._marked - now

    def _thin(self) -> None:
        """Forget marks that nothing pending can need; of the others every second one of the older half."""
        oldest = self._loop.oldest_root()
        needed = len(self._marks) - 1
        while needed and oldest is not None and self._marks[needed].seq > oldest:
            needed -= 1
        del self._marks[:needed]
        if len(self._marks) > self._asked.tuning.most_copies:
            half = len(self._marks) // 2
            self._marks[:half] = self._marks[:half:2]

    def _back_to(self, seq: int) -> None:
        """Go back to before an event that has been taken out."""
        while self._marks and self._marks[-1].seq > seq:
            self._marks.pop()
        if not self._marks or self._begin != self._first():
            self._begin_again()
        else:
            self._restore()

    def _back_to_time(self, end: int) -> None:
        while self._marks and self._marks[-1].reached > end:
            self._marks.pop()
        if self._marks:
            self._restore()
        else:
            self._begin_again()

    def _restore(self) -> None:
        mark = self._marks[-1]
        del self._outputs[mark.outputs :], self._refused[mark.refused :]
        self._use(mark.loop.copy(), mark.reached, mark.done)
        self._tape.go_to(mark.seq)

    def _begin_again(self) -> None:
        self._marks.clear()
        self._use(Loop(self._program), INT64_MIN, 0)
        self._from_start(self._loop)

    def _use(self, loop: Loop, reached: int, done: int) -> None:
        self._loop, self._reached, self._done = loop, reached, done
        self._since = 0
        loop.outcome.outputs, loop.outcome.refused = self._outputs, self._refused
