"""The processes of a test run: what becomes of the tests of one that dies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import LONG

CONFTEST = """
import json
from tests import groups

def pytest_collection_modifyitems(session, config, items):
    groups.tell(config, items)

def pytest_configure_node(node):
    groups.ask(node)

def pytest_xdist_make_scheduler(config, log):
    return groups.scheduler(config, log)
"""

TESTS = """
import os
import pytest

@pytest.mark.parametrize("n", range({count}))
def test_one(n):
    if n == {dies}:
        os._exit(3)
"""


@pytest.mark.parametrize("dies", [0, 3, 5])
def test_a_process_that_dies_ends_no_run(tmp_path: Path, dies: int) -> None:
    """Its other tests run elsewhere, once; the test that it died of has failed."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name, count in {"a": 6, "b": 1, "c": 4, "d": 2, "e": 1}.items():
        (tmp_path / f"test_{name}.py").write_text(
            TESTS.format(count=count, dies=dies if name in "ac" else -1)
        )
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "xdist.plugin",
            "-n",
            "2",
            "--dist",
            "loadgroup",
            "-q",
            "-p",
            "no:cacheprovider",
            ".",
        ],
        cwd=tmp_path,
        env={
            "PYTHONPATH": str(Path(__file__).parents[1]),
            "PATH": "/usr/bin:/bin",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # each process loads all plugins that are installed
        },
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    died = 1 + (dies < 4)
    assert f"{died} failed, {14 - died} passed" in ran.stdout
    assert f"test_a.py::test_one[{dies}]" in ran.stdout
