"""Identifiers with types, so that a slice is never passed where a sequence number is meant."""

from __future__ import annotations

from typing import NamedTuple, NewType

SliceId = NewType("SliceId", int)
"""Index of a slice of the log, from 0."""

Seq = NewType("Seq", int)
"""A log event's place in log order; -1 where there is none (ticks)."""

Micros = NewType("Micros", int)
"""Event time: int64 microseconds since 1970-01-01 UTC."""

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1


class Phase:
    """The order of what happens at one time (docs/time.md)."""

    TICK = 0
    DATED_WRITE = 1
    DATED_EVENT = 2
    LOG_EVENT = 3


class Position(NamedTuple):
    """Where an output stands: outputs are ordered by this tuple and by nothing else."""

    ts: int
    phase: int
    seq: int
    ordinal: int
