"""What a live run is told about rows that come late, or at absurd times, and about events that fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from timelapse.streaming.streams import Limits

Fields = Mapping[str, Sequence[str]]
"""By event type the fields of which no two rows have the same values."""
ANY_TIME = Limits(None, None)


@dataclass(frozen=True)
class Rules:
    """What a head is told by its user. Times in microseconds.

    `late`: "drop" keeps the places of late rows, "side" the rows, "correct" puts them into their places in the journal, but for those that are
    `horizon` or more behind their partition's mark. `quarantine`: so many failing events of an epoch are taken out. `once`: of rows that have the same values in these
    fields the first is in the journal, if they lie `within` of it (once.py).
    """

    lateness: int = 0
    late: str = "side"
    limits: Limits = ANY_TIME
    quarantine: int | None = None
    horizon: int | None = None
    once: Fields = field(default_factory=dict)
    within: int = 0
