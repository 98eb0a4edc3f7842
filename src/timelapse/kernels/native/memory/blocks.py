"""Large arrays whose memory is used again.

Memory is slow when it is touched for the first time: the system finds pages and clears them, in 15 to 390 ms for 128 MB, and ten million
events take half a gigabyte. So the memory of arrays that are gone is kept for the next ones of this process, up to a bound.

An array of more bytes than `most` lies in a file of its own, which is mapped: the system takes its memory back when it needs to. Where the disk has
no room for it, it is in memory.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from timelapse.env.machine import memory_bytes, memory_setting
from timelapse.errors import TimelapseError
from timelapse.store.scratch import scratch_root
from timelapse.tables.sharing import at_once

Ints = npt.NDArray[np.int64]
LARGE = 16 << 20
"""Bytes from which on memory is kept, and threads are worth starting to touch it."""
_MOST = 512 << 20
"""Bytes kept at most,"""
_SHARE = 32
"""and this part of the machine's memory; where TIMELAPSE_MEMORY is set, an eighth of that."""
_FIT = 1.5
"""A block is used for an array if it is at most so many times as large. Tables double: one that took a block of twice its size would
take what the next table needs, and that would be of new memory with each pass."""
_LINE = 8
"""Words in a cache line."""
_PAGE = 512
"""Words that the system gives at a time, at least."""

_LOCK = threading.Lock()
_KEPT: list[Ints] = []
"""Those used last at the end."""


class _Lent:
    """A block in use. Arrays made of it keep it; when the last one is gone its memory is kept for the next."""

    def __init__(self, block: Ints) -> None:
        self._block = block
        self.__array_interface__ = block.__array_interface__

    def __del__(self) -> None:
        keep(self._block)


def empty(words: int, most: int | None = None) -> Ints:
    """An array of so many words, with any values. It begins at a line of the processor's caches."""
    return _array(words, most)[0]


def zeros(words: int, threads: int = 1, most: int | None = None) -> Ints:
    """The same with zeros. Several threads share out touching the memory."""
    made, fresh = _array(words, most, zeros=True)
    if made.nbytes >= LARGE and (threads > 1 or not fresh):
        parts = np.array_split(made[::_PAGE] if fresh else made, max(1, threads))
        at_once([(0, partial(part.fill, 0)) for part in parts], threads)
    elif not fresh:
        made.fill(0)
    return made


def found(words: int, most: int | None = None, *, zeros: bool = False) -> Ints:
    """An array of so many words, with any values or zeros, whose memory the system has found already: for a thread that makes it before it is needed,
    and that nobody waits for."""
    made, fresh = _array(words, most, zeros=zeros)
    if fresh or zeros:
        (made[::_PAGE] if fresh else made).fill(0)
    return made


def _array(words: int, most: int | None, *, zeros: bool = False) -> tuple[Ints, bool]:
    """The array, and whether it is of memory that nobody has used."""
    if most is not None and 8 * words > most:
        filed = _filed(words)
        if filed is not None:
            return filed, True
    room = words + _LINE
    kept = _taken(room) if 8 * room >= LARGE else None
    block = kept
    if block is None:
        block = np.zeros(room, np.int64) if zeros else np.empty(room, np.int64)
    memory: Any = block
    if 8 * room >= LARGE:
        memory = np.asarray(_Lent(block))
    first = -(memory.ctypes.data // 8) % _LINE
    return memory[first : first + words], kept is None


def _filed(words: int) -> Ints | None:
    """Zeros in a file that is gone with the array; None where there is no room for it."""
    try:
        with tempfile.TemporaryFile(dir=scratch_root(large=True)) as file:
            # Room is taken now: writing to a mapped page for which there is none would end the process.
            os.posix_fallocate(file.fileno(), 0, 8 * words)
            return np.asarray(np.memmap(file, np.int64, "w+", shape=(words,)))
    except (OSError, AttributeError):  # not every system has posix_fallocate
        return None


def _taken(room: int) -> Ints | None:
    """The smallest kept block that is large enough, and not much too large."""
    with _LOCK:
        fitting = [n for n, block in enumerate(_KEPT) if room <= len(block) <= _FIT * room]
        if not fitting:
            return None
        return _KEPT.pop(min(fitting, key=lambda n: len(_KEPT[n])))


def keep(block: Ints) -> None:
    """Keep a block that nobody uses any more, in place of those that were used longest ago."""
    most = min(_MOST, memory_bytes() // _SHARE)
    with contextlib.suppress(TimelapseError):  # it was checked before
        most = min(most, (memory_setting() or 8 * most) // 8)
    # The collector may call this while the lock is held, by the same thread even: then the system gets the block.
    if _LOCK.acquire(blocking=False):
        try:
            _KEPT.append(block)
            while sum(b.nbytes for b in _KEPT) > most:
                _KEPT.pop(0)
        finally:
            _LOCK.release()


def kept_bytes() -> int:
    """What is kept."""
    with _LOCK:
        return sum(block.nbytes for block in _KEPT)


def release() -> None:
    """Give all that is kept back to the system."""
    with _LOCK:
        _KEPT.clear()
