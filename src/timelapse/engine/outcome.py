"""What a driver hands on to the commit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from timelapse.engine.account import Account
from timelapse.engine.job import RepairRow, SliceReport, Totals


@dataclass
class Fallback:
    """Why a part of the run was done again slice after slice."""

    from_slice: int
    reason: str
    is_bug: bool


@dataclass
class Outcome:
    """What the driver hands on to the commit."""

    totals: Totals
    schemas: dict[str, pa.Schema]
    events: int
    account: Account
    timings: dict[str, float] = field(default_factory=dict)
    """Seconds by stage, from its first task's beginning to its last one's end."""
    compiled: dict[str, bool] = field(default_factory=dict)
    """For each pass that ran, by name: whether all of it ran compiled."""
    why_python: dict[str, str] = field(default_factory=dict)
    """Why not, of those where only trying has shown it."""
    validated: int = 0
    """Number of slices whose change was compared with the one predicted for it."""
    predicted: int = 0
    """Number of slices for which there was to be one: a task began where they end."""
    lead: int = 0
    """Number of slices at the beginning that ran one after the other, while passes ran ahead over later ones."""
    fallback: Fallback | None = None
    taken_over: tuple[int, int] = (0, 0)
    """How many slices of the final pass, and of passes that run ahead, a replay had done that was killed."""
    torn: tuple[str, ...] = ()
    """What that replay left and was not as it was written: it was done again."""
    again: int = 0
    """How many tasks were begun a second time because they hung."""
    reports: list[SliceReport] = field(default_factory=list)
    """What each slice did, in order."""
    pending: dict[str, int] = field(default_factory=dict)
    """What lies ahead at the end, by state, event type and handler."""
    executor: str = ""
    """Who ran the tasks, for people."""
    counted: dict[str, Any] = field(default_factory=dict)
    """What a cluster did for it: application, executors, jobs, tasks."""
    workers: int = 1
    """By key: how many threads shared out the events of the whole program."""
    abandoned: str = ""
    """Why that was given up."""
    repairs: dict[str, list[RepairRow]] = field(default_factory=dict)
    """By stage that was guessed and repaired: what each slice took."""

    @property
    def repair_account(self) -> dict[str, dict[str, Any]]:
        """The same for the run's certificate.

        `rounds`: how often a slice was gone through, its guess included. `again`: events that ran again because
        they would have decided otherwise; `chain`: the longest chain of those, each touching what the one before
        wrote; `rest`: events that ran in order because too many would have; `given_up`: why, by slice.
        """
        return {
            name: {
                "slices": len(rows),
                "rounds": 2,
                "events": sum(row.events for row in rows),
                "again": sum(row.again for row in rows),
                "chain": max((row.depth for row in rows), default=0),
                "rest": sum(row.rest for row in rows),
                "given_up": {str(i): row.reason for i, row in enumerate(rows) if row.reason},
            }
            for name, rows in self.repairs.items()
        }
