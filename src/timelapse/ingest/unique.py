"""Events of which there must be one only: those of a type that have the same values in some fields.

Events that are the same in all fields and in time are one that was sent twice; others that share the fields conflict, and
the first or the last of them in log order is taken. What is in a log already stays: later ones of the same values go.
An event with a missing value in one of the fields is nobody's duplicate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.errors import IngestError, Place
from timelapse.log.segment import fields_table
from timelapse.model.types import FLOAT, OptionalType
from timelapse.tables.ordering import distinct
from timelapse.tables.rowhash import whole_array

if TYPE_CHECKING:
    from timelapse.ingest.source import Source
    from timelapse.log.reader import LogReader
    from timelapse.log.types import EventType

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
    for field in kind.fields:
        inner = field.type.inner if isinstance(field.type, OptionalType) else field.type
        if inner == FLOAT and any(field.name in one.unique for one in sources):
            raise IngestError(
                f"{field.name} is a float, and floats that look the same may differ", place=Place(what=f"unique (--unique) of {kind.name}"), code="TL411",
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


class LeftOut(NamedTuple):
    """Which events are the same as another that stays, which conflict with it, and of which that other is in the log already."""

    same: Bools
    conflict: Bools
    in_log: Bools


def why_left_out(rule: Rule, *, in_log: bool) -> str:
    """The reason that stands in the quarantine."""
    return (
        f"an event of the log has the same {rule.text}"
        if in_log
        else f"another event has the same {rule.text}, and the {rule.keep} is taken"
    )


def left_out(rule: Rule, ts: I64, table: pa.Table, rank: I64) -> LeftOut:
    """Which events are to go.

    `rank` orders them; negative for those that are in a log already, of which the first counts, whatever the rule.
    """
    rows = len(ts)
    same, conflict = np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)
    times = pa.array(ts)
    keys, whole = numbered([times if f == "ts" else whole_array(table[f]) for f in rule.fields], rows)
    if rows == 0 or len(distinct(keys)) == rows:
        return LeftOut(same, conflict, same)
    alike, _ = numbered([times, *(whole_array(c) for c in table.columns)], rows)
    known = rank < 0
    last = -rank if rule.keep == "last" else rank
    order = np.lexsort((np.where(known, rank, last), ~known, keys))
    firsts = np.flatnonzero(np.diff(keys[order], prepend=-1))
    winner = np.empty(rows, np.int64)
    winner[order] = np.repeat(order[firsts], np.diff([*firsts.tolist(), rows]))
    loses = whole & (winner != np.arange(rows)) & ~known
    same = loses & (alike == alike[winner])
    return LeftOut(same, loses & ~same, known[winner])


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


def known_events(
    reader: LogReader, kind: EventType, rule: Rule, ts: I64, table: pa.Table
) -> tuple[I64, pa.Table]:
    """The events of a log that may have the same values as some of these, in its order: their times and fields.

    Of all events of the type only the rule's fields are read (of the times that these have, where the time is one of the fields); all
    fields of blocks in which something was found.
    """
    fields = [f.name for f in kind.fields]
    schema = pa.schema([pa.field("ts", pa.int64()), *table.schema])
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
        found += [part.select(schema.names).cast(schema) for part in rows_at(reader, kind, seqs)]
    both = pa.concat_tables(found)
    return both["ts"].to_numpy(), fields_table(kind, both.select(fields).columns, both.num_rows)
