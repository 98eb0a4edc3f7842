"""What nearly every compiled pass calls, and what is called before and after it: functions that do not depend on the program.

They are compiled once for all programs of a machine (`machine/store.py`), by whoever needs one first. That takes longer
than most passes do. So a second process may compile them at the same time (`parallel.py`), and begins with those that are
needed last; of two processes that want the same function one waits.
"""

from __future__ import annotations

import hashlib
from typing import Any

from timelapse.kernels.native.machine import store
from timelapse.kernels.native.machine.version import compiler_version


def are_compiled() -> bool:
    """Whether some process has compiled them all. (One that was evicted since is compiled when it is needed.)"""
    return store.has(_name())


def compile_usual() -> None:
    """Compile what is not on disk yet. What ends a slice comes first: whoever compiles a pass needs that last."""
    import numba as nb

    from timelapse.kernels.native.memory import changes, fetch, ordering, primitives, touch

    word, unsigned, flag = nb.int64, nb.uint64, nb.boolean
    ints, words, table, hashes = nb.int64[::1], nb.uint64[::1], nb.int64[:, ::1], nb.uint64[:, ::1]
    image = nb.types.UniTuple(table, 3)
    fixed = nb.types.Array(nb.int64, 2, "C", readonly=True)
    found, sums = nb.types.Tuple((words, ints)), nb.uint64[:, :, ::1]
    wanted: list[tuple[Any, tuple[Any, ...]]] = [
        (changes.look, (image, word, word, flag, table, words, ints, word, word, unsigned, found, ints,
                        table, sums, hashes)),
        (ordering.take_out, (table, ints, word, word, word, word, word, hashes, ints, table)),
        (changes.put_in, (image, word, table, words, ints, unsigned, ints, word, word, table)),
        (touch.take, (ints, table, table, unsigned, word)),
        (changes.only, (table, word, ints, table)),
        (primitives.renew, (table, table, word, word, word, flag)),
        (primitives.rehash, (table, table, table, table, unsigned, word, word, word)),
        (primitives.load, (table, unsigned, word, table, fixed, word, word)),
        (primitives.put, (table, unsigned, word, word, flag, word)),
        (primitives.mark, (table, unsigned, flag, word)),
    ]  # fmt: skip
    for keys, find, claim, ask in (
        (1, primitives.find1, primitives.claim1, fetch.fetch1),
        (2, primitives.find2, primitives.claim2, fetch.fetch2),
    ):
        key = (word,) * keys
        wanted += [
            (find, (table, unsigned, *key)),
            (claim, (table, unsigned, ints, word, *key)),
            (ask, (table, unsigned, *key)),
        ]
    for function, given in wanted:
        function.compile(given)
    from timelapse.kernels.native.memory import (
        loops,
        pool,
    )  # compiled when imported: signatures stand with them

    assert loops
    assert pool
    store.write(_name(), b"")


def _name() -> str:
    return hashlib.sha256(f"{compiler_version()} {__name__}".encode()).hexdigest()[:32]
