"""The kernel that takes out of the log what fails long after its event: its result is that of the log without.

It is the serial loop over the whole log as one slice, since what is taken out may have had effects in any part before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from timelapse.errors import HandlerError, TooManyQuarantined
from timelapse.kernels.base import PassResult, Tick
from timelapse.kernels.python.timed import result_of
from timelapse.kernels.source import Source
from timelapse.kernels.takeout.taking import without_failing
from timelapse.kernels.tuning import TAKING, TakingTuning
from timelapse.program.program import Program, spec_of


class TakingKernel:
    """Runs a whole program over a whole log, without the events that fail or from which something stems that does: at most `most`.

    `until`: the time to which the clock goes on after the last event.
    """

    compiled = False
    why_python = "what fails late is taken out by the serial loop"
    workers = accompanied = False
    state_bytes = 0

    def __init__(self, program: Program, most: int, until: int | None, tuning: TakingTuning = TAKING) -> None:
        self._program, self._most, self._until, self._tuning = program, most, until, tuning
        self.seconds: dict[str, float] = {}

    def carried(self) -> None:
        """Nothing goes on from here."""
        return

    def close(self) -> None:
        """It holds nothing between runs."""

    def run(self, source: Source, tick: Tick) -> PassResult:
        """Process the slice, which is the whole log."""
        told = 0

        def tell(done: int, total: int, taken: int) -> None:
            nonlocal told
            if done > told:
                tick(done - told)
                told = done

        result = PassResult()
        try:
            with _one_too_many():
                outcome, rows = without_failing(
                    self._program,
                    source.reader,
                    most=self._most,
                    until=self._until,
                    told=tell,
                    tuning=self._tuning,
                )
        except HandlerError as failure:
            result.failure = failure
            return result
        result_of(spec_of(self._program), outcome, {}, result)
        result.quarantined = rows
        return result


@contextmanager
def _one_too_many() -> Iterator[Any]:
    """Raise the failure of the event that is one too many, which knows those that were taken out before."""
    try:
        yield
    except TooManyQuarantined as many:
        failure = many.__cause__
        assert isinstance(failure, HandlerError)
        failure.taken = tuple(row for row in many.rows if row[2] != failure.seq)
        raise failure from failure.__cause__
