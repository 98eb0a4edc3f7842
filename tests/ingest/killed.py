"""What processes that are killed while they write a log write."""

from __future__ import annotations

import timelapse as tl


class Hit(tl.Event):
    user: int


FIRST = [Hit(n, ts=n) for n in range(40)]


def fake_ingest(spark, sources, folder, floor, rows, partitions, log=None, progress=None, period=None):  # type: ignore[no-untyped-def]
    """What Spark's tasks leave: two segments, one of an attempt that did not count, and a quarantine file."""
    from timelapse.ingest.noticed import Noticed, Stretch
    from timelapse.ingest.plan import Plan
    from timelapse.ingest.prepare import Prepared
    from timelapse.ingest.source import Source
    from timelapse.ingest.task import TaskReport
    from timelapse.segments.segment import write_events
    from timelapse.segments.types import event_types

    kinds = event_types([Hit])
    later = [Hit(n, ts=n) for n in range(100, 140)]
    entries = [
        entry
        for part in (later[:20], later[20:])
        for entry in write_events(folder / "segments", kinds, part, 16)
    ]
    list(write_events(folder / "segments", kinds, later[:7], 16))
    (folder / "quarantine" / "abandoned.parquet").write_bytes(b"half")
    prepared = Prepared(Plan.of(kinds[0], Source("x"), None, (), floor), Source("x"), [], 40, [], None)
    seen = Noticed(read=40, times={"ts": {1970: Stretch(40, 100, 139, (0, 1, 100))}})
    return [prepared], [TaskReport(segments=entries, noticed={0: seen})]
