"""The event log: ingest on Spark, a total order, columnar segments, readers for any process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from timelapse.log.reader import Chunk, EventReader, LogReader
from timelapse.log.types import EventType, bind

if TYPE_CHECKING:
    from timelapse.log.info import LogInfo, TypeInfo
    from timelapse.log.log import Log
    from timelapse.log.memory import MemoryLog
    from timelapse.log.source import Source

# Loaded when first used: reading a log needs nothing of what makes one.
_LATER = {"Log": "log", "LogInfo": "info", "TypeInfo": "info", "MemoryLog": "memory", "Source": "source"}

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


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'timelapse.log' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"timelapse.log.{_LATER[name]}"), name)
    globals()[name] = value
    return value
