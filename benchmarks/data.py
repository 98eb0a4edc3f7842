"""The benchmarks' data: each data set is a Timelapse log and, for the rivals, the same events in plain Parquet.

The plain files are made so that rivals read them fast: one table in log order (nobody has to merge event types),
numbers as differences (as in the log), addresses with a dictionary, LZ4, row groups of half a million rows.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.workloads import Friendship, Message, Sent
from timelapse.env.machine import cores
from timelapse.segments.manifest import IngestEntry, SegmentEntry, SourceEntry, build, write
from timelapse.segments.place import whole_folder
from timelapse.segments.segment import SegmentWriter
from timelapse.segments.types import EventType, event_types
from timelapse.synth.network import BLOCK, Network, Tables, dotted, numbers
from timelapse.synth.text import texts
from timelapse.synth.write import load_tables, save_tables, segment_blocks, segment_count
from timelapse.tables.parquet import differences

FORMAT = 2
"""Changes when files made by an earlier version must not be used any more."""
ROWS = 512 * 1024
"""Rows in a row group of the plain files."""


@dataclass(frozen=True)
class Dataset:
    """What is generated: the network of `timelapse synth`, with numbers only or with strings and texts."""

    events: int
    text: bool = False
    exponent: float = 0.8
    seed: int = 7
    users: int | None = None

    @property
    def name(self) -> str:
        users = "" if self.users is None else f"-u{self.users}"
        kind = "text" if self.text else "int"
        return f"{kind}-{self.events}-z{self.exponent:g}-s{self.seed}{users}-v{FORMAT}"

    def network(self) -> Network:
        return Network.make(self.events, exponent=self.exponent, seed=self.seed, users=self.users)

    def generate(self, staging: Path) -> None:
        """Write `log` and `flat` into a folder."""
        _generate(self, self.network(), staging)


@dataclass(frozen=True)
class Made:
    """Where a data set is. `users` and `addresses` bound the numbers of keys: by hand one would know them."""

    dataset: Dataset
    path: Path
    users: int
    addresses: int

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def flat(self) -> Path:
        return self.path / "flat"


def make(dataset: Dataset, folder: Path, say: Callable[[str], None]) -> Made:
    """The data set below `folder`, generated if it is not there yet; whole or not at all."""
    path = folder / dataset.name
    network = dataset.network()
    if not (path / "done.json").exists():
        say(f"generating {dataset.events:,} events ({'strings' if dataset.text else 'numbers'}) ...")
        with whole_folder(path, overwrite=True) as staging:
            dataset.generate(staging)
            body = json.dumps({"dataset": asdict(dataset), "format": FORMAT})
            (staging / "done.json").write_text(body, encoding="utf-8")
    return Made(dataset, path, network.users, network.addresses)


def types_of(text: bool) -> tuple[EventType, ...]:
    return event_types([Friendship, Message if text else Sent])


def _generate(dataset: Dataset, network: Network, staging: Path) -> None:
    log, tables = staging / "log", staging / "tables"
    for folder in (log, log / "segments", staging / "flat", tables):
        folder.mkdir()
    save_tables(Tables.make(network), tables)
    count = segment_count(network)
    tasks = [(network, number, str(staging), dataset.text) for number in range(count)]
    if count <= 2:
        packed = [_segment(task) for task in tasks]
    else:
        # spawned: a fork of a process with threads (Spark, pyarrow) may hang
        with ProcessPoolExecutor(min(cores(), count), multiprocessing.get_context("spawn")) as pool:
            packed = list(pool.map(_segment, tasks))
    shutil.rmtree(tables)
    entries = [msgspec.json.decode(p, type=SegmentEntry) for p in packed]
    types = types_of(dataset.text)
    settings = {"from": "bench", **asdict(dataset)}
    rows = [sum(sum(f.rows) for e in entries for f in e.files if f.type == n) for n in range(len(types))]
    sources = [SourceEntry(t.name, settings, n, 0, 0) for t, n in zip(types, rows, strict=True)]
    write(log, build(types, entries, [IngestEntry(1, network.events, 0.0, sources, [], "timelapse bench")]))


def _segment(task: tuple[Network, int, str, bool]) -> bytes:
    """Make one segment of the log and its plain file. Returns the segment's entry as JSON."""
    network, number, place, text = task
    staging = Path(place)
    tables = load_tables(staging / "tables")
    types = types_of(text)
    writer = SegmentWriter(staging / "log" / "segments", f"{number:06d}", types)
    flat = []
    first = number * segment_blocks(network)
    for index in range(first, min(first + segment_blocks(network), network.blocks)):
        n = numbers(network, tables, index)
        message = n.kinds == 1
        columns: dict[str, Any] = {"id": n.number, "a": n.who, "b": np.where(message, n.other, n.near)}
        if text:
            columns["ip"] = dotted(n.home)
            columns["text"] = texts(n.letters, n.mail, n.spammer, n.who.astype(np.uint64))
        else:
            columns["ip"] = n.home
            columns["has_email"] = n.mail
        everything = pa.table(columns)
        chosen = everything.filter(pa.array(message))
        own = chosen.rename_columns([f.name for f in types[1].fields])
        writer.write(n.ts, n.kinds, {0: everything.filter(pa.array(~message)).select(["a", "b"]), 1: own})
        head = {"seq": index * BLOCK + np.arange(len(n.ts)), "ts": n.ts}
        flat.append(pa.table({**head, "kind": n.kinds.astype(np.int8), **columns}))
    _write_flat(pa.concat_tables(flat), staging / "flat" / f"part-{number:05d}.parquet", text)
    return msgspec.json.encode(writer.close())


def _write_flat(table: pa.Table, path: Path, text: bool) -> None:
    times = table["ts"].cast(pa.timestamp("us"))
    table = table.set_column(table.schema.get_field_index("ts"), "ts", times)
    if text:
        for name in ("ip", "text"):
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, table[name].cast(pa.string()))
    write_plain(table, path, dictionaries=["ip"] if text else [])


def write_plain(table: pa.Table, path: Path, dictionaries: list[str]) -> None:
    """A plain file that is fast to read."""
    pq.write_table(
        table, path, row_group_size=ROWS, compression="lz4", version="2.6",
        use_dictionary=dictionaries or False, dictionary_pagesize_limit=64 << 20,
        column_encoding=differences(table.schema),
    )  # fmt: skip
