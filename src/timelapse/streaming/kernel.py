"""The open kernel: a program that stays where it is between epochs.

An epoch is a slice of the journal. The kernel is the one on which a replay runs its final pass (kernels/choose.py); it is
made once, and each epoch goes through it, whatever its size. So what live puts out is what replay puts out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from timelapse.analysis import analyse, final_pass
from timelapse.env.machine import memory_alone
from timelapse.errors import HandlerError
from timelapse.kernels.base import PassResult, no_tick
from timelapse.kernels.choose import SliceKernel
from timelapse.kernels.former import Former, Guard
from timelapse.kernels.kernel import EpochKernel
from timelapse.kernels.once import passes_once
from timelapse.kernels.python.timed import TimedKernel
from timelapse.kernels.rowlog import Earlier
from timelapse.kernels.source import Source
from timelapse.kernels.tuning import USUAL, KernelTuning
from timelapse.model.decimals import in_usual_context
from timelapse.program.failure import AGAIN
from timelapse.program.program import Program, spec_of
from timelapse.program.times import span_of
from timelapse.segments.types import EventType, heard
from timelapse.streaming.stand import Stand
from timelapse.streaming.window import JournalEnd
from timelapse.tables.apply import empty
from timelapse.tables.effectlog import PRESENT, since
from timelapse.tables.lookup import MappedTable

_LATER = 8
"""What a checkpoint is made of takes this part of the memory for a run at most, where it is found while the program goes on."""

STAYS = (
    "it cannot be taken out: what its event did stands already, or the program's ticks begin with it. Go on with a program that is mended (--evolve), "
    "or keep such rows out while they still come (--filter)"
)
"""What to do where an event fails although failing ones are taken out."""


AGAIN_LIVE = (
    "nothing of this epoch is committed. Begin it again: with the handler mended and evolve=True (--evolve), with quarantine=True (--quarantine), which takes such "
    "events out, or with filters= (--filter), which keeps rows out that have not been taken"
)
"""What to do where a handler raises, and nothing else is known."""


def lag_of(program: Program) -> int:
    """How long after an event its latest `after=` handler is called, in microseconds."""
    handlers = spec_of(program).handlers
    return max((span_of(program, h.after) for h in handlers if h.after is not None), default=0)


def said_live(error: BaseException) -> BaseException:
    """An error of a live run: its hint says what helps there."""
    if isinstance(error, HandlerError) and error.hint == AGAIN:
        error.hint = AGAIN_LIVE
    return error


def is_restorable(program: Program) -> bool:
    """Whether the program can go on from its states. If not, it is begun again with the journal's first row."""
    return final_pass(analyse(program)).serial is None


class OpenKernel:
    """Runs a program's epochs, one after the other.

    `stand`: where it begins; `journal` then has the rows that are still needed. `quarantine`: an event at which a handler
    raises is taken out and listed, at most so many of an epoch; without it the first one fails the epoch. `gone`: those taken
    out before. `compiled` False: handlers run as Python, whatever they are.

    It runs for months on any number of events, so it is compiled where it can be, and `why_python` says why not. A program
    that dates writes in ways that analysis cannot follow runs as the serial loop.
    """

    def __init__(
        self, program: Program, types: Sequence[EventType], journal: JournalEnd, stand: Stand | None = None, *,
        quarantine: int | None = None, folder: Path | None = None, gone: set[int] | None = None, compiled: bool = True,
        tuning: KernelTuning = USUAL,
    ) -> None:  # fmt: skip
        self.program, self.journal, self.given_up = program, journal, not compiled
        self._spec, self._tuning = spec_of(program), tuning
        self._work = replace(final_pass(analyse(program)), takes_out=quarantine is not None, keeps=True)
        self._stand = Stand() if stand is None else stand
        self.complete = self._stand.complete
        self._classes = {c.__name__: c for c in heard(self._spec, types)}
        columns = self._work.columns
        if self._work.serial is not None:
            columns = {name: tuple(f.name for f in cls.__fields__) for name, cls in self._classes.items()}
        own = {e.__name__: e for h in self._work.handlers for e in h.events}
        self._read = {name: own.get(name, cls) for name, cls in self._classes.items() if name in columns}
        self._columns = columns
        self.gone = set[int]() if gone is None else gone
        """The events that were taken out, also of those that it runs."""
        self._kernel = self._make(quarantine, folder, self.gone, compiled=compiled)

    @passes_once()
    def _make(
        self, quarantine: int | None, folder: Path | None, gone: set[int], *, compiled: bool
    ) -> EpochKernel:
        if self._work.serial is not None:
            return TimedKernel(self.program, quarantine, open=True)
        stand = self._stand
        begun = stand.complete is not None
        return SliceKernel(
            self.program, self._work, dict(stand.states), 0, final=True, quarantine=quarantine, share=self._tuning.cold_events, tuning=self._tuning,
            before=self._before if begun else None, folder=folder, alone=False, given_up=not compiled, gone=gone,
            open=True,
        )  # fmt: skip

    def _before(self, state: str, form: str, width: int) -> Earlier:
        """What the windows of a new kernel begin with (kernels/python/windows.py)."""
        end = self._stand.complete
        assert end is not None
        tables = [part.rows[state, form] for part in self._stand.seen if (state, form) in part.rows]
        if form != PRESENT:
            return Earlier(since(tables, end - width), end=end)
        spec = self._spec.states[state]
        stood = MappedTable(spec, self._stand.stood.get(state, empty(spec)))
        return Earlier([t for t in tables if t.num_rows], 0, stood.find, end)

    @property
    def compiled(self) -> bool:
        """Whether handlers run as machine code."""
        return self._kernel.compiled

    @property
    def why_python(self) -> str:
        """Why they do not."""
        if self._work.serial is not None:
            return f"{self._work.serial.what} at {self._work.serial.place} runs as the serial loop"
        return self._kernel.why_python

    @in_usual_context
    def run(self, lo: int, hi: int, complete: int) -> PassResult:
        """Process the journal's rows `lo` to before `hi`, and everything up to the time `complete`, inclusive.

        Gives what was put out. Raises HandlerError, and Abandoned where it has to be begun again without being compiled;
        after both it is of no use.
        """
        source = Source(self.journal, lo, hi, self._read, self._columns)
        if self._spec.times:
            source = Source(
                self.journal, lo, hi, self._read, self._columns, None, self.journal.ts_first, complete, self.complete
            )  # fmt: skip
        result = self._kernel.run(source, no_tick)
        if result.failure is not None:
            if (
                self._work.takes_out
                and isinstance(result.failure, HandlerError)
                and result.failure.reproducible
            ):
                result.failure.hint = STAYS
            raise result.failure
        self.complete = complete
        return result

    @in_usual_context
    def changes(self, *, later: bool = False) -> PassResult:
        """What was done to states since this was last called. `later`: it is still to be found, by whoever needs it first (PassResult.settle), unless that
        would take too much memory. Raises Abandoned."""
        return self._kernel.changes(memory_alone() // _LATER if later else 0)

    def close(self) -> None:
        """Let go of all that it holds. Nobody may look into it any more."""
        self._kernel.close()

    @property
    def guard(self) -> Guard:
        """Held while states change, and by who reads `former`."""
        return self._kernel.guard

    def settle(self) -> None:
        """What states hold now is committed: `former` gives that, whatever is processed, until this is called again. Who calls it holds the guard."""
        self._kernel.settle()

    def former(self, name: str) -> Former | None:
        """A state as it was when this was settled; None where that is not known, and who reads has to wait."""
        return self._kernel.former(name)

    @property
    def state_bytes(self) -> int:
        """What the program's states take."""
        return self._kernel.state_bytes

    @property
    def text_bytes(self) -> int:
        """What the texts take that it has met: a compiled kernel forgets none."""
        return self._kernel.text_bytes

    def state(self, name: str) -> Any:
        """A state as handlers use it, as it stands. It must not be written to."""
        return self._kernel.live(name)

    def items(self, name: str) -> Iterator[tuple[Any, Any]]:
        """The keys of a state, with what is stored under them. Nothing may be processed meanwhile."""
        return self._kernel.held(name)
