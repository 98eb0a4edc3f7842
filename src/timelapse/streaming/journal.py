"""The journal of a live run as a log: for replays, `timelapse parity`, `why`, and whatever else reads logs."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa

from timelapse.log import Log
from timelapse.log import manifest as stored
from timelapse.log.manifest import IngestEntry, SegmentEntry
from timelapse.log.place import locked
from timelapse.log.segment import BLOCK_EVENTS, SEGMENT_EVENTS, SegmentWriter, fields_table
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
    writer: SegmentWriter | None = None
    waiting: list[Pack[Epoch]] = []
    rows = 0

    def flush() -> None:
        nonlocal writer, waiting, rows
        if not rows:
            waiting = []
            return
        if writer is None:
            writer = SegmentWriter(folder / "segments", f"live-{uuid.uuid4().hex[:8]}", types)
        tables: dict[int, pa.Table] = {}
        for number, kind in enumerate(types):
            parts = [p.table(f"journal/{kind.name}") for p in waiting if f"journal/{kind.name}" in p.sections]
            if parts:
                tables[number] = pa.concat_tables(parts).combine_chunks()
        seqs = {n: t.column("seq").to_numpy() for n, t in tables.items()}
        base = min(int(s[0]) for s in seqs.values())
        ts, kinds = np.empty(rows, np.int64), np.empty(rows, np.int64)
        for number, seq in seqs.items():
            ts[seq - base] = tables[number].column("ts").to_numpy()
            kinds[seq - base] = number
        for lo in range(0, rows, BLOCK_EVENTS):
            hi = min(lo + BLOCK_EVENTS, rows)
            block = {}
            for number, table in tables.items():
                a, b = np.searchsorted(seqs[number], [base + lo, base + hi]).tolist()
                fields = [table.column(f.name).slice(a, b - a).combine_chunks() for f in types[number].fields]
                arrays = [c if isinstance(c, pa.Array) else pa.concat_arrays(c.chunks) for c in fields]
                block[number] = fields_table(types[number], arrays, b - a)
            writer.write(ts[lo:hi], kinds[lo:hi], block)
        if writer.count + BLOCK_EVENTS > SEGMENT_EVENTS:
            done.append(writer.close())
            writer = None
        waiting, rows = [], 0

    for pack in chain.epochs(place, first, last):
        waiting.append(pack)
        rows += pack.about.rows
        if rows >= BLOCK_EVENTS:
            flush()
    flush()
    if writer is not None:
        done.append(writer.close())
    return done
