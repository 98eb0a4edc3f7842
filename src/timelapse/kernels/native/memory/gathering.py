"""What a slice did to states, as effect tables: in the order of the keys' hashes.

States that share a table are gathered together: what is known of a key is found once for all of them. Where events are
shared out by key each worker has a table, and a large table is looked through in parts. Threads share out

1. looking through the tables: which rows were written, the hashes of their keys, the sums of what changed (changes.py);
2. putting rows into the drawers of their hashes' upper bits, where each part has places of its own (ordering.py);
3. ordering the drawers, which have the rows of all workers, and writing them out as columns;
4. what is left for each state alone.

So no part is ordered for itself, and nothing has to be merged.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.kernels.base import PassResult
from timelapse.kernels.native.memory import blocks
from timelapse.kernels.native.memory.changes import UNKNOWN, hashed_as, look, only, put_in
from timelapse.kernels.native.memory.effectlog import LogImage
from timelapse.kernels.native.memory.hashtable import HashTable, Image
from timelapse.kernels.native.memory.ordering import columns_of, drawer_bits
from timelapse.kernels.native.memory.table import NativeTable
from timelapse.kernels.native.memory.words import to_arrow
from timelapse.kinds.effects import ADD, SET
from timelapse.tables.apply import Change, change_of
from timelapse.tables.rowhash import HashSum, seed_of
from timelapse.tables.sharing import at_once
from timelapse.tables.table import effect_table, key_names, key_types

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Effects = tuple[pa.Table, Change | None]
"""An effect table, and for an exact state the change."""

_PART = 1 << 16
"""A part of a table that is looked through has so many rows at least, free ones too."""
WORTH_THREADS = 100_000
"""Keys from which on threads are worth starting."""
_NONE: Mapping[Any, Any] = MappingProxyType({})


Images = Mapping[HashTable, Image]
"""Of tables with which the next slice has begun: what the one before left."""


LogImages = Mapping[tuple[str, str], LogImage | pa.Table]
"""What a slice has added to logs, by state and form; a table where that is known already."""


def collect(
    workers: Sequence[Mapping[str, NativeTable]], result: PassResult, threads: int, images: Images = _NONE, logs: LogImages = _NONE,
) -> None:  # fmt: skip
    """Add what a slice did to states to a pass's result."""
    for key, image in logs.items():
        result.rows[key] = image.told() if isinstance(image, LogImage) else image
    found = effects_of([list(tables.values()) for tables in workers], threads, images)
    for name, (effects, change) in zip(workers[0], found, strict=True):
        result.effects[name] = effects
        if change is not None:
            result.changes[name] = change


def collect_later(
    workers: Sequence[Mapping[str, NativeTable]],
    result: PassResult,
    logs: LogImages,
    most: int,
    *,
    again: bool,
) -> bool:
    """Begin the next slice in these tables, and leave it to `PassResult.settle` to find what the one before did. Whether that may be: what is
    found takes `most` bytes at most, and all tables keep what their rows held. `again`: who settles it finds memory for the next time, too."""
    tables = dict.fromkeys(table.hash for own in workers for table in own.values())
    size = sum(table.rows * table.gathered_bytes for table in tables)
    size += sum(image.nbytes for image in logs.values())
    if not (0 < size <= most and all(table.tracked for table in tables)):
        return False
    result.late = _Later(workers, {table: table.turn() for table in tables}, logs, again=again)
    return True


class _Later:
    """What a slice did, which is still to be found, by whichever thread asks first."""

    def __init__(
        self, workers: Sequence[Mapping[str, NativeTable]], images: Images, logs: LogImages, *, again: bool
    ) -> None:
        self._asked: tuple[Sequence[Mapping[str, NativeTable]], Images, LogImages] | None = (
            workers,
            images,
            logs,
        )
        self._again = again
        self._lock = threading.Lock()

    def __call__(self, result: PassResult, threads: int) -> None:
        with self._lock:
            if self._asked is not None:
                workers, images, logs = self._asked
                collect(workers, result, threads, images, logs)
                self._asked = None
                tables = list(images) if self._again else []
                del images, logs  # their memory is what the next ones take
                for table in tables:
                    table.make_ready()


def effects_of(
    workers: Sequence[Sequence[NativeTable]], threads: int = 1, images: Images = _NONE
) -> list[Effects]:
    """What a slice did to states: the tables of each worker, which have the same states, and no key in common."""
    if sum(table.rows for tables in workers for table in tables) <= WORTH_THREADS:
        threads = 1
    tables = workers[0]
    together: dict[tuple[int, ...], list[int]] = {}
    for number, table in enumerate(tables):
        kinds = map(hashed_as, key_types(table.spec))
        together.setdefault((id(table.hash), *kinds), []).append(number)
    groups = [
        _Group([[own[n] for n in numbers] for own in workers], threads, images)
        for numbers in together.values()
    ]
    parts = [part for group in groups for part in group.parts]
    at_once([(part.size, part.look) for part in parts], threads)
    for group in groups:
        group.make_room()
    at_once([(part.size, part.put_in) for part in parts], threads)
    for group in groups:
        group.order(threads)
    calls = [(group.rows, partial(group.effects, n)) for group in groups for n in range(len(group.states))]
    found = at_once(calls, threads)
    for group in groups:
        group.parts.clear()  # they know the group: all would wait for the collector, and their memory with them
    numbers = [n for numbers in together.values() for n in numbers]
    return [effects for _, effects in sorted(zip(numbers, found, strict=True), key=lambda pair: pair[0])]


class _Group:
    """States that share rows, those of all workers."""

    def __init__(
        self, workers: Sequence[Sequence[NativeTable]], threads: int, images: Images = _NONE
    ) -> None:
        self.states = workers[0]
        first = self.states[0]
        self.width, self.exact = first.layout.width, first.layout.form == "exact"
        self._interned = first.interned
        self.pool = first.interned.buffers
        self.kinds: Ints = np.array([hashed_as(kind) for kind in key_types(first.spec)], np.int64)
        layouts = [table.layout for table in self.states]
        values = [hashed_as(layout.stored) if self.exact else UNKNOWN for layout in layouts]
        seeds = [seed_of(f"state:{table.spec.name}") for table in self.states]
        self.seeds = np.array(seeds, np.uint64)
        self._summed = [value != UNKNOWN for value in values]
        self.words = self.width + max(o.at + o.live for o in layouts)
        tables = [images.get(table, table.image()) for table in (own[0].hash for own in workers)]
        self.skip = tables[0].skip
        self.described: Ints = np.array(
            [
                (o.place - self.skip, o.live, 1 + o.at, o.present, v)
                for o, v in zip(layouts, values, strict=True)
            ],
            np.int64,
        )
        self.bits = drawer_bits(sum(table.rows for table in tables))
        each = -(-threads // len(tables))
        self.parts = [
            _Part(self, table, lo, hi)
            for table in tables
            for lo, hi in _cuts(len(table.slots), min(each, max(1, len(table.slots) // _PART)))
        ]
        # Where sums are made by way of Arrow, that needs what there was before too.
        before = self.exact and not all(self._summed) and any(len(table.base) for table in tables)
        self._columns = 2 + self.words + (tables[0].base.shape[1] if before else 0)
        self._before = 2 + self.words if before else 0

    @property
    def rows(self) -> int:
        """How many keys there are of which a state was written."""
        return len(self.drawers)

    def make_room(self) -> None:
        """What every part found is known: give each its places in the drawers."""
        counts = np.array([part.ends[1:] for part in self.parts])
        whole = counts.sum(axis=0)
        self.ends: Ints = np.concatenate([np.zeros(1, np.int64), np.cumsum(whole)])
        places = self.ends[:-1] + np.cumsum(counts, axis=0) - counts
        self.drawers: Ints = blocks.empty(int(self.ends[-1]) * self._columns).reshape(-1, self._columns)
        for part, own in zip(self.parts, places, strict=True):
            part.places = np.ascontiguousarray(own)

    def order(self, threads: int) -> None:
        """Put the rows in order."""
        self.found = columns_of(self.drawers, self.ends, self.bits, threads)

    def effects(self, number: int) -> Effects:
        """What the slice did to one of the states."""
        table = self.states[number]
        layout, spec = table.layout, table.spec
        if (
            layout.form == "list" and not layout.live
        ):  # no handler writes to it, or the pass would not be compiled
            return effect_table(spec.kind.delta(spec, None)), None
        hashes, flags, keys, live, before = self._rows_of(number)
        present = flags[0] & layout.present != 0
        columns = [pa.array(hashes[0].view(np.uint64))]
        columns += [
            to_arrow(word.reshape(-1, 1), kind, self._interned) for word, kind in zip(keys, key_types(spec))
        ]
        names = ["h", *key_names(spec)]
        form = "const" if self.exact else layout.form
        if form == "func":
            size = layout.size
            op = live[size]
            names += ["a_present", "a_value", "p_op", "p_value"]
            columns += [
                pa.array(present),
                self._values(table, live[:size], ~present),
                pa.array(op.astype(np.int8)),
            ]
            columns.append(self._values(table, live[size + 1 :], (op != SET) & (op < ADD)))
        elif form == "count":
            names += ["reset", "n"]
            columns += [pa.array(present), pa.array(live[0])]
        elif form == "list":
            names += ["reset", "v"]
            columns += [pa.array(present), self._values(table, live, np.zeros(len(present), np.bool_))]
        else:
            names.append("present")
            columns.append(pa.array(present))
            if self.exact and layout.stored is not None:
                names.append("v")
                columns.append(self._values(table, live, ~present))
        made = pa.table(columns, names=names)
        change = None
        if self.exact and self._summed[number]:
            change = self._change(number)
        elif self.exact:
            was: Bools = np.zeros(len(present), np.bool_)
            old = None
            if len(before):
                was = before[0] & layout.present != 0
                old = self._values(table, before[1:], ~was)
            change, moved = change_of(spec, columns[1 : 1 + len(keys)], was, old, present, columns[-1])
            if not moved.all():
                made = made.filter(pa.array(moved)).combine_chunks()
        return made.replace_schema_metadata({"form": form}), change

    def _rows_of(self, number: int) -> list[Ints]:
        """Of a state's rows, as columns: the hashes, the flags, the key's words, the live words, and where sums are made by
        way of Arrow the flags and live words at the slice's start."""
        table = self.states[number]
        layout = table.layout
        keys = len(key_types(table.spec))
        live, old = 2 + layout.width + layout.at, self._before + 1 + layout.at
        spans = [(0, 1), (1, 2), (2, 2 + keys), (live, live + layout.live)]
        if self._before and not self._summed[number]:
            spans += [(self._before, self._before + 1), (old, old + layout.live)]
        written = sum(int(part.counts[number, 3]) for part in self.parts)
        source: Ints = self.found
        if written < self.rows:
            wanted: Ints = np.concatenate([np.arange(*span) for span in spans])
            source = np.empty((len(wanted), written), np.int64)
            only(self.found, layout.touched, wanted, source)
            ends = np.cumsum([0, *(hi - lo for lo, hi in spans)]).tolist()
            spans = list(itertools.pairwise(ends))
        found = [source[lo:hi] for lo, hi in spans]
        return [*found[:4], np.concatenate(found[4:]) if found[4:] else source[:0]]

    def _values(self, table: NativeTable, words: Ints, missing: Bools) -> pa.Array:
        assert table.layout.stored is not None
        return to_arrow(words.T, table.layout.stored, self._interned, missing)

    def _change(self, number: int) -> Change:
        sums = np.array([part.sums[number] for part in self.parts]).sum(axis=0, dtype=np.uint64)
        counts = np.array([part.counts[number] for part in self.parts]).sum(axis=0)
        added, gone, removed = (HashSum(int(sums[i, 0]), int(sums[i, 1]), int(counts[i])) for i in range(3))
        content = HashSum(
            (added.low - removed.low) % 2**64, (added.high - removed.high) % 2**64, added.rows - removed.rows
        )
        return Change(added + gone, content)


class _Part:
    """Rows lo to hi of a worker's table."""

    def __init__(self, group: _Group, table: Image, lo: int, hi: int) -> None:
        self._group, self._table, self._lo, self._hi = group, table, lo, hi
        self.size = hi - lo
        self.places: Ints = np.zeros(0, np.int64)
        """Where the next row of each drawer goes."""

    def look(self) -> None:
        """Find what was written."""
        group, table = self._group, self._table
        most = min(self.size, table.rows)
        self._hashes: npt.NDArray[np.uint64] = np.empty(most, np.uint64)
        self._marks: Ints = np.empty(most, np.int64)
        self.ends: Ints = np.zeros((1 << group.bits[0]) + 1, np.int64)
        self.counts: Ints = np.zeros((len(group.states), 4), np.int64)
        self.sums = np.zeros((len(group.states), 3, 2), np.uint64)
        elements = np.zeros((2, len(group.kinds)), np.uint64)
        starts, data = group.pool
        self._rows = look(
            (table.slots, table.now, table.base), self._lo, self._hi, group.exact, group.described, group.seeds, group.kinds,
            np.int64(starts.ctypes.data), np.int64(data.ctypes.data), self._shift,
            (self._hashes, self._marks), self.ends, self.counts, self.sums, elements,
        )  # fmt: skip

    def put_in(self) -> None:
        """Put it into the drawers."""
        group, table, rows = self._group, self._table, self._rows
        put_in(
            (table.slots, table.now, table.base), group.skip, group.described, self._hashes[:rows], self._marks[:rows], self._shift,
            self.places, group.width, group.words, group.drawers,
        )  # fmt: skip
        del self._hashes, self._marks

    @property
    def _shift(self) -> np.uint64:
        return np.uint64(64 - self._group.bits[0])


def _cuts(rows: int, parts: int) -> list[tuple[int, int]]:
    return list(itertools.pairwise([rows * n // parts for n in range(parts + 1)]))
