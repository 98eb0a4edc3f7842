"""Looking into programs with ticks and `after=` compiled through the log: told as the serial loop tells it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.depth import deep, some
from tests.native.fuzz.emulate import emulated
from tests.native.window_programs import windowed_log, windowed_program
from tests.trace.test_few import _outputs
from tests.trace.test_whole import told
from tests.trace.ways import by_the_loop, without_few
from tests.writers.sources import load_source
from timelapse.kernels.choose import SWITCH
from timelapse.kernels.native import build
from timelapse.log import MemoryLog
from timelapse.program.program import spec_of
from timelapse.run import replay
from timelapse.trace import passing, thin, through, whole

SEEDS = [40, 41, 44, 45, 47, 52, 60]
"""45, 47, 52: ticks write what is read; 60: calls of after= that the run's end leaves out."""


@pytest.mark.parametrize("few_stops", [False, True])
def test_random_steps_are_told_as_by_the_serial_loop(
    few_stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events, outputs of every kind of step, states, histories; `few_stops`: writers take several passes."""
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    monkeypatch.setattr(thin, "LEAST", 0 if few_stops else 1 << 30)
    monkeypatch.setattr(thin, "_SHARE", 1)
    if few_stops:
        for name, value in (("_TAIL", 1), ("_EVENLY", 2), ("_LIKELY", 1), ("_NEAR", 1), ("_CLOSER", 2)):
            monkeypatch.setattr(passing, name, value)
    searched, find = 0, passing.newest_writes

    def counting(*args: Any) -> Any:
        nonlocal searched
        found = find(*args)
        searched += 1
        return found

    thinned, alone = thin.thinned, 0

    def left(*args: Any, **given: Any) -> Any:
        nonlocal alone
        found = thinned(*args, **given)
        alone += found is not None
        return found

    monkeypatch.setattr(through, "newest_writes", counting)
    monkeypatch.setattr(whole, "thinned", left)
    seen_alone, see_alone = 0, through.Through._alone

    def seeing(*args: Any) -> Any:
        nonlocal seen_alone
        found = see_alone(*args)
        seen_alone += bool(found)
        return found

    monkeypatch.setattr(through.Through, "_alone", seeing)
    for seed in some(SEEDS, 2):
        program = load_source(windowed_program(seed, timed=True))()
        if not spec_of(program).times:
            continue
        events, rng = windowed_log(program, seed, 40), random.Random(seed)
        seqs = sorted(rng.sample(range(40), 3))
        times = [events[rng.randrange(40)].ts + rng.randint(0, 1)]
        run = replay(program, MemoryLog(events, spec_of(program).events), spark=False)
        with monkeypatch.context() as patch:
            patch.setenv(SWITCH, "native")
            without_few(patch)
            mine = [told(run, seqs, times), _outputs(run, 3)]
        with monkeypatch.context() as patch:
            by_the_loop(patch)
            wanted = [told(run, seqs, times), _outputs(run, 3)]
        assert json.dumps(mine, default=repr) == json.dumps(wanted, default=repr), seed
    assert searched > deep(20)
    assert (alone > deep(5)) is few_stops
    assert (seen_alone > deep(5)) is few_stops
