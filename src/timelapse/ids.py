"""Units of event time (int64 microseconds since 1970-01-01 UTC), and the order of what happens at one time."""

from __future__ import annotations

from typing import NamedTuple

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
