"""A log's versions: what each is, which are still readable, and removing what no one needs."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.errors import LogError, Place
from timelapse.segments import manifest as stored
from timelapse.segments.beside import with_beside
from timelapse.segments.manifest import IngestEntry, Manifest, SegmentEntry
from timelapse.segments.place import changing, locked, opened
from timelapse.segments.quarantine import hide
from timelapse.segments.reader import LogReader
from timelapse.segments.segment import SegmentWriter, fields_table
from timelapse.segments.where import Where
from timelapse.store import commits
from timelapse.store.parts import sync
from timelapse.store.remote import RemotePath

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LogVersion:
    """A version of a log. `added`: events that came with it (negative: that went); `rewritten`: the first seq from which
    events stand elsewhere than in the version before (None: nowhere); `own_bytes`: of files that no later version uses;
    `replaced`: since when, in seconds since 1970, another is the newest (None: it is)."""

    number: int
    count: int
    added: int
    rewritten: int | None
    ts_first: int | None
    ts_last: int | None
    own_bytes: int
    replaced: float | None


def versions_of(path: Path) -> list[LogVersion]:
    """The versions of the log at `path` that can be opened, oldest first. Raises LogError."""
    path = opened(path)
    manifests = _manifests(path, stored.read(path))
    found: list[LogVersion] = []
    for at, one in enumerate(manifests):
        later = {s.folder for m in manifests[at + 1 :] for s in m.segments}
        own = (
            sum(f.bytes for s in one.segments if s.folder not in later for f in s.files)
            if at < len(manifests) - 1
            else 0
        )
        kept = path / "manifests" / f"{one.version:06d}.json"
        last = one.ingests[-1]
        before = manifests[at - 1].count if at else one.count - last.events
        found.append(
            LogVersion(
                one.version, one.count, one.count - before, last.rewritten, one.ts_first, one.ts_last, own,
                kept.stat().st_mtime if at < len(manifests) - 1 else None,
            )
        )  # fmt: skip
    return found


def _manifests(path: Path, current: Manifest) -> list[Manifest]:
    """The manifests of all versions, the current one last."""
    return [*(stored.read(path, n) for n in stored.kept(path) if n != current.version), current]


def expire(path: Path, seconds: float) -> list[int]:
    """Remove versions that were replaced at least so long ago, with the files that only they use; the newest stays.

    Runs over a version that is gone keep their results; they cannot be verified or asked why any more. Raises LogError.
    """
    if isinstance(path, RemotePath):
        return _expire_remote(path, seconds)
    with locked(path):
        gone = _replaced(path, seconds)
        for number in gone:
            (path / "manifests" / f"{number:06d}.json").unlink()
        sync(path / "manifests") if gone else None
        remove_unnamed(path, stored.read(path))
    return gone


def _replaced(path: Path, seconds: float) -> list[int]:
    """The versions that were replaced at least so many seconds ago."""
    now = time.time()
    return [v.number for v in versions_of(path) if v.replaced is not None and now - v.replaced >= seconds]


def _expire_remote(path: RemotePath, seconds: float) -> list[int]:
    """A version of the place without what the log's versions that go need alone; then its earlier versions go."""
    newest = path.at(None).newest()
    base, gone = newest.commit(), _replaced(newest, seconds)
    if base is None or not gone:
        stored.read(newest)  # says what is wrong
        return []
    stay = [one for one in _manifests(newest, stored.read(newest)) if one.version not in gone]
    named = {f"segments/{s.folder}/{f.name}" for one in stay for s in one.segments for f in s.files}
    named |= {f"quarantine/{name}" for one in stay for i in one.ingests for name in i.quarantine}
    named |= {stored.NAME, *(f"manifests/{one.version:06d}.json" for one in stay)}
    kept = {name: entry for name, entry in base.files.items() if name in named}
    commits.publish(newest.place, {}, before=base.number, kept=kept)
    commits.clean(newest.place)
    return gone


def remove_unnamed(log: Path, manifest: Manifest) -> None:
    """Remove what no version's manifest names: what a killed append left, and what only versions used that are gone."""
    versions = _manifests(log, manifest)
    segments = {s.folder for one in versions for s in one.segments}
    bad = {name for one in versions for i in one.ingests for name in i.quarantine}
    left = [p for p in log.iterdir() if p.name.startswith((".append-", f".{stored.NAME}."))]
    left += (log / "manifests").glob(".*")
    left += [p for p in (log / "segments").iterdir() if p.name not in segments]
    if (log / "quarantine").is_dir():
        left += [p for p in (log / "quarantine").iterdir() if p.name not in bad]
    for path in left:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def forget(path: Path, where: str) -> Forgotten:
    """Make a version without the events for which a condition holds (segments/where.py).

    In rows of the quarantine that tell a value of the condition, text and reason are taken out. Segments without such events stay the same files. Earlier versions have the events until they are removed (`expire`).
    Raises UsageError for a condition that is none, LogError (TL409) where it holds for no event.
    """
    condition = Where(where, "--forget")
    with changing(path) as (log, folder):
        current = stored.read(log)
        remove_unnamed(folder, current)
        reader = replace(LogReader.of(log, current), beside=True)
        kinds = {k.name: k for k in current.event_types}
        wanted = condition.types(kinds)

        def holds(segment: SegmentEntry) -> I64:
            lo, hi = segment.base, segment.base + segment.count
            found = [
                condition.keep(kinds[name], table)["seq"].to_numpy()
                for chunk in reader.chunks(lo, hi, dict.fromkeys(wanted))
                for name, table in chunk.tables.items()
            ]
            return np.sort(np.concatenate(found)) if found else np.zeros(0, np.int64)

        ingests, hidden = hide(log, folder, current.ingests, condition.values)
        gone = _leave_out(folder, current, reader, holds, ingests, always=hidden > 0)
        if not gone and not hidden:
            raise LogError(
                "the condition holds for no event", place=Place(str(path)), code="TL409",
                hint=f"timelapse log {path} --where ... shows those for which it holds",
            )  # fmt: skip
    return Forgotten(gone, hidden, condition.values != ())


class Forgotten(NamedTuple):
    """How many events are left out; in how many rows of the quarantine the text was taken out; whether the condition names
    values by which these could be found."""

    events: int
    hidden: int
    looked: bool


def keep(path: Path, seconds: float) -> int:
    """Make a version without the events that are more than so long before the log's end. How many they were; no version for none.

    Segments before that are left out as they are, one is written anew. Earlier versions have the events until they are
    removed (`expire`). Raises LogError.
    """
    with changing(path) as (log, folder):
        current = stored.read(log)
        remove_unnamed(folder, current)
        if current.ts_last is None:
            return 0
        reader = replace(LogReader.of(log, current), beside=True)
        end = reader.seq_at(current.ts_last - round(seconds * 1_000_000))

        def before(segment: SegmentEntry) -> I64:
            return np.arange(segment.base, max(segment.base, min(end, segment.base + segment.count)))

        return _leave_out(folder, current, reader, before, list(current.ingests))


def _leave_out(
    folder: Path, current: Manifest, reader: LogReader, of: Callable[[SegmentEntry], I64], ingests: list[IngestEntry], *,
    always: bool = False,
) -> int:  # fmt: skip
    """A version without the events of each segment that `of` gives, by rising seq. How many they were; no version for none, unless
    `always`."""
    segments: list[SegmentEntry] = []
    gone, first = 0, None
    for number, segment in enumerate(current.segments):
        seqs = of(segment)
        if not len(seqs):
            segments.append(segment)
            continue
        first = int(seqs[0]) if first is None else first
        gone += len(seqs)
        if len(seqs) < segment.count:
            segments += _without(folder, current, reader, segment, seqs, number)
    if first is None and not always:
        return 0
    sync(folder / "segments")
    # a condition itself may name a person: the manifest has only how many there were
    entry = IngestEntry(current.version + 1, 0, 0.0, [], [], stored.tool(), rewritten=first)
    made = stored.build(
        current.event_types, segments, [*ingests, entry], current.version + 1, current.segment
    )
    stored.keep(folder, current)
    stored.write(folder, made)
    return gone


def _without(
    folder: Path, current: Manifest, reader: LogReader, segment: SegmentEntry, seqs: I64, number: int
) -> list[SegmentEntry]:
    """A segment written anew without some events; none where none is left. No manifest names it yet."""
    types = current.event_types
    numbers = {t.name: n for n, t in enumerate(types)}
    kept = sorted({name for f in segment.files for name in f.beside})
    writer = SegmentWriter(folder / "segments", f"{number:06d}-{current.version + 1:04d}", types, kept)
    for chunk in reader.chunks(segment.base, segment.base + segment.count, dict.fromkeys(numbers)):
        tables = {
            numbers[name]: table.filter(pa.array(~np.isin(table["seq"].to_numpy(), seqs)))
            for name, table in chunk.tables.items()
        }
        seq = np.concatenate([t["seq"].to_numpy() for t in tables.values()])
        ts = np.concatenate([t["ts"].cast(pa.int64()).to_numpy() for t in tables.values()])
        kinds = np.concatenate([np.full(t.num_rows, n) for n, t in tables.items()])
        order = np.argsort(seq)
        fields = {
            n: with_beside(
                fields_table(types[n], [t[f.name].combine_chunks() for f in types[n].fields], t.num_rows),
                {name: t[name] for name in kept},
            )
            for n, t in tables.items()
        }
        writer.write(ts[order], kinds[order], fields)
    return [writer.close()] if writer.count else []
