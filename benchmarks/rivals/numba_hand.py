"""Numba by hand: the opponent to beat. One thread, tables of the right size from the start, nothing else done.

A block of half a million rows is decoded, then processed, so that it is still in the cache; `pipelined` decodes the next
block on another core meanwhile. Keys are hashed with MurmurHash3's finaliser and probed linearly; key and counters
of a user (an address) share a cache line. No checks: overflow, errors, other programs are nobody's concern here.

`layout="prototype"` is the same loop as the prototype of the design had it: everything read first, separate arrays.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import numba as nb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Columns = tuple[Any, ...]


@nb.njit(cache=True, inline="always")  # type: ignore[untyped-decorator]
def _hash(key: Any) -> Any:
    x = np.uint64(key)
    x ^= x >> np.uint64(33)
    x *= np.uint64(0xFF51AFD7ED558CCD)
    x ^= x >> np.uint64(33)
    return x


@nb.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _rows_of(table: Any, key: Any) -> Any:
    """The row of `key` in a table of (key, counter, counter, unused); -1 marks a free row."""
    mask = np.uint64(len(table) - 1)
    i = np.int64(_hash(key) & mask)
    while table[i, 0] != -1 and table[i, 0] != key:
        i = (i + 1) & np.int64(mask)
    return i


@nb.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _slot(keys: Any, key: Any) -> Any:
    mask = np.uint64(len(keys) - 1)
    i = np.int64(_hash(key) & mask)
    while keys[i] != -1 and keys[i] != key:
        i = (i + 1) & np.int64(mask)
    return i


@nb.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _block(
    kind: Any,
    a: Any,
    b: Any,
    ids: Any,
    ip: Any,
    email: Any,
    friends: Any,
    users: Any,
    places: Any,
    found: Any,
    ratio: float,
) -> int:
    """Process a block. Returns how many messages were flagged; their ids are in `found`."""
    count = 0
    for j in range(len(kind)):
        x, y = a[j], b[j]
        key = (x << 32) | y if x < y else (y << 32) | x
        s = _slot(friends, key)
        if kind[j] == 0:
            friends[s] = key
            continue
        u = _rows_of(users, x)
        users[u, 0] = x
        if friends[s] == key:
            users[u, 1] += 1
        else:
            users[u, 2] += 1
        i = _rows_of(places, ip[j])
        places[i, 0] = ip[j]
        places[i, 1] += 1
        if email[j]:
            places[i, 2] += 1
        if users[u, 2] > ratio * users[u, 1] and places[i, 2] > 0.2 * places[i, 1]:
            found[count] = ids[j]
            count += 1
    return count


@nb.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _prototype(
    kind: Any,
    a: Any,
    b: Any,
    ids: Any,
    ip: Any,
    email: Any,
    friends: Any,
    users: Any,
    places: Any,
    found: Any,
    ratio: float,
) -> int:
    """The prototype's loop: a table is one array of keys and one for each counter."""
    names, with_friends, with_others = users
    addresses, sent, mailed = places
    count = 0
    for j in range(len(kind)):
        x, y = a[j], b[j]
        key = (x << 32) | y if x < y else (y << 32) | x
        s = _slot(friends, key)
        if kind[j] == 0:
            friends[s] = key
            continue
        u = _slot(names, x)
        names[u] = x
        if friends[s] == key:
            with_friends[u] += 1
        else:
            with_others[u] += 1
        i = _slot(addresses, ip[j])
        addresses[i] = ip[j]
        sent[i] += 1
        if email[j]:
            mailed[i] += 1
        if with_others[u] > ratio * with_friends[u] and mailed[i] > 0.2 * sent[i]:
            found[count] = ids[j]
            count += 1
    return count


@nb.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _has_at(data: Any, offsets: Any) -> Any:
    """For each text whether it contains "@"; UTF-8 has that byte only there."""
    found = np.zeros(len(offsets) - 1, np.bool_)
    for j in range(len(found)):
        for k in range(offsets[j], offsets[j + 1]):
            if data[k] == 64:
                found[j] = True
                break
    return found


def _power(keys: int) -> int:
    """Room for so many keys, at most half full."""
    return 1 << max(10, (2 * keys - 1).bit_length())


class Codes:
    """Numbers for addresses that are strings: each Parquet dictionary is looked up once, rows are only indices."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def of(self, column: pa.ChunkedArray) -> Any:
        parts = []
        for chunk in column.chunks:
            names = chunk.dictionary.to_pylist()
            known = np.fromiter(
                (self._known.setdefault(v, len(self._known)) for v in names), np.int64, len(names)
            )
            parts.append(known[chunk.indices.to_numpy()])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _texts(column: pa.ChunkedArray) -> Any:
    parts = []
    for chunk in column.chunks:
        _, offsets, data = chunk.buffers()
        ends = np.frombuffer(offsets, np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
        parts.append(_has_at(np.frombuffer(data, np.uint8), ends))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _groups(place: Path, text: bool) -> Iterator[pa.Table]:
    names = ["kind", "a", "b", "id", "ip", "text" if text else "has_email"]
    for path in sorted((place / "flat").glob("part-*.parquet")):
        with pq.ParquetFile(path, memory_map=True, read_dictionary=["ip"] if text else None) as file:
            for group in range(file.num_row_groups):
                yield file.read_row_group(group, columns=names, use_threads=False)


def _columns(table: pa.Table, codes: Codes, text: bool) -> Columns:
    """kind, a, b, id, ip, has_email."""
    numbers = [table[name].to_numpy() for name in ("kind", "a", "b", "id")]
    if text:
        return (*numbers, codes.of(table["ip"]), _texts(table["text"]))
    return (*numbers, table["ip"].to_numpy(), table["has_email"].to_numpy())


def blocks(place: Path, text: bool) -> Iterator[Columns]:
    """The events, one row group after the other."""
    codes = Codes()
    for table in _groups(place, text):
        yield _columns(table, codes, text)


def _whole(place: Path, text: bool) -> Iterator[Columns]:
    """All events at once."""
    yield _columns(pa.concat_tables(_groups(place, text)), Codes(), text)


def _ahead(made: Iterator[Columns]) -> Iterator[Columns]:
    """The same, made in another thread, at most two blocks ahead."""
    queue: Queue[Columns | BaseException | None] = Queue(2)

    def work() -> None:
        try:
            for one in made:
                queue.put(one)
            queue.put(None)
        except BaseException as error:
            queue.put(error)

    threading.Thread(target=work, daemon=True).start()
    while (one := queue.get()) is not None:
        if isinstance(one, BaseException):
            raise one
        yield one


def candidate(
    place: Path,
    *,
    text: bool,
    users: int,
    addresses: int,
    events: int,
    pipelined: bool = False,
    layout: str = "rows",
    **_: Any,
) -> Callable[[float], Any]:
    """What runs the program over the data set at `place` and returns the flagged messages' ids."""
    separate = layout == "prototype"
    process = _prototype if separate else _block

    def table(keys: int) -> Any:
        size = _power(keys)
        if separate:
            return (np.full(size, -1, np.int64), np.zeros(size, np.int64), np.zeros(size, np.int64))
        made = np.zeros((size, 4), np.int64)
        made[:, 0] = -1
        return made

    def run(ratio: float = 2.0) -> Any:
        friends = np.full(_power(events // 5), -1, np.int64)
        tables = table(users), table(addresses)
        made = _whole(place, text) if separate else blocks(place, text)
        results = []
        for columns in _ahead(made) if pipelined else made:
            found = np.empty(len(columns[0]), np.int64)
            results.append(found[: process(*columns, friends, *tables, found, ratio)])
        return np.concatenate(results) if results else np.zeros(0, np.int64)

    return run
