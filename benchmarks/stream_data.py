"""The events of the transactional benchmarks: transfers, updates of cells, reports of vehicles.

MorphStream's skew (Zipf 0.2) by default; a tenth as many accounts or cells as events, so that each is written ten
times on average whatever the log's size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

import timelapse as tl
from benchmarks.data import FORMAT, Dataset, write_plain
from benchmarks.stream_programs import Car, Move, Update
from timelapse.segments.manifest import IngestEntry, SourceEntry, build, write
from timelapse.segments.segment import SegmentWriter
from timelapse.segments.types import event_types

_BLOCK = 64 * 1024
_SEGMENT = 32 * _BLOCK
_START = 1_700_000_000_000_000
SKEW = 0.2
READS = 4
"""Cells that an update reads."""
SEGMENTS = 100
VEHICLES = 3_000
REPORTED = 30_000_000
"""Microseconds from one report of a vehicle to the next: as in Linear Road."""
STAYS = 4
"""Reports of a vehicle from one segment."""


@dataclass(frozen=True)
class Stream(Dataset):
    """Events of one type, in blocks."""

    exponent: float = SKEW

    event: ClassVar[type[tl.Event]]
    kind: ClassVar[str]

    @property
    def apart(self) -> int:
        """Microseconds between two events."""
        return 1_000

    @property
    def keys(self) -> int:
        """Accounts, cells, vehicles."""
        return self.users or max(2, self.events // 10)

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.events}-z{self.exponent:g}-s{self.seed}-u{self.keys}-v{FORMAT}"

    def blocks(self) -> Iterator[dict[str, pa.Array]]:
        """The columns of the events, block by block."""
        raise TypeError("abstract")

    def lengths(self) -> Iterator[tuple[int, int]]:
        """For each block its first event's place, and how many it has."""
        for begin in range(0, self.events, _BLOCK):
            yield begin, min(_BLOCK, self.events - begin)

    def generate(self, staging: Path) -> None:
        log, flat = staging / "log", staging / "flat"
        for folder in (log, log / "segments", flat):
            folder.mkdir()
        types = event_types([self.event])
        entries = []
        blocks = zip(self.lengths(), self.blocks(), strict=True)
        for number, _ in enumerate(range(0, self.events, _SEGMENT)):
            writer = SegmentWriter(log / "segments", f"{number:06d}", types)
            parts = []
            for _, ((begin, n), columns) in zip(range(_SEGMENT // _BLOCK), blocks):
                place = begin + np.arange(n)
                ts = _START + place * self.apart
                table = pa.table({"id": place, **columns})
                writer.write(ts, np.zeros(n, np.int8), {0: table})
                parts.append(
                    pa.table({"seq": place, "ts": ts, **dict(zip(table.column_names, table.columns))})
                )
            entries.append(writer.close())
            write_plain(pa.concat_tables(parts), flat / f"part-{number:05d}.parquet", [])
        settings = {"from": "bench", **asdict(self)}
        sources = [SourceEntry(self.event.__name__, settings, self.events, 0, 0)]
        write(log, build(types, entries, [IngestEntry(1, self.events, 0.0, sources, [], "timelapse bench")]))


class _Draw:
    """Numbers from 0 to n - 1: rank k has weight k ** -exponent, and which number has which rank is shuffled."""

    def __init__(self, n: int, exponent: float, rng: np.random.Generator) -> None:
        self._edges = np.cumsum(np.arange(1, n + 1, dtype=np.float64) ** -exponent)
        self._edges /= self._edges[-1]
        self._numbers = rng.permutation(n)

    def __call__(self, uniform: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> pa.Array:
        ranks = np.minimum(np.searchsorted(self._edges, uniform.ravel()), len(self._numbers) - 1)
        return self._numbers[ranks]


@dataclass(frozen=True)
class Moves(Stream):
    """Transfers of 1 to 99 between `users` accounts."""

    event = Move
    kind = "moves"

    def blocks(self) -> Iterator[dict[str, pa.Array]]:
        rng = np.random.default_rng(self.seed)
        draw = _Draw(self.keys, self.exponent, rng)
        for _, n in self.lengths():
            yield {
                "source": draw(rng.random(n)),
                "target": draw(rng.random(n)),
                "amount": rng.integers(1, 100, n),
            }


@dataclass(frozen=True)
class Updates(Stream):
    """Updates of `users` cells."""

    event = Update
    kind = "updates"

    def blocks(self) -> Iterator[dict[str, pa.Array]]:
        rng = np.random.default_rng(self.seed)
        draw = _Draw(self.keys, self.exponent, rng)
        for _, n in self.lengths():
            reads = pa.ListArray.from_arrays(
                np.arange(0, READS * n + 1, READS, dtype=np.int32), draw(rng.random(READS * n))
            )
            yield {"reads": reads, "target": draw(rng.random(n)), "value": rng.integers(1, 100, n)}


@dataclass(frozen=True)
class Cars(Stream):
    """Reports of `users` vehicles, one after the other; each stays in a segment for some of them."""

    event = Car
    kind = "cars"

    @property
    def apart(self) -> int:
        return REPORTED // self.keys

    @property
    def keys(self) -> int:
        return self.users or VEHICLES

    def blocks(self) -> Iterator[dict[str, pa.Array]]:
        rng = np.random.default_rng(self.seed)
        draw = _Draw(SEGMENTS, self.exponent, rng)
        shift = rng.integers(0, STAYS, self.keys)
        for begin, n in self.lengths():
            place = begin + np.arange(n)
            vehicle = place % self.keys
            stay = (place // self.keys + shift[vehicle]) // STAYS
            yield {
                "vehicle": vehicle, "segment": draw(_uniform(stay * self.keys + vehicle, self.seed)),
                "speed": rng.integers(20, 90, n),
            }  # fmt: skip


def _uniform(
    n: np.ndarray[tuple[int, ...], np.dtype[np.int64]], seed: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """A number from 0 to 1 for each n, always the same: splitmix64."""
    x = n.astype(np.uint64) + np.uint64(seed * 2_654_435_761)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) / 2**53
