"""A log as users hold it: `tl.Log`, which ingests, and logs made of logs.

Begin with `log.py`. `part.py` and `only.py` are logs of some events, `asked.py` has questions among them. What is
stored, and how it is read, is in `segments/`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from timelapse.segments.reader import Chunk, EventReader, LogReader
from timelapse.segments.types import EventType, bind

if TYPE_CHECKING:
    from timelapse.ingest.source import Source
    from timelapse.ingest.tables.catalog import SparkTable
    from timelapse.ingest.tables.delta import Delta
    from timelapse.ingest.tables.iceberg import Iceberg
    from timelapse.ingest.tables.postgres import Postgres
    from timelapse.log.log import Log
    from timelapse.segments.info import LogInfo, TypeInfo
    from timelapse.segments.memory import MemoryLog

# Loaded when first used: looking into a log needs nothing of what makes one.
_LATER = {
    "Log": "timelapse.log.log",
    "LogInfo": "timelapse.segments.info",
    "TypeInfo": "timelapse.segments.info",
    "MemoryLog": "timelapse.segments.memory",
    "Source": "timelapse.ingest.source",  # what Log.write takes
    "Delta": "timelapse.ingest.tables.delta",
    "Iceberg": "timelapse.ingest.tables.iceberg",
    "Postgres": "timelapse.ingest.tables.postgres",
    "SparkTable": "timelapse.ingest.tables.catalog",
}

__all__ = [
    "Chunk",
    "Delta",
    "EventReader",
    "EventType",
    "Iceberg",
    "Log",
    "LogInfo",
    "LogReader",
    "MemoryLog",
    "Postgres",
    "Source",
    "SparkTable",
    "TypeInfo",
    "bind",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'timelapse.log' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_LATER[name]), name)
    globals()[name] = value
    return value
