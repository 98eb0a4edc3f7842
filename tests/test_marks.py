"""Marks that follow from what a test takes."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from tests.groups import SPARK, group_of
from tests.times import Measure, Times, apart, measured
from timelapse.kernels.choose import SWITCH

HOOKS = """
from tests.conftest import *

@pytest.fixture
def spark():
    return "spark"
"""
FILE = """
from pathlib import Path
import os
import pytest
import time

def note(group, number):
    with open(Path(__file__).with_name("ran"), "a") as file:
        file.write(f"{group} {number} {os.getpid()}\\n")
    time.sleep(0.01)

@pytest.mark.parametrize("number", range(5))
def test_plain(number):
    note(Path(__file__).stem[-1], number)

@pytest.fixture
def data():
    return Path(__file__).stem[-1]

@pytest.mark.parametrize("number", range(5))
def test_other(number, session):
    if session == "spark":
        note(session, number)
"""


def _asked() -> int:
    return subprocess.run([sys.executable, "-c", ""], check=True).returncode


@pytest.fixture
def asking() -> int:
    return _asked()


def _marks(request: pytest.FixtureRequest) -> set[str]:
    return {mark.name for mark in request.node.iter_markers()} - {"parametrize", "usefixtures"}


@pytest.mark.parametrize("spark", [None])
def test_a_plain_test_has_none(request: pytest.FixtureRequest, spark: None) -> None:
    assert _marks(request) == set()


def test_processes_are_seen_in_helpers(request: pytest.FixtureRequest) -> None:
    assert _marks(request) == {"process"}
    assert _asked() == 0


@pytest.mark.usefixtures("asking")
def test_processes_are_seen_in_fixtures(request: pytest.FixtureRequest) -> None:
    assert _marks(request) == {"process"}


@pytest.mark.parametrize("kernel", ["python", "native"])
def test_compiling_is_seen_in_a_cases_values(
    request: pytest.FixtureRequest, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, kernel)
    assert ("compiled" in _marks(request)) is (kernel != "python")


@pytest.mark.parametrize("on", [pytest.param(True, marks=pytest.mark.spark)])
def test_a_marked_case_is_in_sparks_process(request: pytest.FixtureRequest, on: bool) -> None:
    assert on
    assert group_of(request.node) == SPARK


def test_processes_are_handed_whole_groups(tmp_path: Path) -> None:
    """Two processes, four files, two of which have tests that take the session: no group is in both, each in its order."""
    (tmp_path / "conftest.py").write_text(HOOKS)
    for name in ("a", "b", "c", "d"):
        (tmp_path / f"test_{name}.py").write_text(
            FILE.replace("session", "spark" if name in "bd" else "data")
        )
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "xdist.plugin", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider", str(tmp_path)],
        check=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, stdout=subprocess.PIPE,
    )  # fmt: skip
    ran = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    groups: dict[str, list[tuple[str, str]]] = {"a": [], "b": [], "c": [], "d": [], "spark": []}
    for group, number, process in ran:
        groups[group].append((number, process))
    assert {group: [number for number, _ in found] for group, found in groups.items()} == {
        **{group: [*"01234"] for group in "abcd"}, "spark": [*"0123401234"]
    }  # fmt: skip
    assert {len({process for _, process in found}) for found in groups.values()} == {1}
    assert len({process for _, _, process in ran}) == 2


def test_what_was_measured_is_slow(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """By the first of a test's cases; of files that are measured again nothing stays, of those that are gone neither."""
    here, other = "tests/test_marks.py", "tests/test_kept.py"
    root, own = Path(__file__).parents[1], "test_what_was_measured_is_slow"
    old = Times(
        {other: {"": 9.0, "test_a": 3.0}, here: {"": 8.0, "test_b": 2.0}, "tests/test_gone.py": {"": 1.0}}
    )
    made = old.with_measured({here: {own: [0.7, 0.1], "test_c": [0.1, 5.0]}}, root)
    made.write(tmp_path / "times.json")
    assert json.loads((tmp_path / "times.json").read_text()) == {
        other: {"": 9.0, "test_a": 3.0}, here: {"": 5.9, own: 0.7}
    }  # fmt: skip
    read = Times.read(tmp_path / "times.json")
    assert (read.is_slow(request.node), read.of_file(request.node)) == (True, 5.9)
    none = Times.read(tmp_path / "none")
    assert (none.is_slow(request.node), none.of_file(request.node)) == (False, math.inf)


def test_what_is_made_once_counts_for_each_that_takes_it() -> None:
    """But once for the file."""

    class Fixture(NamedTuple):
        scope: str

    module, own = Fixture("module"), Fixture("function")
    fixtures = {"data": (module,), "more": (own,)}
    info = SimpleNamespace(name2fixturedefs=fixtures)
    measure: Any = Measure(SimpleNamespace())  # type: ignore[arg-type]

    def through(hook: Iterator[None], inside: Callable[[], None] = lambda: None) -> None:
        next(hook)
        inside()
        with suppress(StopIteration):
            next(hook)

    def spend() -> None:
        until = time.process_time() + 0.2
        while time.process_time() < until:
            pass

    def set_up() -> None:
        through(measure.pytest_fixture_setup(module), spend)
        through(measure.pytest_fixture_setup(own), spend)

    for name, inside in (("a", set_up), ("b", lambda: None)):
        item = SimpleNamespace(nodeid=f"tests/test_kept.py::test_{name}", _fixtureinfo=info)
        through(measure.pytest_runtest_protocol(item), inside)
    (tests,) = measure._found.values()
    (first,), (second,) = tests["test_a"], tests["test_b"]
    assert first >= second + 0.1 >= 0.2
    read = Times({}).with_measured(measure._found, Path(__file__).parents[1])
    assert read.of_file(item) == pytest.approx(first, abs=0.06)  # type: ignore[arg-type]


def test_of_each_file_one_stays() -> None:
    """The quickest of those that are slow."""
    items = [SimpleNamespace(nodeid=f"tests/test_kept.py::test_{name}") for name in "ab"]
    found: Any = Times({"tests/test_kept.py": {"": 9.0, "test_a": 5.0, "test_b": 4.0}}).quickest(items)  # type: ignore[arg-type]
    assert found is items[1]


def test_time_of_processes_is_measured() -> None:
    """But of those that serve all tests, which whichever is the last would have to wait for."""
    found: list[float] = []
    spend = [sys.executable, "-c", "import time\nwhile time.process_time() < 0.4: pass"]
    for blamed in (nullcontext, apart):
        with measured(found), blamed():
            subprocess.run(spend, check=True)
    assert found[0] >= 0.3  # the system rounds to ticks
    assert found[1] < 0.3
