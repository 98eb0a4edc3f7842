"""Tasks that take several slices together: start states are found for the first of them only."""

from __future__ import annotations

import dataclasses
import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import deep
from tests.engine.logs import logs
from tests.engine.planned import replay_by
from tests.engine.programs import ALL, A, B, Chained, Rejecting
from tests.engine.repair_programs import Bank
from tests.engine.test_repair import moves, repairs
from tests.engine.test_schedule import Recording, led
from tests.engine.test_validation import (
    EVENTS,
    _raising,
    forgets_a_condition,
    forgets_removals,
    planted,
)
from timelapse.analysis import analyse
from timelapse.analysis.result import PassProgram
from timelapse.kernels.tuning import KernelTuning
from timelapse.log import MemoryLog
from timelapse.plan import Plan, make_plan
from timelapse.plan.schedule import Arrangement
from timelapse.run import foresight, run_serial, start
from timelapse.run.slices import cut_in_runs
from timelapse.run.tuning import Tuning

MORE = [*EVENTS, *(A(k=1, v=i, s="c", ts=10 + i) for i in range(6))]


@pytest.fixture(autouse=True)
def together() -> Any:
    """As for compiled passes on two cores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start, "in_threads", lambda plan: plan.mode == "staged")
        yield


@pytest.mark.parametrize("program", ALL, ids=lambda p: p.__name__)
@settings(max_examples=deep(15))
@given(events=logs(), slices=st.sampled_from([3, 4, 7, 1000]), lead=st.sampled_from([0, 1]))
def test_it_equals_the_serial_meaning(
    program: type[tl.Program], events: list[tl.Event], slices: int, lead: int
) -> None:
    """Also the state at every boundary within a task."""
    log = MemoryLog(events, [A, B])
    with tempfile.TemporaryDirectory() as folder:
        run = led(program, log, slices, lead, Path(folder) / "run")
        found = run.verify()
        assert found.ok, found.text
        assert found.boundaries == run.slices or not run.events
        reference = run_serial(program, log)
        assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest)
        assert run.certificate["fallback"] is None
        assert run.certificate["validated_slices"] == run.certificate["predicted_slices"]


@pytest.mark.parametrize(
    ("lead", "tasks"),
    [
        (0, [("pass", 0, 2), ("final", 0, 2), ("pass", 0, 2), ("final", 3, 5)]),
        (1, [("final", 0, 2), ("final", 3, 5)]),
    ],
)
def test_what_runs(lead: int, tasks: list[tuple[str, int, int]], tmp_path: Path) -> None:
    events = [A(k=i % 3, v=i % 2, s="a", ts=i) for i in range(24)]
    executor = Spans()
    run = led(Chained, MemoryLog(events, [A, B]), 6, lead, tmp_path / "run", executor)
    assert run.slices == 6
    assert sorted(executor.spans) == sorted(tasks)


@pytest.mark.parametrize(("seconds", "tasks"), [(1.0, 2), (3.0, 4)])
def test_halves_that_run_one_after_the_other_are_two_tasks(
    seconds: float, tasks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where that is quicker, and however many tasks passes ahead would need so as not to hold too much: there are none."""

    def arranged(self: Plan, slices: int, cores: int | None = None, *, apart: bool = False) -> Arrangement:
        return Arrangement((1 / slices,) * slices, 1, seconds if slices == 2 else 2.0)

    monkeypatch.setattr(start, "least_slices", lambda *args, **given: 4)
    monkeypatch.setattr(Plan, "arrange", arranged)
    events = [A(k=i % 3, v=i % 2, s="a", ts=i) for i in range(24)]
    executor = Spans()
    run = led(Chained, MemoryLog(events, [A, B]), 8, 1, tmp_path / "run", executor)
    assert run.slices == 8
    assert sum(kind == "final" for kind, _, _ in executor.spans) == tasks


@pytest.fixture
def hands_on() -> Any:
    """As where all passes are machine code, and the plan's cores are this machine's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Plan, "hands_on", property(lambda plan: True))
        yield


@pytest.mark.parametrize("slices", [2, 3, 7])
def test_slices_that_all_lead_are_one_task(slices: int, tmp_path: Path, hands_on: None) -> None:
    """Each goes on with the states as the one before left them: nothing is merged, and none is predicted."""
    events = [A(k=i % 3, v=i % 2, s="a", ts=i) for i in range(24)]
    executor = Spans()
    run = led(Chained, MemoryLog(events, [A, B]), slices, slices - 1, tmp_path / "run", executor)
    assert executor.spans == [("final_chain", 0, slices - 1)]
    assert executor.merged == []
    told = run.certificate
    assert (told["mode"], told["slices"], told["leading_slices"]) == ("staged", slices, slices - 1)
    assert (told["predicted_slices"], told["validated_slices"], told["fallback"]) == (0, 0, None)
    assert run.verify().ok


@pytest.mark.parametrize(("lead", "passes"), [(2, 0), (0, 2)])
def test_passes_that_never_run_are_not_compiled(
    lead: int, passes: int, tmp_path: Path, hands_on: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single task has none ahead: the compiler took a core from every such replay, and was stopped at its end."""
    asked: list[list[bool]] = []

    def uncompiled(
        program: tl.Program, works: list[tuple[PassProgram, int, bool]], tuning: KernelTuning
    ) -> Any:
        asked.append([final for _, _, final in works])
        return [], []

    monkeypatch.setattr(foresight, "uncompiled", uncompiled)
    events = [A(k=i % 3, v=i % 2, s="a", ts=i) for i in range(24)]
    led(
        Chained,
        MemoryLog(events, [A, B]),
        3,
        lead,
        tmp_path / "run",
        tuning=Tuning(KernelTuning(warm_events=1)),
    )
    assert asked == [[True, *([False] * passes)]]


@pytest.mark.parametrize("program", ALL, ids=lambda p: p.__name__)
@settings(max_examples=deep(10), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=logs(), slices=st.sampled_from([2, 3, 7]))
def test_one_task_equals_the_serial_meaning(
    program: type[tl.Program], events: list[tl.Event], slices: int, hands_on: None
) -> None:
    """Also the state at every boundary within it."""
    log = MemoryLog(events, [A, B])
    with tempfile.TemporaryDirectory() as folder:
        run = led(program, log, slices, slices - 1, Path(folder) / "run")
        found = run.verify()
        assert found.ok, found.text
        reference = run_serial(program, log)
        assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest)


def test_a_task_goes_on_only_where_it_has_the_cores_and_all_is_machine_code() -> None:
    """Elsewhere slices may run side by side, or on another machine, and handlers as Python gain by that."""
    plan = make_plan(Chained, slices=2, force="staged", compiled=lambda work, final: True, threads=2)
    assert plan.hands_on
    assert plan.arrange(2).lead == 1
    assert plan.arrange(2).seconds < plan.arrange(2, apart=True).seconds
    assert not dataclasses.replace(plan, threads=1).hands_on
    assert not dataclasses.replace(plan, cores=4).hands_on
    assert not make_plan(Chained, slices=2, force="staged", threads=2).hands_on


@pytest.mark.parametrize(("cores", "tasks"), [(2, 2), (8, 8), (4, 4)])
def test_a_cluster_has_a_task_for_each_core(cores: int, tasks: int, tmp_path: Path) -> None:
    """A task that runs alone there has one thread, as nobody knows its machine: of sixteen cores all but two were idle."""
    events = [A(k=i % 3, v=i % 2, s="a", ts=i) for i in range(24)]
    executor = Spans()
    executor.cores = cores
    executor._threads = 1
    run = led(Chained, MemoryLog(events, [A, B]), 8, 0, tmp_path / "run", executor)
    assert run.slices == 8
    assert sum(kind == "final" for kind, _, _ in executor.spans) == tasks


def test_the_memory_of_a_machine_is_shared_by_its_own_tasks_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was shared out among the tasks of all machines: the more there were, the smaller the slices."""
    asked: list[int] = []

    def least(
        program: tl.Program, final: PassProgram, events: int, memory: int | None, tasks: int, times: int
    ) -> int:
        asked.append(tasks)
        return 1

    monkeypatch.setattr(start, "least_slices", least)
    events = [A(k=i % 3, v=i % 2, s="a", ts=i) for i in range(24)]
    program = Chained()
    for machines in (1, 4, 8):
        plan = make_plan(analyse(program), cores=8, slices=8, force="staged", machines=machines)
        executor = Spans()
        executor.cores = 8
        replay_by(plan, program, MemoryLog(events, [A, B]), executor, tmp_path / f"{machines}", 8)
    assert asked == [8, 2, 1]


class Spans(Recording):
    def __init__(self) -> None:
        super().__init__()
        self.spans: list[tuple[str, int, int]] = []
        self.merged: list[tuple[str, int]] = []

    def merge(self, task: Any) -> Any:
        self.merged.append((task.state, task.first))
        return super().merge(task)

    def submit(self, tasks: Any, done: Any, watch: Any) -> None:
        self.spans += [(task.kind, task.first, task.last) for task in tasks]
        super().submit(tasks, done, watch)


@pytest.mark.parametrize("fault", [forgets_removals, forgets_a_condition])
@pytest.mark.parametrize("slices", [3, 4, 6])
def test_a_planted_fault_is_caught_and_the_result_is_right(
    fault: Callable[[PassProgram], PassProgram], slices: int, tmp_path: Path
) -> None:
    """What the first task's slices changed together is not what was predicted: the second's run again."""
    log = MemoryLog(MORE, [A, B])
    run = planted(Chained(), log, slices, fault, tmp_path / "run")
    assert run.certificate["fallback"]["is_bug"]
    assert 1 < run.certificate["fallback"]["from_slice"] < slices
    assert run.certificate["validated_slices"] < run.certificate["predicted_slices"]
    assert run.digest == run_serial(Chained, log).digest
    assert run.verify().ok


@settings(max_examples=deep(15))
@given(events=logs(), slices=st.sampled_from([3, 4, 7]))
def test_with_a_planted_fault_every_log_still_gives_the_serial_result(
    events: list[tl.Event], slices: int
) -> None:
    log = MemoryLog(events, [A, B])
    reference = run_serial(Chained, log)
    for fault in (forgets_removals, forgets_a_condition):
        with tempfile.TemporaryDirectory() as folder:
            run = planted(Chained(), log, slices, fault, Path(folder) / "run")
            assert run.verify().ok
            assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest)


def test_a_failure_ahead_of_time_is_not_reported(tmp_path: Path) -> None:
    log = MemoryLog(MORE, [A, B])
    run = planted(Rejecting(), log, 6, _raising, tmp_path / "run")
    reference = run_serial(Rejecting, log)
    assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest)
    assert run.certificate["fallback"] is not None
    assert not run.certificate["fallback"]["is_bug"]


def test_guesses_and_repairs_go_over_all_slices_of_a_task() -> None:
    events = moves(90)
    expected = run_serial(Bank, events)
    for slices in (3, 7):
        run = tl.replay(Bank, events, slices=slices, spark=False, strategy="iterate", cache=False)
        assert (run.digest, run.state_digest) == (expected.digest, expected.state_digest)
        assert run.certificate["fallback"] is None
        assert repairs(run)["events"] > 0


@given(
    events=st.integers(1, 60), slices=st.integers(2, 70), runs=st.integers(1, 5),
    mode=st.sampled_from(["staged", "chain"]),
)  # fmt: skip
def test_cuts_in_runs(events: int, slices: int, runs: int, mode: str) -> None:
    """As many slices as were asked for where there are events enough, none empty; each run begins at one of them."""
    reader = MemoryLog([A(k=0, v=0, s="", ts=i) for i in range(events)], [A])
    cuts, lead, begins = cut_in_runs(reader, slices, runs, SimpleNamespace(mode=mode, lead=1))  # type: ignore[arg-type]
    assert cuts[0] == 0
    assert cuts[-1] == events
    assert all(a < b for a, b in itertools.pairwise(cuts))
    assert begins[0] == 0
    assert all(a < b < len(cuts) - 1 for a, b in itertools.pairwise(begins))
    assert len(begins) == min(runs, events)
    assert lead == (1 if mode == "staged" and len(begins) > 1 else 0)
    if slices >= runs:
        assert len(cuts) - 1 == min(slices, events) or len(cuts) - 1 >= min(runs, events)
        assert len(cuts) - 1 <= slices
