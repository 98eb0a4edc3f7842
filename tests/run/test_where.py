"""Where a replay runs: in this process, on the session that is there, or on one that is worth its start."""

from __future__ import annotations

import html
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import timelapse as tl
from tests.engine.programs import A, Chained
from timelapse.engine.executor import LocalExecutor, suitable
from timelapse.engine.thread_executor import ThreadExecutor
from timelapse.env import master, spark_session, spark_start
from timelapse.run import planning
from timelapse.run.request import Settings

Plan = tuple[str, float, float] | tuple[str, float, float, bool]
"""Mode, foretold time relative to the serial loop, seconds of the serial loop, whether all passes are compiled."""


class FakePlanner(planning.Planner):
    """Plans as a test says, by the number of cores."""

    plans: dict[int, Plan]

    def plan(self, cores: int, threads: int, machines: int = 1) -> Any:
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
    # It would start a JVM in a thread, which nobody asks for any more and which outlives a run of tests that ends meanwhile.
    monkeypatch.setattr(spark_start, "begin", lambda *_: None)
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
    "plan",
    [("chain", 0.6, 100.0), ("by key", 0.6, 100.0), ("staged", 0.6, 100.0, True), ("staged", 0.9, 1.0)],
)
def test_a_master_that_is_named_is_used(events: int, plan: Plan) -> None:
    """One of this machine too, whatever the plan; engine local and spark=False do without."""
    notes = Notes()
    with pytest.raises(Started):
        planner(events, plan, plan, notes).settle(None)
    assert notes.lines == ["starting Spark (a few seconds) ..."]
    assert isinstance(planner(events, plan, plan, Notes()).settle(False).executor, LocalExecutor)


def test_a_run_says_where_it_ran_and_why(tmp_path: Path) -> None:
    events = [A(k=n % 3, v=0, s="x", ts=n) for n in range(100)]
    run = tl.replay(Chained, events, tmp_path / "run", spark=False)
    assert run.certificate["engine"] == {
        "where": "in process",
        "why": "100 events take less than Spark's start of 8 s",
    }
    assert run.engine == "in process: 100 events take less than Spark's start of 8 s"
    assert "in process>" in repr(run)
    assert html.escape(run.engine) in html.escape(html.unescape(run._repr_html_()))
    assert tl.Run.open(tmp_path / "run").engine == run.engine
    assert tl.run_serial(Chained, events).engine == "serial reference"


@pytest.mark.parametrize(
    ("pinned", "threads", "staged", "unlocked", "in_threads"),
    [
        (True, 2, False, False, False), (True, 2, True, False, False), (True, 2, True, True, False),
        (False, 2, False, False, False), (False, 2, True, False, False), (False, 2, True, True, True),
        (False, 1, True, True, False), (False, 2, False, True, False),
    ],
)  # fmt: skip
def test_who_runs_a_plan(pinned: bool, threads: int, staged: bool, unlocked: bool, in_threads: bool) -> None:
    """A Spark session runs all its tasks; in a process compiled slices run side by side."""
    given: Any = SimpleNamespace(threads=threads, text="it", pinned=pinned)
    chosen = suitable(given, staged=staged, unlocked=unlocked)
    assert isinstance(chosen, ThreadExecutor) is in_threads
    assert (chosen is given) is not in_threads
    if in_threads:
        assert chosen.threads == threads
        assert "in the driver" in chosen.text
