"""How a live run goes, as its loop notes it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from timelapse.streaming.format import Epoch

_REMEMBERED = 512


@dataclass(frozen=True)
class Committed:
    """One committed epoch, for who watches. `seconds`: from the moment its first rows were asked for to the commit; in a process that follows, to when it can be
    read there."""

    epoch: Epoch
    rows: int
    read: int
    seconds: float
    at: float


@dataclass
class Health:
    """How a live run goes."""

    state: str = "starting"
    """starting, standby, following (another process runs it), running, waiting (the place takes no epoch), paused, ended, stopped, failed."""
    problem: str = ""
    recent: deque[Committed] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    rows: int = 0
    read: int = 0
    """Rows journalled and read since it was started."""
    checkpoints: int = 0
    started: float = 0.0
    outrun: str = ""
    """By how much sources are ahead, where they have had more than is processed for a while."""
    caught_up: float | None = None
    """When all was processed that sources had: the moment from replaying a backlog to live (wall clock, seconds)."""
