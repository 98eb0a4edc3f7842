"""What a program that follows another one in a live run begins with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from timelapse.streaming import checkpoints
from timelapse.streaming.format import Change, Correction, Epoch
from timelapse.streaming.stand import Stand


@dataclass(frozen=True)
class Succession:
    """The change, where the program begins, what was done (for people), and when (wall clock, microseconds).

    `correction` and `replaced`: what it puts out in the place of what was put out before (reprocessing.py).
    """

    change: Change
    stand: Stand
    done: list[str]
    now: int
    correction: Correction | None = None
    replaced: Mapping[str, pa.Table] = field(default_factory=dict)

    @property
    def sections(self) -> dict[str, pa.Table]:
        """Those of its epoch."""
        return {**checkpoints.sections_of(self.stand), **self.replaced}

    def about(self, number: int) -> dict[str, Any]:
        """What the manifest of its epoch says of it."""
        found: dict[str, Any] = {"last_change": number, "change": self.change}
        if self.correction is not None:
            found |= {
                "correction": self.correction,
                "last_correction": number,
                "version": self.correction.version,
            }
        return found


Successor = Callable[[Epoch], Succession]
"""What follows behind an epoch."""
