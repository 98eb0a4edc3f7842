"""Which rows hold one of some numbers, by a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timelapse as tl
from timelapse.analysis.origins import Origins
from timelapse.log import MemoryLog
from timelapse.segments.reader import Chunk
from timelapse.trace import pieces
from timelapse.trace.columns import Columns, Pattern, contained, picked
from timelapse.trace.lookup import Lookup, merged, numbers

_ENDS = [-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 2, 2**63 - 1]
_NUMBERS = st.sampled_from(_ENDS) | st.integers(-3, 9)


@given(st.lists(_NUMBERS, unique=True, min_size=1, max_size=8), st.lists(_NUMBERS, max_size=30))
def test_a_table_says_what_arrow_says(values: list[int], rows: list[int]) -> None:
    wanted, column = pa.array(values, pa.int64()), pa.array(rows, pa.int64())
    lookup = Lookup.of(wanted)
    if lookup is None:
        assert max(values) - min(values) >= 1 << 24 or min(values) == -(2**63)
        return
    own = column.to_numpy()
    assert lookup.among(own).tolist() == pc.is_in(column, value_set=wanted).to_pylist()
    places = pc.fill_null(pc.index_in(column, value_set=wanted), -1).to_pylist()
    assert lookup.places(own).tolist() == places


def test_only_whole_numbers_that_are_all_there_are_looked_up() -> None:
    assert Lookup.of(pa.array(["a"])) is None
    assert Lookup.of(pa.array([], pa.int64())) is None
    assert Lookup.of(pa.array([1], pa.int32())) is None
    assert numbers(pa.chunked_array([pa.array([1, None])])) is None
    assert numbers(pa.chunked_array([pa.array([1]), pa.array([2])])) is None
    assert numbers(pa.chunked_array([pa.array([1.5])])) is None
    times = numbers(pa.chunked_array([pa.array([7], pa.timestamp("us", "UTC"))]))
    assert times is not None
    assert times.tolist() == [7]


_SEQS = st.lists(st.integers(0, 12) | st.integers(0, 2000), unique=True)


@given(st.lists(_NUMBERS, max_size=20), st.lists(_NUMBERS, unique=True, max_size=9))
def test_which_are_among_others(values: list[int], others: list[int]) -> None:
    found = contained(np.asarray(values, np.int64), np.asarray(sorted(others), np.int64))
    assert found.tolist() == [v in others for v in values]


@given(_SEQS, _SEQS)
def test_rows_of_some_events(own: list[int], wanted: list[int]) -> None:
    table = pa.table({"seq": pa.array(sorted(own), pa.int64())})
    found = picked(table, np.asarray(sorted(wanted), np.int64))
    assert found["seq"].to_pylist() == sorted({*own} & {*wanted})


def test_merged_is_what_numpy_says() -> None:
    """Ascending, once each; of nothing, nothing."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        parts = [rng.integers(-9, 9, rng.integers(0, 9)) for _ in range(rng.integers(0, 4))]
        assert merged(parts).tolist() == np.unique(np.concatenate([np.zeros(0, np.int64), *parts])).tolist()


def test_what_is_one_part_is_not_sorted_anew() -> None:
    """One part that ascends, also if it is there several times; others are."""
    part, nothing = np.asarray([2, 5, 9], np.int64), np.zeros(0, np.int64)
    assert merged([nothing, part]) is part
    assert merged([part, part.copy(), nothing]) is part
    assert merged([np.asarray([5, 5, 2], np.int64)]).tolist() == [2, 5]
    assert merged([part, np.asarray([2, 4, 9], np.int64)]).tolist() == [2, 4, 5, 9]


def test_work_on_many_tables_is_shared_out_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "_SHARED", 50)
    monkeypatch.setattr(pieces, "cores", lambda: 3)
    tables = [pa.table({"n": [n] * (n % 4)}) for n in range(70)]
    assert pieces.of_tables(lambda t: t.column("n").to_pylist(), tables) == [[n] * (n % 4) for n in range(70)]


def test_chunks_of_few_events_are_put_together_where_they_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts that stand for themselves in one chunk and for a place in a list in the next are not; no chunk gets too large."""
    monkeypatch.setattr(pieces, "_MOST", 6)
    coded = [False, False, True, True, True, False, True]
    chunks, rows = [], []
    for at, code in enumerate(coded):
        texts = pa.array([f"{at}", "x"], pa.large_string())
        own = pa.table({"seq": [10 * at, 10 * at + 1], "text": texts.dictionary_encode() if code else texts})
        other = {"Other": pa.table({"seq": [10 * at + 2]})} if at % 2 else {}
        chunks.append(Chunk(10 * at, 10 * at + 10, {"Own": own, **other}))
        rows += [(10 * at, f"{at}"), (10 * at + 1, "x")]
    found = list(pieces.gathered(chunks))
    assert [(c.seq_lo, c.seq_hi) for c in found] == [(0, 20), (20, 40), (40, 50), (50, 60), (60, 70)]
    assert [tuple(r.values()) for c in found for r in c.tables["Own"].to_pylist()] == rows
    others = [n for c in found if "Other" in c.tables for n in c.tables["Other"]["seq"].to_pylist()]
    assert others == [12, 32, 52]
    assert all(c.tables["Own"].column("text").num_chunks == 1 for c in found)


class Pair(tl.Event):
    a: int
    b: int


class Written(tl.Event):
    a: int
    s: str


@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from("abc")), max_size=60),
    st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 2, 7, 9, 30]) | st.integers(0, 40), st.sampled_from("aabz")), min_size=1, max_size=40),
)  # fmt: skip
def test_events_that_hold_a_key_whatever_keys_have_in_common(
    rows: list[tuple[int, str]], keys: list[tuple[int, str]]
) -> None:
    """Of many keys those values are looked for first that stand in most of them."""
    events = [Written(a=a, s=s)._at(n, n) for n, (a, s) in enumerate(rows)]
    columns = Columns(MemoryLog(events, [Written]), 0, len(rows), {"Written": {"a", "s"}})
    pattern = Pattern("Written", tuple(Origins(frozenset([name]), ()) for name in ("a", "s")))
    found = columns.holding(pattern, keys, 0, len(rows), 1000)
    assert found is not None
    assert found.tolist() == [n for n, row in enumerate(rows) if row in keys]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=40),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=20, unique=True),
)
def test_events_that_hold_a_key_whose_parts_may_stand_in_either_field(
    rows: list[tuple[int, int]], keys: list[tuple[int, int]]
) -> None:
    """Few keys are looked for one by one, more of them together."""
    events = [Pair(a=a, b=b)._at(n, n) for n, (a, b) in enumerate(rows)]
    columns = Columns(MemoryLog(events, [Pair]), 0, len(rows), {"Pair": {"a", "b"}})
    either = Origins(frozenset(["a", "b"]), ())
    found = columns.holding(Pattern("Pair", (either, either)), keys, 0, len(rows), 1000)
    assert found is not None
    assert found.tolist() == [n for n, row in enumerate(rows) if any({*key} <= {*row} for key in keys)]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=60),
    st.lists(
        st.tuples(st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1), st.booleans(), st.integers(0, 3)),
        min_size=2, max_size=5,
    ),
)  # fmt: skip
def test_what_was_found_of_other_keys_is_not_looked_for_again(
    rows: list[tuple[int, int]], asked: list[tuple[set[tuple[int, int]], bool, int]]
) -> None:
    """One question after another: keys in either order, of a shorter stretch, of which some are known. Each names all events that hold one of its
    keys, and no others but those of the few keys that an earlier question had more."""
    events = [Pair(a=a, b=b)._at(n, n) for n, (a, b) in enumerate(rows)]
    columns = Columns(MemoryLog(events, [Pair]), 0, len(rows), {"Pair": {"a", "b"}})
    sides = [Origins(frozenset([name]), ()) for name in ("a", "b")]
    for keys, turned, less in asked:
        hi = max(0, len(rows) - less)
        pattern = Pattern("Pair", tuple(sides[::-1] if turned else sides))
        given = [key[::-1] if turned else key for key in keys]
        found = columns.told(pattern, given, ["int", "int"], 0, hi, 1000)
        assert found is not None
        told = set(found.tolist())
        exact = {n for n, row in enumerate(rows[:hi]) if row in keys}
        assert exact <= told
        assert told <= set(range(hi))
        assert len({rows[n] for n in told} - keys) <= len(keys) / 5


def test_keys_of_which_nothing_is_missing_cost_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [Pair(a=n % 10, b=n % 7)._at(n, n) for n in range(100)]
    columns = Columns(MemoryLog(events, [Pair]), 0, 100, {"Pair": {"a", "b"}})
    pattern = Pattern("Pair", (Origins(frozenset(["a"]), ()),))
    first = columns.told(pattern, [(n,) for n in range(8)], ["int"], 0, 100, 100)
    searched: list[list[Any]] = []
    holding = Columns.holding

    def counted(self: Columns, pattern: Pattern, keys: Any, *rest: int) -> Any:
        searched.append(list(keys))
        return holding(self, pattern, keys, *rest)

    monkeypatch.setattr(Columns, "holding", counted)
    again = columns.told(pattern, [(n,) for n in range(8)], ["int"], 0, 100, 100)
    assert first is not None
    assert again is not None
    assert again.tolist() == first.tolist()
    assert not searched
    more = columns.told(pattern, [(n,) for n in range(9)], ["int"], 0, 100, 100)
    assert more is not None
    assert more.tolist() == [n for n in range(100) if n % 10 < 9]
    assert searched == [[(8,)]]
    assert columns.told(pattern, [(n,) for n in range(9)], ["int"], 0, 100, 50) is None, "more than asked for"
    count = len(searched)
    for _ in range(2):
        assert columns.told(pattern, [(9,)], ["int"], 0, 100, 9) is None
        assert columns.told(pattern, [(9,)], ["int"], 0, 50, 4) is None
    assert len(searched) == count + 2, "of which there are too many is known"
    assert columns.told(pattern, [(9,)], ["int"], 60, 100, 9) is not None, (
        "in a shorter stretch there may be fewer"
    )
    assert columns.told(pattern, [(9,)], ["int"], 0, 100, 10) is not None, "in all there are ten"
    assert columns.told(pattern, [(True,)], ["bool"], 0, 100, 100) is not None
    assert searched[-1] == [(True,)], "a key of another type is another key"
