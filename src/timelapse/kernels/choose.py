"""Which kernel runs a pass: the compiled one where the pass compiles and is worth it, else Python."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timelapse.analysis.result import PassProgram
from timelapse.env.machine import carried_if_set
from timelapse.errors import UsageError
from timelapse.kernels import budget
from timelapse.kernels.base import PassResult, Tick
from timelapse.kernels.clock import Clock
from timelapse.kernels.companions import Companion
from timelapse.kernels.former import Former, Guard
from timelapse.kernels.native.foreseen import Foreseen
from timelapse.kernels.native.lowered import kept_whole, lowered_pass, refused, viewed
from timelapse.kernels.python.flat.kernel import FlatKernel
from timelapse.kernels.python.former import former_of, settle
from timelapse.kernels.python.interpreted import InterpretedKernel
from timelapse.kernels.python.starts import starting
from timelapse.kernels.python.steps import SteppingKernel, has_steps
from timelapse.kernels.rowlog import Before
from timelapse.kernels.source import Source
from timelapse.kernels.tuning import USUAL, KernelTuning
from timelapse.program.program import Program, spec_of
from timelapse.tables.levels import Start
from timelapse.tables.table import to_dict

if TYPE_CHECKING:
    from timelapse.kernels.native.aside import AsideKernel
    from timelapse.kernels.native.kernel import NativeKernel
    from timelapse.kernels.native.lowering.unit import Unit
    from timelapse.kernels.native.memory.strings import Interned
    from timelapse.kernels.native.shared import SharedKernel

LEFT_TOO_OFTEN = "too many events needed it"
"""What is said of a pass that began compiled."""
NOT_ALONE = "windows over single values run compiled only in one pass from the log's start"
GIVEN_UP = "it was tried compiled, and given up"
SWITCH = "TIMELAPSE_KERNEL"
"""Environment variable: native (compile whatever compiles), python (handlers rewritten), interpreted, or auto."""


@dataclass(frozen=True)
class Choice:
    """How a pass runs. `reason` says why it is not compiled, and `line` of the user's file where; empty if it is."""

    compiled: bool
    reason: str = ""
    line: int = 0


class SliceKernel:
    """Runs one pass over slices, compiled if possible.

    Where a compiled pass meets what only Python can do, that event runs as Python; where that happens often,
    so does the rest of the slice, and all later ones of this kernel. Results never differ.

    `prefetch`: a compiled pass has the next events read and decoded by a second thread, for when there
    is a core for it. Handlers that run as Python would have to share the interpreter with it.

    `memory`: bytes that states should not exceed by much. The kernel loads no larger state whole; it is the
    caller's part to go on with a new kernel when `state_bytes` has become larger.

    `ahead`: its start states are predicted, or it runs a part of the handlers only. Then each event has a
    budget (budget.py), and `run` raises Spent where one spends it.

    `quarantine`: an event at which a handler raises is undone and listed, and the next one follows; at most so many. Where
    steps are taken at other times, of the whole log from its first event on; `gone` then has the events taken out, and `foreseen`
    those that are left out before they fail (None: none are).

    Of states that are looked back on, `before` gives the rows of earlier slices (None: there are none), `rows` says whether
    those of each slice are asked for, and `folder` where they may wait. `alone`: it is the whole program from the log's
    first event on, and nobody asks for rows; only then all kinds of windows run compiled. `given_up`: it was tried compiled,
    which failed. Of programs with windows, ticks or `after=` `run` may raise Abandoned.

    `workers`: threads among which a compiled pass may share out its events, where it can: by key (`run` then may raise
    Abandoned), or if it uses no state as they come.

    `asked`: what is needed of the result is what happened to these states (None: all of it); the rest may be missing.

    `share`: how many events this process has for the pass, those of other kernels with them (`share_of`). `tuning`: when what is
    worth while.

    `open`: the slice goes on from run to run. A run gives what was put out, and `changes` what was done to states since it
    was last called. Such a kernel may run for months, on any number of events a run.

    `companions`: output parts of other programs that run beside it, if it and they run compiled: see `accompanied`. What it
    records of reads goes to them then, and is not in the results.
    """

    def __init__(
        self, program: Program, work: PassProgram, starts: Mapping[str, Start], events: int, *, final: bool,
        prefetch: bool = False, memory: int | None = None, ahead: bool = False,
        quarantine: int | None = None, workers: int = 1, before: Before | None = None, rows: bool = True,
        folder: Path | None = None, alone: bool = True, given_up: bool = False,
        asked: Collection[str] | None = None, share: int = 0, tuning: KernelTuning = USUAL,
        companions: Sequence[Companion] = (), gone: set[int] | None = None, foreseen: Foreseen | None = None,
        open: bool = False,  # noqa: A002
    ) -> None:  # fmt: skip
        share = max(events, share)
        looks_back, whole = viewed(work), kept_whole(program, work)
        if workers < 2 or (looks_back and not alone):
            work = replace(work, by_key=None)
        self._program, self._work, self._final = program, work, final
        self._events, self._memory = events, memory
        self._rows, self._folder, self._gone = rows, folder, gone
        self._ahead, self._quarantine = ahead, quarantine
        self._open, self._share, self._tuning = open, share, tuning
        self._native: NativeKernel | None = None
        self._texts: Interned | None = None
        self._shared: SharedKernel | None = None
        self._aside: AsideKernel | None = None
        self._python: InterpretedKernel | None = None
        self._handed_over: NativeKernel | None = None
        self.guard = Guard()
        self._clock = Clock()
        with self._clock.phase("compile"):
            unit, why = None, GIVEN_UP if given_up else NOT_ALONE
            if not given_up and (alone or not whole):
                unit, why = _unit(program, work, share, final=final, tuning=tuning)
                if unit is None and work.by_key is not None:
                    work = self._work = replace(work, by_key=None)
                    unit, why = _unit(program, work, share, final=final, tuning=tuning)
        self.why_python = why
        """Why it does not run compiled, or not any more, where only trying shows it; else empty."""
        if unit is not None and unit.shared:
            from timelapse.kernels.native.shared import SharedKernel

            self._shared = SharedKernel(
                program, work, unit, starts, workers=workers, events=events, memory=memory, quarantine=quarantine,
                tuning=tuning.native,
            )  # fmt: skip
        elif unit is not None:
            from timelapse.kernels.native.kernel import NativeKernel
            from timelapse.kernels.native.memory.strings import Interned

            self._texts = Interned(unit.texts)
            if foreseen is not None and quarantine is not None and unit.later:
                from timelapse.kernels.native.decider import run_ahead

                with self._clock.phase("compile"):
                    own = program, work, unit, self._texts, events
                    run_ahead(
                        foreseen,
                        *own,
                        lambda ahead: _unit(program, ahead, share, final=True, tuning=tuning)[0],
                        tuning.native,
                    )
            self._native = NativeKernel(
                program, work, unit, starts, final=final, prefetch=prefetch, events=events, memory=memory,
                ahead=ahead, quarantine=quarantine, gone=gone, foreseen=foreseen, asked=asked, before=before if looks_back else None, interned=self._texts,
                logged=[n for n in work.logs if rows and not whole and (final or n in work.targets)],
                tuning=tuning.native,
            )  # fmt: skip
            self._native.open, self._native.guard = open, self.guard
            self._accompany(companions, share)
            if workers > 1 and final and not ahead:
                from timelapse.kernels.native.aside import AsideKernel, uses_no_state

                if uses_no_state(work, unit):
                    self._aside = AsideKernel(
                        program,
                        work,
                        unit,
                        workers=workers,
                        events=events,
                        quarantine=quarantine,
                        tuning=tuning.native,
                    )
        else:
            self._interpret(starts, before)

    def _accompany(self, companions: Sequence[Companion], share: int) -> None:
        """Have companions run beside the compiled pass, if all of them run compiled."""
        if not companions or self._native is None or self._native.unit.steps:
            return
        units = []
        with self._clock.phase("compile"):
            for one in companions:
                unit, _ = _unit(one.program, one.work, share, final=True, tuning=self._tuning)
                if unit is None:
                    return
                units.append(unit)
        from timelapse.kernels.native.beside import Companions

        self._native.companions = Companions(
            companions, units, events=self._events, tuning=self._tuning.native
        )

    @property
    def accompanied(self) -> bool:
        """Whether the companions run beside it."""
        return self._native is not None and self._native.companions is not None

    @property
    def seconds(self) -> dict[str, float]:
        """What making the kernel took, as far as it was compiling, or loading machine code."""
        return self._clock.seconds

    @property
    def compiled(self) -> bool:
        """Whether it runs compiled (until now, at least)."""
        return self._native is not None or self._shared is not None

    @property
    def workers(self) -> bool:
        """Whether its events are shared out among threads by key."""
        return self._shared is not None

    @property
    def parts(self) -> tuple[InterpretedKernel | None, NativeKernel | None]:
        """What it runs on: one of the two."""
        return self._python, self._native

    @property
    def state_bytes(self) -> int:
        """What the states that need not be in memory take there, roughly."""
        kernel = self._shared or self._native or self._python
        return 0 if kernel is None else kernel.state_bytes

    def run(self, source: Source, tick: Tick) -> PassResult:
        """Process one slice. After a failure the kernel is of no use."""
        if not self._ahead:
            return self._run(source, tick)
        return budget.within(budget.SECONDS, self._turn, lambda: self._run(source, tick))

    def _turn(self) -> object:
        kernel = self._native or self._python
        return None if kernel is None else kernel.turn

    def _run(self, source: Source, tick: Tick) -> PassResult:
        if self._shared is not None:
            return self._shared.run(source.chunks(), tick, source.event)
        if self._native is not None:
            from timelapse.kernels.native.leaving import TooOften

            if self._aside is not None:
                try:
                    return self._aside.run(source, tick)
                except TooOften:
                    self._aside = None
            if self._native.unit.steps:
                return self._native.run_steps(source, tick)
            try:
                return self._native.run(source.chunks(), tick, source.event, source.later)
            except TooOften as often:
                done, self._python = self._native.hand_over()
                self._handed_over, self._native = self._native if self._open else None, None
                self.why_python = LEFT_TOO_OFTEN
                self._python.open = self._open
                rest = replace(source, lo=often.seq)
            result = self._python.go_on_source(rest, tick)
            result.events += done.events
            if result.failure is None:
                done.join(result.outputs, result.rejected)
                result.outputs, result.rejected = done.outputs, done.rejected
            return result
        assert self._python is not None
        if isinstance(self._python, SteppingKernel):
            return self._python.run_steps(source, tick)
        return self._python.run_source(source, tick)

    def _interpret(self, starts: Mapping[str, Start], before: Before | None) -> None:
        states, own = spec_of(self._program).states, (self._events, self._memory)
        known = {name: starting(states[name], table, *own) for name, table in starts.items()}
        timeless, room = self._work.timeless, carried_if_set(self._memory)
        at_once = timeless or all(use.what == "derive" for use in spec_of(self._program).times)
        if has_steps(self._program) and not timeless:
            self._python = SteppingKernel(
                self._program, self._work, known, final=self._final, rows=self._rows, folder=self._folder,
                quarantine=self._quarantine, gone=self._gone, room=room,
            )  # fmt: skip
        elif at_once and rewritten(self._share if self._open else self._events, self._tuning):
            self._python = FlatKernel(
                self._program, self._work, known, final=self._final, quarantine=self._quarantine
            )
        else:
            self._python = InterpretedKernel(
                self._program, self._work, known, final=self._final, quarantine=self._quarantine,
                rows=self._rows, folder=self._folder, room=room,
            )  # fmt: skip
        self._python.open = self._open
        if self._python.windows is not None and before is not None:
            self._python.windows.start(before)

    def expect(self, rows: Mapping[str, int], *, soon: bool = False) -> None:
        """So many keys of states there will be in the end, at least. `soon`: that may come long before the last event."""
        if self._native is not None:
            self._native.expect(rows, soon=soon)

    def changes(self, later: int = 0) -> PassResult:
        """Of an open kernel: what was done to states since this was last called. `later`: see EpochKernel. Raises Abandoned."""
        result = PassResult()
        kernel = self._native or self._python
        assert kernel is not None
        kernel.changes(result, later)
        return result

    def settle(self) -> None:
        """What states hold now is what `former` gives from now on."""
        self._handed_over = None
        if self._native is not None:
            self._native.settle()
        if self._python is not None:
            stores = self._python.held.stores
            settle(stores[name] for name in self._work.exact)

    def former(self, name: str) -> Former | None:
        """A state as it was when the kernel was last settled; None where that is not known."""
        native, python = self._native or self._handed_over, self._python
        if native is not None or python is None:
            return None if native is None else native.former(name)
        return former_of(
            python.held.stores[name], python.states[name], indexed=not isinstance(python, FlatKernel)
        )

    @property
    def text_bytes(self) -> int:
        """What the texts take that a compiled pass has met: it forgets none, whether states still hold them or not."""
        return 0 if self._texts is None else self._texts.nbytes

    def live(self, name: str) -> Any:
        """A state as handlers use it, as it stands now. It must not be written to."""
        if self._native is not None:
            return self._native.live(name, None)
        assert self._python is not None
        return self._python.states[name]

    def held(self, name: str) -> Iterator[tuple[Any, Any]]:
        """The keys of a state, with what is stored under them, as it stands now."""
        if self._native is not None:
            return iter(to_dict(spec_of(self._program).states[name], self._native.held(name)).items())
        assert self._python is not None
        return iter(self._python.held.stores[name].items())

    def carried(self) -> Before | None:
        """What a kernel that goes on from here takes as `before`."""
        windows = None if self._python is None else self._python.windows
        return None if windows is None else windows.carried()

    def close(self) -> None:
        """Let go of all that it holds. See Kernel."""
        with self.guard:
            for kernel in (self._shared, self._native, self._handed_over, self._python):
                if kernel is not None:
                    kernel.close()
            self._shared = self._native = self._handed_over = self._python = None
            self._aside = self._texts = None


def cold_events(program: Program | None = None, tuning: KernelTuning = USUAL) -> int:
    """From this many events on it is worth waiting for the compiler now, for the passes of a program."""
    times = tuning.times
    if program is not None and any(use.what != "derive" for use in spec_of(program).times):
        times *= tuning.slower
    return tuning.cold_events if times == 1 else max(tuning.warm_events, tuning.cold_events // times)


def share_of(events: int, slices: int, cores: int, parts: int = 1) -> int:
    """How many of a log's events a process sees of a pass that is done in so many slices, or parts, side by side."""
    return events // max(1, min(max(slices, parts), cores))


def choice(program: Program, work: PassProgram, *, final: bool) -> Choice:
    """Whether a pass can be compiled, and if not why not. Compiles nothing."""
    try:
        lowered_pass(program, work, final=final)
    except refused() as refusal:
        return Choice(False, str(refusal), getattr(refusal, "line", 0))
    return Choice(True)


def foresee(
    program: Program, work: PassProgram, events: int, *, final: bool, tuning: KernelTuning = USUAL
) -> Choice:
    """How a pass over so many events will run, and if as Python why. Compiles nothing."""
    switch = switch_now()
    if switch in ("python", "interpreted"):
        return Choice(False, f"{SWITCH} is {switch}")
    try:
        unit = lowered_pass(program, work, final=final)
    except refused() as refusal:
        return Choice(False, str(refusal), getattr(refusal, "line", 0))
    if switch == "native" or events >= cold_events(program, tuning):
        return Choice(True)
    if events < tuning.warm_events:
        return Choice(False, tuning.too_few)
    from timelapse.kernels.native.build import is_compiled

    if is_compiled(unit):
        return Choice(True)
    return Choice(
        False,
        f"for the {events:,} events that one process sees nobody waits for the compiler, as from {cold_events(program, tuning):,} on, and it "
        "has not run yet",
    )


def uncompiled(
    program: Program, passes: Sequence[tuple[PassProgram, int, bool]], tuning: KernelTuning = USUAL
) -> tuple[list[Unit], list[Unit]]:
    """Of passes (with their number of events, and whether final) those whose machine code is still to be made.

    First those that will run compiled, and wait for it; then those that run as Python for want of it.
    """
    from timelapse.kernels.native.build import is_compiled
    from timelapse.kernels.native.deciding import with_deciding

    now: list[Unit] = []
    later: list[Unit] = []
    switch = switch_now()
    if switch in ("python", "interpreted"):
        return now, later
    enough = (one for one in passes if switch == "native" or one[1] >= tuning.warm_events)
    for work, events, final in with_deciding(program, enough):
        try:
            unit = lowered_pass(program, work, final=final)
        except refused():
            continue
        if not is_compiled(unit):
            (now if switch == "native" or events >= cold_events(program, tuning) else later).append(unit)
    return now, later


def switch_now() -> str:
    """What the environment says of kernels. Raises UsageError."""
    switch = os.environ.get(SWITCH, "auto")
    if switch not in ("auto", "native", "python", "interpreted"):
        raise UsageError(f"{SWITCH} is {switch!r}", hint="set it to auto, native, python or interpreted")
    return switch


def rewritten(events: int, tuning: KernelTuning = USUAL) -> bool:
    """Whether handlers that run as Python over so many events are rewritten for that."""
    switch = switch_now()
    return switch == "python" or (switch != "interpreted" and events >= tuning.flat_events)


def runs_compiled(
    program: Program, work: PassProgram, events: int, *, final: bool, tuning: KernelTuning = USUAL
) -> bool:
    """Whether a pass over so many events would run compiled. Compiles nothing."""
    return foresee(program, work, events, final=final, tuning=tuning).compiled


def leaves_lock(
    program: Program, work: PassProgram, events: int, *, final: bool, tuning: KernelTuning = USUAL
) -> bool:
    """Whether a pass over so many events would run compiled, with next to nothing left to Python: then others can run
    beside it in threads. Compiles nothing."""
    if not runs_compiled(program, work, events, final=final, tuning=tuning):
        return False
    unit = lowered_pass(program, work, final=final)
    return not (unit.left or unit.ticks or any(column.computed is not None for column in unit.columns))


def is_compiled_alone(program: Program, work: PassProgram, events: int, tuning: KernelTuning) -> bool:
    """Whether a pass over so many events, the whole program from the log's first event on, runs compiled. Compiles it
    if that is worth it."""
    return _unit(program, replace(work, by_key=None), events, final=True, tuning=tuning)[0] is not None


def prepare(program: Program, work: PassProgram, events: int, *, final: bool, tuning: KernelTuning) -> None:
    """Have a pass compiled if it is worth it for so many events, of which its tasks see fewer each."""
    if events >= cold_events(program, tuning):
        _unit(program, work, events, final=final, tuning=tuning)


def _unit(
    program: Program, work: PassProgram, events: int, *, final: bool, tuning: KernelTuning
) -> tuple[Unit | None, str]:
    """The pass to be compiled; None where it runs as Python, and why if `foresee` cannot know."""
    switch = switch_now()
    if switch in ("python", "interpreted") or (switch == "auto" and events < tuning.warm_events):
        return None, ""
    try:
        unit = lowered_pass(program, work, final=final)
    except refused():
        return None, ""
    from timelapse.kernels.native.build import NotCompiled, compiled, loaded

    try:
        if switch == "auto" and events < cold_events(program, tuning):
            return (unit, "") if loaded(unit) else (None, "its machine code was not there yet")
        compiled(unit)
    except NotCompiled as error:
        return None, f"the compiler failed, please report it: {str(error)[:300]}"
    return unit, ""
