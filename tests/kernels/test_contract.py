"""Every kernel keeps its contract (kernels/kernel.py), on random programs, in every way of running them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

import timelapse as tl
from tests.depth import deep
from tests.engine.repair_programs import Bank, Fill, Move
from tests.kernels.contract import Broken, Kept, contract, kept
from tests.native.fuzz.emulate import emulated
from tests.writers.sources import in_other_times, load_source, random_events, random_program
from timelapse import serial
from timelapse.analysis import analyse, final_pass
from timelapse.analysis.result import ByKey
from timelapse.divergence import assert_same
from timelapse.kernels.base import PassResult
from timelapse.kernels.choose import SWITCH, SliceKernel
from timelapse.kernels.native import build
from timelapse.kernels.source import Source
from timelapse.log import MemoryLog
from timelapse.plan import make_plan
from timelapse.program.program import spec_of
from timelapse.run import replay, run_serial
from timelapse.streaming.kernel import OpenKernel
from timelapse.streaming.window import JournalEnd
from timelapse.tables.apply import apply, empty
from timelapse.tables.table import to_dict


class Means(tl.Program):
    mean: tl.Mean[int]

    @tl.on(Fill)
    def add(self, e: Fill) -> None:
        self.mean.add(e.key, e.amount)


@pytest.fixture
def not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine code is emulated: its source runs as Python."""
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))


@pytest.mark.parametrize("switch", ["interpreted", "python", "native"])
def test_random_programs(not_compiled: None, monkeypatch: pytest.MonkeyPatch, switch: str) -> None:
    """In one slice, several, and one per few events; staged and as a chain."""
    monkeypatch.setenv(SWITCH, switch)
    total: dict[str, int] = {}
    for seed in range(deep(8)):
        program = load_source(random_program(random.Random(seed)))
        events = random_events(program, random.Random(seed + 1), 40)
        expected = run_serial(program, events)
        for slices, strategy in ((1, None), (3, None), (4, "chain"), (12, None)):
            with contract() as seen:
                assert_same(expected, replay(program, events, slices=slices, spark=False, strategy=strategy))
            for what, count in seen.items():
                total[what] = total.get(what, 0) + count
    assert total.keys() >= {"tables stay", "positions", "digest", "held", "events"}
    assert total["opened and closed"] == total["opened"]


@pytest.mark.parametrize("switch", ["interpreted", "native"])
def test_random_programs_in_other_times(
    not_compiled: None, monkeypatch: pytest.MonkeyPatch, switch: str
) -> None:
    """Ticks, timers, windows, `after=`: the serial loop as a kernel is among those that are opened."""
    monkeypatch.setenv(SWITCH, switch)
    total: dict[str, int] = {}
    for seed in range(deep(12)):
        rng = random.Random(seed)
        program = load_source(in_other_times(rng, random_program(rng)))
        events = random_events(program, random.Random(seed + 1), 30)
        expected = run_serial(program, events)
        for slices in (1, 3):
            with contract() as seen:
                assert_same(expected, replay(program, events, slices=slices, spark=False))
            for what, count in seen.items():
                total[what] = total.get(what, 0) + count
    assert total["positions"] > 0
    assert total["digest"] > 0
    assert total["opened and closed"] == total["opened"]


def test_guess_and_repair() -> None:
    rng = random.Random(5)
    events = [
        Fill(key=rng.randrange(6), amount=rng.randrange(30), ts=n) if rng.random() < 0.3
        else Move(source=rng.randrange(6), target=rng.randrange(6), amount=rng.randrange(40), ts=n)
        for n in range(80)
    ]  # fmt: skip
    with contract() as seen:
        run = replay(Bank, events, slices=4, spark=False, strategy="iterate")
    assert_same(run_serial(Bank, events), run)
    assert run.certificate["repairs"]
    assert seen["digest"]
    assert seen["opened and closed"] == seen["opened"]


def test_shared_out_by_key(monkeypatch: pytest.MonkeyPatch, not_compiled: None) -> None:
    """Threads of one kernel, each with the events of its own keys."""
    monkeypatch.setenv(SWITCH, "native")
    events = [Fill(key=n % 7, amount=n, ts=n) for n in range(60)]
    plan = make_plan(Means, threads=2)
    assert isinstance(plan.whole, ByKey)
    work = replace(plan.final, by_key=plan.whole)
    log = MemoryLog(events, [Fill])
    seen: dict[str, int] = {}
    kernel = kept(SliceKernel, seen)(Means(), work, {}, 0, final=True, workers=2)
    assert kernel.workers
    sources = [Source(log, lo, hi, {"Fill": Fill}, work.columns) for lo, hi in ((0, 20), (20, 60))]
    results = [kernel.run(source, lambda _: None) for source in sources]
    table = empty(spec_of(Means).states["mean"])
    for result in results:
        table, _ = apply(spec_of(Means).states["mean"], table, result.effects["mean"])
    assert (
        to_dict(spec_of(Means).states["mean"], table)
        == serial.run(Means(), log.events(0, 60, {"Fill": Fill})).states["mean"]
    )
    assert seen["digest"] == 2
    kernel.close()
    with pytest.raises(Broken, match="closed"):
        kernel.run(sources[1], lambda _: None)


@pytest.mark.parametrize("compiled", [False, True])
def test_open_kernels(compiled: bool, not_compiled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Epoch after epoch, of no event, one, and many; what was done to states is asked for in between."""
    monkeypatch.setenv(SWITCH, "native" if compiled else "auto")
    for seed in range(6):
        program = load_source(random_program(random.Random(seed)))()
        events = random_events(type(program), random.Random(seed + 1), 40)
        log = MemoryLog(events, list(spec_of(program).events))
        with contract() as seen:
            kernel = OpenKernel(program, log.types, _journal(log), compiled=compiled)
            lo = 0
            for size in (0, 1, 12, 0, 7, 20):
                kernel.run(lo, lo + size, events[min(lo + size, len(events)) - 1].ts)
                lo += size
                if size:
                    kernel.changes()
            kernel.close()
        assert seen["events"] == 6
        assert seen["opened and closed"] == seen["opened"] == 1
        assert seen["changes are ordered"]


def _journal(log: MemoryLog) -> JournalEnd:
    """The log, as the end of a journal that begins with it."""
    return cast(JournalEnd, log)


# --- the wrapper finds what is broken ---------------------------------------------------------------------


def _swapped(result: PassResult) -> None:
    for name, table in result.effects.items():
        if table.num_rows > 1:
            result.effects[name] = table.take(list(range(table.num_rows))[::-1])


def _lost(result: PassResult) -> None:
    name = max(result.effects, key=lambda n: result.effects[n].num_rows)
    result.effects[name] = result.effects[name].slice(1)


def _miscounted(result: PassResult) -> None:
    result.events += 1


def _silent(result: PassResult) -> None:
    result.effects.clear()


@pytest.mark.parametrize("wrong", [_swapped, _lost, _miscounted, _silent])
def test_what_breaks_the_contract_is_found(wrong: Callable[[PassResult], None]) -> None:
    events = [Fill(key=n % 5, amount=n, ts=n) for n in range(20)]
    program = Bank()
    work = final_pass(analyse(program))
    log = MemoryLog(events, list(spec_of(program).events))
    classes = {c.__name__: c for c in spec_of(program).events if c.__name__ in work.columns}

    class Wrong:
        def __init__(self) -> None:
            self.kernel = SliceKernel(program, work, {}, 0, final=True)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.kernel, name)

        def run(self, source: Source, tick: Any) -> PassResult:
            result = self.kernel.run(source, tick)
            wrong(result)
            return result

    kernel = Kept(Wrong(), program, work, {}, {}, final=True, is_open=False)
    with pytest.raises(Broken):
        kernel.run(Source(log, 0, 20, classes, work.columns), lambda _: None)


def test_what_a_kernel_keeps_when_it_is_closed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SliceKernel, "close", lambda self: None)
    program = Bank()
    work = final_pass(analyse(program))
    kernel = kept(SliceKernel, {})(program, work, {}, 0, final=True)
    with pytest.raises(Broken, match="closed"):
        kernel.close()


def test_slices_that_do_not_follow_are_found(tmp_path: Path) -> None:
    events = [Fill(key=n % 5, amount=n, ts=n) for n in range(20)]
    program = Bank()
    work = final_pass(analyse(program))
    log = MemoryLog(events, list(spec_of(program).events))
    classes = {c.__name__: c for c in spec_of(program).events if c.__name__ in work.columns}
    kernel = Kept(
        SliceKernel(program, work, {}, 0, final=True), program, work, {}, {}, final=True, is_open=False
    )
    kernel.run(Source(log, 0, 5, classes, work.columns), lambda _: None)
    with pytest.raises(Broken, match="gap"):
        kernel.run(Source(log, 6, 20, classes, work.columns), lambda _: None)
