"""Marks that follow from what a test takes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from timelapse.kernels.choose import SWITCH


def _asked() -> int:
    return subprocess.run([sys.executable, "-c", ""], check=True).returncode


@pytest.fixture
def asking() -> int:
    return _asked()


def _marks(request: pytest.FixtureRequest) -> set[str]:
    return {mark.name for mark in request.node.iter_markers()} - {"xdist_group", "parametrize", "usefixtures"}


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
    group = request.node.get_closest_marker("xdist_group")
    assert on
    assert group is not None
    assert group.args == ("spark",)
