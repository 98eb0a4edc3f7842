"""Events of which there must be one only: those of a type that have the same values in some fields.

Events that are the same in all fields and in time are one that was sent twice; others that share the fields conflict, and
the first or the last is taken: by the time at which they arrived where that is known, else by their own, then by log order. The rule
does not ask what was taken in when: where a later row comes first, it takes the place of the event that a log has. What conflicts is
in the log's quarantine with a hash of the event, so that a row that is the same again is found to have been sent twice.
An event with a missing value in one of the fields is nobody's duplicate.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.errors import IngestError, Place
from timelapse.model.types import FLOAT, OptionalType
from timelapse.segments.beside import BESIDE, files_of
from timelapse.segments.quarantine import beaten_in
from timelapse.tables.rowhash import both_lanes, seed_of, whole_array

if TYPE_CHECKING:
    from timelapse.ingest.source import Source
    from timelapse.segments.manifest import IngestEntry, Manifest
    from timelapse.segments.reader import LogReader
    from timelapse.segments.types import EventType

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Rule(NamedTuple):
    """The fields of which no two events of a type have the same values, and which of several is taken."""

    fields: tuple[str, ...]
    keep: Literal["first", "last"]

    @property
    def text(self) -> str:
        """The fields, for people."""
        return ", ".join(self.fields)


def rule_of(kind: EventType, sources: Sequence[Source]) -> Rule | None:
    """What the sources of a type ask for. Raises IngestError (TL411) where they ask for different things."""
    for own in kind.fields:
        inner = own.type.inner if isinstance(own.type, OptionalType) else own.type
        if inner == FLOAT and any(own.name in one.unique for one in sources):
            raise IngestError(
                f"{own.name} is a float, and floats that look the same may differ", place=Place(what=f"unique (--unique) of {kind.name}"), code="TL411",
                hint="name fields of other types",
            )  # fmt: skip
    found = {Rule(tuple(one.unique), one.conflicts) for one in sources if one.unique}
    if len(found) > 1:
        raise IngestError(
            "its sources differ in unique= (--unique), or in which of several is taken", place=Place(what=kind.name), code="TL411",
            hint="events are compared over all sources of a type: say the same for each, or say it once",
        )  # fmt: skip
    return found.pop() if found else None


def numbered(columns: Sequence[pa.Array], rows: int) -> tuple[I64, Bools]:
    """A number for each row, the same for rows that are equal in all columns; and which rows have no missing value."""
    numbers = np.zeros(rows, np.int64)
    whole = np.ones(rows, np.bool_)
    for column in columns:
        if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
            column = pa.array([None if v is None else repr(v) for v in column.to_pylist()], pa.string())
        coded = column.dictionary_encode()
        coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
        codes = np.asarray(pc.fill_null(coded.indices, len(coded.dictionary))).astype(np.int64)
        whole &= np.asarray(column.is_valid())
        _, numbers = np.unique(numbers * (len(coded.dictionary) + 1) + codes, return_inverse=True)
        numbers = numbers.astype(np.int64).ravel()
    return numbers, whole


@dataclass(frozen=True)
class Before:
    """The log that an ingest adds to: its events, its files by their numbers (`files_of`), by type the hashes of events in its
    quarantine that another was taken instead of, and its earlier ingests."""

    reader: LogReader
    files: Sequence[tuple[str, int, str]] = ()
    beaten: Mapping[str, frozenset[bytes]] = field(default_factory=dict)
    ingests: Sequence[IngestEntry] = ()

    @classmethod
    def of(
        cls, path: Path, manifest: Manifest, reader: LogReader, replaced: Mapping[str, Sequence[str]], *, unique: bool
    ) -> Before:  # fmt: skip
        """`replaced`: files by type whose rows go. `unique`: whether the ingest has sources that ask for it."""
        gone = {(type_, file) for type_, files in replaced.items() for file in files}
        beaten = beaten_in(path, manifest, gone) if unique else {}
        return cls(reader, files_of(manifest.ingests), beaten, manifest.ingests)

    def places(self, kind: EventType, new: Sequence[tuple[int, str]], first: int) -> I64:
        """Where in log order each of the log's files stands among new files of a type, by its number; behind them, where events of no
        file stand.

        `new`: the new ones, by source and path, of which `first` is the number in the ingest. The place of number n is 2 n; what stands
        between two files has an odd one.
        """
        order = {
            (position, path.encode("utf-8", "surrogateescape")): n for n, (position, path) in enumerate(new)
        }
        ordered = sorted(order)
        found = np.full(len(self.files) + 1, NO_FILE, np.int64)
        for number, (type_, position, path) in enumerate(self.files):
            if type_ != kind.name:
                continue
            own = position, path.encode("utf-8", "surrogateescape")
            at = bisect_left(ordered, own)
            found[number] = 2 * (first + order[own]) if own in order else 2 * (first + at) - 1
        return found


NO_FILE = -2
"""In log order, events of no file stand before those of files."""


def place_of(file: int) -> int:
    """Where rows of a file of an ingest (-1: of none), by its number, stand in log order, to be compared with `Before.places`."""
    return 2 * file


def hashes_of(kind: EventType, ts: pa.Array, fields: pa.Table) -> npt.NDArray[np.void]:
    """For each event 16 bytes of a hash of its time and fields, which are in the log's types: the same for the same events."""
    rows = len(ts)
    both = both_lanes([ts, *(whole_array(fields[f.name]) for f in kind.fields)], rows, seed_of(str(kind)))
    return np.ascontiguousarray(np.stack(both, axis=1)).view("V16").ravel()


class Rows(NamedTuple):
    """Events of one type: times, fields, what orders those of the same values (`arrived`: the time at which each arrived, or its own;
    `place`: its file's), and which of them, in front of the others, a log has."""

    ts: I64
    fields: pa.Table
    arrived: I64
    place: I64
    known: Bools


class LeftOut(NamedTuple):
    """Events that are not taken, by rising place among all; which are the same as another that is told, others conflict; their hashes; and of
    events of the log the hash of the new one that takes their place, b"" where that has been told."""

    rows: I64
    same: Bools
    hashes: list[bytes]
    instead: list[bytes]


def why_left_out(rule: Rule) -> str:
    """The reason that stands in the quarantine."""
    return f"another event has the same {rule.text}, and the {rule.keep} is taken"


def left_out(rule: Rule, kind: EventType, rows: Rows) -> LeftOut:
    """Which events are to go, whether a log has them or not. Those that nothing else orders come in the order in which they stand here."""
    count = len(rows.ts)
    keys, whole = numbered(
        [pa.array(rows.ts) if f == "ts" else whole_array(rows.fields[f]) for f in rule.fields], count
    )
    several = np.bincount(keys, minlength=1)[keys] > 1 if count else whole
    own = np.flatnonzero(several & whole)
    if not len(own):
        return LeftOut(own, np.zeros(0, np.bool_), [], [])
    keys, ts, known = keys[own], rows.ts[own], rows.known[own]
    arrived, place, at = rows.arrived[own], rows.place[own], np.arange(len(own))
    hashes = hashes_of(kind, pa.array(ts), rows.fields.take(pa.array(own)) if kind.fields else rows.fields)
    _, alike = np.unique(hashes, return_inverse=True)
    alike = alike.ravel().astype(np.int64)
    turn = -1 if rule.keep == "last" else 1
    order = np.lexsort((turn * at, turn * place, turn * ts, turn * arrived, keys))
    winner = _first_of_each(keys, order)
    goes = winner != at
    # of those that are the same one is told: the one that is taken, one of the log, the first
    told = np.lexsort((turn * at, turn * place, turn * ts, turn * arrived, ~known, goes, alike, keys))
    same = np.zeros(len(own), np.bool_)
    same[told[1:]] = (keys[told[1:]] == keys[told[:-1]]) & (alike[told[1:]] == alike[told[:-1]])
    out = np.flatnonzero(goes)
    instead, seen = list[bytes](), set[int]()
    for place_ in out.tolist():
        by = int(winner[place_])
        new = bool(known[place_]) and not known[by] and by not in seen
        instead.append(hashes[by].tobytes() if new else b"")
        if new:
            seen.add(by)
    return LeftOut(own[out], same[out], [hashes[n].tobytes() for n in out.tolist()], instead)


def _first_of_each(keys: I64, order: I64) -> I64:
    """For each row the one that comes first in an order (by key) of those of its key."""
    found = np.empty(len(keys), np.int64)
    firsts = np.flatnonzero(np.diff(keys[order], prepend=-1))
    found[order] = np.repeat(order[firsts], np.diff([*firsts.tolist(), len(keys)]))
    return found


def reach(reader: LogReader, rule: Rule, times: tuple[int, int] | None) -> tuple[int, int]:
    """From which seq on, and up to before which, events may have the same values as some others. `times`: the least and the greatest of
    these, which count where the time is one of the rule's fields; None where there are none."""
    hi = reader.seq_after(reader.count)
    if "ts" not in rule.fields:
        return 0, hi
    return (0, 0) if times is None else (reader.seq_at(times[0]), min(hi, reader.seq_at(times[1] + 1)))


def rows_at(reader: LogReader, kind: EventType, seqs: I64) -> Iterator[pa.Table]:
    """The events of a type that have these seqs, which rise, with all fields."""
    for chunk in reader.chunks(int(seqs[0]), int(seqs[-1]) + 1, {kind.name: None}):
        table = chunk.tables[kind.name]
        yield table.filter(pc.is_in(table["seq"], value_set=pa.array(seqs)))


def known_events(reader: LogReader, kind: EventType, rule: Rule, ts: I64, table: pa.Table) -> pa.Table:
    """The events of a log that may have the same values as some of these, in its order: seq, time, fields, and what is kept beside them.

    Of all events of the type only the rule's fields are read (of the times that these have, where the time is one of the fields); all
    fields of blocks in which something was found.
    """
    beside = [pa.field(name, BESIDE.field(name).type) for name in BESIDE.names]
    schema = pa.schema([pa.field("seq", pa.int64()), pa.field("ts", pa.int64()), *kind.schema, *beside])
    found = [schema.empty_table()]
    names = [name for name in rule.fields if name != "ts"]
    lo, hi = reach(reader, rule, (int(ts.min()), int(ts.max()))) if len(ts) else (0, 0)
    wanted = {
        n: pc.unique(whole_array(table[n])).drop_null()
        for n in names
        if not pa.types.is_nested(table[n].type)
    }
    if "ts" in rule.fields:
        wanted["ts"] = pc.unique(pa.array(ts))
    whole = replace(reader, beside=True)
    for chunk in reader.chunks(lo, hi, {kind.name: names}):
        own = chunk.tables.get(kind.name)
        if own is None:
            continue
        same = np.ones(own.num_rows, np.bool_)
        for name, values in wanted.items():
            same &= np.asarray(pc.is_in(own[name], value_set=values.cast(own.schema.field(name).type)))
        if not same.any():
            continue
        seqs = own["seq"].to_numpy()[same]
        found += [part.select(schema.names).cast(schema) for part in rows_at(whole, kind, seqs)]
    return pa.concat_tables(found)
