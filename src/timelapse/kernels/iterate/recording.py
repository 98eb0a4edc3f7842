"""What a slice's events did from a guessed start, kept so that it can be checked against the right one.

For each event, in log order, one row per key that it touched: what the key must hold for the event to do the same
again, and what the event then does to it. Keys are numbered over all states. What a key holds is an int64: the
integer itself, or for values of other types a number that stands for the value (`Codes`); a key that a Counter does
not have holds 0.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.ids import INT64_MAX, INT64_MIN
from timelapse.kernels.iterate.bounds import ADD, SET
from timelapse.kernels.iterate.sweep import ALWAYS
from timelapse.kernels.iterate.tracer import TracedStore
from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.store.moves import aside, put_folder
from timelapse.tables.table import (
    key_arrays,
    key_list,
    key_names,
    read_table,
    to_python,
    value_array,
    value_type,
    write_table,
)

_CHUNK = 60_000
"""Numbers that are kept as Python's before they go into an array."""


class Codes:
    """Numbers for a state's values that are no integers: equal numbers, equal values, to the last bit."""

    def __init__(self, values: Sequence[Any] = ()) -> None:
        self.values: list[Any] = []
        self._known: dict[Any, int] = {}
        for value in values:
            self.code(value)

    def code(self, value: Any) -> int:
        # -0.0, 1, 1.0 and True equal each other or their like; their representations do not.
        name = value if type(value) is str or type(value) is bytes else repr(value)
        found = self._known.get((type(value), name))
        if found is None:
            found = self._known[type(value), name] = len(self.values)
            self.values.append(value)
        return found


@dataclass
class Rows:
    """The rows: columns of numbers, in the order of events. Row `begins[i]` is the first of event i."""

    seqs: Any
    begins: Any
    keys: Any
    needs: Any
    lows: Any
    highs: Any
    effects: Any
    amounts: Any

    @property
    def columns(self) -> list[Any]:
        """Those that are one number per row."""
        return [self.keys, self.needs, self.lows, self.highs, self.effects, self.amounts]


@dataclass
class Recording:
    """A slice's rows, with the keys they are about. `reason`: why there are none, where the slice could not be told."""

    rows: Rows
    keys: dict[str, list[Any]]
    """By state its keys, with the numbers that rows call them by."""
    numbers: dict[str, list[int]]
    codes: dict[str, Codes]
    reason: str = ""
    events: int = 0

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return int(max(self.rows.keys)) + 1 if len(self.rows.keys) else 0


@dataclass
class Recorder:
    """Collects rows."""

    states: dict[str, StateSpec]
    _numbers: dict[str, dict[Any, int]] = field(init=False)
    _size: int = 0

    def __post_init__(self) -> None:
        self._numbers = {name: {} for name in self.states}
        self._codes = {name: Codes() for name in self.states}
        self._seqs, self._begins = array("q"), array("q", [0])
        self._rows: list[int] = []
        """Of the rows since the last chunk: six numbers each."""
        self._chunks: list[npt.NDArray[np.int64]] = []
        self._settled = 0

    def add(self, seq: int, stores: Sequence[TracedStore], data: Mapping[str, dict[Any, Any]]) -> None:
        """An event that went through: what its stores say, which is also done to the data."""
        rows = self._rows
        for store in stores:
            if not store.reads:
                continue
            name, integers = store.spec.name, store.integers
            numbers = self._numbers[name]
            for key, read in store.reads.items():
                number = numbers.get(key)
                if number is None:
                    number = numbers[key] = self._size
                    self._size += 1
                low, high, effect, amount = read.low, read.high, read.effect, read.amount
                if effect:
                    value = store.after(read)
                    if value is ABSENT or (value == 0 and store.counts):
                        data[name].pop(key, None)
                    else:
                        data[name][key] = value
                    if effect == ADD:  # sums that would leave int64 are not the same event any more
                        low, high = max(low, INT64_MIN - amount), min(high, INT64_MAX - amount)
                if not integers:
                    codes = self._codes[name]
                    if low is not INT64_MIN:  # it is pinned
                        low = high = codes.code(low)
                    if effect == SET:
                        amount = codes.code(amount)
                rows += (number, read.needs, low, high, effect, amount)
        if len(rows) > _CHUNK:
            self._settle()
        count = self._settled + len(rows) // 6
        if count > self._begins[-1]:
            self._seqs.append(seq)
            self._begins.append(count)

    def _settle(self) -> None:
        """Numbers take less room in arrays."""
        self._chunks.append(np.array(self._rows, np.int64).reshape(-1, 6))
        self._settled += len(self._rows) // 6
        self._rows.clear()

    def add_failed(self, seq: int) -> None:
        """An event at which a handler raised: it has to run on the right state, whatever that is."""
        self._rows += (self._size, ALWAYS, INT64_MIN, INT64_MAX, 0, 0)  # a number that is no key's
        self._size += 1
        self._seqs.append(seq)
        self._begins.append(self._settled + len(self._rows) // 6)

    def recording(self, reason: str = "") -> Recording:
        """All of it."""
        self._settle()
        columns = [np.ascontiguousarray(c) for c in np.concatenate(self._chunks).T]
        rows = Rows(np.array(self._seqs, np.int64), np.array(self._begins, np.int64), *columns)
        keys = {name: list(found) for name, found in self._numbers.items()}
        numbers = {name: list(found.values()) for name, found in self._numbers.items()}
        return Recording(rows, keys, numbers, self._codes, reason)


# --- in files ---------------------------------------------------------------------------------------------


def write(recording: Recording, states: dict[str, StateSpec], folder: Path) -> None:
    """Keep a recording in a folder, which is there when all of it is."""
    folder.parent.mkdir(exist_ok=True)
    with aside(folder) as partial:
        _write(recording, states, partial)
        put_folder(partial, folder)  # another attempt may have been first: it found the same


def _write(recording: Recording, states: dict[str, StateSpec], partial: Path) -> None:
    rows = recording.rows
    write_table(_ints({"seq": rows.seqs, "end": rows.begins[1:]}), partial / "events.arrow")
    names = ("key", "needs", "low", "high", "effect", "amount")
    write_table(_ints(dict(zip(names, rows.columns, strict=True))), partial / "rows.arrow")
    for name, spec in states.items():
        columns = [pa.array(recording.numbers[name], pa.int64()), *key_arrays(spec, recording.keys[name])]
        write_table(pa.table(columns, names=["number", *key_names(spec)]), partial / f"keys-{name}.arrow")
        kind = value_type(spec)
        if kind is not None:
            values = value_array(kind, recording.codes[name].values)
            write_table(pa.table([values], names=["v"]), partial / f"values-{name}.arrow")


def _ints(columns: dict[str, Any]) -> pa.Table:
    return pa.table(columns)


def read(states: dict[str, StateSpec], folder: Path) -> Recording:
    """A recording that `write` kept."""
    events, rows = read_table(folder / "events.arrow"), read_table(folder / "rows.arrow")
    ends = _array(events, "end")
    begins = np.zeros(len(ends) + 1, np.int64)
    begins[1:] = ends
    columns = [_array(rows, name) for name in ("key", "needs", "low", "high", "effect", "amount")]
    keys, numbers, codes = {}, {}, {}
    for name, spec in states.items():
        table = read_table(folder / f"keys-{name}.arrow")
        keys[name] = key_list(spec, table)
        numbers[name] = _array(table, "number").tolist()
        kind = value_type(spec)
        values = [True] if kind is None else to_python(read_table(folder / f"values-{name}.arrow")["v"], kind)
        codes[name] = Codes(values)
    return Recording(Rows(_array(events, "seq"), begins, *columns), keys, numbers, codes)


def _array(table: pa.Table, name: str) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = table.column(name).to_numpy()
    return found
