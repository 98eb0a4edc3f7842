"""How handlers that run as Python get a state at a slice's start: loaded whole, or key by key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from timelapse.env.machine import carried
from timelapse.kinds.base import StateSpec
from timelapse.model.types import DecimalType, OptionalType, ScalarType
from timelapse.tables.levels import Levels, Start, whole
from timelapse.tables.lookup import LazyDict, MappedLevels, MappedTable
from timelapse.tables.table import key_types, to_dict

KEY_BYTES = 250
"""What a key and its value take in a dict, roughly."""

_WORTH = 100
"""A key that is looked up costs as much as so many that are loaded; an event looks up a few."""

_HASHED = {"int", "Time", "bool", "str", "bytes"}


def starting(spec: StateSpec, table: Start, events: int, memory: int | None) -> dict[Any, Any]:
    """A state's values per key.

    Loaded whole, except where the pass is over so few `events` (0: not known) that they cannot touch
    most of the keys, or where it would take more of `memory` bytes (None: no matter) than its part. A state in levels is one that
    did.
    """
    rows = int(table.num_rows)
    few = 0 < events * _WORTH < rows
    large = memory is not None and rows * KEY_BYTES > carried(memory)
    if isinstance(table, Levels):
        return LazyDict(MappedLevels(table)) if can_be_looked_up(spec) else to_dict(spec, whole(table))
    if (few or large) and can_be_looked_up(spec):
        return LazyDict(MappedTable(spec, table))
    return to_dict(spec, table)


def can_be_looked_up(spec: StateSpec) -> bool:
    """Whether handlers that run as Python can take a state's keys over one by one."""
    kinds = [t.inner if isinstance(t, OptionalType) else t for t in key_types(spec)]
    return all(isinstance(k, DecimalType) or (isinstance(k, ScalarType) and k.name in _HASHED) for k in kinds)


def bytes_of(states: Iterable[dict[Any, Any]]) -> int:
    """What the states take in memory, roughly."""
    return KEY_BYTES * sum(s.held if isinstance(s, LazyDict) else len(s) for s in states)
