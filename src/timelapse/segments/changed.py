"""From where on one version of a log has other events than another, and the proof that before a place it has not."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from timelapse.errors import TimelapseError
from timelapse.segments.manifest import Manifest
from timelapse.segments.reader import LogReader
from timelapse.segments.segment import content_sums
from timelapse.tables.rowhash import one_array, seed_of


def first_changed(before: Manifest, now: Manifest) -> int | None:
    """The first seq from which a later version has other events than one before it; None: it has all of those, and perhaps more
    behind them. As its ingests say; where none says so, its segments tell, whoever wrote them."""
    places = [i.rewritten for i in now.ingests if i.version > before.version and i.rewritten is not None]
    alike = _alike(before, now)
    if alike < before.count and not places:
        return alike
    return min(places, default=None)


def same_events(path: Path, before: Manifest, now: Manifest, end: int) -> bool:
    """Whether the events with seq < end are proven to be the same in two versions of the log at `path`, field by field.

    Hashes of whole segments prove it as far as both have the same segments; behind them both are read up to `end`, and what is
    read is hashed alike. False too where a file of one of them cannot be read.
    """
    if before.event_types != now.event_types or end > min(before.count, now.count):
        return False
    since = _alike(before, now)
    if since >= end:
        return True
    try:
        found = [_content(LogReader.of(path, manifest), since, end) for manifest in (before, now)]
    except (TimelapseError, OSError, pa.ArrowException):
        return False
    return found[0] == found[1]


def _alike(before: Manifest, now: Manifest) -> int:
    """So many events stand in segments that both versions have, from the first on."""
    alike = 0
    for one, other in zip(before.segments, now.segments, strict=False):
        if (one.count, one.content) != (other.count, other.content):
            break
        alike += one.count
    return alike


def _content(reader: LogReader, lo: int, hi: int) -> list[int]:
    """A hash of the events lo <= seq < hi and of their seqs: how many there are, then two lanes of two sums."""
    kinds, found = {kind.name: kind for kind in reader.types}, [0] * 5
    for chunk in reader.chunks(lo, hi, dict.fromkeys(kinds)):
        for name, table in chunk.tables.items():
            kind, places = kinds[name], table["seq"].to_numpy()
            fields = [table["ts"].cast(pa.int64()), *(table[field.name] for field in kind.fields)]
            columns, seed = [one_array(column) for column in fields], seed_of(str(kind))
            found[0] += len(places)
            sums = [sum_ for lane in content_sums(columns, places, seed) for sum_ in lane]
            found[1:] = [a + b for a, b in zip(found[1:], sums, strict=True)]
    return [n & (1 << 64) - 1 for n in found]
