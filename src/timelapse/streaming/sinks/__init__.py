"""Where outputs go besides the run's own files: each sink takes every epoch exactly once, and can be begun again at any time."""

from timelapse.streaming.sinks.callback import Callback
from timelapse.streaming.sinks.delta import Delta
from timelapse.streaming.sinks.kafka import KafkaTopics
from timelapse.streaming.sinks.parquet import Parquet
from timelapse.streaming.sinks.postgres import Postgres

__all__ = ["Callback", "Delta", "KafkaTopics", "Parquet", "Postgres"]
