"""One program's outputs as another program's log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from timelapse.errors import LogError, Place, meant
from timelapse.log.manifest import SegmentEntry
from timelapse.log.segment import write_ordered
from timelapse.log.types import EventType, event_types
from timelapse.model.events import Event, Record
from timelapse.model.types import INT, ValueType

_PLACE = ("ts", "phase", "seq", "ordinal")


class Outputs(Protocol):
    """What has outputs: a finished run."""

    def stored(self, record: type[Record] | str) -> pa.Table:
        """Columns `ts`, `phase`, `seq`, `ordinal`, then the fields."""
        ...


def write_outputs(
    folder: Path, run: Outputs, events: Mapping[Any, type[Event]], origin: str | None
) -> tuple[tuple[EventType, ...], list[SegmentEntry]]:
    """Write a run's outputs as segments of a log: see Log.from_run."""
    classes = list(dict.fromkeys(events.values()))
    kinds = event_types(classes)
    parts: list[pa.Table] = []
    for number, (cls, kind) in enumerate(zip(classes, kinds, strict=True)):
        own = [_renamed(run, record, kind, origin) for record, event in events.items() if event is cls]
        whole = pa.concat_tables(own)
        parts.append(whole.append_column("_kind", pa.array(np.full(whole.num_rows, number, np.int64))))
    places = [np.concatenate([_ints(t, name) for t in parts]) for name in (*_PLACE, "_kind")]
    order = np.lexsort(places[3::-1])
    tables = [t.select(kind.schema.names) if kind.fields else t for t, kind in zip(parts, kinds, strict=True)]
    segments = list(write_ordered(folder, kinds, tables, places[0], order))
    return kinds, segments


def _ints(table: pa.Table, name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.asarray(table.column(name).cast(pa.int64()), np.int64)


def _renamed(run: Outputs, record: type[Record] | str, kind: EventType, origin: str | None) -> pa.Table:
    """A record's outputs in the columns of the event that they become."""
    if not isinstance(record, str) and not (isinstance(record, type) and issubclass(record, Record)):
        raise _unfit(f"{record!r} is no record class", kind, "give {RecordClass: EventClass}")
    stored = run.stored(record)
    name = record if isinstance(record, str) else record.__name__
    held = {f.name: f for f in stored.schema if f.name not in _PLACE}
    texts = {n: str(f.type) + ("" if not f.nullable else " | None") for n, f in held.items()}
    if not isinstance(record, str):
        texts = {f.name: f.type.text for f in record.__fields__}
    columns = {name: stored.column(name) for name in _PLACE}
    for field in kind.fields:
        if field.name == origin:
            if field.type != INT:
                raise _unfit(f"{kind.name}.{field.name} is to hold a seq: it must be an int", kind, "")
            columns[field.name] = stored.column("seq")
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
        else:
            columns[field.name] = stored.column(field.name).cast(field.type.arrow)
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
