"""What the kernels of a replay share about events that are known to fail later (kernels/native/foresight.py)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from timelapse.kernels.base import Abandoned

if TYPE_CHECKING:
    from timelapse.kernels.native.decider import Decider


class NotForeseen(Abandoned):
    """A pass has left events out, and it turns out that it cannot be known which fail: it has to run without that."""


@dataclass
class Foreseen:
    """Of a pass from the log's first event on. `end`: the time up to which it goes."""

    end: int | None
    out: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    """The events that were left out, by type: rising seqs."""
    added: dict[int, float] = field(default_factory=dict)
    """What was added, by table, without signs."""
    decider: Decider | None = None
    """What runs ahead, where states decide which events fail."""
    is_used: bool = False
    """Something has been gone through without the events that were left out."""
    is_off: bool = False
    """It is not known of the log's events which fail, and none was left out."""

    @property
    def count(self) -> int:
        """How many events were left out."""
        return sum(map(len, self.out.values()))

    @property
    def seqs(self) -> set[int]:
        return {seq for own in self.out.values() for seq in own.tolist()}

    def close(self) -> None:
        """Let go of what runs ahead."""
        if self.decider is not None:
            self.decider.close()
            self.decider = None
