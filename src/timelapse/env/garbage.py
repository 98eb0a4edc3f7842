"""Python's search for garbage in cycles, less often while a replay runs.

Where handlers run as Python, rows and keys are tuples by the million, which the search goes through again and again: a
third of the time. They are in no cycles. What handlers make may be, so the search is not switched off.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

_RARELY, _SELDOM = (100_000, 500, 20), (2_000_000, 500, 20)
_LOCK = threading.Lock()
_inside = _inside_seldom = 0
_passing = 0
_passed = False
_modules = 0
_MANY_MODULES = 50
_little = False
_reusing = 0
_pool_before: pa.MemoryPool | None = None
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Parameters of mallopt, by the numbers that malloc.h has for them."""
_MOST_REUSED = (32 << 20) - (64 << 10)
"""glibc gives freed memory of a size back to the system until it has seen so much freed at once; of more than 32 MiB it always does."""
_before = gc.get_threshold()


def give_back(*, cycles: bool = False) -> None:
    """Give memory that nobody uses back to the system. Allocators keep it, each thread its own, for what is asked for next.

    `cycles`: garbage in cycles too. A kernel that runs handlers as Python is in one, with its states: within `collected_rarely` it
    would stay, and the next one's states with it.
    """
    if cycles:
        gc.collect()
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(AttributeError, OSError):  # another C library has no such call
        ctypes.CDLL(None).malloc_trim(0)


def keep_little() -> None:
    """Have allocators give memory back as it is freed: where a budget is set, what they keep counts.

    One heap for all threads, and pages of their own from 128 KiB on (both of glibc: man 3 mallopt); Arrow allocates there too. Each
    thread's heap otherwise keeps what its largest moment took. Costs a fifth of the processor time of a state that grows with each event.
    """
    global _little
    with _LOCK:
        if _little:
            return
        _little = True
    try:
        option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library has no such call
        return
    for name, value in ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, 128 << 10), (_TRIM_THRESHOLD, 128 << 10)):
        option(name, value)
    pa.set_memory_pool(pa.system_memory_pool())


@contextmanager
def memory_reused() -> Iterator[None]:
    """Within this block Arrow allocates from the C library, in all threads: what is freed is taken again. Arrow's own allocator gives it
    back to the system, which clears pages that come anew: an eighth of the time of an ingest of short-lived blocks. Its pages also are
    large, and cleared whole for little: a fifth of the processor time of a question about a run that reads columns of millions of events.
    """
    global _reusing, _pool_before
    with _LOCK:
        if not _reusing:
            _pool_before = pa.default_memory_pool()
            pa.set_memory_pool(pa.system_memory_pool())
            pa.allocate_buffer(_MOST_REUSED)  # and free it: see below
        _reusing += 1
    try:
        yield
    finally:
        with _LOCK:
            _reusing -= 1
            if not _reusing and not _little:
                pa.set_memory_pool(_pool_before)


@contextmanager
def collected_rarely(*, seldom: bool = False) -> Iterator[None]:
    """Within this block, in all threads. Where the user has switched it off, or made it rarer still, that stays.

    `seldom`: more rarely still, where much is kept for a while and freed without the search.
    """
    global _inside, _inside_seldom, _before
    with _LOCK:
        if not _inside:
            _before = gc.get_threshold()
        _inside, _inside_seldom = _inside + 1, _inside_seldom + seldom
        _set_threshold()
    try:
        yield
    finally:
        with _LOCK:
            _inside, _inside_seldom = _inside - 1, _inside_seldom - seldom
            _set_threshold()


def leave_out_modules() -> None:
    """Have searches pass over what is there now, where many modules were loaded since the last time; what is garbage already is
    collected first.

    Spark has each worker search after every task, before it takes the next: 0.07 s of processor time with the compiler's library in memory.
    Modules stay for good. What else is there now is freed as usual, if it is in no cycle.
    """
    global _modules
    if len(sys.modules) < _modules + _MANY_MODULES:
        return
    _modules = len(sys.modules)
    gc.collect()
    gc.freeze()


@contextmanager
def passed_over() -> Iterator[None]:
    """Within this block searches, in all threads, pass over what was there when it began. A search through all holds up every thread: 0.1 s with the compiler's
    library in memory.

    What is garbage already is collected first. What is in a cycle, and is garbage from then on, is freed after the last such block. Where the user has switched
    searches off, or has them pass over something (gc.freeze), that stays.
    """
    global _passing, _passed
    first = not _passing and gc.isenabled() and not gc.get_freeze_count()
    if first:
        gc.collect()
    with _LOCK:
        if first and not _passed:
            gc.freeze()
            _passed = True
        _passing += 1
    try:
        yield
    finally:
        with _LOCK:
            _passing -= 1
            if _passing == 0 and _passed:
                gc.unfreeze()
                _passed = False


def _set_threshold() -> None:
    wanted = _SELDOM if _inside_seldom else _RARELY
    if _inside and 0 < _before[0] < wanted[0]:
        gc.set_threshold(*wanted)
    else:
        gc.set_threshold(*_before)
