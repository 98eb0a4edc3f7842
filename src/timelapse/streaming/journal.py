"""The journal of a live run as a log: for replays, `timelapse parity`, `why`, and whatever else reads logs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from timelapse.log import Log
from timelapse.log import manifest as stored
from timelapse.log.manifest import IngestEntry, SegmentEntry
from timelapse.log.place import locked
from timelapse.log.segment import SEGMENT_EVENTS, fields_table, write_ordered
from timelapse.log.types import EventType
from timelapse.store.parts import sync
from timelapse.streaming import chain
from timelapse.streaming.format import Epoch, LiveRun
from timelapse.streaming.pack import Pack
from timelapse.streaming.place import LocalPlace

FOLDER = "journal"


def types_of(run: LiveRun) -> tuple[EventType, ...]:
    """The event types of a live run, by number."""
    return tuple(EventType.parse(name, fields) for name, fields in run.types)


def journal(out: Path, upto: int | None = None) -> tuple[Log, Epoch | None]:
    """The journal as a log, with the epochs that were committed meanwhile added to it; and the last of these.

    `upto`: no further than this epoch. Raises RunError, StorageError.
    """
    place = LocalPlace(out)
    run, _ = chain.read_run(place)
    folder, types = out / FOLDER, types_of(run)
    if not (folder / stored.NAME).is_file():
        if folder.exists():
            shutil.rmtree(folder)
        Log.from_events(folder, [], _classes(types))
    newest = chain.newest(place)
    last = newest if upto is None else min(upto, newest)
    with locked(folder):
        current = stored.read(folder)
        count = run.first_seq + current.count
        first = _first_after(place, count, last)
        found: Epoch | None = chain.read_epoch(place, last).about if last else None
        if found is not None and first <= last and found.end_seq > count:
            segments = _write(folder, types, place, first, last)
            entry = IngestEntry(current.version + 1, found.end_seq - count, 0.0, [], [], stored.tool())
            manifest = stored.build(
                types, [*current.segments, *segments], [*current.ingests, entry], current.version + 1
            )
            sync(folder / "segments")
            stored.keep(folder, current)
            stored.write(folder, manifest)
    return Log.open(folder), found


def _classes(types: tuple[EventType, ...]) -> list[type]:
    return [kind.event_class() for kind in types]


def _first_after(place: LocalPlace, count: int, last: int) -> int:
    """The first epoch whose rows begin at this seq or later."""
    low, high = 1, last + 1
    while low < high:
        middle = (low + high) // 2
        if chain.read_epoch(place, middle).about.first_seq < count:
            low = middle + 1
        else:
            high = middle
    return low


def _write(
    folder: Path, types: tuple[EventType, ...], place: LocalPlace, first: int, last: int
) -> list[SegmentEntry]:
    """Write epochs as segments."""
    done: list[SegmentEntry] = []
    waiting: list[Pack[Epoch]] = []
    for pack in chain.epochs(place, first, last):
        waiting.append(pack)
        if pack.about.number == last or sum(p.about.rows for p in waiting) >= SEGMENT_EVENTS:
            done += _segments(folder, types, waiting)
            waiting = []
    return done


def _segments(
    folder: Path, types: tuple[EventType, ...], packs: Sequence[Pack[Epoch]]
) -> Iterator[SegmentEntry]:
    """Some epochs as segments."""
    tables, ts, seqs = [], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for kind in types:
        name = f"journal/{kind.name}"
        parts = [p.table(name) for p in packs if name in p.sections]
        whole = pa.concat_tables(parts).combine_chunks() if parts else None
        columns = [] if whole is None else [whole.column(f.name) for f in kind.fields]
        columns = columns or [pa.array([], f.type.arrow) for f in kind.fields]
        tables.append(fields_table(kind, columns, 0 if whole is None else whole.num_rows))
        if whole is not None:
            ts.append(whole.column("ts").to_numpy())
            seqs.append(whole.column("seq").to_numpy())
    order = np.argsort(np.concatenate(seqs))
    return write_ordered(folder / "segments", types, tables, np.concatenate(ts), order)
