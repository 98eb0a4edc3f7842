"""What the rows of files take in memory, before they are read: their number times their width.

Parquet files say how many rows they have; how many a text file has, and how wide rows are once they are columns, is
measured on samples. A file's size says little: a column of few different texts may take a hundred times its file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import pyarrow as pa

from timelapse.ingest import records
from timelapse.ingest.batches import Batch
from timelapse.ingest.doubts import refuse_without_zone
from timelapse.ingest.files import SourceFile
from timelapse.ingest.parse import parse_lines
from timelapse.ingest.prepare import PACKED_FACTOR, Prepared, Task, read_task
from timelapse.tables.coded import plain_bytes

SAMPLES = 3
"""Samples of a source: at its beginning, in its middle, near its end."""
_SAMPLE_BYTES = 96 << 10
"""Bytes of text in a sample."""
_UNPACKED = 16 << 20
"""So much of a compressed file is unpacked to see how much larger it becomes."""


def held_bytes(batch: Batch) -> int:
    """What a batch's events take as values: times and fields."""
    return int(batch.ts.nbytes) + sum(map(plain_bytes, batch.columns))


def memory_of(one: Prepared) -> int:
    """The bytes that a source's events take as columns; for text files, and where widths differ, about. Raises IngestError."""
    if one.table is not None:
        return int(one.table.nbytes)
    sampled = _spread(one.tasks)
    if one.plan.format not in ("csv", "json", "text"):
        rows = taken = 0
        for task in sampled:
            for _, batch in islice(read_task(replace(task, groups=task.groups[:1]), one.plan), 1):
                rows += len(batch.ts) + len(batch.bad)
                taken += held_bytes(batch)
        return one.rows * taken // max(rows, 1)
    text = taken = 0
    for task in sampled:
        for lines in islice(records.read(task.pieces[0], one.plan, _SAMPLE_BYTES), 1):
            text += len(lines.data) + 1
            file = task.pieces[0].file
            batch = parse_lines(one.plan.within(file.partition, file.columns), lines)
            refuse_without_zone(one.plan.kind, batch.doubts, file.path)
            taken += held_bytes(batch)
    return _text_bytes(one.files) * taken // max(text, 1)


def _spread(tasks: Sequence[Task]) -> list[Task]:
    """Some of the tasks, evenly spread."""
    return (
        [tasks[k] for k in sorted({(len(tasks) - 1) * k // (SAMPLES - 1) for k in range(SAMPLES)})]
        if tasks
        else []
    )


def _text_bytes(files: Sequence[SourceFile]) -> int:
    """The bytes of all files, unpacked."""
    packed = [f for f in files if f.packed and f.size]
    largest = sorted(packed, key=lambda f: -f.size)[:SAMPLES]
    seen = [_unpacked(f) for f in largest]
    whole, read = sum(s[0] for s in seen), sum(s[1] for s in seen)
    plain = sum(f.size for f in files if not f.packed)
    return plain + sum(f.size for f in packed) * (whole if read else PACKED_FACTOR) // (read or 1)


def _unpacked(file: SourceFile) -> tuple[int, int]:
    """Bytes of text, and the bytes of a compressed file that they come from; (0, 0) where that cannot be seen."""
    system, path = file.locate()
    try:
        with system.open_input_file(path) as packed:
            stream = pa.CompressedInputStream(packed, pa.Codec.detect(path).name)
            text = 0
            while text < _UNPACKED and (data := stream.read(1 << 20)):
                text += len(data)
            return text, packed.tell()
    except (OSError, ValueError, pa.ArrowInvalid):
        return 0, 0  # whoever reads it says what is wrong with it
