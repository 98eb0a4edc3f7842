"""Random handler sources: compiled as interpreted, pass by pass; replays as the serial meaning.

`TIMELAPSE_FUZZ=600` compares for that many seconds, from a seed that the day chooses, instead of the few programs of
the usual run; `TIMELAPSE_FUZZ_SEED=7` begins at that seed. A failure names its seed: `check(seed, ...)` repeats it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from tests.depth import deep
from tests.native.fuzz.compare import Tally, check, replayed
from tests.native.fuzz.kinds import Reached, reached_all, try_one

SECONDS = float(os.environ.get("TIMELAPSE_FUZZ", "0"))
SEED = int(os.environ.get("TIMELAPSE_FUZZ_SEED") or (time.time() // 86400 * 1_000_000 if SECONDS else 0))

pytestmark = pytest.mark.timeout(900 + SECONDS)


def seeds(share: float, count: int) -> Iterator[int]:
    """The seeds of one test: `count` of them, or for its share of the seconds."""
    end = time.monotonic() + SECONDS * share
    seed = SEED
    while time.monotonic() < end if SECONDS else seed < SEED + count:
        yield seed
        seed += 1


def test_generated_code_means_what_the_handlers_mean(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run without compiling it, which tries many more programs."""
    tally = Tally()
    for seed in seeds(0.2, deep(32)):
        check(seed, monkeypatch, tally, emulate=True)
    _not_vacuous(tally, capsys)


def test_compiled_passes_return_what_interpreted_ones_return(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same with machine code."""
    tally = Tally()
    for seed in seeds(0.15, deep(4)):
        check(seed, monkeypatch, tally, emulate=False, size=3)
    _not_vacuous(tally, capsys)


def _not_vacuous(tally: Tally, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled() if SECONDS else nullcontext():
        print(tally.text)
    assert tally.compiled > 0.75 * tally.passes, tally.text
    assert tally.stayed > 0.9 * tally.runs, tally.text
    assert tally.failures < 0.2 * tally.runs, tally.text


def test_programs_of_all_kinds(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In other times, by key, with quarantine, deep code, hidden state: all that replays promise, of each."""
    reached, tried = Reached(), []
    for seed in seeds(0.5, deep(24)):
        tried.append(seed)
        try_one(seed, monkeypatch, reached)
    with capsys.disabled() if SECONDS else nullcontext():
        reached_all(reached, tried)


def test_replays_are_the_serial_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every slicing, compiled and interpreted; and the same failure where a handler raises."""
    raised = [replayed(seed, monkeypatch) for seed in seeds(0.15, deep(2))]
    assert not all(raised)
