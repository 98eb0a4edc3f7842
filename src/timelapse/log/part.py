"""A contiguous part of a log, as a log: nothing is written, events keep their seqs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from timelapse.ids import DAY, INT64_MAX, INT64_MIN
from timelapse.log.log import Log
from timelapse.log.only import OnlyReader
from timelapse.model.events import Event
from timelapse.moments import Moment
from timelapse.segments.days import day_number, day_text
from timelapse.segments.gaps import gaps_of
from timelapse.segments.info import LogInfo
from timelapse.segments.reader import Chunk, Columns, EventReader, LogReader, even_cuts
from timelapse.segments.rows import InRows
from timelapse.segments.types import EventType
from timelapse.segments.without import PART_MARK


@dataclass(frozen=True)
class PartReader(InRows):
    """The events of `base` with lo <= seq < hi. `before` and `count`: how many lie before, and in it."""

    base: EventReader
    lo: int
    hi: int
    before: int
    count: int

    @classmethod
    def of(cls, base: EventReader, lo: int, hi: int) -> PartReader:
        before = rank(base, lo)
        return cls(base, lo, hi, before, max(0, rank(base, hi) - before))

    @property
    def types(self) -> tuple[EventType, ...]:
        return self.base.types

    def cuts(self, n: int) -> list[int]:
        return [0, *map(self.seq_after, even_cuts(self.count, n)[1:])]

    def seq_after(self, events: int) -> int:
        return self.hi if events >= self.count else self.base.seq_after(self.before + events)

    def seq_at(self, ts: int) -> int:
        return max(self.lo, min(self.hi, self.base.seq_at(ts)))

    def ts_before(self, seq: int) -> int | None:
        end = min(seq, self.hi)
        return self.base.ts_before(end) if self.count and end > self.seq_after(0) else None

    @property
    def ts_first(self) -> int | None:
        return self.base.ts_before(self.seq_after(0) + 1) if self.count else None

    def rows(self, name: str, lo: int, hi: int) -> int:
        return self.base.rows(name, max(lo, self.lo), min(hi, self.hi))

    def chunks(self, lo: int, hi: int, columns: Columns) -> Iterator[Chunk]:
        return self.base.chunks(max(lo, self.lo), min(hi, self.hi), columns)


def reading(reader: EventReader, **how: bool | frozenset[str]) -> EventReader:
    """The reader with another `encoded`, `beside` or `spared`; other readers than those of stored logs are as they were."""
    if isinstance(reader, LogReader):
        return replace(reader, **how)  # type: ignore[arg-type]
    if isinstance(reader, OnlyReader):
        return replace(reader, base=replace(reader.base, **how))  # type: ignore[arg-type]
    if isinstance(reader, PartReader):
        return replace(reader, base=reading(reader.base, **how))
    return reader


def rank(reader: EventReader, seq: int) -> int:
    """How many events lie before a seq."""
    if isinstance(reader, OnlyReader):  # whose every place is a block to read
        return reader.rank(seq)
    low, high = 0, reader.count
    while low < high:
        middle = (low + high) // 2
        if reader.seq_after(middle) >= seq:
            high = middle
        else:
            low = middle + 1
    return low


class PartLog(Log):
    """The events of a log with lo <= seq < hi."""

    def __init__(self, log: Log, lo: int, hi: int) -> None:
        super().__init__(log.path, log.manifest, log.left_out)
        self._base, self._lo, self._hi = log, lo, hi

    @property
    def id(self) -> str:
        return f"{self._base.id}{PART_MARK}{self._lo}-{self._hi}"

    @property
    def part(self) -> tuple[int, int]:
        return self._lo, self._hi

    @property
    def only_types(self) -> tuple[str, ...]:
        return self._base.only_types

    @property
    def count(self) -> int:
        return self.reader.count

    def only(self, *types: str | type[Event]) -> Log:
        return PartLog(self._base.only(*types), self._lo, self._hi)

    def between(self, since: Moment | None = None, before: Moment | None = None) -> Log:
        found = super().between(since, before).part
        assert found is not None
        return PartLog(self._base, *found)

    def without(self, what: Any) -> Log:
        return PartLog(self._base.without(what), self._lo, self._hi)

    @cached_property
    def types(self) -> tuple[EventType, ...]:
        return self._base.types

    @cached_property
    def reader(self) -> PartReader:  # type: ignore[override]
        return PartReader.of(self._base.reader, self._lo, self._hi)

    def info(self) -> LogInfo:
        """The part's times, events, days and gaps; sizes, and what ingests left out, are the whole log's."""
        info, reader = self._base.info(), self.reader
        types = tuple(replace(t, count=reader.rows(t.name, self._lo, self._hi)) for t in info.types)
        first, last = reader.ts_first, reader.ts_before(self._hi)
        days: dict[str, dict[str, int]] = {}
        missing: list[str] = []
        if first is not None and last is not None:
            own = range(first // DAY, last // DAY + 1)
            days = {text: found for text, found in info.days.items() if day_number(text) in own}
            for day in {own[0], own[-1]}:  # of which events may lie outside
                lo, hi = (
                    reader.seq_at(max(day * DAY, INT64_MIN)),
                    reader.seq_at(min(day * DAY + DAY, INT64_MAX)),
                )
                hi = self._hi if day == own[-1] else hi
                text = day_text(day)
                counts = {name: reader.rows(name, lo, hi) for name in days[text]}
                days[text] = {name: n for name, n in counts.items() if n}
            missing = [text for text in info.missing_days if day_number(text) in own]
        gaps = tuple(gaps_of(days, [t.name for t in types]))
        return replace(
            info, id=self.id, count=self.count, types=types, ts_first=first, ts_last=last, days=days,
            missing_days=tuple(missing), gaps=gaps,
        )  # fmt: skip
