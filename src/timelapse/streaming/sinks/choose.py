"""Which sink is meant by a text on the command line."""

from __future__ import annotations

from collections.abc import Callable

from timelapse.errors import UsageError
from timelapse.streaming.sinknames import sink_names
from timelapse.streaming.sinks.base import Sink
from timelapse.streaming.sinks.delta import Delta
from timelapse.streaming.sinks.kafka import KafkaTopics
from timelapse.streaming.sinks.parquet import Parquet
from timelapse.streaming.sinks.postgres import Postgres

MADE: dict[str, Callable[[str], Sink]] = {
    "parquet:": lambda text: Parquet(text.partition(":")[2]),
    "delta:": lambda text: Delta(text.partition(":")[2]),
    "postgresql://": Postgres,
    "kafka://": KafkaTopics.of,
}
"""Makes a sink of its text, by how that begins (sinknames.py)."""


def sink_of(text: str) -> Sink:
    """The sink that a text names. Raises UsageError."""
    name = f"postgresql:{text.partition(':')[2]}" if text.startswith("postgres://") else text
    for begins, make in MADE.items():
        if name.startswith(begins) and (name != begins or begins.endswith("//")):
            return make(text)
    raise UsageError(f"--to {text} is no sink", hint=sink_names(), code="TL810")
