"""Iterate: slices run from guessed starts, and the events are repaired. The bits are those of the serial meaning."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import timelapse as tl
from tests.engine.planned import replay_by
from tests.engine.repair_programs import Bank, Bold, Fill, Fragile, Mixed, Move, Ranking, Relay, Wander
from tests.writers.sources import load_source, random_events, random_program
from timelapse.analysis import analyse
from timelapse.cli.run_commands import repair_text
from timelapse.divergence import assert_same
from timelapse.engine.executor import Done, LocalExecutor, Watch
from timelapse.engine.job import Task
from timelapse.errors import HandlerError, PlanError
from timelapse.kernels import budget
from timelapse.kernels.iterate import repair, sweep
from timelapse.log import Log, MemoryLog
from timelapse.plan import make_plan
from timelapse.plan.cost import Measured
from timelapse.plan.strategy import Strategy
from timelapse.program.program import spec_of
from timelapse.run import Run, replay, run_serial
from timelapse.run.conflicts import plan_of
from timelapse.run.tuning import USUAL, Tuning

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def moves(count: int, *, seed: int = 0, keys: int = 8, most: int = 60, fills: float = 0.2) -> list[tl.Event]:
    rng = random.Random(seed)
    made: list[tl.Event] = []
    now = 0
    for _ in range(count):
        now += rng.choice((0, 0, 1))
        if rng.random() < fills:
            made.append(Fill(key=rng.randrange(keys), amount=rng.randrange(most // 2), ts=now))
        else:
            source, target = rng.randrange(keys), rng.randrange(keys)
            made.append(Move(source=source, target=target, amount=rng.randrange(most), ts=now))
    return made


def everywhere(program: type[tl.Program]) -> dict[str, str]:
    """Every state forced, those too whose effects compose."""
    return dict.fromkeys(spec_of(program).states, "iterate")


def repairs(run: Run) -> dict[str, Any]:
    (found,) = run.certificate["repairs"].values()
    return dict(found)


@pytest.mark.parametrize("program", [Bank, Bold, Wander, Fragile, Relay], ids=lambda p: p.__name__)
def test_repaired_slices_equal_the_serial_meaning(program: type[tl.Program]) -> None:
    events = moves(60, most=60 if program is not Fragile else 30)
    expected = run_serial(program, events)
    for slices, strategy in ((2, "iterate"), (3, "iterate"), (7, "iterate"), (5, everywhere(program))):
        run = replay(program, events, slices=slices, spark=False, strategy=strategy)
        assert_same(expected, run, names=("serial", f"{slices} slices"))
        assert run.certificate["fallback"] is None
    found = run.verify()
    assert found.ok, found.text


def test_only_events_that_decide_otherwise_run_again() -> None:
    """Every balance in the second half differs from the guess, and most decisions do not."""
    events = moves(600, keys=60, most=40, fills=0.5)
    run = replay(Bank, events, slices=2, spark=False, strategy="iterate")
    assert_same(run_serial(Bank, events), run)
    found = repairs(run)
    # The first slice starts empty, as guessed: nothing to repair there.
    assert found == found | {"slices": 1, "again": 0, "rest": 0, "given_up": {}, "rounds": 2}
    run = replay(Bank, events, slices=6, spark=False, strategy="iterate")
    found = repairs(run)
    assert 0 < found["again"] < found["events"] / 4
    assert found["again"] >= found["chain"] >= 1
    assert found["rest"] == 0


@pytest.mark.parametrize("seed", range(4))
def test_random_programs(seed: int) -> None:
    program = load_source(random_program(random.Random(seed)))
    events = random_events(program, random.Random(seed + 1), 40)
    run = replay(program, events, slices=4, spark=False, strategy=everywhere(program))
    assert_same(run_serial(program, events), run)
    assert run.certificate["fallback"] is None


def test_machine_code_sweeps_as_python_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "COMPILED_ROWS", 1)
    for program in (Bank, Bold):
        events = moves(120, seed=3)
        run = replay(program, events, slices=4, spark=False, strategy=everywhere(program))
        assert_same(run_serial(program, events), run)
        assert repairs(run)["again"] if program is Bank else True


def test_where_most_events_would_run_again_the_rest_runs_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "FEWEST", 8)
    events = moves(300, keys=4)
    run = replay(Mixed, events, slices=3, spark=False, strategy="iterate")
    assert_same(run_serial(Mixed, events), run)
    found = repairs(run)
    assert found["again"] >= 8
    assert found["rest"] > 0
    assert any("had to run again" in why for why in found["given_up"].values())
    text = repair_text("cells", found)
    assert f"{found['again']:,} of {found['events']:,} events ran again" in text
    assert "ran in order" in text


def test_what_cannot_be_told_key_by_key_runs_in_order() -> None:
    events = moves(60)
    run = replay(Ranking, events, slices=3, spark=False, strategy="iterate")
    assert_same(run_serial(Ranking, events), run)
    found = repairs(run)
    assert found["again"] == 0
    assert found["rest"] > 0


def test_failures_are_those_of_the_serial_meaning() -> None:
    events = moves(60, most=120)
    with pytest.raises(HandlerError) as expected:
        run_serial(Fragile, events)
    for slices in (2, 3, 7):
        with pytest.raises(HandlerError) as found:
            replay(Fragile, events, slices=slices, spark=False, strategy="iterate")
        assert (found.value.seq, found.value.handler) == (expected.value.seq, expected.value.handler)
    reference = run_serial(Fragile, MemoryLog(events, [Move, Fill]), quarantine=True)
    assert reference.quarantined.num_rows > 5
    run = replay(Fragile, events, slices=4, spark=False, strategy="iterate", quarantine=True)
    assert_same(reference, run)
    assert run.quarantined == reference.quarantined


class Loops(tl.Program):
    """Ends on every state that there can be, and not on a guess."""

    open: tl.Value[int, bool] = tl.state(default=False)
    done: tl.Counter[int]

    @tl.on(Fill)
    def fill(self, e: Fill) -> None:
        self.open[e.key] = True

    @tl.on(Move)
    def move(self, e: Move) -> None:
        rounds = 1
        while not self.open[e.source]:
            rounds += 1
        self.open[e.target] = rounds > 0
        self.done[e.target] += rounds


def test_a_guess_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "SECONDS", 0.3)
    events: list[tl.Event] = [Fill(key=0, amount=1, ts=0), Move(source=0, target=1, amount=1, ts=1)]
    events += [Move(source=1, target=0, amount=1, ts=t) for t in range(2, 8)]
    run = replay(Loops, events, slices=3, spark=False, strategy=everywhere(Loops))
    assert_same(run_serial(Loops, events), run)
    found = run.certificate["repairs"].values()
    assert any("nothing was recorded" in stage["given_up"].values() for stage in found)


class Recording(LocalExecutor):
    """Remembers what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, int, int]] = []

    def submit(self, tasks: Sequence[Task], done: Done, watch: Watch) -> None:
        self.seen += [(task.kind, task.first, task.seed) for task in tasks]
        super().submit(tasks, done, watch)


@pytest.mark.parametrize("lead", [1, 2])
def test_guesses_begin_from_the_first_start_that_is_known(tmp_path: Path, lead: int) -> None:
    events = moves(120)
    log, made, executor = MemoryLog(events, [Move, Fill]), Bank(), Recording()
    analysis = analyse(made)
    plan = dataclasses.replace(make_plan(analysis, cores=2, slices=4, force="iterate"), lead=lead)
    run = replay_by(plan, made, log, executor, tmp_path / "run", 4)
    assert_same(run_serial(Bank, log), run)
    assert [(first, seed) for kind, first, seed in executor.seen if kind == "guess"] == [
        (i, 1) for i in range(lead, 3)
    ]
    (at,) = (i for i, (kind, _, _) in enumerate(executor.seen) if kind == "repair")
    assert all(kind == "final" for kind, _, _ in executor.seen[at + 1 :])


def test_the_plan_says_who_is_guessed_and_what_cannot_be() -> None:
    plan = make_plan(Bank, slices=3, force="iterate")
    assert plan.stage_of("moved").strategy is Strategy.ITERATE
    assert "asked for" in plan.text()

    class Waits(tl.Program):
        moved: tl.Counter[int]

        @tl.on(Move, after=tl.SECOND)
        def move(self, e: Move) -> None:
            if self.moved[e.source] < 3:
                self.moved[e.target] += 1

    with pytest.raises(PlanError) as error:
        make_plan(Waits, slices=3, force="iterate")
    assert error.value.code == "TL850"


@pytest.mark.spark
def test_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    events = moves(200, keys=40)
    log: Log = Log.from_events(tmp_path / "log", events, [Move, Fill])
    run = replay(Bold, log, slices=3, spark=spark, strategy="iterate")
    assert_same(run_serial(Bold, log), run)
    assert run.certificate["fallback"] is None
    assert run.certificate["repairs"]


def test_the_planner_guesses_where_a_sample_says_that_it_pays() -> None:
    """Slow handlers, few conflicts: guessed. Many conflicts, or fast handlers: slice after slice."""
    counts = {"Move": 1_000_000, "Fill": 0}

    def mode(seconds: float, conflicts: float) -> str:
        plan = make_plan(Bank, counts=counts, cores=2, threads=2, measured=Measured(seconds, conflicts))
        assert plan.stage_of("moved").strategy is Strategy.ITERATE
        return plan.mode

    assert mode(5e-5, 0.01) == "staged"
    assert mode(5e-5, 0.9) == "chain"
    assert mode(1e-6, 0.01) == "chain"
    plan = make_plan(Bank, counts=counts, cores=2, threads=2, measured=Measured(5e-5, 0.01))
    assert "1.0% of a sample's events would decide otherwise" in plan.text()
    assert plan.ratio("staged") < 0.9


def test_a_sample_is_measured_once_and_only_where_it_could_matter() -> None:
    events = moves(6000, keys=30, most=40)
    reader, made = MemoryLog(events, [Move, Fill]), Bank()
    known: dict[str, Measured | None] = {}
    counts = {"Move": 6000, "Fill": 0}

    def planned(cores: int, tuning: Tuning = USUAL) -> str:
        return plan_of(
            made, analyse(made), reader, counts, cores=cores, threads=cores, known=known, tuning=tuning
        ).mode

    assert planned(2) == "chain"
    assert not known, "the log is too short to be looked at"
    short = Tuning(sampled_events=1000)
    assert planned(1, short) == "chain"
    assert not known, "there is one core"
    planned(2, short)
    found = known["moved"]
    assert found is not None
    assert found.seconds > 0
    assert 0 < found.conflicts < 0.5
    planned(4, short)
    assert known == {"moved": found}
