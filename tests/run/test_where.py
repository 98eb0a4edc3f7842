"""Where a replay runs: in this process, on the session that is there, or on one that is worth its start."""

from __future__ import annotations

import html
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from tests.engine.programs import A, B, Chained
from timelapse.engine.executor import SWITCH, LocalExecutor, suitable
from timelapse.engine.thread_executor import ThreadExecutor
from timelapse.env import master, spark_session
from timelapse.errors import UsageError
from timelapse.log import Log
from timelapse.run import planning
from timelapse.run.request import Settings

Plan = tuple[str, float, float] | tuple[str, float, float, bool]
"""Mode, foretold time relative to the serial loop, seconds of the serial loop, whether all passes are compiled."""


class FakePlanner(planning.Planner):
    """Plans as a test says, by the number of cores."""

    plans: dict[int, Plan]

    def plan(self, cores: int, threads: int) -> Any:
        mode, ratio, seconds, *compiled = self.plans[min(cores, 2)]
        return SimpleNamespace(
            mode=mode, cores=cores, ratio=lambda: ratio, law=SimpleNamespace(serial_seconds=seconds),
            unlocked=bool(compiled and compiled[0]),
        )  # fmt: skip


class Notes:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


def planner(events: int, one: Plan, two: Plan, notes: Notes, slices: int | None = None) -> FakePlanner:
    source = SimpleNamespace(reader=SimpleNamespace(count=events), left=events)
    asked = SimpleNamespace(source=source, settings=Settings(slices, progress=notes))  # type: ignore[arg-type]
    found = FakePlanner(asked)  # type: ignore[arg-type]
    object.__setattr__(found, "plans", {1: one, 2: two})
    return found


class Started(Exception):
    """A session would have been started."""


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise Started

    monkeypatch.setattr(spark_session, "existing", lambda: None)
    monkeypatch.setattr(spark_session, "session", refuse)
    monkeypatch.setattr(planning, "usable_cores", lambda: 2)


@pytest.mark.usefixtures("no_session")
@pytest.mark.parametrize(
    ("events", "two"),
    [
        (1_000, ("staged", 0.1, 1_000.0)),  # small
        (10_000_000, ("chain", 0.6, 1_000.0)),  # one task after the other
        (10_000_000, ("by key", 0.6, 1_000.0)),  # threads
        (10_000_000, ("staged", 0.6, 15.0)),  # gains 6 s, less than the start takes
    ],
)
def test_no_session_is_started_where_it_would_not_pay(events: int, two: Plan) -> None:
    notes = Notes()
    _, executor, _ = planner(events, ("chain", 1.0, 15.0), two, notes).settle(None)
    assert isinstance(executor, LocalExecutor)
    assert executor.threads == 2
    assert notes.lines == []


@pytest.mark.usefixtures("no_session")
@pytest.mark.parametrize(("seconds", "slices"), [(100.0, None), (1.0, 4)])
def test_a_session_is_started_where_it_pays_or_slices_were_asked_for(
    seconds: float, slices: int | None
) -> None:
    notes = Notes()
    asked = planner(10_000_000, ("chain", 1.0, seconds), ("staged", 0.6, seconds), notes, slices)
    with pytest.raises(Started):
        asked.settle(None)
    assert notes.lines == ["starting Spark (a few seconds) ..."]
    _, executor, _ = asked.settle(False)
    assert isinstance(executor, LocalExecutor)


@pytest.mark.usefixtures("no_session")
@pytest.mark.parametrize("spark", [None, False])
def test_compiled_slices_need_no_session(spark: Any) -> None:
    """They run in threads here, and are planned for as many cores."""
    notes = Notes()
    staged: Plan = ("staged", 0.6, 1_000.0, True)
    plan, executor, _ = planner(10_000_000, staged, staged, notes, 4).settle(spark)
    assert isinstance(executor, LocalExecutor)
    assert plan.cores == executor.threads == 2
    assert notes.lines == []


@pytest.fixture
def wanted_master() -> Iterator[None]:
    master.want("local[2]")
    yield
    master.want(None)


@pytest.mark.usefixtures("no_session", "wanted_master")
@pytest.mark.parametrize("events", [1_000, 10_000_000])
@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (("chain", 0.6, 100.0), "single task"), (("by key", 0.6, 100.0), "by key"),
        (("staged", 0.6, 100.0, True), "machine code"),
    ],
)  # fmt: skip
def test_a_master_of_this_machine_is_not_started_for_nothing(
    events: int, plan: Plan, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    notes = Notes()
    found = planner(events, plan, plan, notes).settle(None)
    assert isinstance(found.executor, LocalExecutor)
    assert found.executor.threads == 2
    assert why in found.why
    assert notes.lines == []


@pytest.mark.usefixtures("no_session", "wanted_master")
def test_a_master_is_started_for_tasks_that_are_sparks(monkeypatch: pytest.MonkeyPatch) -> None:
    python: Plan = ("staged", 0.9, 1.0)
    with pytest.raises(Started):
        planner(1_000, python, python, Notes()).settle(None)
    compiled: Plan = ("staged", 0.9, 1.0, True)
    monkeypatch.setenv(SWITCH, "spark")
    with pytest.raises(Started):
        planner(1_000, compiled, compiled, Notes()).settle(None)


@pytest.mark.usefixtures("no_session")
def test_the_command_line_starts_no_jvm_for_nothing(tmp_path: Path) -> None:
    Log.from_events(tmp_path / "log", [A(k=n % 3, v=0, s="x", ts=n) for n in range(100)], [A, B])
    program = f"{Path(__file__).parents[1] / 'engine' / 'programs.py'}:Chained"
    found = cli(
        "replay",
        program,
        tmp_path / "log",
        "--out",
        tmp_path / "run",
        "--strategy",
        "chain",
        "--master",
        "local[2]",
    )
    assert found.code == 0, found.err
    assert "one pass in log order, which is a single task" in found.out
    assert master.wanted() is None


def test_a_run_says_where_it_ran_and_why(tmp_path: Path) -> None:
    events = [A(k=n % 3, v=0, s="x", ts=n) for n in range(100)]
    run = tl.replay(Chained, events, tmp_path / "run", spark=False)
    assert run.certificate["engine"] == {
        "where": "in process",
        "why": "100 events take less than Spark's start",
    }
    assert run.engine == "in process: 100 events take less than Spark's start"
    assert "in process>" in repr(run)
    assert html.escape(run.engine) in html.escape(html.unescape(run._repr_html_()))
    assert tl.Run.open(tmp_path / "run").engine == run.engine
    assert tl.run_serial(Chained, events).engine == "serial reference"


@pytest.mark.parametrize(
    ("remote", "threads", "staged", "unlocked", "found"),
    [
        (True, 2, False, False, LocalExecutor), (True, 2, True, False, None), (True, 1, False, False, None),
        (False, 2, False, False, None), (True, 2, True, True, ThreadExecutor), (False, 2, True, True, ThreadExecutor),
        (True, 1, True, True, None), (False, 1, True, True, None),
    ],
)  # fmt: skip
def test_who_runs_a_plan_on_this_machine(
    remote: bool, threads: int, staged: bool, unlocked: bool, found: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single task and compiled tasks run in the driver, where that is on the same machine."""
    given: Any = SimpleNamespace(remote=remote, threads=threads, text="Spark", pinned=False)
    monkeypatch.delenv(SWITCH, raising=False)
    chosen = suitable(given, staged=staged, unlocked=unlocked)
    assert (chosen is given) is (found is None)
    if found is not None:
        assert isinstance(chosen, found)
        assert chosen.threads == threads
        assert "in the driver" in chosen.text
    monkeypatch.setenv(SWITCH, "spark")
    chosen = suitable(given, staged=staged, unlocked=unlocked)
    assert isinstance(chosen, ThreadExecutor) is (found is ThreadExecutor and not remote)
    monkeypatch.setenv(SWITCH, "sparkle")
    with pytest.raises(UsageError, match="sparkle"):
        suitable(given, staged=staged, unlocked=unlocked)
