"""What is put away comes back when it is looked at, and is what a dict would hold."""

from __future__ import annotations

import os
import pickle
import random
import re
import sqlite3
from collections import deque
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.depth import deep
from timelapse.kinds.base import ABSENT
from timelapse.tables.shelf import Shelf

KEYS: list[Any] = [-1, -2, 0, 1, 2**61 - 1, 2**61, 3 - 2**61, "", "a", b"a", (1, "a"), (-1, None), (-2, None)]
"""Among them some of one hash."""


@pytest.mark.parametrize("seed", range(deep(5)))
def test_it_is_a_dict(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    shelf = Shelf(tmp_path / "rows", 1)
    pairs: list[tuple[dict[Any, Any], dict[Any, Any]]] = [(shelf.dict(), {}) for _ in range(2)]
    for step in range(400):
        made, plain = chance.choice(pairs)
        key, act = (
            chance.choice(KEYS),
            chance.choice(["get", "put", "put", "del", "pop", "in", "or", "away", "all"]),
        )
        if act == "away":
            assert shelf.put_away()
            assert shelf.nbytes == 0
        elif act == "put":
            made[key] = plain[key] = [step]
        elif act == "del":
            assert (key in made) == (key in plain)
            if key in plain:
                del made[key], plain[key]
        elif act == "pop":
            assert made.pop(key, None) == plain.pop(key, None)
        elif act == "or":
            made.setdefault(key, [step]).append(step)
            plain.setdefault(key, [step]).append(step)
        elif act == "all":
            assert dict(made.items()) == plain
            assert len(made) == len(plain)
        else:
            assert made.get(key, ABSENT) == plain.get(key, ABSENT)
    assert all(dict(made.items()) == plain for made, plain in pairs)
    assert list((tmp_path / "rows").iterdir())
    del made, plain, pairs, shelf
    assert not list((tmp_path / "rows").iterdir())


def test_values_are_what_they_were(tmp_path: Path) -> None:
    """Also those of local types, and what stands for something by being that very object."""

    class Pair(NamedTuple):
        a: int
        b: str

    nothing = object()
    shelf = Shelf(tmp_path, 1)
    made = shelf.dict()
    plain = (Decimal("1.50"), datetime(2026, 1, 1, tzinfo=UTC), re.NOFLAG, deque([1], 3))
    made[Pair(1, "x")] = (Pair(2, "y"), ABSENT, nothing, *plain)
    assert shelf.put_away()
    pair, absent, other, *others = made[Pair(1, "x")]
    assert tuple(others) == plain
    assert type(pair) is Pair
    assert (pair, absent, other) == (Pair(2, "y"), ABSENT, nothing)
    assert absent is ABSENT
    assert other is nothing


def test_a_file_that_was_altered_calls_nothing(tmp_path: Path) -> None:
    class Calls:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "made"),)

    shelf = Shelf(tmp_path, 1)
    made = shelf.dict()
    made[1] = 1
    assert shelf.put_away()
    assert shelf._database is not None
    shelf._database.execute(f"UPDATE {made.table} SET data = ?", (pickle.dumps([(1, Calls())]),))
    with pytest.raises(OSError, match="mkdir was not put in"):
        made.get(1)
    assert not (tmp_path / "made").exists()


def test_a_disk_that_is_full_only_means_more_memory(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, 1)
    made = shelf.dict()
    made.update({n: n for n in range(10)})
    assert shelf.put_away()
    assert shelf._database is not None
    shelf._database.execute("PRAGMA max_page_count = 4")
    expected = dict.fromkeys(range(5, 50), "x" * 1000)
    for key, value in expected.items():
        made[key] = value
    assert not shelf.put_away()
    assert dict(made.items()) == {**{n: n for n in range(5)}, **expected}
    shelf._database.execute("PRAGMA max_page_count = 4000")
    assert shelf.put_away()
    assert dict(made.items()) == {**{n: n for n in range(5)}, **expected}


def test_what_cannot_be_read_again_is_no_fault_of_a_handler(tmp_path: Path) -> None:
    """It is an OSError, from where data is kept (program/failure.py)."""
    shelf = Shelf(tmp_path, 1)
    made = shelf.dict()
    made[1] = 1
    assert shelf.put_away()
    assert shelf._database is not None
    shelf._database.execute(f"DROP TABLE {made.table}")
    with pytest.raises(OSError, match="cannot be read") as raised:
        made[1]
    assert isinstance(raised.value.__cause__, sqlite3.Error)
