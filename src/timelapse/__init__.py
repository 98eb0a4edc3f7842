"""Timelapse: serial-equivalent, massively accelerated replay of stateful event-driven programs.

    import timelapse as tl

Declare events and records (`tl.Event`, `tl.Record`), a program (`tl.Program`) over states
(`tl.Counter`, `tl.Set`, `tl.Value` and more: docs/kinds.md) with handlers (`@tl.on`), then
replay it over a log: `tl.replay(program, log)`. The meaning of a program is `tl.run_serial`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from timelapse.ids import DAY, HOUR, MINUTE, SECOND
from timelapse.kinds import registry

__version__ = "0.1.0"

if TYPE_CHECKING:
    from timelapse.checks import check
    from timelapse.compare import diff, enforce, sweep, what_if
    from timelapse.errors import TimelapseError
    from timelapse.kinds.base import state
    from timelapse.kinds.registry import *  # noqa: F403
    from timelapse.log import Delta, Iceberg, Log, Postgres, Source, SparkTable
    from timelapse.model.decimals import scale
    from timelapse.model.events import Event, Record
    from timelapse.model.resource import resource
    from timelapse.model.types import Time
    from timelapse.program.program import Program, every, on
    from timelapse.reporting import report
    from timelapse.run import Run, replay, run_serial
    from timelapse.run.explain import explain
    from timelapse.streaming.evolution import Migration
    from timelapse.streaming.live import Live, live
    from timelapse.streaming.shadow import Shadow
    from timelapse.streaming.sources.delta import DeltaTable
    from timelapse.streaming.sources.kafka import Kafka
    from timelapse.streaming.sources.postgres import PostgresTable
    from timelapse.streaming.sources.push import Push
    from timelapse.training import features

# Loaded when first used: `timelapse --help` needs none of them, a program's definition few. Handlers name no others than
# the units of time: analysis and compiler look those up without running a module's `__getattr__`.
_LATER = {
    "TimelapseError": "timelapse.errors",
    "state": "timelapse.kinds.base",
    **registry.MODULES,
    "scale": "timelapse.model.decimals",
    "Event": "timelapse.model.events",
    "Record": "timelapse.model.events",
    "Program": "timelapse.program.program",
    "every": "timelapse.program.program",
    "on": "timelapse.program.program",
    "resource": "timelapse.model.resource",
    "Time": "timelapse.model.types",
    "DeltaTable": "timelapse.streaming.sources.delta",
    "Kafka": "timelapse.streaming.sources.kafka",
    "PostgresTable": "timelapse.streaming.sources.postgres",
    "Live": "timelapse.streaming.live",
    "Log": "timelapse.log",
    "Migration": "timelapse.streaming.evolution",
    "Shadow": "timelapse.streaming.shadow",
    "Push": "timelapse.streaming.sources.push",
    "Source": "timelapse.log",
    "Delta": "timelapse.log",
    "Iceberg": "timelapse.log",
    "Postgres": "timelapse.log",
    "SparkTable": "timelapse.log",
    "Run": "timelapse.run",
    "replay": "timelapse.run",
    "run_serial": "timelapse.run",
    "explain": "timelapse.run.explain",
    "diff": "timelapse.compare",
    "check": "timelapse.checks",
    "enforce": "timelapse.compare",
    "features": "timelapse.training",
    "live": "timelapse.streaming.live",
    "report": "timelapse.reporting",
    "sweep": "timelapse.compare",
    "what_if": "timelapse.compare",
}

__all__ = [
    "DAY", "HOUR", "MINUTE", "SECOND", "Delta", "DeltaTable", "Event", "Iceberg", "Kafka", "Live", "Log", "Migration",
    "Postgres", "PostgresTable", "Program", "Push", "Record", "Run", "Shadow", "Source", "SparkTable", "Time",
    "TimelapseError", "check", "diff", "enforce", "every", "explain", "features", "live", "on", "replay", "report",
    "resource", "run_serial", "scale", "state", "sweep", "what_if",
]  # fmt: skip
__all__ += registry.__all__


def __getattr__(name: str) -> Any:
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module 'timelapse' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
