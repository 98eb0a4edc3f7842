"""Which source is meant by what a user gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from timelapse.errors import Place, UsageError
from timelapse.ingest.objects import MANY
from timelapse.ingest.source import Source
from timelapse.model.events import Event
from timelapse.store.places import local_path
from timelapse.streaming.sources.base import LiveSource
from timelapse.streaming.sources.delta import DeltaSource, DeltaTable
from timelapse.streaming.sources.files import Files
from timelapse.streaming.sources.follow import Follow
from timelapse.streaming.sources.kafka import Kafka, KafkaSource
from timelapse.streaming.sources.postgres import PostgresSource, PostgresTable
from timelapse.streaming.sources.push import Push

_PACKED = (".gz", ".bz2", ".zst", ".lz4", ".parquet", ".pq")


def source_of(given: Any, cls: type[Event], *, once: bool) -> LiveSource:
    """The source for what a user gives as one. Raises UsageError."""
    if isinstance(given, str) and (named := named_source(given, Source(""))) is not None:
        given = named
    if (layout := layout_of(given)) is not None:
        check_streamed(layout)
    if isinstance(given, Kafka) and given.executors:
        from timelapse.streaming.sources.kafka_spark import KafkaOnSpark

        return KafkaOnSpark(given, once=once)
    if isinstance(given, Kafka):
        return KafkaSource(given, once=once)
    if isinstance(given, PostgresTable):
        return PostgresSource(given, once=once)
    if isinstance(given, DeltaTable):
        return DeltaSource(given, once=once)
    layout = given if isinstance(given, Source) else Source("")
    frame: Any = given.data if isinstance(given, Source) else given
    if hasattr(frame, "isStreaming"):
        from timelapse.streaming.sources.spark_feed import SparkFeed

        return SparkFeed(frame, layout, once=once)
    if isinstance(given, Source):
        return _files(given, once=once)
    if isinstance(given, str | Path):
        return _files(Source(local_path(given, "source")), once=once)
    if isinstance(given, Push) or all(
        hasattr(given, n) for n in ("start", "poll", "partitions", "at_end", "close")
    ):
        found: LiveSource = given
        return found
    raise UsageError(
        f"{type(given).__name__} is no source of a stream", place=Place(what=cls.__name__), code="TL810",
        hint="give a folder, a pattern, a file that grows, a streaming DataFrame, tl.Source(...), tl.Kafka(...), tl.PostgresTable(...), tl.DeltaTable(...), tl.Push(), or {name: source} for several",
    )  # fmt: skip


def layout_of(given: Any) -> Source | None:
    """How the rows of what a user gives as a source are read; None where that is not said."""
    if isinstance(given, Source):
        return given
    return given.layout if isinstance(given, Kafka | PostgresTable | DeltaTable | Push) else None


def named_source(text: str, layout: Source) -> Kafka | PostgresTable | DeltaTable | None:
    """The source that an address names, read as `layout` says; None for a path. Raises UsageError."""
    if text.startswith(("kafka://", "kafka+spark://")):
        return Kafka.of(text, layout)
    if text.startswith(("postgresql://", "postgres://")):
        return PostgresTable.of(text, layout)
    return DeltaTable(text.removeprefix("delta:"), layout) if text.startswith("delta:") else None


def check_streamed(layout: Source) -> None:
    """Raise UsageError for what a log's sources may ask for and a stream's may not."""
    columns = [c for said in layout.fields.values() for c in ([said] if isinstance(said, str) else said)]
    if any(MANY in c for c in columns):
        raise UsageError(
            "a row of a stream is one event: lists of objects are not taken apart",
            hint="do it before the stream, or in a handler",
            code="TL810",
        )


def _files(source: Source, *, once: bool) -> LiveSource:
    if source.elsewhere is not None:
        raise UsageError(
            f"a stream does not follow {type(source.elsewhere).__name__}",
            hint="tl.DeltaTable and tl.PostgresTable are tables that grow; timelapse ingest follows the others",
            code="TL810",
        )
    if not source.is_files:
        raise UsageError(
            "a stream does not come from a table in memory",
            hint="tl.replay takes tables; tl.Push() takes rows as they come",
            code="TL810",
        )
    paths = source.paths
    one = Path(paths[0]).expanduser() if len(paths) == 1 and "://" not in paths[0] else None
    pattern = one is not None and any(c in paths[0] for c in "*?[")
    if (
        one is not None
        and not pattern
        and not one.is_dir()
        and (one.is_file() or one.suffix)
        and one.suffix not in _PACKED
    ):
        return Follow(replace(source, data=[one]), once=once)
    return Files(source, once=once)
