"""Memory that is used again: only by one array at a time, cleared where that is asked for, and within a bound."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from typing import Any

import pytest

import timelapse as tl
from timelapse.kernels.native.memory import blocks

WORDS = blocks.LARGE // 8


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    blocks.release()
    yield
    blocks.release()


@pytest.mark.parametrize("threads", [1, 2])
def test_zeros_are_zeros_whatever_was_there(threads: int) -> None:
    first = blocks.zeros(WORDS, threads)
    place = first.ctypes.data
    assert place % 64 == 0
    first[:] = 7
    del first
    assert blocks.kept_bytes() >= blocks.LARGE
    again = blocks.zeros(WORDS, threads)
    assert again.ctypes.data == place
    assert not again.any()
    assert blocks.kept_bytes() == 0


def test_what_any_array_still_shows_is_not_used_again() -> None:
    whole = blocks.empty(2 * WORDS)
    whole[:] = 5
    part = whole.reshape(-1, 4)[100:200]
    del whole
    assert blocks.kept_bytes() == 0
    other = blocks.empty(2 * WORDS)
    other[:] = 6
    assert (part == 5).all()
    del part, other
    assert blocks.kept_bytes() > 0


def test_blocks_are_used_for_arrays_of_about_their_size() -> None:
    del (made := [blocks.empty(4 * WORDS)])[:]
    assert not made
    kept = blocks.kept_bytes()
    small = blocks.empty(WORDS)
    assert blocks.kept_bytes() == kept
    larger = blocks.empty(8 * WORDS)
    assert blocks.kept_bytes() == kept
    fits = blocks.empty(3 * WORDS)
    assert blocks.kept_bytes() == 0
    assert len({a.ctypes.data for a in (small, larger, fits)}) == 3


def test_a_table_of_half_the_size_leaves_a_block_to_the_next_that_doubles() -> None:
    """Each pass had new memory for its last doubling, as tables of half the size had what was kept."""
    whole = blocks.empty(4 * WORDS)
    place = whole.ctypes.data
    del whole
    half, whole = blocks.empty(2 * WORDS), blocks.empty(4 * WORDS)
    assert whole.ctypes.data == place != half.ctypes.data


def test_no_more_is_kept_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_MOST", 3 * blocks.LARGE)
    for _ in range(2):
        some = [blocks.empty(WORDS + n) for n in range(5)]
        del some
        assert blocks.kept_bytes() <= 3 * blocks.LARGE
    monkeypatch.setattr(blocks, "memory_bytes", lambda: 0)
    blocks.keep(blocks.empty(8))
    assert blocks.kept_bytes() == 0


def test_the_collector_may_give_back_at_any_time() -> None:
    """Also while the same thread is asking for memory."""
    one = blocks.empty(WORDS)
    with blocks._LOCK:
        del one
    assert blocks.kept_bytes() == 0


def test_an_array_beyond_a_size_lies_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is as any other; where the disk has no room it is in memory."""
    for made in (blocks.zeros(WORDS, most=blocks.LARGE - 8), blocks.found(WORDS, 0), blocks.empty(3, 0)):
        assert made.ctypes.data % 64 == 0
        assert not made.any()
        made[:] = 7
        assert (made[::2] == 7).all()
        assert _is_mapped(made)
        del made
    assert blocks.kept_bytes() == 0
    assert not _is_mapped(blocks.zeros(WORDS, most=blocks.LARGE))

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert not _is_mapped(blocks.zeros(WORDS, most=0))


def _is_mapped(array: Any) -> bool:
    while array is not None and not isinstance(array, mmap.mmap):
        array = getattr(array, "base", None)
    return array is not None


class Seen(tl.Event):
    user: int


class Counting(tl.Program):
    seen: tl.Counter[int]

    @tl.on(Seen)
    def count(self, e: Seen) -> None:
        self.seen[e.user] += 1


def test_a_replay_leaves_its_memory_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    monkeypatch.setattr(blocks, "LARGE", 1 << 12)
    events = [Seen(user=n * 7919 % 3001, ts=n) for n in range(6_000)]
    expected = tl.run_serial(Counting, events)
    for _ in range(3):
        run = tl.replay(Counting, events, spark=False, cache=False)
        assert (run.digest, run.state_digest) == (expected.digest, expected.state_digest)
        assert blocks.kept_bytes() > 1 << 12
