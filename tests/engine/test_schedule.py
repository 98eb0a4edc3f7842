"""Leading slices, uneven slices, and the order in which passes run: the same bits, and no wasted pass."""

from __future__ import annotations

import dataclasses
import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import deep
from tests.engine.logs import logs
from tests.engine.planned import replay_by
from tests.engine.programs import ALL, A, B, Chained
from timelapse.analysis import analyse
from timelapse.engine.executor import Done, LocalExecutor, Watch
from timelapse.engine.job import Task
from timelapse.log import MemoryLog
from timelapse.plan import make_plan
from timelapse.plan.schedule import Schedule, Shape, Step, Times, arrange, cuts_at, foretell
from timelapse.run import Run, run_serial
from timelapse.run.request import Settings
from timelapse.run.start import replay_as
from timelapse.run.tuning import USUAL, Tuning


class Recording(LocalExecutor):
    """Remembers what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, int]] = []

    def submit(self, tasks: list[Task], done: Done, watch: Watch) -> None:  # type: ignore[override]
        self.seen += [(task.kind, task.first) for task in tasks]
        super().submit(tasks, done, watch)


def led(
    program: type[tl.Program],
    log: MemoryLog,
    slices: int,
    lead: int,
    out: Path,
    executor: LocalExecutor | None = None,
    tuning: Tuning = USUAL,
) -> Run:
    made = program()
    analysis = analyse(made)
    plan = dataclasses.replace(make_plan(analysis, cores=2, slices=slices, force="staged"), lead=lead)
    return replay_by(plan, made, log, executor or LocalExecutor(), out, slices, tuning=tuning)


@pytest.mark.parametrize("program", ALL, ids=lambda p: p.__name__)
@settings(max_examples=deep(15))
@given(events=logs(), slices=st.sampled_from([2, 3, 7, 1000]), lead=st.sampled_from([1, 2, 5]))
def test_leading_slices_give_the_serial_result(
    program: type[tl.Program], events: list[tl.Event], slices: int, lead: int
) -> None:
    log = MemoryLog(events, [A, B])
    with tempfile.TemporaryDirectory() as folder:
        run = led(program, log, slices, lead, Path(folder) / "run")
        assert run.verify().ok
        reference = run_serial(program, log)
        assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest)
        found = run.certificate
        assert found["fallback"] is None
        assert found["leading_slices"] + found["validated_slices"] == max(0, run.slices - 1)


def test_a_leading_slice_has_no_other_pass_and_the_last_one_neither(tmp_path: Path) -> None:
    events: list[tl.Event] = [A(k=i % 3, v=i % 2, s="a", ts=i) for i in range(12)]
    events += [B(k=1, x=0.5, on=True, tags=["a"], ts=20 + i) for i in range(12)]
    executor = Recording()
    led(Chained, MemoryLog(events, [A, B]), 4, 1, tmp_path / "run", executor)
    passes = [first for kind, first in executor.seen if kind == "pass"]
    assert set(passes) == {1, 2}
    assert sorted(first for kind, first in executor.seen if kind == "final") == [0, 1, 2, 3]
    assert executor.seen[0] == ("final", 0)


# --- the rules ------------------------------------------------------------------------------------------

SHAPES = (
    Shape(("a", "b"), frozenset(), chain=False),
    Shape(("c",), frozenset({"a"}), chain=False),
    Shape(("d",), frozenset({"c", "d"}), chain=True),
)


def play(schedule: Schedule, order: st.DataObject | None = None) -> list[Step]:
    """Run everything, one step at a time, in any order that is allowed."""
    ran: list[Step] = []
    while True:
        for name, _ in schedule.mergeable():
            schedule.merged(name)
        ready = schedule.ready()
        if not ready:
            if not any(True for _ in schedule.mergeable()):
                return ran
            raise AssertionError("merges were left over")
        step = ready[0] if order is None else order.draw(st.sampled_from(ready))
        schedule.take(step)
        schedule.done(step)
        ran.append(step)


@given(st.integers(1, 6), st.integers(0, 4), st.data())
def test_every_slice_gets_its_final_pass_whatever_the_order(
    slices: int, lead: int, data: st.DataObject
) -> None:
    """And a pass never runs before what it needs is known: the real start state of its slice."""
    schedule = Schedule(SHAPES, slices, lead)
    ran = play(schedule, data)
    finals = [step.first for step in ran if step.kind == "final"]
    assert sorted(finals) == list(range(slices))
    for step in ran:
        at = ran.index(step)
        before = set(ran[:at])
        if step.kind == "pass" and step.stage == 1:
            needed = range(step.first)
            assert all(
                Step("pass", 0, i, i) in before or (i < schedule.lead and Step("final", -1, i, i) in before)
                for i in needed
            )
    passes = [step for step in ran if step.kind == "pass"]
    assert len(passes) == 2 * (slices - 1 - schedule.lead)


def test_given_states_need_no_pass() -> None:
    schedule = Schedule(SHAPES, 4, held=4)
    assert [step.kind for step in schedule.ready()] == ["final"] * 4


def test_after_a_failure_ahead_only_what_is_exact_runs() -> None:
    schedule = Schedule(SHAPES[:1], 4)
    first = schedule.ready()[1]
    assert first == Step("pass", 0, 1, 1)
    schedule.take(first)
    schedule.done(first, failed=1)
    ran = play(schedule)
    assert [s.first for s in ran if s.kind == "final"] == [0, 1]
    assert [s.first for s in ran if s.kind == "pass"] == [0]


# --- foretelling ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cores", [2, 4, 8])
@pytest.mark.parametrize("r", [0.3, 0.8, 1.7])
def test_what_is_foretold_is_at_most_the_cost_law(cores: int, r: float) -> None:
    """With a few slices per core, one level of passes and no constants, the cut that is chosen beats the law."""
    times = Times((r,), 1.0, 0.0, 0.0)
    law = 1 / cores + (cores - 1) / cores**2 * r
    best = min(arrange(SHAPES[:1], times, n, cores).seconds for n in range(cores, 4 * cores + 1))
    assert 1 / cores <= best <= law * 1.05


def test_a_chain_is_never_foretold_to_be_faster_than_the_work() -> None:
    times = Times((0.5, 0.5, 0.5), 1.0, 0.01, 0.05)
    for slices, lead in itertools.product((1, 2, 5), (0, 1, 2)):
        seconds = foretell(SHAPES, times, (1 / slices,) * slices, lead, 4)
        assert seconds >= 1 / 4


def test_a_pass_that_runs_alone_has_the_other_cores_read_ahead() -> None:
    """Two halves one after the other are quicker then than any pass ahead, and there is nobody whom they wait for."""
    shapes, times = SHAPES[:1], Times((0.8,), 1.0, 0.0, 0.0, crowd=1.3, alone=0.7)
    assert foretell(shapes, times, (0.5, 0.5), 1, 2) == pytest.approx(0.7)
    assert foretell(shapes, times, (0.5, 0.5), 0, 2) == pytest.approx(1.3 * (0.4 + 0.5))
    assert foretell(shapes, dataclasses.replace(times, later=2.0), (0.5, 0.5), 1, 2) == pytest.approx(1.05)
    assert arrange(shapes, times, 2, 2).lead == 1
    assert arrange(shapes, dataclasses.replace(times, alone=1.0, crowd=1.0), 4, 4).lead < 3


def test_slices_that_hand_on_cost_what_ending_one_does() -> None:
    """However many there are, and whatever their sizes: one task runs them. Passes ahead of some of them are foretold as ever."""
    shapes, times = SHAPES[:1], Times((0.8,), 1.0, 0.1, 0.2, load=0.3, crowd=1.3, alone=0.7, handing=0.1)
    assert foretell(shapes, times, (0.5, 0.5), 1, 2) == pytest.approx(0.8 + 0.05)
    assert foretell(shapes, times, (0.25,) * 4, 3, 2) == pytest.approx(0.8 + 0.15)
    assert foretell(shapes, times, (1.0,), 0, 2) == foretell(
        shapes, dataclasses.replace(times, handing=None), (1.0,), 0, 2
    )
    assert foretell(shapes, times, (0.25,) * 4, 1, 2) == foretell(
        shapes, dataclasses.replace(times, handing=None), (0.25,) * 4, 1, 2
    )
    for slices in (2, 8, 60):
        found = arrange(shapes, times, slices, 2)
        assert found.lead == slices - 1
        assert found.shares == pytest.approx((1 / slices,) * slices)
    assert arrange(shapes, dataclasses.replace(times, handing=9.0), 60, 2).lead == 1
    assert arrange(shapes, times, 8, 2, lead=2).lead == 2


class Cores(Recording):
    """Two cores, for a task that runs alone too."""

    cores = 2

    def __init__(self) -> None:
        super().__init__()
        self._threads = 2
        self.each: list[tuple[str, int, int]] = []

    def submit(self, tasks: list[Task], done: Done, watch: Watch) -> None:  # type: ignore[override]
        self.each += [(task.kind, task.first, task.threads) for task in tasks]
        super().submit(tasks, done, watch)


@pytest.mark.parametrize(("lead", "threads"), [(1, [2, 2]), (0, [1, 1])])
def test_only_a_task_that_runs_alone_has_all_cores(lead: int, threads: list[int], tmp_path: Path) -> None:
    events = [A(k=i % 3, v=i % 2, s="a", ts=i) for i in range(24)]
    executor = Cores()
    log = MemoryLog(events, [A, B])
    run = led(Chained, log, 2, lead, tmp_path / "run", executor)
    assert [n for kind, _, n in sorted(executor.each) if kind == "final"] == threads
    assert run.digest == run_serial(Chained, log).digest


@pytest.mark.parametrize("lead", [0, 1, 2])
def test_how_many_slices_lead_can_be_told(lead: int) -> None:
    events = [A(k=i % 3, v=i % 2, s="a", ts=i) for i in range(24)]
    told = Settings(slices=3, strategy="staged", cache=False, lead=lead)
    run = replay_as(Chained(), events, None, False, told)
    assert run.certificate["leading_slices"] == lead
    assert run.digest == run_serial(Chained, events).digest


def test_cuts_are_where_the_shares_end() -> None:
    assert cuts_at(list(range(0, 1001, 10)), (0.5, 0.25, 0.25)) == [0, 500, 750, 1000]
    assert cuts_at([0, 10], (0.3, 0.3, 0.4)) == [0, 10]
