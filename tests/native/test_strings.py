"""Strings and bytes as codes: equal exactly when the values are, and back without loss."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.depth import deep
from tests.patience import LONG
from timelapse.kernels.native.memory import pool, strings
from timelapse.kernels.native.memory.strings import Interned

TEXT = st.lists(st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(["", "\0", "a\0"]))
RAW = st.lists(st.binary(max_size=20))
TEXTS, RAWS = [pa.string(), pa.large_string()], [pa.binary(), pa.large_binary()]


@settings(max_examples=deep(60), deadline=None)
@given(first=TEXT, columns=st.lists(st.tuples(TEXT, RAW, st.integers(0, 3)), max_size=4))
@example(["x", b"x"], [(["a" * 7, "a" * 8, "a" * 9, "a" * 16], [b"a" * 8, b"a" * 15], 0)])
def test_codes_are_equal_when_values_are(
    first: list[str | bytes], columns: list[tuple[list[str], list[bytes], int]]
) -> None:
    """Over columns of all text types, cut anywhere; constants keep their numbers, text is not bytes."""
    interned = Interned(first)
    known: dict[str | bytes, int] = {v: n for n, v in enumerate(dict.fromkeys(first))}
    assert [interned.code(v) for v in known] == list(known.values())
    for texts, raws, cut in columns:
        for values, kinds in ((texts, TEXTS), (raws, RAWS)):
            for kind in kinds:
                array = pa.array(values, kind).slice(cut)
                words = interned.words(array)
                assert words.dtype == np.int64
                for value, word in zip(array.to_pylist(), words.tolist(), strict=True):
                    assert known.setdefault(value, word) == word
                    assert interned.value(word) == value
                assert interned.arrow(words, kind).equals(array)
                assert interned.arrow(words[::2], kind).to_pylist() == array.to_pylist()[::2]
                assert np.array_equal(interned.words(array.dictionary_encode()), words)
    assert len(set(known.values())) == len(known) == len(interned)


def test_many_strings_and_long_ones() -> None:
    """The pool grows in every direction, also in the middle of a column."""
    interned = Interned(["", b""])
    values = [f"{n:x}" * (n % 40) for n in range(20_000)] + ["y" * 300_000, "y" * 299_999 + "z"]
    array = pa.array(values, pa.large_string())
    for _ in range(2):
        words = interned.words(array)
        assert len(set(words.tolist())) == len(set(values)) == len(interned) - (1 if "" in values else 2)
        assert interned.arrow(words, array.type).equals(array)
    assert interned.code("y" * 300_000) == words[-2]
    assert interned.code(b"y" * 300_000) == len(interned) - 1


def test_nulls_do_not_matter_and_are_no_strings() -> None:
    """What stands for a null is some code; valid values have theirs."""
    interned = Interned([""])
    for kind in (*TEXTS, *RAWS):
        x = "x" if kind in TEXTS else b"x"
        array = pa.array([None, x, None, x], kind)
        for column in (array, array.dictionary_encode()):
            words = interned.words(column)
            assert interned.value(int(words[1])) == x
            assert words[1] == words[3]
    assert len(interned.words(pa.array([], pa.string()).dictionary_encode())) == 0
    assert interned.words(pa.array([None], pa.string()).dictionary_encode()).tolist() == [0]


def test_strings_that_utf8_cannot_hold() -> None:
    """They have codes, and cannot become a column, as without codes."""
    interned = Interned()
    code = interned.code("\ud800")
    assert interned.value(code) == "\ud800"
    assert interned.code("a") != code
    assert interned.arrow(np.array([1]), pa.string()).to_pylist() == ["a"]
    with pytest.raises(UnicodeEncodeError):
        interned.arrow(np.array([code]), pa.string())


def test_two_threads_see_the_same_codes() -> None:
    """One looks columns up while the other asks for single values."""
    interned = Interned()
    columns = [pa.array([f"k{(n * 7 + c) % 5000}" for n in range(20_000)]) for c in range(8)]
    found: list[np.ndarray] = []
    worker = threading.Thread(target=lambda: found.extend(interned.words(c) for c in columns))
    worker.start()
    single = {}
    for n in range(5000):
        single[f"k{n}"] = interned.code(f"k{n}")
        assert interned.value(single[f"k{n}"]) == f"k{n}"
    worker.join()
    for column, words in zip(columns, found, strict=True):
        assert [single[v] for v in column.to_pylist()] == words.tolist()
    assert len(interned) == 5000


def test_who_asks_beside_a_column_waits_for_a_piece_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who read one key of a live run waited until all texts of an epoch had their codes, and for where codes are spelt too."""
    interned, real = Interned(["known"]), pool.intern
    found: list[tuple[int, int]] = []
    pieces, asking = 0, threading.Thread(target=lambda: found.append((interned.code("known"), pieces)))

    def intern(*given: Any) -> Any:
        nonlocal pieces
        pieces += 1
        if pieces == 1:
            starts, _ = looked(lambda: interned.buffers)
            assert starts is interned.buffers[0]
            asking.start()
            end = time.monotonic() + LONG
            while not interned._lock._next.locked():
                assert time.monotonic() < end, "it does not wait for its turn"
                time.sleep(0.001)
        return real(*given)

    monkeypatch.setattr(strings, "PIECE", 10)
    monkeypatch.setattr(strings, "intern", intern)
    words = interned.words(pa.array([f"text {n}" for n in range(1000)]))
    asking.join(LONG)
    assert len(set(words.tolist())) == 1000
    assert pieces > 100
    ((code, when),) = found
    assert code == 0
    assert when <= 3


def looked(look: Callable[[], Any]) -> Any:
    """What a thread finds that does not have to wait."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(look()))
    thread.start()
    thread.join(LONG)
    assert found, "it waits"
    return found[0]
