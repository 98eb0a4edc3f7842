"""Which outputs depend on the order of events: a replay of the log in its other order, of arrival or of the events' own times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.checks.findings import Finding
from timelapse.display import span
from timelapse.env.machine import memory_alone
from timelapse.errors import TimelapseError
from timelapse.ids import INT64_MAX
from timelapse.log import Log
from timelapse.log.part import reading
from timelapse.progress import Progress
from timelapse.progress.patience import looking
from timelapse.run import Run
from timelapse.segments import manifest as stored
from timelapse.segments.beside import BESIDE, LATE, known_late
from timelapse.segments.manifest import IngestEntry
from timelapse.segments.segment import write_ordered
from timelapse.store.scratch import process_folder
from timelapse.tables.rowhash import row_hashes

_PLACE = ("ts", "phase", "seq", "ordinal")
_COPIES = 4
"""So many times what events take is in memory when they are sorted."""
_ORDERING = "putting the events in the other order"
I64 = npt.NDArray[np.int64]


def orders(log: Log, whole: Run, run: Callable[[Log], Run], progress: Progress) -> Iterator[Finding]:
    """How many outputs change between the order of events and that of arrival, where the log knows how late rows arrived."""
    said = {
        str(source.source.get("order", "event"))
        for ingest in log.manifest.ingests
        for source in ingest.sources
        if source.source.get("arrival")
    }
    if not any(LATE in f.beside for s in log.manifest.segments for f in s.files) or not said:
        return
    if len(said) > 1:
        yield Finding(
            "orders",
            "note",
            "some sources are ordered by arrival, others by event: their other order was not replayed",
        )
        return
    by_arrival = said == {"arrival"}
    name = "the events' own times" if by_arrival else "arrival"
    with looking(progress, _ORDERING):
        held = _held(log)
    if held is None:
        yield Finding(
            "orders", "note", f"the order of {name} was not replayed: the log does not fit into memory",
            f'ingest it with order = "{"event" if by_arrival else "arrival"}" too, and compare: timelapse diff',
        )  # fmt: skip
        return
    tables, ts, seq, late = held
    moved = ts - late if by_arrival else ts + late
    kinds = np.repeat(np.arange(len(tables)), [t.num_rows for t in tables])
    with looking(progress, _ORDERING):
        order = np.lexsort((seq, kinds, moved))
        before = np.argsort(seq, kind="stable")
        places = int((order != before).sum())
    folder = process_folder("orders", large=True)
    try:
        with looking(progress, _ORDERING):
            other = _written(folder, log, tables, moved, order)
        found = run(other)
    except TimelapseError as error:
        yield Finding(
            "orders", "warning", f"a replay in the order of {name} fails: {error.code} {error.message}"
        )
        return
    most_late = int(np.abs(late).max(initial=0))
    gone: dict[str, int] = {}
    new: dict[str, int] = {}
    with looking(progress, "comparing the outputs of both orders"):
        for record in whole.counts:
            gone[record], new[record] = _apart(whole.stored(record), found.stored(record))
    total, changed = sum(whole.counts.values()), sum(gone.values()) + sum(new.values())
    details = {
        "gone": gone,
        "new": new,
        "outputs": total,
        "events_elsewhere": places,
        "most_late": most_late,
    }
    text = f"in the order of {name} {places:,} of {len(ts):,} events stand elsewhere"
    if not changed:
        yield Finding("orders", "ok", f"{text}, and all {total:,} outputs are the same", "", details)
        return
    parts = ", ".join(f"{n} {gone[n]:,} gone, {new[n]:,} new" for n in whole.counts if gone[n] or new[n])
    yield Finding(
        "orders", "warning", f"{text} (late by up to {span(most_late)}), and of {total:,} outputs change: {parts}",
        "this log is in the order of arrival, as production saw it; in that of the events' times a replay would see what production could not have known"
        if by_arrival
        else "a replay by the events' times sees what production could not have known when it decided; order = \"arrival\" (--order) replays what it saw",
        details,
    )  # fmt: skip


_Held = tuple[list[pa.Table], I64, I64, I64]


def _held(log: Log) -> _Held | None:
    """The events' fields by type, and their times, seqs and lateness, one type after the other; None where they are too many."""
    reader = reading(log.reader, beside=True)
    most = memory_alone() // _COPIES
    own: dict[str, list[pa.Table]] = {t.name: [] for t in log.types}
    size = 0
    for chunk in reader.chunks(0, INT64_MAX, dict.fromkeys(own)):
        for name, table in chunk.tables.items():
            own[name].append(table)
            size += table.nbytes
        if size > most:
            return None
    tables: list[pa.Table] = []
    columns: list[list[I64]] = [[], [], []]
    for kind in log.types:
        parts = own[kind.name]
        if not parts:
            tables.append(kind.schema.empty_table())
            continue
        table = pa.concat_tables(parts)
        for column, values in zip(
            columns, (table["ts"].cast(pa.int64()), table["seq"], known_late(table)), strict=True
        ):
            column.append(np.asarray(values, np.int64))
        tables.append(
            table.drop_columns(["ts", "seq", *BESIDE.names]) if kind.fields else table.select(["seq"])
        )
    ts, seq, late = (np.concatenate([np.zeros(0, np.int64), *c]) for c in columns)
    return tables, ts, seq, late


def _written(folder: Path, log: Log, tables: list[pa.Table], ts: I64, order: I64) -> Log:
    """The events as a log, with these times and in this order."""
    where = folder / "log"
    (where / "segments").mkdir(parents=True)
    segments = list(write_ordered(where / "segments", log.types, tables, ts, order))
    entry = IngestEntry(1, len(ts), 0.0, [], [], stored.tool())
    stored.write(where, stored.build(log.types, segments, [entry]))
    return Log.open(where)


def _apart(one: pa.Table, other: pa.Table) -> tuple[int, int]:
    """How many rows only the first has, and only the second, by their fields; a row may be there several times."""
    hashes = []
    for table in (one, other):
        fields = [table[n].combine_chunks() for n in table.column_names if n not in _PLACE]
        lanes = [row_hashes(fields, table.num_rows, 0, lane) for lane in (0, 1)] if fields else []
        rows = np.stack(lanes, axis=1) if lanes else np.zeros((table.num_rows, 2), np.uint64)
        hashes.append(rows)
    both, codes = np.unique(np.concatenate(hashes), axis=0, return_inverse=True)
    codes = codes.ravel()
    counts = [np.bincount(c, minlength=len(both)) for c in np.split(codes, [len(hashes[0])])]
    apart = counts[0] - counts[1]
    return int(apart[apart > 0].sum()), int(-apart[apart < 0].sum())
