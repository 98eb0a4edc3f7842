"""A generated network as files that nobody has ingested yet."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from timelapse.model.types import TIME
from timelapse.progress import Progress
from timelapse.synth.network import Network, Tables, block

FOLDERS = {"friendships": 0, "messages": 1}
"""The folders of files, by event type."""
_STAGE = "generate files"


def write_raw(place: Path, network: Network, progress: Progress) -> Path:
    """Parquet files with a column `ts` below `place`: for each block of time one in `friendships`, one in `messages`.

    What is in these two folders is replaced. Returns `place`.
    """
    tables, began, done = Tables.make(network), time.perf_counter(), 0
    for name in FOLDERS:
        shutil.rmtree(place / name, ignore_errors=True)
        (place / name).mkdir(parents=True)
    progress.stage(_STAGE, network.events)
    for number in range(network.blocks):
        found = block(network, tables, number)
        for name, kind in FOLDERS.items():
            fields = found.messages if kind else found.friendships
            ts = pa.array(found.ts[found.kinds == kind]).cast(TIME.arrow)
            pq.write_table(fields.add_column(0, "ts", ts), place / name / f"{number:06d}.parquet")
        done += len(found.ts)
        progress.advance(_STAGE, done, network.events)
    progress.finish(_STAGE, time.perf_counter() - began)
    return place
