"""Tables are made as large as they will be needed."""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.depth import deep, some
from tests.native.gradual import switches
from timelapse.kernels.native.memory import blocks
from timelapse.kernels.native.memory.growth import Growth, foretell, make_ready_beside
from timelapse.kernels.native.memory.hashtable import HashTable
from timelapse.kernels.native.memory.keeping import Kept
from timelapse.kernels.native.memory.layout import OCCUPIED, PRESENT, TOUCHED, Layout
from timelapse.model.types import ScalarType

PIECE = 32_768
EVENTS = 6_000_000


def sizes(keys: np.ndarray[tuple[int], np.dtype[np.int64]], first: int = 0) -> list[int]:
    """How large a table becomes, one after the other, when these keys come."""
    growth, size, made = Growth(len(keys), first), 1024, []
    numbers = pa.array(keys).dictionary_encode().indices.to_numpy()  # in the order in which they come first
    rows = first + np.concatenate([[0], np.maximum.accumulate(numbers) + 1])
    for done in range(0, len(keys), PIECE):
        expected = growth.expected(done, int(rows[done]))
        if 2 * (rows[done] + PIECE) > size:
            while size < 2 * max(rows[done] + PIECE, expected):
                size *= 2
            made.append(size)
    return made


def different(keys: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    return len(pa.array(keys).dictionary_encode().dictionary)


def needed(keys: int) -> int:
    return 1 << (2 * keys - 1).bit_length()


def test_keys_that_are_all_new_take_one_step_from_the_time_that_they_are_known_to_be() -> None:
    made = sizes(np.arange(EVENTS))
    assert made[-1] == needed(EVENTS)
    assert len([n for n in made if n > 1 << 19]) == 1


@pytest.mark.parametrize("users", some([50_000, 400_000, 3_000_000], 2))
def test_users_who_come_again(users: int) -> None:
    rng = np.random.default_rng(4)
    keys = rng.integers(0, users, EVENTS)
    made = sizes(keys)
    assert made[-1] <= 2 * needed(different(keys) + PIECE), "at most one size more than it takes"
    assert len(made) <= 6


def test_a_heavy_tail() -> None:
    rng = np.random.default_rng(5)
    keys = rng.zipf(1.3, EVENTS) % (1 << 40)
    made = sizes(keys)
    assert made[-1] <= 2 * needed(different(keys) + PIECE)
    assert len(made) <= 8


def test_what_was_there_before_does_not_grow() -> None:
    assert Growth(1 << 24, 10**6).expected(1 << 20, 10**6) == 10**6
    growth = Growth(1 << 24, 10**6)
    growth.expected(1 << 18, 10**6 + 10)
    assert growth.expected(1 << 20, 10**6 + 20) < 10**6 + 200


def test_what_somebody_knows_is_made_at_once() -> None:
    """However few events there were; and what comes beyond that is foretold as ever."""
    growths = [Growth(1 << 24, 0), Growth(1 << 24, 0)]
    foretell([("total", "seen"), ("late",)], growths, {"total": 500, "seen": 4_000_000, "other": 7})
    assert growths[0].expected(0, 0) == 4_000_000
    assert growths[1].expected(0, 0) == 0
    growths[0].expected(1 << 18, 200_000)
    assert growths[0].expected(1 << 19, 400_000) == 12_800_000


def test_a_slice_of_unknown_length_doubles() -> None:
    growth = Growth(0, 0)
    for done in range(0, 1 << 21, PIECE):
        assert growth.expected(done, done // 2) == done // 2


def test_more_room_than_asked_for_changes_nothing() -> None:
    rng = random.Random(2)
    keys = [rng.randrange(50) for _ in range(200)]
    tables = [HashTable([Layout(1, None, "exact", tracked=False)]) for _ in range(2)]
    tables[1].reserve(600, 9000)
    for key in keys:
        for table in tables:
            if table.find([key], np.zeros(0, np.int64), np.zeros(0, np.uint8)) < 0:
                table.claim([key])
    assert len(tables[1].slots) == 32768
    assert len(tables[0].slots) == 1024
    assert sorted(map(tuple, tables[0].used()[0])) == sorted(map(tuple, tables[1].used()[0]))


def test_slices_of_one_run_are_foretold_as_one() -> None:
    """What later slices bring is known from the first."""
    whole, sliced = Growth(EVENTS, 0), Growth(EVENTS, 0)
    for done in range(0, EVENTS, PIECE):
        if done and done % (EVENTS // PIECE // 3 * PIECE) == 0:
            sliced.go_on(EVENTS // PIECE // 3 * PIECE)
        expected = whole.expected(done, done // 2)
        assert sliced.expected(done - sliced._past, done // 2) == expected


@pytest.mark.parametrize("threads", [1, 3])
def test_a_new_slice_keeps_what_rows_hold_and_forgets_what_was_written(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shared out among threads or not; also rows that came by no count of this table's."""
    monkeypatch.setattr(blocks, "LARGE", 0)
    layout = Layout(1, ScalarType("int"), "exact", tracked=True)
    table: Any = HashTable([layout], threads=threads)
    table.begin()
    assert (table.rows, len(table.base)) == (0, 0)
    keys = np.arange(1, 3001, dtype=np.int64).reshape(-1, 1)
    table.load(layout, keys, keys * 7)
    table.slots[table.slots[:, 0] != 0, 0] |= TOUCHED
    table.rows = 1
    before = table.slots.copy()
    table.begin()
    assert table.rows == 3000
    there = before[:, 0] != 0
    assert set(table.slots[there, 0].tolist()) == {OCCUPIED | PRESENT}
    assert not table.slots[~there].any()
    assert (table.slots[:, 1:] == before[:, 1:]).all()
    assert (table.base[:, 0] == before[:, 0]).all()  # also what the slice before has written (HashTable.turn)
    assert (table.base[:, 1] == table.slots[:, layout.place]).all()
    table.slots[there, layout.place] += 1
    table.begin()
    assert (table.base[there, 1] == before[there, layout.place] + 1).all()


@pytest.mark.parametrize("seed", range(deep(60, 8)))
def test_a_table_that_grows_part_by_part_has_what_was_written_meanwhile(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that were there, and new ones; also where a slice begins in between, or not all copies fit. Readers see the epoch before."""
    rng = random.Random(seed)
    tuning, found = switches(monkeypatch, rng)
    if seed % 4 == 3:
        tuning = replace(tuning, first_copies=3, copied_bytes=300)
    layout = Layout(1, ScalarType("int"), "exact", tracked=True)
    table: Any = HashTable([layout], tuning=tuning)
    kept, growth, none = (
        Kept([table], 1, tuning),
        [Growth(0, 0)],
        (np.zeros(1, np.int64), np.zeros(0, np.uint8)),
    )
    kept.settle()
    now, before, start, written = dict[int, int](), dict[int, int](), dict[int, int](), set[int]()
    for _ in range(80):
        for _ in range(rng.randint(0, 4)):
            events = rng.randint(0, 4)
            make_ready_beside(kept, growth, [(1, 0)], events, 0, nullcontext(), gradually=True)
            kept.reserve(events)
            for _ in range(events):
                key, value = rng.randint(1, 8 + 2 * len(now)), rng.randint(1, 1_000)
                if table.find([key], *none) < 0:
                    table.claim([key])
                row = table.find([key], *none)
                kept.add(0, row)
                table.slots[row, layout.place] = now[key] = value
                table.slots[row, 0] |= PRESENT | TOUCHED
                written.add(key)
            rows = {int(r[1]): (int(r[2]), bool(r[0] & TOUCHED)) for r in table.slots if r[0]}
            assert rows == {key: (value, key in written) for key, value in now.items()}
            assert table.rows == len(now)
            if len(table.base):
                held = {int(r[1]): int(b[1]) for r, b in zip(table.slots, table.base, strict=True) if b[0]}
                assert held == start
            if kept.whole:
                copies = {key: kept.copy(0, table.find([key], *none)) for key in now}
                assert {k: int(c[2]) for k, c in copies.items() if c[0] & PRESENT} == before
        if rng.random() < 0.1:
            (table.turn if len(now) and rng.random() < 0.5 else table.rebase)()
            table._is_turned, start, written = False, dict(now), set()
        kept.settle()
        before = dict(now)
    assert found
    assert max(found) > 100
