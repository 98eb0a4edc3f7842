"""Late events: those that are before a log's end are put in their places, in a new version of the log.

Segments into whose time none of them falls stay as they are: where they stand in the log is not in their files. The others are written anew.
Both sides are in log order, so they are merged range by range, in bounded memory. Files that are taken in again mostly have the events that they had:
what is merged is first compared with the log as it is, and only from the first event that is another on segments are written.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.ids import INT64_MAX
from timelapse.segments import manifest as stored
from timelapse.segments.beside import BESIDE, FILE, LATE, ranks_of, with_beside
from timelapse.segments.manifest import IngestEntry, Manifest, SegmentEntry
from timelapse.segments.periods import Period
from timelapse.segments.periods import ranges as blocks
from timelapse.segments.reader import LogReader
from timelapse.segments.segment import (
    BLOCK_BYTES,
    BLOCK_EVENTS,
    SEGMENT_EVENTS,
    SegmentWriter,
    fields_table,
    next_block,
)
from timelapse.segments.types import EventType
from timelapse.tables.rowhash import both_lanes, one_array, seed_of

I64 = npt.NDArray[np.int64]


class Merged(NamedTuple):
    """The segments of the new version in their order, and of these the new ones; `late`: how many events are before the end as it was; `first`: events
    before this one stand where they stood (None: all of the log's do)."""

    segments: list[SegmentEntry]
    made: list[SegmentEntry]
    late: int
    first: int | None


def merge(
    log: Path, current: Manifest, staging: Path, segments: Sequence[SegmentEntry], out: Path, entry: IngestEntry,
    gone: Sequence[int] = (),
) -> Merged:  # fmt: skip
    """Merge staged segments, which begin before the log's end, with those of its segments that they change into new segments below `out`.

    Events of one time are ordered by type, source, file (by path) and row, whenever they were taken in; those of no file stand in front
    of the others, in the order in which they were taken in. In a log that was not made
    of sources, whose events of one time have an order of their own, all that were there come first.
    `entry`: the ingest that the staged segments come from. `gone`: events of the log, by rising seq, that are left out.
    """
    types = current.event_types
    starts = [s.ts_first[0] for s in segments[:1]]
    place = next(
        n for n, s in enumerate(current.segments)
        if any(s.ts_last[-1] >= first for first in starts) or any(seq < s.base + s.count for seq in gone[:1])
    )  # fmt: skip
    old = replace(LogReader.of(log, current, tuple(gone)), beside=True)
    new = replace(LogReader.of(staging, stored.build(types, list(segments), [])), beside=True)
    by_type = bool(current.ingests and current.ingests[0].sources)
    ranks = ranks_of([*current.ingests, entry])
    sides = _Sides(old, new, _Order(types, ranks if by_type else None))
    begin = _Begin(place, current.segments[place].base, 0)
    changed: int | None = min([*gone[:1], *(LogReader.of(log, current).seq_at(first) for first in starts)])
    if gone:
        changed, begin = _first_other(
            sides, current, replace(LogReader.of(log, current), beside=True), begin, ranks
        )
    whole, made = list(current.segments[: begin.segment]), list[SegmentEntry]()
    done = begin.segment
    for first, last, span in _stretches(sides, current.segments, begin, gone):
        beside = sorted(
            {name for s in (*current.segments[first:last], *segments) for f in s.files for name in f.beside}
        )
        own = list(_write(out, len(made), types, sides.ranges(span), beside, current.period, _most(span)))
        whole += [*current.segments[done:first], *own]
        made, done = [*made, *own], last
    whole += current.segments[done:]
    end = current.ts_last
    late = 0 if end is None else new.seq_at(end + 1)
    return Merged(whole, made, late, changed)


class _Range(NamedTuple):
    """Events in log order: times, type numbers, and for each type its fields."""

    ts: I64
    kinds: I64
    tables: dict[int, pa.Table]


class _Order(NamedTuple):
    """The types, and the place of each file among all; None: what was there stays in front."""

    types: Sequence[EventType]
    ranks: I64 | None


class _Begin(NamedTuple):
    """Where merging begins: a segment of the log, its first seq, and the first of the new events that are not before it."""

    segment: int
    old: int
    new: int


class _Span(NamedTuple):
    """Events of the log from one seq to before another, and new events from one to before another."""

    old: tuple[int, int]
    new: tuple[int, int]


class _Sides(NamedTuple):
    """What is merged: the log without the events that go, and the new events."""

    old: LogReader
    new: LogReader
    order: _Order

    def ranges(self, span: _Span) -> Iterator[_Range]:
        """The events of a span, in the order of the new version: bounded by where blocks of either side end."""
        (at, old_end), (done, new_end) = span
        types = self.order.types
        ends = [
            t
            for side, lo, hi in ((self.old, at, old_end), (self.new, done, new_end))
            for s in side.segments if s.base < hi and s.base + s.count > lo
            for t in s.ts_last
        ]  # fmt: skip
        for end in sorted({*ends, INT64_MAX - 1}):
            old_to = min(max(at, self.old.seq_at(end + 1)), old_end)
            new_to = min(max(done, self.new.seq_at(end + 1)), new_end)
            if old_to > at or new_to > done:
                yield _in_order(
                    [_read(self.old, at, old_to, types), _read(self.new, done, new_to, types)], self.order
                )
            at, done = old_to, new_to


class _Stretch(NamedTuple):
    """Segments that are written anew, from one to before another, with their events and the new ones among and before them."""

    first: int
    last: int
    span: _Span


def _stretches(
    sides: _Sides, segments: Sequence[SegmentEntry], begin: _Begin, gone: Sequence[int]
) -> list[_Stretch]:
    """What is written anew from `begin` on: segments that have events of `gone`, or into whose time new ones fall.

    Segments that share a time stand or fall together, as events of one time are merged together. New events between segments go to the one behind,
    those behind all are a stretch of their own.
    """
    found: list[_Stretch] = []
    at, (old, done) = begin.segment, begin[1:]
    while at < len(segments) or done < sides.new.count:
        end = min(at + 1, len(segments))
        while end < len(segments) and segments[end].ts_first[0] == segments[end - 1].ts_last[-1]:
            end += 1
        old_to = old + sum(s.count for s in segments[at:end])
        new_to = sides.new.count
        if at < len(segments):
            new_to = max(done, sides.new.seq_at(segments[end - 1].ts_last[-1] + 1))
        if new_to > done or bisect_left(gone, old_to) > bisect_left(gone, old):
            span = _Span((old, old_to), (done, new_to))
            if found and found[-1].last == at:
                first, _, before = found.pop()
                found.append(_Stretch(first, end, _Span((before.old[0], old_to), (before.new[0], new_to))))
            else:
                found.append(_Stretch(at, end, span))
        at, old, done = end, old_to, new_to
    return found


def _most(span: _Span) -> int:
    """So many events make a segment of what is written: one that has grown a little is not cut into a large and a small one."""
    total = span.old[1] - span.old[0] + span.new[1] - span.new[0]
    return -(-total // max(1, -(-4 * total // (5 * SEGMENT_EVENTS))))


def _first_other(
    sides: _Sides, current: Manifest, whole: LogReader, begin: _Begin, ranks: I64
) -> tuple[int | None, _Begin]:
    """The first seq at which the new version has another event than the log as it is (`whole`; None: it has all of the log's events,
    and perhaps more behind them), and where segments have to be written from: there, or where an event has another file or arrival.
    """
    seq, types = begin.old, sides.order.types
    found: _Begin | None = None
    for one in sides.ranges(_Span((begin.old, current.count), (begin.new, sides.new.count))):
        was = _in_order([_read(whole, seq, seq + len(one.ts), types), {}], _Order(types, None))
        both = min(len(one.ts), len(was.ts))
        differs = _marks(one, types, ranks)[:, :both] != _marks(was, types, ranks)[:, :both]
        event, beside = (_first(lanes.any(axis=0)) for lanes in (differs[:2], differs))
        if found is None and beside < len(one.ts):
            found = _from(sides, current, [*one.ts[beside : beside + 1], *was.ts[beside : beside + 1]])
        seq += event
        if event < len(one.ts):
            break
    if found is None and seq < current.count:
        found = _from(sides, current, [_time_of(whole, seq, types)])
    return None if seq == current.count else seq, found or _Begin(len(current.segments), seq, sides.new.count)


def _first(differs: npt.NDArray[np.bool_]) -> int:
    """The first place at which something differs; the length where nothing does."""
    return int(differs.argmax()) if differs.any() else len(differs)


def _from(sides: _Sides, current: Manifest, times: Sequence[int]) -> _Begin:
    """Writing begins with the segment that has the times of the first event that differs: what is before it is the same."""
    first, segments = min(map(int, times)), current.segments
    place = next((n for n, s in enumerate(segments) if s.ts_last[-1] >= first), len(segments))
    while 0 < place < len(segments) and segments[place].ts_first[0] == segments[place - 1].ts_last[-1]:
        place -= 1  # events of one time are merged together
    if place == len(segments):
        return _Begin(place, current.count, sides.new.seq_at(first))
    return _Begin(place, segments[place].base, sides.new.seq_at(min(first, segments[place].ts_first[0])))


def _time_of(reader: LogReader, seq: int, types: Sequence[EventType]) -> int:
    return int(next(t["ts"].cast(pa.int64())[0].as_py() for t in _read(reader, seq, seq + 1, types).values()))


def _marks(one: _Range, types: Sequence[EventType], ranks: I64) -> npt.NDArray[np.uint64]:
    """For each event two lanes of a hash of its type, time and fields; and two of these with its file, by its place among all, and
    how late it arrived."""
    found = np.zeros((4, len(one.ts)), np.uint64)
    for number, table in one.tables.items():
        own, kind, rows = one.kinds == number, types[number], table.num_rows
        columns = [pa.array(one.ts[own]), *(one_array(table[f.name]) for f in kind.fields)]
        event = both_lanes(columns, rows, seed_of(str(kind)))
        beside = [pa.array(ranks[table[FILE].to_numpy()]), one_array(table[LATE])]
        found[:, own] = [*event, *both_lanes(beside, rows, 0, event)]
    return found


def _read(reader: LogReader, lo: int, hi: int, types: Sequence[EventType]) -> dict[int, pa.Table]:
    found: dict[int, list[pa.Table]] = {}
    numbers = {t.name: n for n, t in enumerate(types)}
    for chunk in reader.chunks(lo, hi, dict.fromkeys(numbers)):
        for name, table in chunk.tables.items():
            found.setdefault(numbers[name], []).append(table)
    return {n: pa.concat_tables(tables) for n, tables in found.items()}


def _in_order(sides: Sequence[dict[int, pa.Table]], in_order: _Order) -> _Range:
    types, ranks = in_order
    keys: list[list[I64]] = [[], [], [], [], []]
    own: dict[int, list[pa.Table]] = {}
    for number in range(len(types)):
        for side, tables in enumerate(sides):
            table = tables.get(number)
            if table is None:
                continue
            rows = table.num_rows
            columns = (
                table["ts"].cast(pa.int64()).to_numpy(), np.full(rows, number), np.full(rows, side), table["seq"].to_numpy(),
                np.zeros(rows) if ranks is None else ranks[table[FILE].to_numpy()],
            )  # fmt: skip
            for key, column in zip(keys, columns, strict=True):
                key.append(np.asarray(column, np.int64))
            own.setdefault(number, []).append(table)
    if not own:
        nothing = np.zeros(0, np.int64)
        return _Range(nothing, nothing, {})
    ts, kinds, sides_, seq, files = (np.concatenate(key) for key in keys)
    # what was there keeps its order, whatever it is
    order = (
        np.lexsort((seq, sides_, files, kinds, ts))
        if ranks is not None
        else np.lexsort((seq, np.where(sides_ == 0, 0, kinds), sides_, ts))
    )
    tables = {}
    for number, parts_ in own.items():
        places = order[kinds[order] == number] - int(np.flatnonzero(kinds == number)[0])
        whole = pa.concat_tables(parts_).take(pa.array(places))
        kind = types[number]
        fields = fields_table(kind, [whole[f.name].combine_chunks() for f in kind.fields], len(places))
        tables[number] = with_beside(fields, {name: whole[name] for name in BESIDE.names})
    return _Range(ts[order], kinds[order], tables)


def _write(
    out: Path, number: int, types: Sequence[EventType], ranges: Iterator[_Range], beside: Sequence[str], period: Period | None, most: int
) -> Iterator[SegmentEntry]:  # fmt: skip
    """Segments of ranges that follow one another, of about `most` events; small ranges share a block. Each segment lies in one `period`.
    `number`: that of the first, for its name."""
    writer: SegmentWriter | None = None
    written = 0
    waiting: list[_Range] = []

    def flush() -> Iterator[SegmentEntry]:
        nonlocal writer, number, waiting, written
        if not waiting:
            return
        ts, kinds = (np.concatenate([r[n] for r in waiting]) for n in (0, 1))
        tables = {
            n: pa.concat_tables([r.tables[n] for r in waiting if n in r.tables])
            for n in sorted({n for r in waiting for n in r.tables})
        }
        waiting = []
        done: dict[int, int] = {}
        for lo, hi in blocks(ts, period, BLOCK_EVENTS):
            if writer is not None and period is not None and period.starts(np.asarray([written, ts[lo]])):
                yield writer.close()
                writer = None
            if writer is None:
                writer = SegmentWriter(out, f"{number:06d}", types, beside)
                number += 1
            writer.write(ts[lo:hi], kinds[lo:hi], next_block(types, kinds[lo:hi], tables, done))
            written = int(ts[hi - 1])
            if writer.count >= most:
                yield writer.close()
                writer = None

    rows = size = 0
    for one in ranges:
        if not len(one.ts):
            continue
        waiting.append(one)
        rows += len(one.ts)
        size += sum(t.nbytes for t in one.tables.values())
        if rows >= BLOCK_EVENTS or size >= BLOCK_BYTES:
            yield from flush()
            rows = size = 0
    yield from flush()
    if writer is not None:
        yield writer.close()
