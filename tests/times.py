"""How long tests took when `make times` measured them, in `tests/times.json`: seconds of processor time, with that of ended processes.

By it files that take long are run first, and tests are marked `slow`, which the inner loop leaves out. Nobody keeps it by hand.
A test that it does not have is new, and not slow. A file that it does not have may take long, and is run before the others: one that
began last would leave the other processes with nothing to do. Of a test with cases the first is measured: the inner loop runs no other.
What is made once for several tests, a fixture of a module, counts for each of them: without the first the next one would make it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SLOW = 0.3
"""Seconds. With it the inner loop takes two minutes, and has tests of each room."""
TWICE = ""
"""Stands for no test: what counts for several, taken off the total of the file."""
PATH = Path(__file__).with_suffix(".json")


class Times:
    """Of each file, the seconds of all its tests (under ""), and of those of its tests that are slow."""

    def __init__(self, files: dict[str, dict[str, float]]) -> None:
        self._files = files

    @classmethod
    def read(cls, path: Path = PATH) -> Times:
        return cls(json.loads(path.read_text()) if path.is_file() else {})

    def of_file(self, item: pytest.Item) -> float:
        """Infinity for a file that was not measured."""
        return self._files.get(file_of(item), {}).get("", math.inf)

    def is_slow(self, item: pytest.Item) -> bool:
        return name_of(item) in self._files.get(file_of(item), {})

    def quickest(self, items: Sequence[pytest.Item]) -> pytest.Item:
        """The one that took least; of those that nothing is known of the first."""
        return min(items, key=lambda item: self._files.get(file_of(item), {}).get(name_of(item), 0.0))

    def with_measured(self, measured: dict[str, dict[str, list[float]]], root: Path) -> Times:
        """What is known when some files were measured: files that are gone are dropped."""
        files = {file: known for file, known in self._files.items() if (root / file).is_file()}
        for file, tests in measured.items():
            total = sum(sum(cases) for cases in tests.values())
            slow = {name: round(cases[0], 1) for name, cases in sorted(tests.items()) if cases[0] > SLOW}
            files[file] = {"": round(total, 1), **slow}
        return Times(files)

    def write(self, path: Path = PATH) -> None:
        lines = [f"{json.dumps(file)}: {json.dumps(known)}" for file, known in sorted(self._files.items())]
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def file_of(item: pytest.Item) -> str:
    """A test's file, below the root. `item.location` has it too, and is slow: pytest looks for each test's line."""
    return item.nodeid.partition("::")[0]


def name_of(item: pytest.Item) -> str:
    """A test's name within its file, without its case."""
    return item.nodeid.partition("::")[2].partition("[")[0]


class Measure:
    """A plugin that measures all tests of a run, also in processes of pytest-xdist, and writes what it found."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._found: dict[str, dict[str, list[float]]] = {}
        self._shared: dict[object, float] = {}
        """What setting up fixtures took that are not made for each test."""
        self._made: set[object] = set()
        """Those that were set up in the test that runs."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._made.clear()
        found: list[float] = []
        try:
            with measured(found):
                return (yield)
        finally:
            info: Any = getattr(item, "_fixtureinfo", None)
            used = [fixtures[-1] for fixtures in info.name2fixturedefs.values() if fixtures] if info else []
            before = sum(self._shared.get(fixture, 0.0) for fixture in used if fixture not in self._made)
            tests = self._found.setdefault(file_of(item), {})
            tests.setdefault(name_of(item), []).append(found[0] + before)
            if before:
                tests.setdefault(TWICE, []).append(-before)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        found: list[float] = []
        try:
            with measured(found):
                return (yield)
        finally:
            self._shared[fixturedef] = found[0]
            self._made.add(fixturedef)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        for file, tests in getattr(node, "workeroutput", {}).get("timelapse_times", {}).items():
            for name, cases in tests.items():
                self._found.setdefault(file, {}).setdefault(name, []).extend(cases)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["timelapse_times"] = self._found
        else:
            Times.read().with_measured(self._found, self._config.rootpath).write()


@contextmanager
def measured(into: list[float]) -> Iterator[None]:
    before = _spent() - _APART[0]
    try:
        yield
    finally:
        into.append(_spent() - _APART[0] - before)


_APART = [0.0]
"""Seconds that no test is to blame for."""


@contextmanager
def apart() -> Iterator[None]:
    """What is done once for all tests counts for none: it would make slow whichever is the first or the last."""
    before = _spent()
    try:
        yield
    finally:
        _APART[0] += _spent() - before


def _spent() -> float:
    return sum(os.times()[:4])
