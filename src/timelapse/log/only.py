"""Some event types of a log, as a log: nothing is written, events keep their seqs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from timelapse.log.log import Log
from timelapse.segments.info import LogInfo, info_of
from timelapse.segments.profile import Profile
from timelapse.segments.reader import Chunk, Columns, LogReader, even_cuts
from timelapse.segments.rows import InRows
from timelapse.segments.types import EventType
from timelapse.segments.without import ONLY_MARK

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class OnlyReader(InRows):
    """The events of some types. `types` are all of the log's: of the others there is no event.

    `starts` has the seq of the first event of each block, `before` how many events of the types lie before it; `before` ends with
    their number.
    """

    base: LogReader
    names: tuple[str, ...]
    starts: I64 = field(repr=False)
    before: I64 = field(repr=False)

    @classmethod
    def of(cls, base: LogReader, names: Sequence[str]) -> OnlyReader:
        numbers = {n for n, kind in enumerate(base.types) if kind.name in names}
        starts: list[int] = []
        counts: list[int] = []
        for segment in base.segments:
            starts += (segment.base + start for start in segment.starts)
            files = [file.rows for file in segment.files if file.type in numbers]
            counts += (sum(rows[block] for rows in files) for block in range(len(segment.starts)))
        made = cls(base, tuple(names), np.asarray(starts, np.int64), np.cumsum([0, *counts], dtype=np.int64))
        if not base.excluded:
            return made
        touched = set((np.searchsorted(made.starts, np.asarray(base.excluded), side="right") - 1).tolist())
        left = [len(made._block(n)[0]) if n in touched else count for n, count in enumerate(counts)]
        return replace(made, before=np.cumsum([0, *left], dtype=np.int64))

    @property
    def types(self) -> tuple[EventType, ...]:
        return self.base.types

    @property
    def gone(self) -> set[str]:
        """The types of the log of which this has no events."""
        return {kind.name for kind in self.types} - set(self.names)

    @property
    def count(self) -> int:
        return int(self.before[-1])

    def cuts(self, n: int) -> list[int]:
        return [0, *map(self.seq_after, even_cuts(self.count, n)[1:])]

    def seq_after(self, events: int) -> int:
        if events >= self.count:
            return self.base.seq_after(self.base.count)
        block = int(np.searchsorted(self.before, events, side="right")) - 1
        return int(self._block(block)[0][events - int(self.before[block])])

    def rank(self, seq: int) -> int:
        """How many events lie before a seq: one block is read."""
        block = int(np.searchsorted(self.starts, seq)) - 1
        return 0 if block < 0 else int(self.before[block] + np.searchsorted(self._block(block)[0], seq))

    def seq_at(self, ts: int) -> int:
        return self.base.seq_at(ts)

    def ts_before(self, seq: int) -> int | None:
        block = int(np.searchsorted(self.starts, seq)) - 1
        while block >= 0:
            if self.before[block] < self.before[block + 1]:
                seqs, times = self._block(block)
                earlier = int(np.searchsorted(seqs, seq))
                if earlier:
                    return int(times[earlier - 1])
            # The last block before it that has events of the types.
            block = min(block, int(np.searchsorted(self.before, self.before[block]))) - 1
        return None

    @property
    def ts_first(self) -> int | None:
        return self.ts_before(self.seq_after(0) + 1) if self.count else None

    def rows(self, name: str, lo: int, hi: int) -> int:
        return 0 if name in self.gone else self.base.rows(name, lo, hi)

    def chunks(self, lo: int, hi: int, columns: Columns) -> Iterator[Chunk]:
        gone = self.gone
        return self.base.chunks(lo, hi, {name: own for name, own in columns.items() if name not in gone})

    def _block(self, number: int) -> tuple[I64, I64]:
        """The seqs and times of the types' events in a block, by rising seq."""
        lo, end = int(self.starts[number]), self.base.seq_after(self.base.count)
        hi = int(self.starts[number + 1]) if number + 1 < len(self.starts) else end
        tables = [
            table
            for chunk in self.base.chunks(lo, hi, dict.fromkeys(self.names, ()))
            for table in chunk.tables.values()
        ]
        seqs, times = (
            np.concatenate([np.asarray(t[name], np.int64) for t in tables] or [np.zeros(0, np.int64)])
            for name in ("seq", "ts")
        )
        order = np.argsort(seqs)
        return seqs[order], times[order]


class OnlyLog(Log):
    """The events of some types of a log, which are named in the log's order."""

    def __init__(self, log: Log, names: Sequence[str]) -> None:
        super().__init__(log.path, log.manifest, log.left_out)
        self._base: Log = log._base if isinstance(log, OnlyLog) else log
        self._names = tuple(names)

    @property
    def id(self) -> str:
        return f"{self._base.id}{ONLY_MARK}{'+'.join(self._names)}"

    @property
    def only_types(self) -> tuple[str, ...]:
        return self._names

    @property
    def count(self) -> int:
        return self.reader.count

    def without(self, what: Any) -> Log:
        return OnlyLog(self._base.without(what), self._names)

    @cached_property
    def reader(self) -> OnlyReader:  # type: ignore[override]
        return OnlyReader.of(self._base.reader, self._names)

    def info(self) -> LogInfo:
        """The types' events, days, sizes and gaps; what ingests left out is the whole log's."""
        info, reader = info_of(self.path, self.manifest, self._names), self.reader
        end = reader.seq_after(reader.count)
        types = tuple(replace(t, count=reader.rows(t.name, 0, end)) for t in info.types)
        return replace(
            info, id=self.id, count=self.count, types=types, ts_first=reader.ts_first, ts_last=reader.ts_before(end)
        )  # fmt: skip

    def profile(self, *types: str, advance: Callable[[int], None] = lambda events: None) -> Profile:
        return super().profile(*(types or self._names), advance=advance)
