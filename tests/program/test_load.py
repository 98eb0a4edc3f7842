"""Programs of several folders in one process: each has the helper modules beside it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import timelapse as tl
from timelapse.program.load import load_program, user_modules
from timelapse.program.program import spec_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RULES = """
import timelapse as tl
from load_helper import LIMIT
from load_helpers.deep import above


class Hit(tl.Event):
    user: int


class Much(tl.Record):
    user: int


class Rules(tl.Program):
    hits: tl.Counter[int]

    @tl.on(Hit)
    def count(self, e):
        self.hits[e.user] += 1
        if above(self.hits[e.user], LIMIT):
            self.emit(Much(user=e.user))
"""


def _folder(place: Path, limit: int, more: int) -> str:
    (place / "load_helpers").mkdir(parents=True)
    (place / "load_rules.py").write_text(RULES)
    (place / "load_helper.py").write_text(f"LIMIT = {limit}\n")
    (place / "load_helpers" / "__init__.py").write_text("")
    (place / "load_helpers" / "deep.py").write_text(f"def above(n, limit):\n    return n > limit + {more}\n")
    return f"{place / 'load_rules.py'}:Rules"


@pytest.fixture
def references(tmp_path: Path) -> list[str]:
    return [_folder(tmp_path / "a", 1, 0), _folder(tmp_path / "b", 2, 3)]


def _many(program: type[tl.Program]) -> int:
    hit: Any = next(iter(spec_of(program).events))
    events = [hit(user=1, ts=n) for n in range(10)]
    return tl.run_serial(program, events).counts["Much"]


def test_each_folder_has_its_own_helpers(references: list[str]) -> None:
    """Whichever is loaded first, and when the first is loaded again; what was loaded stays what it is."""
    first, second = map(load_program, references)
    helper = sys.modules["load_helper"]
    assert (_many(first), _many(second)) == (9, 5)
    assert load_program(references[0]) is first
    assert load_program(references[1]) is second
    assert sys.modules["load_helper"] is helper
    assert sys.modules["load_helpers.deep"].above(2, 1)


def test_a_file_below_an_installed_package_is_the_users(tmp_path: Path) -> None:
    """A file that is loaded by its path has a name that workers do not know, wherever it lies: its code travels."""
    place = Path(tl.__file__).parent / "cli" / "demo_programs" / "collegemsg.py"
    program = load_program(f"{place}:Strangers")
    assert program.__module__ in {m.__name__ for m in user_modules()}
    assert "timelapse.serial" not in {m.__name__ for m in user_modules()}


def test_helpers_travel_to_workers(spark: SparkSession, references: list[str]) -> None:
    """Spark's workers get the second program with its own helpers, not those of the first."""
    _, program = map(load_program, references)
    hit: Any = next(iter(spec_of(program).events))
    log = tl.Log.from_events(
        Path(references[1]).parent / "log", [hit(user=n % 2, ts=n) for n in range(20)], block=5
    )
    assert tl.replay(program, log, slices=2, spark=spark, cache=False).counts["Much"] == 10
