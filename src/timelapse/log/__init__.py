"""The stored log: a total order, columnar segments, readers for any process.

Begin with `reader.py`: the small description of a log that travels to workers, and reads ranges and
columns. `manifest.py` has what is known without reading events, `segment.py` the files. `versions.py` lists
versions and makes one without a person's events. `part.py`, `only.py` and `joined.py` are logs made of
logs. `log.py` is `tl.Log`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from timelapse.log.reader import Chunk, EventReader, LogReader
from timelapse.log.types import EventType, bind

if TYPE_CHECKING:
    from timelapse.ingest.source import Source
    from timelapse.ingest.tables.catalog import SparkTable
    from timelapse.ingest.tables.delta import Delta
    from timelapse.ingest.tables.iceberg import Iceberg
    from timelapse.ingest.tables.postgres import Postgres
    from timelapse.log.info import LogInfo, TypeInfo
    from timelapse.log.log import Log
    from timelapse.log.memory import MemoryLog

# Loaded when first used: reading a log needs nothing of what makes one.
_LATER = {
    "Log": "timelapse.log.log",
    "LogInfo": "timelapse.log.info",
    "TypeInfo": "timelapse.log.info",
    "MemoryLog": "timelapse.log.memory",
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
