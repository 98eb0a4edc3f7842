"""What ingest notices of a source while it reads it: which columns there were, and how its times are spread.

Counted batch by batch and added up, so that tasks can notice on their own. `warnings_of` says what looks wrong:
times in different units, in 1970 or before, in the future. It only warns: what is absurd for one log is right for another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from timelapse.display import moment, share
from timelapse.ids import DAY
from timelapse.ingest.batches import Batch
from timelapse.ingest.doubts import Doubt
from timelapse.ingest.plan import Plan
from timelapse.model.types import TIME, OptionalType

YEAR = 31_556_952 * 1_000_000
"""Microseconds of a mean year: times are counted by such years since 1970."""
_NEAR = 2
"""Years with so many empty ones between them belong to different groups of times."""
_FACTORS = (1_000, 1_000_000, 1_000_000_000)
_UNITS = {1_000: "seconds and milliseconds, or milliseconds and microseconds",
          1_000_000: "seconds and microseconds, or milliseconds and nanoseconds",
          1_000_000_000: "seconds and nanoseconds"}  # fmt: skip


class Stretch(msgspec.Struct):
    """Times within one year: how many, the least and the greatest, and the first row (file number, row, its time)."""

    count: int
    least: int
    most: int
    first: tuple[int, int, int]

    def add(self, other: Stretch) -> None:
        self.count += other.count
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)
        self.first = min(self.first, other.first)


class Doubted(msgspec.Struct):
    """Rows whose time had to be decided: how many, and the first (file number, row)."""

    count: int
    first: tuple[int, int]

    def then(self, other: Doubted) -> Doubted:
        return Doubted(self.count + other.count, min(self.first, other.first))


_STEPS = 8
_DOUBTS: dict[Doubt, str] = {
    "twice": "are of an hour that clocks showed twice: the first was taken",
    "never": "are of an hour that clocks left out: they were read as that hour before the change",
    "fraction": "have digits below a microsecond, which were cut off",
}


def _lateness(late: npt.NDArray[np.int64]) -> dict[int, int]:
    after = late[late > 0]
    buckets, counts = np.unique(np.floor(np.log2(after) * _STEPS).astype(np.int64), return_counts=True)
    found = dict(zip(buckets.tolist(), counts.tolist(), strict=True))
    if len(after) < len(late):
        found[-1] = len(late) - len(after)
    return found


def goes_back(noticed: Noticed, files: Sequence[int]) -> int:
    """How far times of rows lie behind those of rows before them, in files or from one of these (in their order) to the next, at most, in microseconds.

    Rows mostly stand in the order in which they arrived, so it tells how late they came where nothing else does.
    """
    most, end = noticed.back, None
    for first, last in (noticed.spans[n] for n in files if n in noticed.spans):
        most = most if end is None else max(most, end - first)
        end = last if end is None else max(end, last)
    return most


def lateness(noticed: Noticed) -> dict[str, int]:
    """How late rows arrived: the 50th, 90th, 99th percentile and the most, in microseconds, within 9%. Empty where it is not known."""
    total = sum(noticed.late.values())
    found: dict[str, int] = {}
    seen = 0
    for bucket, count in sorted(noticed.late.items()):
        seen += count
        value = 0 if bucket < 0 else round(2 ** ((bucket + 0.5) / _STEPS))
        for name, share_ in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("most", 1.0)):
            if name not in found and seen >= share_ * total:
                found[name] = value
    return found


class Noticed(msgspec.Struct):
    """What was noticed of one source. `columns`: those of JSON objects that occurred; `times`: by field and year."""

    columns: list[str] = []
    times: dict[str, dict[int, Stretch]] = {}
    read: int = 0
    """Rows that were read."""
    filtered: int = 0
    """Rows that `only` leaves out."""
    doubts: dict[str, dict[Doubt, Doubted]] = {}
    """Times that had to be decided, by field and why."""
    late: dict[int, int] = {}
    """How late rows arrived: how many, by the logarithm of the microseconds (`_STEPS` per doubling); -1: not after the event."""

    files: dict[int, list[int]] = {}
    """By file number: the rows that were read, those that are bad, and of these those whose time cannot be read."""
    bad_days: dict[int, dict[int, int]] = {}
    """By file number: bad rows whose time can be read, by day (days since 1970, UTC)."""
    spans: dict[int, tuple[int, int]] = {}
    """By file number: the times of its first and its last event."""
    back: int = 0
    """How far a row's time lies behind that of a row before it that was read with it, at most."""
    kinds: dict[int, dict[str, list[str]]] = {}
    """By file number, of files that say only row by row what they have: the columns, and the kinds of values that they hold."""

    @property
    def events(self) -> int:
        """How many rows became events."""
        return sum(stretch.count for stretch in self.times.get("ts", {}).values())

    def add(self, other: Noticed) -> None:
        self.read += other.read
        self.filtered += other.filtered
        self.back = max(self.back, other.back)
        for name, doubts in other.doubts.items():
            known = self.doubts.setdefault(name, {})
            for why, one in doubts.items():
                known[why] = one if why not in known else known[why].then(one)
        for bucket, count in other.late.items():
            self.late[bucket] = self.late.get(bucket, 0) + count
        for file, counts in other.files.items():
            own_counts = self.files.setdefault(file, [0, 0, 0])
            self.files[file] = [a + b for a, b in zip(own_counts, counts, strict=True)]
        for file, days in other.bad_days.items():
            own_days = self.bad_days.setdefault(file, {})
            for day, count in days.items():
                own_days[day] = own_days.get(day, 0) + count
        for file, (least, most) in other.spans.items():
            own_span = self.spans.get(file, (least, most))
            self.spans[file] = (min(own_span[0], least), max(own_span[1], most))
        for file, kinds in other.kinds.items():
            own_kinds = self.kinds.setdefault(file, {})
            for name, held in kinds.items():
                own_kinds[name] = sorted({*own_kinds.get(name, ()), *held})
        self.columns = sorted({*self.columns, *other.columns})
        for name, years in other.times.items():
            own = self.times.setdefault(name, {})
            for year, stretch in years.items():
                if year in own:
                    own[year].add(stretch)
                else:
                    own[year] = stretch


def notice(plan: Plan, file: int, batch: Batch) -> Noticed:
    """What a batch of file number `file` shows."""
    found = Noticed(sorted(batch.seen), read=batch.read, filtered=batch.filtered)
    if batch.seen:
        found.kinds[file] = {name: sorted(kinds) for name, kinds in sorted(batch.seen.items())}
    for name, doubts in batch.doubts.items():
        found.doubts[name] = {
            why: Doubted(len(rows), (file, int(rows.min()))) for why, rows in doubts.items()
        }
    bad = [one for one in batch.bad if one.rule == "bad"]
    found.files[file] = [batch.read, len(bad), sum(one.ts is None for one in bad)]
    if days := Counter(one.ts // DAY for one in bad if one.ts is not None):
        found.bad_days[file] = dict(days)
    if batch.late is not None and len(batch.late):
        found.late = _lateness(batch.late)
    if len(batch.ts):
        found.back = int((np.maximum.accumulate(batch.ts) - batch.ts).max())
        found.times["ts"] = dict(_years(file, batch.rows, batch.ts))
        years = found.times["ts"].values()
        found.spans[file] = (min(s.least for s in years), max(s.most for s in years))
    for field, column in zip(plan.kind.fields, batch.columns, strict=True):
        if field.type in (TIME, OptionalType(TIME)):
            known = np.asarray(column.is_valid())
            if known.any():
                values = np.asarray(column.drop_null(), dtype=np.int64)
                found.times[field.name] = dict(_years(file, batch.rows[known], values))
    return found


def _years(
    file: int, rows: npt.NDArray[np.int64], values: npt.NDArray[np.int64]
) -> Iterator[tuple[int, Stretch]]:
    low, high = int(values.min()), int(values.max())
    if low // YEAR == high // YEAR:  # nearly always
        yield low // YEAR, Stretch(len(values), low, high, (file, int(rows[0]), int(values[0])))
        return
    years = values // YEAR
    for year in np.unique(years).tolist():
        places = np.flatnonzero(years == year)
        own = values[places]
        yield (
            year,
            Stretch(len(own), int(own.min()), int(own.max()), (file, int(rows[places[0]]), int(own[0]))),
        )


class _Group(NamedTuple):
    """Times of a field that lie together."""

    rows: int
    least: int
    most: int
    first: tuple[int, int, int]


def _groups(years: dict[int, Stretch]) -> list[_Group]:
    """Groups of years with nothing for more than `_NEAR` years between them, by rising time."""
    found: list[_Group] = []
    last = None
    for year, s in sorted(years.items()):
        if last is not None and year - last <= _NEAR:
            g = found[-1]
            found[-1] = _Group(g.rows + s.count, g.least, s.most, min(g.first, s.first))
        else:
            found.append(_Group(s.count, s.least, s.most, s.first))
        last = year
    return found


def warnings_of(type_: str, noticed: Noticed, files: Sequence[str], now: int) -> list[str]:
    """What looks wrong about a source's times, one sentence each: the field, the share of rows and the first of them.

    `now` is the time of the ingest in microseconds: what is more than a day after it lies in the future.
    """
    found: list[str] = []
    for name, doubts in sorted(noticed.doubts.items()):
        for why, one in sorted(doubts.items()):
            where = f"{files[one.first[0]] if 0 <= one.first[0] < len(files) else 'DataFrame'}"
            at = f"{where}:{one.first[1]}" if one.first[1] >= 0 else where
            found.append(
                f"{type_}.{name}: {one.count:,} of {noticed.read:,} times {_DOUBTS[why]}; the first at {at}"
            )
    for name, years in sorted(noticed.times.items()):
        groups = _groups(years)
        total = sum(g.rows for g in groups)
        where = f"{type_}.{name}"
        mixed = _mixed(where, groups, total, files)
        found += mixed
        if name == "ts" and not mixed:
            found += _far(where, groups, total, files, now)
    return found


def _mixed(where: str, groups: Sequence[_Group], total: int, files: Sequence[str]) -> list[str]:
    """Groups of which one is others in a unit a thousand times as large: what lies together in one unit may lie decades apart in the other."""
    found = []
    for n, low in enumerate(groups):
        for factor in _FACTORS:
            same = [high for high in groups[n + 1 :] if _same(low, high, factor)]
            if not same:
                continue
            high = _Group(sum(g.rows for g in same), same[0].least, same[-1].most, min(g.first for g in same))
            fewer, more = (low, high) if low.rows <= high.rows else (high, low)
            found.append(
                f"{where} seems to mix units: {_told(fewer, total, files)}; the others lie {_span(more)}, a factor "
                f"of {factor:,} away ({_UNITS[factor]}?). Bounds (--min-ts, --max-ts) put such rows into the quarantine"
            )
    return found


def _same(low: _Group, high: _Group, factor: int) -> bool:
    """Whether the times of `low`, multiplied, fall among those of `high`, or these among them, or nearly."""
    if low.least <= 0:
        return False
    slack = max(2 * YEAR, high.most - high.least)
    least, most = low.least * factor, low.most * factor
    among = least >= high.least - slack and most <= high.most + slack
    return among or (10 * high.least >= 9 * least and 10 * high.most <= 11 * most)


def _far(where: str, groups: Sequence[_Group], total: int, files: Sequence[str], now: int) -> Iterator[str]:
    """Groups in 1970 or before it beside others, and after the time of the ingest."""
    for group in groups:
        if len(groups) > 1 and group.most < YEAR:
            when = "in 1970" if group.least >= 0 else "before 1970" if group.most < 0 else "up to 1970"
            yield f"{where}: {_told(group, total, files)}, {when}: are these times missing, or in another unit?"
        elif group.most > now + DAY:
            some = "up to " if group.least <= now + DAY else ""
            yield f"{where}: {some}{_told(group, total, files)}, which reaches into the future"
        elif len(groups) > 1 and group.rows * 100 < total:
            yield f"{where}: {_told(group, total, files)}, years away from the other times"


def _told(group: _Group, total: int, files: Sequence[str]) -> str:
    file, row, value = group.first
    place = files[file] if 0 <= file < len(files) else "DataFrame"
    at = f"{place}:{row}" if row >= 0 else place
    return f"{group.rows:,} of {total:,} rows ({share(group.rows, total)}) lie {_span(group)}, the first at {at} ({moment(value)})"


def _span(group: _Group) -> str:
    if group.least == group.most:
        return f"at {moment(group.least)}"
    return f"from {moment(group.least)} to {moment(group.most)}"
