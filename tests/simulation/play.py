"""One seed: a program, a log, faults, and drivers that live and die until the run is there."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.simulation.cases import Case
from tests.simulation.executor import SimulatedExecutor
from tests.simulation.machine import Faults, Killed, Machine, SimulatedClock, SimulatedDisk, Turn, clear
from timelapse.engine.world import World
from timelapse.errors import TimelapseError
from timelapse.program.fingerprint import fingerprint
from timelapse.program.identity import identity_of
from timelapse.program.program import Program
from timelapse.run.files import check_files
from timelapse.run.interrupted import Interrupted
from timelapse.run.request import Request
from timelapse.run.run import Run
from timelapse.run.start import run_plan

LIVES = 5
"""So many drivers meet with faults; the next one does not."""


@dataclass
class Played:
    """What happened."""

    seed: int
    drivers: int = 0
    killed: int = 0
    errors: list[str] = field(default_factory=list)
    """Codes of clean errors."""
    taken_over: int = 0
    """Slices of final passes and of passes ahead that came from a killed driver."""
    fallbacks: int = 0
    again: int = 0
    trace: list[str] = field(default_factory=list)


class Wrong(AssertionError):
    """A result is not that of the serial loop, a folder looks whole and is not, or a driver fails with no error of ours."""


def faults_of(rng: random.Random) -> Faults:
    """What goes wrong in a seed: some of all that can."""

    def some(chance: float, most: float) -> float:
        return rng.uniform(0, most) if rng.random() < chance else 0.0

    return Faults(
        kill=some(0.7, 0.05), error=some(0.15, 0.01), full=some(0.1, 0.1), crash=some(0.5, 0.3), lost=some(0.1, 0.3),
        hang=some(0.3, 0.3), twice=some(0.3, 0.5), lie=some(0.15, 0.3), tear=some(0.4, 1.0), power=some(0.3, 1.0),
        locks=rng.random() < 0.8, two=rng.random() < 0.15,
    )  # fmt: skip


@contextmanager
def quicker(cases: Sequence[Case]) -> Iterator[None]:
    """What is the same for every driver of a case, and has nothing to do with what can fail, is found once."""
    known = {id(case.program): fingerprint(case.program) for case in cases}
    classes = {type(case.program): identity_of(type(case.program)) for case in cases}

    def sources(program: type[Program], source: str | None, folder: Path) -> None:
        (folder / "program").mkdir()
        (folder / "program" / "case.py").write_text(program.__name__)

    with pytest.MonkeyPatch.context() as patch:
        for module in ("interrupted", "describe"):
            patch.setattr(f"timelapse.run.{module}.fingerprint", lambda program: known[id(program)])
        patch.setattr("timelapse.kernels.once.identity_of", classes.__getitem__)
        patch.setattr("timelapse.run.start.keep_sources", sources)
        patch.setattr("timelapse.cache.rerun._leaves_lock", lambda *_: False)
        yield


def play(
    seed: int, cases: Sequence[Case], root: Path, adjust: Callable[[Faults], None] = lambda faults: None,
    watch: Callable[[Machine], None] = lambda machine: None,
) -> Played:  # fmt: skip
    """Play a seed. Raises Wrong. `adjust` changes the faults; `watch` gets the machine."""
    rng = random.Random(seed)
    case = cases[rng.randrange(len(cases))]
    faults = faults_of(rng)
    adjust(faults)
    machine = Machine(root, rng, faults)
    watch(machine)
    played = Played(seed, trace=machine.trace)
    out = root / "runs" / "run"
    clear(out.parent)
    number = 0
    while True:
        if number >= LIVES:
            machine.faults = faults = Faults(locks=faults.locks)
        if faults.two and number == 0:
            drivers = [_Driver(machine, case, f"d{n}", out, rng.randint(1, 4)) for n in (0, 1)]
            _both(drivers, rng)
            number += 2
        else:
            drivers = [_Driver(machine, case, f"d{number}", out, rng.randint(1, 4))]
            drivers[0].live()
            number += 1
        played.drivers += len(drivers)
        for driver in drivers:
            _judge(driver, played)
        if any(driver.killed for driver in drivers):
            if rng.random() < faults.power:
                machine.lose_power()
            if rng.random() < faults.tear and not out.exists():
                machine.tear()
        if out.exists():
            _check(out, case, seed)
            break
        if number > LIVES:
            raise Wrong(f"seed {seed}: without faults there is no run: {[d.error for d in drivers]}")
    left = [p.name for p in out.parent.iterdir() if p.name != "run"]
    if left and not played.killed and not played.errors:
        raise Wrong(f"seed {seed}: something is left: {left}")
    return played


class _Driver:
    """One process that replays."""

    def __init__(self, machine: Machine, case: Case, name: str, out: Path, cores: int) -> None:
        self._machine, self._case, self._out = machine, case, out
        self.disk = SimulatedDisk(machine, name)
        self.executor = SimulatedExecutor(machine, self.disk, case, cores)
        self.run: Run | None = None
        self.error: Exception | None = None
        self.killed = False

    def live(self) -> None:
        """Replay, to whatever end."""
        case, disk = self._case, self.disk
        try:
            left = Interrupted.of(case.program, case.source, case.settings, self._out, disk)
            settings = case.settings
            if left.how is not None:
                settings = replace(settings, slices=len(left.how.cuts) - 1)
            request = Request(case.program, case.analysis, case.source, settings, interrupted=left)
            world = World(SimulatedClock(self._machine), disk)
            self.run = run_plan(request, case.plan, self.executor, self._out, world=world, why="simulated")
        except Killed:
            self.killed = True
            self.executor.abandon()
        except Exception as error:
            self.error = error
        finally:
            if not self.killed:  # the process ends
                self._machine.dead.add(disk.name)


def _both(drivers: list[_Driver], rng: random.Random) -> None:
    """Two drivers, operation by operation as the seed has it."""
    a, b = (driver.disk.name for driver in drivers)
    turn = Turn(rng, (a, b))

    def live(driver: _Driver) -> None:
        turn.begin(driver.disk.name)
        driver.disk._turn = turn
        try:
            driver.live()
        finally:
            turn.end(driver.disk.name)

    threads = [threading.Thread(target=live, args=(driver,)) for driver in drivers]
    for thread in threads:
        thread.start()
    turn.go()
    for thread in threads:
        thread.join()


def _judge(driver: _Driver, played: Played) -> None:
    played.killed += driver.killed
    if driver.error is not None:
        if not isinstance(driver.error, TimelapseError) or not driver.error.hint:
            raise Wrong(f"seed {played.seed}: {driver.error!r}") from driver.error
        played.errors.append(driver.error.code)
    if driver.run is not None:
        taken = driver.run.certificate["taken_over"] or {"slices": 0, "passes": 0}
        played.taken_over += taken["slices"] + taken["passes"]
        played.fallbacks += driver.run.certificate["fallback"] is not None
        played.again += driver.run.certificate["again"]


def _check(out: Path, case: Case, seed: int) -> None:
    """What is there is a run, whole, and the serial loop's."""
    try:
        run = Run.open(out)
        found = check_files(run)
    except (TimelapseError, OSError) as error:
        raise Wrong(f"seed {seed}: what is there is no run: {error}") from error
    if not found.ok or found.others:
        raise Wrong(f"seed {seed}: its files are not those that were written: {found.errors} {found.others}")
    if (run.manifest.digest, run.manifest.state_digest) != (case.digest, case.state_digest):
        raise Wrong(f"seed {seed}: not what the serial loop gives")
