"""Writing a generated network as a log. Blocks come in log order, so nothing is sorted or moved."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from timelapse.progress import Progress
from timelapse.progress.notebook import default_progress
from timelapse.segments.manifest import IngestEntry, SegmentEntry, SourceEntry, build, write
from timelapse.segments.place import as_path, whole_folder
from timelapse.segments.segment import SegmentWriter
from timelapse.segments.types import event_types
from timelapse.synth.events import EVENTS
from timelapse.synth.network import BLOCK, Network, Tables, block

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES = event_types(EVENTS)
STAGE = "generate"
LOCAL_EVENTS = 8 * BLOCK
"""Up to this many events are made in this process: Spark would take longer to start."""


def generate(
    path: str | Path,
    network: Network,
    *,
    spark: SparkSession | Literal[False] | None = None,
    master: str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> int:
    """Write the network as a log at `path`, whole or not at all. Returns the number of events.

    `spark=False` makes it in this process; None uses Spark unless it is small. The log is the same
    either way. Raises LogError when something is at `path` that may not be replaced.
    """
    progress = progress or default_progress()
    with whole_folder(as_path(path), overwrite=overwrite) as staging:
        (staging / "segments").mkdir()
        tables = staging / "tables"
        tables.mkdir()
        save_tables(Tables.make(network), tables)
        started = time.perf_counter()
        progress.stage(STAGE, network.events)
        if spark is False or (spark is None and network.events <= LOCAL_EVENTS):
            entries = _in_process(network, staging, progress)
        else:
            from timelapse.synth.spark_write import write_segments

            entries = write_segments(network, staging, spark, master, progress)
        progress.finish(STAGE, time.perf_counter() - started)
        shutil.rmtree(tables)
        shutil.rmtree(staging / "progress", ignore_errors=True)
        _commit(staging, network, entries)
    return network.events


def segment_blocks(network: Network) -> int:
    """Blocks in a segment. Depends on the number of events only, so the files are the same however they are made."""
    return 8 if network.blocks >= 128 else 2


def segment_count(network: Network) -> int:
    return -(-network.blocks // segment_blocks(network))


def write_segment(
    network: Network, tables: Tables, number: int, parent: Path, report: Callable[[int], None]
) -> SegmentEntry:
    """Make and write segment `number`; `report` is told of each block's events."""
    writer = SegmentWriter(parent, f"{number:06d}", TYPES)
    first = number * segment_blocks(network)
    for index in range(first, min(first + segment_blocks(network), network.blocks)):
        made = block(network, tables, index)
        writer.write(made.ts, made.kinds, {0: made.friendships, 1: made.messages})
        report(len(made.ts))
    return writer.close()


def _in_process(network: Network, staging: Path, progress: Progress) -> list[SegmentEntry]:
    tables = load_tables(staging / "tables")
    done = 0

    def report(events: int) -> None:
        nonlocal done
        done += events
        progress.advance(STAGE, done, network.events)

    return [
        write_segment(network, tables, number, staging / "segments", report)
        for number in range(segment_count(network))
    ]


def save_tables(tables: Tables, folder: Path) -> None:
    """Keep the tables where the workers find them."""
    for name in Tables.__dataclass_fields__:
        np.save(folder / f"{name}.npy", getattr(tables, name), allow_pickle=False)


def load_tables(folder: Path) -> Tables:
    """The tables, mapped into memory: worker processes on a machine share them."""
    return Tables(
        **{
            name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            for name in Tables.__dataclass_fields__
        }
    )


def _commit(staging: Path, network: Network, entries: list[SegmentEntry]) -> None:
    """Write the manifest, and remove what tasks left that ran twice."""
    from timelapse import __version__

    wanted = {entry.folder for entry in entries}
    for folder in (staging / "segments").iterdir():
        if folder.name not in wanted:
            shutil.rmtree(folder)
    settings = {
        "from": "synth", "events": network.events, "exponent": network.exponent, "seed": network.seed,
        "users": network.users, "addresses": network.addresses, "spammers": network.spammers,
        "friendships": network.friendships, "start": network.start, "rate": str(network.rate),
    }  # fmt: skip
    rows = [sum(sum(f.rows) for e in entries for f in e.files if f.type == n) for n in range(len(TYPES))]
    sources = [SourceEntry(t.name, settings, n, 0, 0) for t, n in zip(TYPES, rows, strict=True)]
    ingest = IngestEntry(1, network.events, 0.0, sources, [], f"timelapse {__version__}")
    write(staging, build(TYPES, entries, [ingest]))
