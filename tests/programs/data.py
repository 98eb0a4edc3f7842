"""Logs for the programs, as columns: a few for tests, millions for measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import timelapse as tl
from timelapse.segments.manifest import IngestEntry, SourceEntry, build, write
from timelapse.segments.place import whole_folder
from timelapse.segments.segment import SegmentWriter
from timelapse.segments.types import event_types

Rng = np.random.Generator
Draw = Callable[[Rng, int], Any]
Event = tuple[str, int, tuple[Any, ...]]
"""What oracles see: the event type's name, its time, its fields in the order of definition."""
BLOCK = 1 << 16


def number(rng: Rng, n: int) -> Any:
    """0, 1, 2, ..."""
    return np.arange(n, dtype=np.int64)


def some(low: int, high: int) -> Draw:
    """Integers from low to high - 1, all alike."""
    return lambda rng, n: rng.integers(low, high, n, dtype=np.int64)


def skewed(count: int, exponent: float = 0.8) -> Draw:
    """Keys 0 to count - 1; key k about (k + 1) ** -exponent as often as key 0."""
    weights = np.cumsum(np.arange(1, count + 1, dtype=np.float64) ** -exponent)
    return lambda rng, n: np.searchsorted(weights, rng.random(n) * weights[-1]).astype(np.int64)


def near(mean: float, spread: float) -> Draw:
    return lambda rng, n: rng.normal(mean, spread, n)


def chance(share: float) -> Draw:
    return lambda rng, n: rng.random(n) < share


def one_of(words: list[str], exponent: float = 0.5) -> Draw:
    draw = skewed(len(words), exponent)
    return lambda rng, n: np.array(words, dtype=object)[draw(rng, n)]


def several(draw: Draw, most: int) -> Draw:
    """Lists of 0 to `most` values."""

    def lists(rng: Rng, n: int) -> Any:
        lengths = rng.integers(0, most + 1, n)
        values = list(draw(rng, int(lengths.sum())))
        ends = np.cumsum(lengths)
        return [[_plain(v) for v in values[e - k : e]] for e, k in zip(ends, lengths)]

    return lists


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True)
class Mix:
    """A log: event types in these shares, their fields, and the mean time between two events (microseconds)."""

    fields: Mapping[str, tuple[float, Mapping[str, Draw]]]
    gap: int


@dataclass(frozen=True)
class Columns:
    """A log's events: times, which type each is of, and each type's columns."""

    ts: Any
    kinds: Any
    tables: dict[str, dict[str, Any]]

    def rows(self) -> list[Event]:
        """The events one by one, in order."""
        names = list(self.tables)
        iters = {
            name: zip(*(c if isinstance(c, list) else c.tolist() for c in columns.values()), strict=True)
            for name, columns in self.tables.items()
        }
        return [
            (names[k], t, next(iters[names[k]]))
            for k, t in zip(self.kinds.tolist(), self.ts.tolist(), strict=True)
        ]

    def events(self, classes: Mapping[str, type[tl.Event]]) -> list[tl.Event]:
        """The events as the program's own."""
        fields = {name: list(columns) for name, columns in self.tables.items()}
        return [
            classes[name](**dict(zip(fields[name], row, strict=True)), ts=ts) for name, ts, row in self.rows()
        ]

    def log(self, path: Path, classes: Mapping[str, type[tl.Event]]) -> tl.Log:
        """The events as a log on disk, in one segment."""
        names = list(self.tables)
        types = event_types([classes[name] for name in names])
        with whole_folder(path, overwrite=True) as staging:
            (staging / "segments").mkdir()
            writer = SegmentWriter(staging / "segments", "000000", types)
            done = dict.fromkeys(names, 0)
            for first in range(0, len(self.ts), BLOCK):
                kinds = self.kinds[first : first + BLOCK]
                tables = {}
                for place, name in enumerate(names):
                    count = int((kinds == place).sum())
                    part = slice(done[name], done[name] + count)
                    done[name] += count
                    tables[place] = pa.table(
                        [
                            pa.array(c[part], f.type.arrow)
                            for c, f in zip(self.tables[name].values(), types[place].fields, strict=True)
                        ],
                        names=[f.name for f in types[place].fields],
                    )
                writer.write(self.ts[first : first + BLOCK], kinds, tables)
            entry = writer.close()
            sources = [SourceEntry(t.name, {}, done[t.name], 0, 0) for t in types]
            write(
                staging, build(types, [entry], [IngestEntry(1, len(self.ts), 0.0, sources, [], "generated")])
            )
        return tl.Log.open(path)


def make(mix: Mix, count: int, seed: int = 1, grain: int = 1) -> Columns:
    """A log of `count` events; the same for the same arguments. About one event in four has the time of the one before.

    All times are multiples of `grain`: where that divides windows, events stand exactly on their ends.
    """
    rng = np.random.default_rng(seed)
    steps = np.where(rng.random(count) < 0.25, 0, rng.integers(0, mix.gap * 8 // 3 + 1, count))
    ts = (1_700_000_000_000_000 + np.cumsum(steps)) // grain * grain
    shares = np.cumsum([share for share, _ in mix.fields.values()])
    kinds = np.searchsorted(shares, rng.random(count) * shares[-1]).astype(np.uint8)
    tables = {
        name: {field: draw(rng, int((kinds == place).sum())) for field, draw in columns.items()}
        for place, (name, (_, columns)) in enumerate(mix.fields.items())
    }
    # Ties in time are in the order of the types, as ingest would have them.
    order = np.lexsort((kinds, ts))
    return Columns(ts[order], kinds[order], tables)
