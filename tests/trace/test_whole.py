"""Looking into programs with windows: compiled from the log's beginning, and told as the serial loop tells it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.depth import deep, some
from tests.native.fuzz.emulate import emulated
from tests.native.window_programs import windowed_log, windowed_program
from tests.trace.ways import answers_of_few, by_the_loop, without_few
from tests.writers.sources import load_source
from timelapse.errors import RunError
from timelapse.kernels.choose import SWITCH
from timelapse.kernels.native import build
from timelapse.log import MemoryLog
from timelapse.program.program import spec_of
from timelapse.run import Run, replay
from timelapse.trace import whole as whole_module
from timelapse.trace.knowledge import Uncompiled
from timelapse.trace.whole import WholePast


def told(run: Run, seqs: list[int], times: list[int]) -> list[Any]:
    """Everything that can be asked about some events, and about the states at some times."""
    found: list[Any] = []
    for seq in seqs:
        try:
            found.append(alike(run.why_not(seq, depth=2, last=2).to_json()))
        except RunError as error:
            found.append(error.code)
    for at in times:
        states = run.states(at)
        found.append({name: table.to_pylist() for name, table in states.items()})
        for name, table in states.items():
            for row in table.to_pylist()[:2]:
                keys = [row[c] for c in ("key", "field", "member") if c in row]
                keys = [tuple(k.values()) if isinstance(k, dict) else k for k in keys]
                if run.state_spec(name).kind.__name__ == "Mean":
                    keys.append(1)
                found.append(
                    run.history(name, tuple(keys) if len(keys) > 1 else keys[0], at=at, last=3).to_json()
                )
    return found


def alike(found: Any) -> Any:
    """A count of 0 that is kept and one that is not are told apart by the serial loop alone."""
    if isinstance(found, dict):
        zero = found.get("step") == "read" and found["value"] == 0
        return {k: alike(v) for k, v in found.items() if not (zero and k == "present")}
    return [alike(v) for v in found] if isinstance(found, list) else found


def test_random_programs_are_told_as_by_the_serial_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """What events read and who wrote it, two levels deep; states at moments; histories of keys."""
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    walked, answered = _counted(monkeypatch), answers_of_few(monkeypatch)
    asked = 0
    for seed in some(range(12, 30)):
        program = load_source(windowed_program(seed))()
        if not spec_of(program).times:
            continue
        events = windowed_log(program, seed, 40)
        rng = random.Random(seed)
        seqs = sorted(rng.sample(range(40), 4))
        times = [events[rng.randrange(40)].ts + rng.randint(0, 1) for _ in range(2)]
        run = replay(
            program, MemoryLog(events, spec_of(program).events), slices=rng.randint(1, 3), spark=False
        )
        monkeypatch.setenv(SWITCH, "native")
        few = told(run, seqs, times)
        with monkeypatch.context() as patch:
            without_few(patch)
            mine = told(run, seqs, times)
        with monkeypatch.context() as patch:
            patch.delenv(SWITCH)
            by_the_loop(patch)
            wanted = told(run, seqs, times)
        assert json.dumps(mine, default=repr) == json.dumps(wanted, default=repr), seed
        assert json.dumps(few, default=repr) == json.dumps(wanted, default=repr), seed
        asked += len(mine)
    assert asked > deep(100)
    assert walked() > deep(100)
    assert answered() > deep(100)


def _counted(patch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often a log was gone through compiled."""
    count = 0
    go = WholePast._go

    def counting(*args: Any) -> None:
        nonlocal count
        go(*args)
        count += 1

    patch.setattr(WholePast, "_go", counting)
    return lambda: count


def test_what_does_not_run_compiled_is_told_by_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is not worth compiling, and one whose pass is given up in the middle."""
    program = load_source(windowed_program(3))()
    events = windowed_log(program, 3, 30)
    run = replay(program, MemoryLog(events, spec_of(program).events), spark=False)
    with pytest.raises(Uncompiled):
        whole_module.past_of(run).walk(0, [5], lambda moment: False)
    assert run.why_not(20).trace.seq == 20
