"""Which sink is meant by a text on the command line."""

from __future__ import annotations

from timelapse.errors import UsageError
from timelapse.streaming.sinks.base import Sink
from timelapse.streaming.sinks.delta import Delta
from timelapse.streaming.sinks.kafka import KafkaTopics
from timelapse.streaming.sinks.parquet import Parquet
from timelapse.streaming.sinks.postgres import Postgres


def sink_of(text: str) -> Sink:
    """`parquet:FOLDER`, `delta:FOLDER`, `postgresql://...`, `kafka://...`. Raises UsageError."""
    kind, colon, rest = text.partition(":")
    if kind in ("postgresql", "postgres") and rest.startswith("//"):
        return Postgres(text)
    if kind == "kafka" and rest.startswith("//"):
        return KafkaTopics.of(text)
    if colon and rest and kind in ("parquet", "delta"):
        return Parquet(rest) if kind == "parquet" else Delta(rest)
    raise UsageError(
        f"--to {text} is no sink",
        hint="parquet:FOLDER, delta:FOLDER, postgresql://user@host/database, or kafka://broker:9092/prefix",
        code="TL810",
    )
