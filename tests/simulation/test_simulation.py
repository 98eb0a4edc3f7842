"""The driver in a simulated world: whatever fails, the serial loop's result or a clean error; and planted faults are found."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.depth import deep
from tests.simulation.cases import Case, make
from tests.simulation.machine import Faults
from tests.simulation.play import Wrong, play, quicker
from timelapse.engine.driver import Driver
from timelapse.engine.known import Known
from timelapse.store.disk import LocalDisk

SEEDS = int(os.environ.get("TIMELAPSE_SEEDS", deep(3000, 1000)))
"""How many seeds are played: a thousand, three thousand in a deep run. `python -m tests.simulation` plays others."""
CASES = 16


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in memory, where there is one."""
    memory = Path("/dev/shm")  # a folder of its own is made in it
    if not os.access(memory, os.W_OK):
        yield tmp_path_factory.mktemp("simulation")
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="timelapse-simulation-") as made:
        yield Path(made)


@pytest.fixture(scope="module")
def cases(root: Path) -> Iterator[list[Case]]:
    found = [make(number, root) for number in range(CASES)]
    with quicker(found):
        yield found


def test_whatever_fails_the_result_is_the_serial_loops(root: Path, cases: list[Case]) -> None:
    """Each seed: a random program and log, and drivers that meet with faults until one publishes."""
    totals: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for seed in range(SEEDS):
        played = play(seed, cases, root)
        totals.update(
            killed=played.killed, taken_over=played.taken_over, fallbacks=played.fallbacks, again=played.again
        )
        errors.update(played.errors)
    assert totals["killed"] > SEEDS
    assert totals["taken_over"] > SEEDS / 2
    assert totals["fallbacks"] > SEEDS / 200
    assert totals["again"] > SEEDS / 100
    assert {"TL511", "TL823", "TL932", "TL933"} <= set(errors)


def test_the_same_seed_is_the_same_run(root: Path, cases: list[Case]) -> None:
    """Operation by operation, with two drivers too."""
    for seed in range(deep(40)):
        first, second = (play(seed, cases, root).trace for _ in range(2))
        assert first == second
        assert first


def _sound(self: LocalDisk, path: Path, part: Any) -> bool:
    return path.is_file()


def _never_wrong(self: Driver, at: int) -> list[str]:
    return []


def _same_start(self: Known, states: object, span: int) -> str:
    return "start"


def _tear(faults: Faults) -> None:
    faults.kill, faults.tear, faults.power = 0.04, 1.0, 1.0


def _lie(faults: Faults) -> None:
    faults.lie = 0.5


def _both(faults: Faults) -> None:
    faults.lie, faults.kill, faults.tear = 0.4, 0.04, 1.0


PLANTED: list[tuple[type, str, Callable[..., Any], Callable[[Faults], None]]] = [
    (LocalDisk, "is_sound", _sound, _tear),
    (Driver, "_wrong_states", _never_wrong, _lie),
    (Known, "start", _same_start, _both),
]


@pytest.mark.parametrize(("where", "name", "fault", "adjust"), PLANTED, ids=[p[1] for p in PLANTED])
def test_a_planted_fault_is_found(
    root: Path, cases: list[Case], monkeypatch: pytest.MonkeyPatch, where: type, name: str,
    fault: Callable[..., Any], adjust: Callable[[Faults], None],
) -> None:  # fmt: skip
    """A driver that skips checksums, or the comparison with what was predicted, or what a result began from."""
    monkeypatch.setattr(where, name, fault)
    with pytest.raises(Wrong):
        for seed in range(2000):
            play(seed, cases, root, adjust)
