"""Takes events out of the log for programs in which something happens at other times than the events' own.

What stems from an event may happen long after it: a dated event, a call L later. If that raises, undoing it is not enough: the event must
count as if it had never been in the log (kernels/takeout/taking.py).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from timelapse.analysis import Analysis, PassProgram, final_pass
from timelapse.display import many
from timelapse.kernels.choose import runs_compiled
from timelapse.kernels.native.lowered import lowered_pass, refused
from timelapse.kernels.source import Source
from timelapse.kernels.takeout.taking import without_failing
from timelapse.kernels.tuning import USUAL, KernelTuning
from timelapse.log.without import reader_without
from timelapse.model.decimals import in_usual_context
from timelapse.program.failure import Quarantined
from timelapse.program.program import Program, spec_of
from timelapse.program.times import acts_later
from timelapse.progress import Progress
from timelapse.segments.reader import EventReader
from timelapse.segments.types import heard

if TYPE_CHECKING:
    from timelapse.kernels.native.lowering.unit import Unit

_STAGE = "finding the events that fail"
_OFTEN, _SELDOM = 0.25, 10.0
"""Seconds between two signs of life, and between two lines."""


def taken_out(
    program: Program,
    reader: EventReader,
    *,
    most: int,
    until: int | None,
    progress: Progress,
    tuning: KernelTuning = USUAL,
) -> list[Quarantined]:
    """The events of the log that are taken out of it, by rising seq: it goes through it once, as Python.

    A failing tick stems from no event: then the run fails.
    """
    progress.stage(_STAGE, reader.count)
    listening = Listening(progress)
    started = time.perf_counter()
    _, rows = without_failing(
        program, reader, most=most, until=until, keep=False, told=listening.told, tuning=tuning.taking
    )
    progress.finish(_STAGE, time.perf_counter() - started)
    return rows


def how_found(program: Program, analysis: Analysis, events: int, tuning: KernelTuning) -> str:
    """How a replay of so many events finds those from which something fails after their own time; empty where nothing happens then."""
    if not acts_later(program):
        return ""
    if not runs_compiled(program, final_pass(analysis), events, final=True, tuning=tuning):
        return "as Python, as all that the replay does"
    goes_back = GoesBack.of(program, analysis)
    return f"as Python: {goes_back}" if isinstance(goes_back, str) else goes_back.how


class GoesBack:
    """Finds them compiled: many at a time (kernels/native/together.py), or one after the other (kernels/native/rewinding.py).

    `apart`: why not many at a time; empty where that is possible. `alone`: why not one after the other.
    """

    def __init__(
        self, program: Program, work: PassProgram, unit: Unit, apart: str, alone: str, tuning: KernelTuning
    ) -> None:
        self._program, self._work, self._unit, self._tuning = program, work, unit, tuning.native
        self.apart, self.alone = apart, alone
        self._deciding = _deciding(program, work, unit)

    @classmethod
    def of(cls, program: Program, analysis: Analysis, tuning: KernelTuning = USUAL) -> GoesBack | str:
        """Or why this cannot be done for a program."""
        from timelapse.kernels.native.rewinding import cannot_rewind
        from timelapse.kernels.native.together import cannot_find_together

        work = replace(final_pass(analysis), takes_out=True, keeps=True, finds_late=True)
        try:
            unit = lowered_pass(program, work, final=True)
        except refused() as refusal:
            return str(refusal)
        apart, alone = cannot_find_together(unit), cannot_rewind(unit)
        found = cls(program, work, unit, apart, alone, tuning)
        return found if found._deciding is not None or not (apart and alone) else alone

    @property
    def how(self) -> str:
        """In words."""
        from timelapse.kernels.native.deciding import deciding_pass
        from timelapse.kernels.native.foresight import foresees

        if foresees(self._unit):
            return "compiled, before their own steps: it follows from each event alone whether it fails"
        if deciding_pass(self._program, self._work) is not None:
            return "compiled, before their own steps: what decides whether they fail is run ahead"
        if self._deciding is not None:
            return "compiled, many at a time, in passes of what decides whether they fail alone"
        return "compiled, " + (f"one after the other: {self.apart}" if self.apart else "many at a time")

    @property
    def is_ready(self) -> bool:
        """Whether its machine code is there."""
        from timelapse.kernels.native.build import is_compiled

        return is_compiled(self._unit if self._deciding is None else self._deciding[1])

    @in_usual_context
    def taken_out(
        self, reader: EventReader, *, most: int, until: int | None, progress: Progress
    ) -> list[Quarantined] | None:
        """As the function; None where only the way as Python can tell, or is quicker. Waits for the compiler."""
        from timelapse.kernels.native.build import NotCompiled

        progress.stage(_STAGE, reader.count)
        listening, started = Listening(progress), time.perf_counter()
        try:
            found, is_all = self._together(reader, until, listening)
            if not is_all:
                rest = reader_without(reader, (row[2] for row in found))
                found += self._one_by_one(reader, rest, most - len(found), until, listening)
        except (NotCompiled, _NotFound):
            return None
        finally:
            progress.finish(_STAGE, time.perf_counter() - started)
        found.sort(key=lambda row: row[2])
        rest = reader_without(reader, (row[2] for row in found))
        # Where the log begins or ends at another time, ticks do, and calls may not come.
        moved = not left_as_it_is(reader, rest, [reader.seq_after(reader.count)])
        return None if moved or len(found) > most else found

    def _together(
        self, reader: EventReader, until: int | None, listening: Listening
    ) -> tuple[list[Quarantined], bool]:
        """Those that were found many at a time, and whether these are all."""
        from timelapse.kernels.native.together import NotTogether, Together

        ways = [] if self._deciding is None else [self._deciding]
        if not self.apart:
            ways.append((self._work, self._unit))
        done = 0

        def told(steps: int, taken: int) -> None:
            nonlocal done
            done = min(reader.count, done + steps)
            listening.told(done, reader.count, taken)

        for work, unit in ways:
            try:
                source = self._source(reader, reader, until, work)
                together = Together(self._program, work, unit, source, reader.count, self._tuning)
                return together.find(told, otherwise=not self.alone)
            except NotTogether:
                done = 0
        return [], False

    def _one_by_one(
        self, whole: EventReader, reader: EventReader, most: int, until: int | None, listening: Listening
    ) -> list[Quarantined]:
        """Those in a log from which some of the whole one have been taken out already."""
        from timelapse.kernels.native.rewinding import CannotRewind, RewindingKernel

        if self.alone or most < 0:
            raise _NotFound
        kernel = RewindingKernel(self._program, self._work, self._unit, reader.count, most, self._tuning)
        done, before = 0, whole.count - reader.count

        def told(events: int, taken: int) -> None:
            nonlocal done
            done += events
            listening.told(done, reader.count, before + taken)

        try:
            return kernel.find(self._source(whole, reader, until, self._work), told)
        except CannotRewind as why:
            raise _NotFound from why
        finally:
            kernel.close()

    def _source(
        self, whole: EventReader, reader: EventReader, until: int | None, work: PassProgram
    ) -> Source:
        """All of a log, from which some events of the whole one may have been taken out."""
        end, columns = whole.seq_after(whole.count), work.columns
        last = whole.ts_before(end)
        classes = {
            cls.__name__: cls for cls in heard(spec_of(self._program), whole.types) if cls.__name__ in columns
        }
        return Source(
            reader, 0, end, classes, columns, begin=whole.ts_first, is_last=True,
            end=last if until is None or last is None else max(last, until),
        )  # fmt: skip


def _deciding(program: Program, work: PassProgram, unit: Unit) -> tuple[PassProgram, Unit] | None:
    """What decides alone, where many can be found at a time in it."""
    from timelapse.kernels.native.deciding import deciding_alone
    from timelapse.kernels.native.together import cannot_find_together

    found = deciding_alone(program, work, unit)
    return None if found is None or cannot_find_together(found[1]) else found


class _NotFound(Exception):
    """Only the way as Python can tell, or is quicker."""


class Listening:
    """Passes on how far the loop is that takes events out, not too often."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._shown, self._noted = 0.0, time.perf_counter()

    def told(self, done: int, total: int, taken: int) -> None:
        now = time.perf_counter()
        if now - self._shown > _OFTEN:
            self._shown = now
            self._progress.advance(_STAGE, done, total)
        if taken and now - self._noted > _SELDOM:
            self._noted = now
            self._progress.note(f"{many(taken, 'event', 'events')} taken out of the log so far")


def left_as_it_is(whole: EventReader, rest: EventReader, cuts: Sequence[int]) -> bool:
    """Whether the log without some events begins, ends and is cut at the same times as the whole one."""
    return whole.ts_first == rest.ts_first and all(whole.ts_before(c) == rest.ts_before(c) for c in cuts)
