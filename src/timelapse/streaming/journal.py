"""The journal of a live run as a log: for replays, `timelapse parity`, `why`, and whatever else reads logs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from timelapse.decoding import decoded
from timelapse.errors import LogError
from timelapse.ids import INT64_MAX, INT64_MIN
from timelapse.log import Log
from timelapse.segments import manifest as stored
from timelapse.segments.manifest import IngestEntry, SegmentEntry
from timelapse.segments.place import locked
from timelapse.segments.segment import SEGMENT_EVENTS, fields_table, write_ordered
from timelapse.segments.types import EventType
from timelapse.store.moves import aside, put_folder, take_away
from timelapse.store.parts import sync, write_part
from timelapse.streaming import chain
from timelapse.streaming.declared import types_of
from timelapse.streaming.format import Epoch
from timelapse.streaming.place import LivePlace, RunPlace
from timelapse.streaming.versions import Inserted, corrections, journalled

FOLDER = "journal"


def journal(place: LivePlace, upto: int | None = None) -> tuple[Log, Epoch | None]:
    """The journal as a log, with the epochs that were committed meanwhile added to it; and the last of these.

    `upto`: no further than this epoch. Raises RunError, StorageError.
    """
    run, _ = chain.read_run(place)
    folder = place.local / FOLDER
    if not (folder / stored.NAME).is_file():
        _create(folder, types_of(place, run, None))
    with _turn(folder):
        newest = chain.newest(place)
        number = newest if upto is None else min(upto, newest)
        if not number:
            return Log.open(folder), None
        last = chain.read_epoch(place, number).about
        types, current = types_of(place, run, last), stored.read(folder)
        covered, attempt = _covered(folder).get(str(current.version), (0, ""))
        if covered and not (covered <= newest and chain.read_about(place, covered).attempt == attempt):
            covered, current = 0, msgspec.structs.replace(current, ingests=[], segments=[], count=0)
        if covered < number:
            _extend(folder, types, place, run.first_seq, current, covered, last)
        return Log.open(folder), last


def as_live(log: Log, last: Epoch, start_from: str | Path | None, *, takes_out: bool) -> dict[str, Any]:
    """Options of a replay of the journal up to an epoch that does what the live run did.

    `takes_out`: failing events, as many as there are, since a live run bounds them by epoch.
    """
    found: dict[str, Any] = {
        "until": None if last.begin is None else last.complete,
        "start_from": start_from,
        "cache": False,
        "allow_impure": True,
    }
    return found | ({"quarantine": True, "max_quarantined": max(1, log.count)} if takes_out else {})


def _create(folder: Path, types: tuple[EventType, ...]) -> None:
    """An empty log, whole from the moment that it is there: other processes ask for the journal, too."""
    with aside(folder) as made:
        Log.from_events(made, [], _classes(types))
        if put_folder(made, folder, lasting=True) or (folder / stored.NAME).is_file():
            return  # where another process was quicker, its log stays
        take_away(folder)  # what is no log is of nobody who works
        put_folder(made, folder, lasting=True)


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """One process at a time adds epochs. Raises LogError (TL406) where another one still does after a while."""
    end = time.monotonic() + _PATIENCE
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(locked(folder))
                break
            except LogError:
                if time.monotonic() > end:
                    raise
            time.sleep(_LOOK)
        yield


_PATIENCE, _LOOK = 60.0, 0.05
"""Seconds for which it is waited for another process that adds epochs, and between two looks."""


def _extend(
    folder: Path, types: tuple[EventType, ...], place: RunPlace, begins: int, current: stored.Manifest, covered: int, last: Epoch
) -> None:  # fmt: skip
    """Add the epochs behind one to the log; where rows were inserted, what stands behind the first of them is written anew."""
    if current.event_types != types:
        covered = 0  # its rows have other fields: all are written anew
    later = corrections(place, last, covered) if covered else []
    cuts = [p.about.correction.cut for p in later if p.about.correction is not None and p.names("inserted")]
    kept = [s for s in current.segments if covered and s.ts_last[-1] < min(cuts, default=INT64_MAX)]
    rows = sum(s.count for s in kept)
    if rows < current.count or not covered:
        first = first_reaching(place, kept[-1].ts_last[-1], last.number) if kept else 1
    else:
        first = covered + 1
    if covered and last.end_seq - begins == current.count and not cuts:
        _cover(folder, current.version, last)
        return
    segments = _write(folder, types, place, first, last, begins + rows)
    version = current.version + 1
    inserted = sum(p.table(f"inserted/{name}").num_rows for p in later for name in p.names("inserted"))
    entry = IngestEntry(
        version,
        last.end_seq - begins - current.count,
        0.0,
        [],
        [],
        stored.tool(),
        inserted,
        rows if cuts else None,
    )
    manifest = stored.build(types, [*kept, *segments], [*current.ingests, entry], version)
    sync(folder / "segments")
    stored.keep(folder, current)
    _cover(folder, version, last)
    stored.write(folder, manifest)


COVERED = "epochs.json"
"""The epoch up to which the log goes, and the attempt that committed it, by the log's version: a run that was restored has other epochs by these numbers."""


def _covered(folder: Path) -> dict[str, tuple[int, str]]:
    try:
        return decoded((folder / COVERED).read_bytes(), dict[str, tuple[int, str]])
    except (FileNotFoundError, msgspec.MsgspecError):  # the log is written anew
        return {}


def _cover(folder: Path, version: int, last: Epoch) -> None:
    """Note up to which epoch a version of the log goes, before it is there."""
    known = {v: e for v, e in _covered(folder).items() if int(v) >= version - 1}
    known[str(version)] = last.number, last.attempt
    write_part(folder / COVERED, msgspec.json.encode(known), lasting=True)


def first_reaching(place: RunPlace, ts: int, last: int) -> int:
    """The first epoch that goes up to a time or beyond."""
    low, high = 1, last
    while low < high:
        middle = (low + high) // 2
        complete = chain.read_about(place, middle).complete
        if complete is None or complete < ts:
            low = middle + 1
        else:
            high = middle
    return low


def _classes(types: tuple[EventType, ...]) -> list[type]:
    return [kind.event_class() for kind in types]


def _write(
    folder: Path, types: tuple[EventType, ...], place: RunPlace, first: int, last: Epoch, since: int
) -> list[SegmentEntry]:
    """Write the rows of epochs from `first` on, in the newest version, from the seq `since` on, as segments."""
    inserted = Inserted(types)
    inserted.add_all(corrections(place, last, first - 1))
    before = chain.read_epoch(place, first - 1).about.complete if first > 1 else None
    own = sum(
        pack.about.rows for pack in chain.epochs(place, first, last.number) if pack.about.correction is None
    )
    complete = INT64_MIN if last.complete is None else last.complete
    seq = last.end_seq - own - inserted.more(before, complete)
    done: list[SegmentEntry] = []
    waiting: list[Mapping[str, pa.Table]] = []
    rows = 0
    for pack in chain.epochs(place, first, last.number):
        about = pack.about
        if about.correction is None and about.complete is not None:
            taken = journalled(types, pack, inserted, before, seq)
            before, seq = about.complete, seq + taken.rows
            tables = {
                n: t.filter(pa.array(t.column("seq").to_numpy() >= since)) for n, t in taken.tables.items()
            }
            waiting.append(tables)
            rows += sum(t.num_rows for t in tables.values())
        if rows >= SEGMENT_EVENTS or (about.number == last.number and rows):
            done += _segments(folder, types, waiting)
            waiting, rows = [], 0
    return done


def _segments(
    folder: Path, types: tuple[EventType, ...], epochs: Sequence[Mapping[str, pa.Table]]
) -> Iterator[SegmentEntry]:
    """The rows of some epochs as segments."""
    tables, ts, seqs = [], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for kind in types:
        parts = [own[kind.name] for own in epochs if kind.name in own]
        whole = pa.concat_tables(parts).combine_chunks() if parts else None
        columns = [] if whole is None else [whole.column(f.name) for f in kind.fields]
        columns = columns or [pa.array([], f.type.arrow) for f in kind.fields]
        tables.append(fields_table(kind, columns, 0 if whole is None else whole.num_rows))
        if whole is not None:
            ts.append(whole.column("ts").to_numpy())
            seqs.append(whole.column("seq").to_numpy())
    order = np.argsort(np.concatenate(seqs))
    return write_ordered(folder / "segments", types, tables, np.concatenate(ts), order)
