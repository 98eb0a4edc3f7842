"""Engines by name: the same result, and what is said of where it ran is what Spark itself says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from tests.run.test_start_from import Plain, _hits
from timelapse.env import spark_session
from timelapse.errors import UsageError
from timelapse.log import Log
from timelapse.run import Run, replay, run_serial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _jobs(spark: SparkSession) -> int:
    """How many jobs the application has had."""
    store: Any = spark.sparkContext._jsc.sc().statusStore()
    return int(store.jobsList(None).size())


@pytest.mark.parametrize(("slices", "strategy"), [(1, None), (3, "chain"), (3, "staged")])
def test_engine_spark_runs_all_passes_as_tasks(
    slices: int, strategy: str | None, tmp_path: Path, spark: SparkSession
) -> None:
    """Also a single task and compiled ones."""
    log = Log.from_events(tmp_path / "log", _hits(200))
    before = _jobs(spark)
    run = replay(Plain, log, tmp_path / "run", slices, spark, strategy=strategy, engine="spark", cache=False)
    started = _jobs(spark) - before
    assert run.digest == run_serial(Plain, _hits(200)).digest
    found: dict[str, Any] = run.certificate["engine"]
    assert found["application"] == spark.sparkContext.applicationId
    assert found["jobs"] == started > 0
    passes = 2 + 3 if strategy == "staged" else 1  # of the last slice nobody needs what it does
    assert found["tasks"] == passes
    assert found["executors"] == 1
    for shown in (run.engine, repr(run), run._repr_html_(), Run.open(tmp_path / "run").engine):
        assert f"application {found['application']}: " in shown
        assert f"{passes} task" in shown
    assert "engine spark was asked for" in run.engine


def test_a_session_is_used(tmp_path: Path, spark: SparkSession) -> None:
    """One that is given, or active: all passes are its tasks, also those of a small log. Engine local does without."""
    log = Log.from_events(tmp_path / "log", _hits(200))
    wanted = run_serial(Plain, _hits(200)).digest
    for given, why in ((spark, "session that was given"), (None, "session that is active")):
        before = _jobs(spark)
        run = replay(Plain, log, spark=given, cache=False)
        assert _jobs(spark) > before
        assert why in run.engine
        assert run.digest == wanted
    before = _jobs(spark)
    alone = replay(Plain, log, engine="local")
    assert alone.digest == wanted
    assert "jobs" not in alone.certificate["engine"]
    assert _jobs(spark) == before


def test_jobs_say_what_they_are(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Program, log, pass and slices, where Spark's UI shows a job's description."""
    told: list[str] = []
    context = type(spark.sparkContext)
    kept = context.setLocalProperty

    def keep(self: Any, name: str, value: str) -> None:
        if name == "spark.job.description":
            told.append(value)
        kept(self, name, value)

    monkeypatch.setattr(context, "setLocalProperty", keep)
    log = Log.from_events(tmp_path / "log", _hits(60))
    replay(Plain, log, tmp_path / "run", 2, spark, strategy="staged", engine="spark", cache=False)
    assert f"timelapse: Plain over {tmp_path / 'log'}: seen and final, slice 0 of 2" in told
    assert any(text.endswith("final, slice 1 of 2") for text in told), told


def test_engine_local_never_asks_for_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("Spark was asked for")

    monkeypatch.setattr(spark_session, "existing", refuse)
    monkeypatch.setattr(spark_session, "session", refuse)
    run = replay(Plain, _hits(40), tmp_path / "run", 3, engine="local")
    assert "Spark" not in run.manifest.executor
    assert "jobs" not in run.certificate["engine"]


def test_what_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'flink'"):
        replay(Plain, _hits(4), tmp_path / "run", engine="flink")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="Spark is ruled out"):
        replay(Plain, _hits(4), tmp_path / "run", spark=False, engine="spark")
    assert not (tmp_path / "run").exists()
    Log.from_events(tmp_path / "log", _hits(4))
    program = f"{__file__}:Plain"
    for wrong in (["--engine", "local", "--master", "local[2]"], ["--engine", "spark", "--local"]):
        found = cli("replay", program, tmp_path / "log", "--out", tmp_path / "run", *wrong)
        assert found.code == 2
        assert "exclude each other" in found.err


def test_a_session_that_is_given_and_engine_local(tmp_path: Path, spark: SparkSession) -> None:
    with pytest.raises(UsageError, match="a Spark session is given"):
        replay(Plain, _hits(4), tmp_path / "run", spark=spark, engine="local")
    assert (
        tl.replay(Plain, _hits(40), tmp_path / "run", engine="local").certificate["engine"].get("jobs")
        is None
    )
