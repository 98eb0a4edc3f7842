"""Readings of sensors: the data of the benchmark by key."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.data import FORMAT, Dataset, write_plain
from benchmarks.workloads import Reading
from timelapse.segments.manifest import IngestEntry, SourceEntry, build, write
from timelapse.segments.segment import SegmentWriter
from timelapse.segments.types import event_types

_BLOCK = 64 * 1024
_SEGMENT = 32 * _BLOCK
_START = 1_700_000_000_000_000
_APART = 1_000
"""Microseconds between two readings."""


@dataclass(frozen=True)
class Readings(Dataset):
    """Readings of `users` sensors (100,000 by default), some more busy than others: rank k has weight k ** -exponent."""

    @property
    def sensors(self) -> int:
        return self.users or 100_000

    @property
    def name(self) -> str:
        return f"readings-{self.events}-z{self.exponent:g}-s{self.seed}-u{self.sensors}-v{FORMAT}"

    def generate(self, staging: Path) -> None:
        log, flat = staging / "log", staging / "flat"
        for folder in (log, log / "segments", flat):
            folder.mkdir()
        types = event_types([Reading])
        rng = np.random.default_rng(self.seed)
        edges = np.cumsum(np.arange(1, self.sensors + 1, dtype=np.float64) ** -self.exponent)
        edges /= edges[-1]
        numbers = rng.permutation(self.sensors)
        entries = []
        for number, begin in enumerate(range(0, self.events, _SEGMENT)):
            end = min(begin + _SEGMENT, self.events)
            writer = SegmentWriter(log / "segments", f"{number:06d}", types)
            parts = []
            for lo in range(begin, end, _BLOCK):
                n = min(_BLOCK, end - lo)
                place = lo + np.arange(n)
                ranks = np.minimum(np.searchsorted(edges, rng.random(n)), self.sensors - 1)
                columns = {"id": place, "sensor": numbers[ranks], "value": rng.normal(size=n)}
                ts = _START + place * _APART
                writer.write(ts, np.zeros(n, np.int8), {0: pa.table(columns)})
                parts.append(pa.table({"seq": place, "ts": ts, **columns}))
            entries.append(writer.close())
            write_plain(pa.concat_tables(parts), flat / f"part-{number:05d}.parquet", [])
        settings = {"from": "bench", **asdict(self)}
        sources = [SourceEntry("Reading", settings, self.events, 0, 0)]
        write(log, build(types, entries, [IngestEntry(1, self.events, 0.0, sources, [], "timelapse bench")]))
