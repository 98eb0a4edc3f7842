"""One program's outputs as another program's log."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import pyarrow as pa

from timelapse.env.jobs import Here, Jobs
from timelapse.errors import LogError, Place, meant
from timelapse.model.events import Event, Record
from timelapse.model.types import INT, ValueType
from timelapse.segments.manifest import SegmentEntry
from timelapse.segments.periods import Period, check_number
from timelapse.segments.segment import write_ordered
from timelapse.segments.types import EventType, event_types

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PLACE = ("ts", "phase", "seq", "ordinal")


class Outputs(Protocol):
    """What has outputs: a finished run."""

    def stored(self, record: Any) -> pa.Table:
        """Columns `ts`, `phase`, `seq`, `ordinal`, then the fields."""
        ...

    def schema(self, record: Any) -> pa.Schema:
        """These columns' names and types."""
        ...

    @property
    def shared(self) -> bool:
        """Whether tasks of Spark can read them, as far as is known."""
        ...

    def portions(self, records: Sequence[Any]) -> Sequence[Any]:
        """The same in portions by place, each with `stored`, which takes a record type's name. They follow one another."""
        ...


def write_outputs(
    folder: Path, run: Outputs, events: Mapping[Any, type[Event]], origin: str | None,
    spark: SparkSession | Literal[False] | None = None, period: Period | None = None,
) -> tuple[tuple[EventType, ...], list[SegmentEntry]]:  # fmt: skip
    """Write a run's outputs as segments of a log: see Log.from_run."""
    classes = list(dict.fromkeys(events.values()))
    kinds = event_types(classes)
    number = {cls: n for n, cls in enumerate(classes)}
    for record, event in events.items():
        _check_fields(run, record, kinds[number[event]], origin)
    of = tuple(
        (record if isinstance(record, str) else record.__name__, number[e]) for record, e in events.items()
    )
    portions = run.portions(list(events))

    def work(part: int) -> bytes:
        name = "" if len(portions) == 1 else f"{part:06d}-"
        return pickle.dumps(_written(folder, portions[part], kinds, of, origin, name, period))

    jobs = Here() if len(portions) == 1 else _jobs(spark if spark or run.shared else False)
    found = jobs.each(work, len(portions), f"outputs as a log: {', '.join(k.name for k in kinds)}")
    segments = [segment for data in found for segment in pickle.loads(data)]  # noqa: S301 our own bytes
    check_number(period, segments)
    listed = {segment.folder for segment in segments}
    for left in folder.iterdir():  # by a task that was given up, and done again
        if left.name not in listed:
            shutil.rmtree(left, ignore_errors=True)
    return kinds, segments


def _jobs(spark: SparkSession | Literal[False] | None) -> Jobs:
    """The session that is given or active, else this process, portion after portion."""
    if spark is not False:
        from timelapse.env.spark_session import existing

        found = spark or existing()
        if found is not None:
            from timelapse.env.spark_jobs import SparkJobs

            return SparkJobs(found)
    return Here()


def _written(
    folder: Path, outputs: Any, kinds: Sequence[EventType], of: Sequence[tuple[str, int]], origin: str | None, name: str,
    period: Period | None,
) -> list[SegmentEntry]:  # fmt: skip
    """Write a portion. `of`: the number of the event type that each record type becomes."""
    parts: list[pa.Table] = []
    for number, kind in enumerate(kinds):
        whole = pa.concat_tables(
            [_renamed(outputs.stored(record), kind, origin) for record, n in of if n == number]
        )
        parts.append(whole.append_column("_kind", pa.array(np.full(whole.num_rows, number, np.int64))))
    places = [np.concatenate([_ints(t, n) for t in parts]) for n in (*_PLACE, "_kind")]
    order = np.lexsort(places[3::-1])
    tables = [t.select(kind.schema.names) if kind.fields else t for t, kind in zip(parts, kinds, strict=True)]
    return list(write_ordered(folder, kinds, tables, places[0], order, name=name, period=period))


def _ints(table: pa.Table, name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.asarray(table.column(name).cast(pa.int64()), np.int64)


def _check_fields(run: Outputs, record: Any, kind: EventType, origin: str | None) -> None:
    """Raise LogError (TL409) where a record's outputs are not what the event has."""
    if not isinstance(record, str) and not (isinstance(record, type) and issubclass(record, Record)):
        raise _unfit(f"{record!r} is no record class", kind, "give {RecordClass: EventClass}")
    name = record if isinstance(record, str) else record.__name__
    held = {f.name: f for f in run.schema(record) if f.name not in _PLACE}
    texts = {n: str(f.type) + ("" if not f.nullable else " | None") for n, f in held.items()}
    if not isinstance(record, str):
        texts = {f.name: f.type.text for f in record.__fields__}
    for field in kind.fields:
        if field.name == origin:
            if field.type != INT:
                raise _unfit(f"{kind.name}.{field.name} is to hold a seq: it must be an int", kind, "")
        elif field.name not in held:
            raise _unfit(
                f"{kind.name}.{field.name} is no field of {name}", kind,
                f"{meant(field.name, texts)}its fields: {', '.join(f'{n}: {t}' for n, t in texts.items()) or 'none'}; "
                "origin= (--origin) names the field that gets the seq of the event behind a record",
            )  # fmt: skip
        elif not _readable_as(held[field.name], field.type):
            raise _unfit(
                f"{kind.name}.{field.name} is {field.type.text}, {name}.{field.name} is {texts[field.name]}",
                kind, "give both the same type",
            )  # fmt: skip


def _renamed(stored: pa.Table, kind: EventType, origin: str | None) -> pa.Table:
    """A record's outputs in the columns of the event that they become."""
    columns = {name: stored.column(name) for name in _PLACE}
    for field in kind.fields:
        column = stored.column("seq" if field.name == origin else field.name)
        columns[field.name] = column if field.name == origin else column.cast(field.type.arrow)
    return pa.table(columns)


def _readable_as(stored: pa.Field, wanted: ValueType) -> bool:
    """Whether every stored value is a value of the wanted type, unchanged. Time and int are both int64."""
    if stored.nullable and not wanted.nullable:
        return False
    return bool(_plain(stored.type) == _plain(wanted.arrow))


def _plain(kind: pa.DataType) -> pa.DataType:
    """A type with times as the integers that they are."""
    if pa.types.is_list(kind):
        item = kind.value_field
        return pa.list_(item.with_type(_plain(item.type)))
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def _unfit(message: str, kind: EventType, hint: str) -> LogError:
    return LogError(message, place=Place(what=kind.name), hint=hint or None, code="TL409")
