"""Fixtures for all tests: one Spark session, the real data."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests import groups, ramdisk
from tests.depth import DEPTH, FULL, deep, in_turn
from tests.marks import derived, takes_session
from tests.times import Measure, Times, apart, file_of
from timelapse.env.garbage import passed_over
from timelapse.run import twice
from timelapse.testing import oracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.s3_server import S3Server

settings.register_profile(
    "timelapse",
    max_examples=deep(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("timelapse")

# Logs of tests are so short that the sample would be all of most of them (tests/run/test_twice.py has the whole one), and that
# slices of a few events have as many boundaries as matter.
if DEPTH < FULL:
    twice.SAMPLE = 24
    oracle.MOST_SLICES = 8
# Programs are checked in each number of slices and by each strategy; how many events there are says which of them meet.
oracle.every = lambda slices, strategies, events: in_turn(slices, strategies, events)

ramdisk.use()
os.environ["TIMELAPSE_STATES"] = "off"  # tests that want a cache make one of their own

# Drivers' JVMs are short-lived here: the second compiler and a collector with threads cost more than they give. The first compiler
# alone has 48 MiB for its code by default, and a thread that goes on looking for what it can drop.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
)

SESSION_TIME_ZONE = "Asia/Kolkata"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--first-cases",
        action="store_true",
        help="of a test with parameters only the first case (make test-fast)",
    )
    parser.addoption("--write-times", action="store_true", help="measure the tests for tests/times.json")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--write-times"):
        config.pluginmanager.register(Measure(config), "timelapse-times")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """All that is collected stays: a search for garbage in it finds none."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what follows from what tests take, and tells what stays in one process (`tests/groups.py`).

    Spark's and the long files come first, so that no process is left with a long one when the other has ended.
    """
    first: dict[str, pytest.Item] = {}
    times = Times.read()
    for item in items:
        for name in derived(item):
            item.add_marker(name)
        if not list(item.iter_markers("spark")):
            first.setdefault(item.nodeid.partition("[")[0], item)
    spared = _one_of_each_file(list(first.values()), times)
    for item in items:
        if times.is_slow(item) and item not in spared:
            item.add_marker("slow")
    items.sort(key=lambda item: (not takes_session(item), -times.of_file(item)))
    if config.getoption("--first-cases"):
        kept = set(first.values())
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]


def _one_of_each_file(items: list[pytest.Item], times: Times) -> set[pytest.Item]:
    """The quickest test of each file, among those that nothing but what they take would leave out of the inner loop."""
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not any(item.iter_markers(name) for name in ("process", "compiled")):
            files.setdefault(file_of(item), []).append(item)
    return {times.quickest(found) for found in files.values()}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    groups.tell(session.config, session.items)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    groups.ask(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return groups.scheduler(config, log)


@pytest.fixture(autouse=True)
def _what_is_there_is_not_looked_at_again() -> None:
    """What earlier tests left (compiled code, analyses, modules) stays until the end.

    Python's search for garbage goes through all of it each time; with budgets of a byte that is after each event.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _passed_over() -> Iterator[None]:
    """A live run that begins within `passed_over` does not count what is frozen: object by object, that takes tens of milliseconds."""
    with passed_over():
        yield


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A real local session: two cores, two partitions or more, and a time zone that is not UTC."""
    groups.only_here(request.config, tmp_path_factory.getbasetemp().parent)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from timelapse.env.spark_session import session

    with apart():
        found = session(
            master="local[2]",
            conf={
                "spark.sql.session.timeZone": SESSION_TIME_ZONE,
                "spark.sql.shuffle.partitions": "3",
                "spark.default.parallelism": "2",
                "spark.driver.memory": "2g",
                "spark.driver.extraJavaOptions": "-Xmn512m",
                # Compiling classes for each query takes longer than the few rows of tests do. Sessions that tests start by
                # themselves compile, as those of users do.
                "spark.sql.codegen.wholeStage": "false",
                "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            },
        )
    yield found
    with apart():
        found.stop()


@pytest.fixture(autouse=True)
def _no_session_of_others(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that does not ask for the session does not find it: replays use a session that is active."""
    if not takes_session(request.node) and "timelapse.env.spark_session" in sys.modules:
        monkeypatch.setattr("timelapse.env.spark_session.existing", lambda: None)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A server of S3, which the environment names."""
    from tests.s3_server import s3_server

    server = s3_server()
    with apart():
        found = server.__enter__()
    yield found
    with apart():
        server.__exit__(None, None, None)


@pytest.fixture
def bucket(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new bucket's URL. Copies of its objects are kept in a folder of the test's own."""
    monkeypatch.setenv("TIMELAPSE_OBJECTS", str(tmp_path / "copies"))
    return f"s3://{s3.bucket()}"


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of the real data. Its absence fails in CI; elsewhere the test is skipped."""
    path = Path(os.environ.get("TIMELAPSE_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not (path / "CollegeMsg.txt").is_file():
        message = (
            f"no real data in {path}: set TIMELAPSE_DATA to a folder with CollegeMsg.txt, OpenSSH_2k.log"
        )
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return path
