"""A session that is begun early: whoever asks for one waits for it, once, and gets its error."""

from __future__ import annotations

import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.patience import LONG
from timelapse.cli.main import _stopping_spark
from timelapse.env import spark_session, spark_start
from timelapse.errors import SetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_start, "_starting", None)
    monkeypatch.setattr(spark_session, "existing", lambda: None)


def test_it_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    go, made = threading.Event(), object()
    asked: list[str | None] = []

    def started(master: str | None, conf: Any) -> Any:
        asked.append(master)
        go.wait(LONG)
        return made

    monkeypatch.setattr(spark_session, "started", started)
    monkeypatch.setattr(spark_start, "_warm", lambda *_: None)
    monkeypatch.setattr(spark_session, "workers_python", lambda spark: None)
    spark_start.begin("local[2]", "json")
    spark_start.begin("local[2]", "json")
    assert spark_start.is_starting()
    threading.Timer(0.1, go.set).start()
    assert spark_session.session() is made
    assert not spark_start.is_starting()
    assert spark_start.begun() is None
    assert asked == ["local[2]"]


def test_its_error_is_that_of_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(master: str | None, conf: Any) -> Any:
        raise SetupError("no Java")

    monkeypatch.setattr(spark_session, "started", started)
    spark_start.begin(None, "json")
    with pytest.raises(SetupError, match="no Java"):
        spark_session.session()
    assert not spark_start.is_starting()


def test_what_workers_still_say_as_a_commands_session_stops_goes_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is still writing as its task is given up showed a traceback under the results. Others' sessions go on, and say what they say."""
    done: list[str] = []
    err = SimpleNamespace(close=lambda: done.append("hushed"))
    found = SimpleNamespace(
        _jvm=SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=SimpleNamespace(err=err)))),
        sparkContext=SimpleNamespace(setLogLevel=lambda level: None),
        stop=lambda: done.append("stopped"),
    )
    with _stopping_spark():
        monkeypatch.setattr(spark_session, "existing", lambda: found)
    assert done == ["hushed", "stopped"]
    with _stopping_spark():
        pass
    spark_start.hush(found)  # type: ignore[arg-type]
    assert done == ["hushed", "stopped"]


def test_a_session_that_is_there_is_not_begun(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "existing", lambda: spark)
    spark_start.begin(None, "json")
    assert not spark_start.is_starting()
    spark_start._warm(spark, "timelapse.engine.tasks")
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None


def test_planning_needs_no_pyspark() -> None:
    code = "import sys, timelapse.env.spark_start, timelapse.run; assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
