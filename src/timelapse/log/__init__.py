"""The event log: ingest on Spark, a total order, columnar segments, readers for any process."""

from timelapse.log.log import Log, LogInfo, TypeInfo
from timelapse.log.memory import MemoryLog
from timelapse.log.reader import Chunk, EventReader, LogReader
from timelapse.log.source import Source
from timelapse.log.types import EventType, bind

__all__ = [
    "Chunk",
    "EventReader",
    "EventType",
    "Log",
    "LogInfo",
    "LogReader",
    "MemoryLog",
    "Source",
    "TypeInfo",
    "bind",
]
