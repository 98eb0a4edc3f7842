"""How handlers that run as Python get a state at a slice's start: loaded whole, or key by key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from timelapse.kinds.base import StateSpec
from timelapse.model.types import OptionalType, ScalarType
from timelapse.tables.lookup import LazyDict, MappedTable
from timelapse.tables.table import key_types, to_dict

KEY_BYTES = 250
"""What a key and its value take in a dict, roughly."""

_WORTH = 100
"""A key that is looked up costs as much as so many that are loaded; an event looks up a few."""

_HASHED = {"int", "Time", "bool", "str", "bytes"}


def starting(spec: StateSpec, table: pa.Table, events: int, memory: int | None) -> dict[Any, Any]:
    """A state's values per key.

    Loaded whole, except where the pass is over so few `events` (0: not known) that they cannot touch
    most of the keys, or where it would take more than `memory` bytes (None: no matter).
    """
    rows = int(table.num_rows)
    few = 0 < events * _WORTH < rows
    large = memory is not None and rows * KEY_BYTES > memory
    if (few or large) and _can_be_looked_up(spec):
        return LazyDict(MappedTable(spec, table))
    return to_dict(spec, table)


def _can_be_looked_up(spec: StateSpec) -> bool:
    kinds = [t.inner if isinstance(t, OptionalType) else t for t in key_types(spec)]
    return all(isinstance(k, ScalarType) and k.name in _HASHED for k in kinds)


def bytes_of(states: Iterable[dict[Any, Any]]) -> int:
    """What the states take in memory, roughly."""
    return KEY_BYTES * sum(s.held if isinstance(s, LazyDict) else len(s) for s in states)
