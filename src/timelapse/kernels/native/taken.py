"""What a compiled pass and its kernel tell each other about events that are taken out of the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from timelapse.analysis.result import PassProgram
from timelapse.ids import INT64_MIN
from timelapse.kernels.clock import Clock
from timelapse.kernels.native.decode import Batch, Decoder
from timelapse.kernels.native.foreseen import Foreseen
from timelapse.kernels.native.foresight import Foresight
from timelapse.kernels.native.lowering.unit import LATE, TAKES, Unit
from timelapse.kernels.native.memory.strings import Interned
from timelapse.kernels.source import Source
from timelapse.kernels.tuning import FindingTuning
from timelapse.program.failure import Quarantined
from timelapse.program.program import Program


class TakenOut:
    """`gone`: the events that are taken out, by seq; those that the compiled function takes out are added where their
    calls may still come (`Unit.later`)."""

    def __init__(self, unit: Unit, gone: set[int]) -> None:
        self._unit, self._gone = unit, gone
        self.begins: int | None = None
        """The time at which ticks begin with an event, and none is taken out."""
        self.source: Source | None = None
        """The slice that is gone through, where there is more than the log's events."""
        self.lists_late = False
        """Whether calls that fail later than their events are listed, and nothing else is undone."""
        self._takes = np.zeros(TAKES + len(unit.later), np.int64)
        self._seqs = np.zeros(1, np.int64)
        self._known = 0
        self._foresight: Foresight | None = None

    def foresee(
        self, program: Program, work: PassProgram, decoder: Decoder, interned: Interned, foreseen: Foreseen | None,
        most: int | None, finding: FindingTuning,
    ) -> None:  # fmt: skip
        """Leave events out that fail later, where that is known before and asked for. `most`: so many may be taken out of the log."""
        if foreseen is not None and most is not None:
            self._foresight = Foresight.of(
                program, work, self._unit, decoder, interned, foreseen, most, finding.most_added
            )

    def left_of(self, batches: Iterator[Batch], clock: Clock) -> Iterator[Batch]:
        """Batches without events of which it is known that they fail later. Raises NotForeseen."""
        return batches if self._foresight is None else self._foresight.without(batches, self.source, clock)

    @property
    def left_out(self) -> int:
        """How many events were."""
        return 0 if self._foresight is None else self._foresight.count

    @property
    def all(self) -> set[int]:
        """All events that are taken out, by seq."""
        return self._gone if self._foresight is None else self._gone | self._foresight.gone

    def with_left_out(self, rows: list[Quarantined]) -> list[Quarantined]:
        """Rows of events that were taken out, and of those left out since this was last asked. Raises NotForeseen."""
        if self._foresight is None:
            return rows
        self._foresight.check(len(rows))
        return sorted([*self._foresight.take(), *rows], key=lambda row: row[2])

    def arguments(self, events: int, most: int) -> list[Any]:
        """What the compiled function takes for so many events, of which it may take out `most`."""
        if not self._unit.takes:
            return []
        self._takes[LATE] = self.lists_late
        self._takes[:2] = most, INT64_MIN if self.begins is None else self.begins
        if self._unit.later:
            self._bring_up(events)
        return [self._takes, self._seqs]

    def note(self) -> None:
        """The function has run."""
        count = int(self._takes[2])
        if count > self._known:
            self._gone.update(self._seqs[self._known : count].tolist())
            self._known = count

    def again(self, seq: int) -> None:
        """One more is gone, and events from before it come again."""
        known = self._known
        if known == len(self._gone) < len(self._seqs):
            place = int(np.searchsorted(self._seqs[:known], seq))
            self._seqs[place + 1 : known + 1] = self._seqs[place:known].copy()
            self._seqs[place] = seq
            self._known = self._takes[2] = known + 1
        self._gone.add(seq)
        self._takes[TAKES:] = 0

    def _bring_up(self, events: int) -> None:
        """All that are gone, in order, and room for more."""
        if len(self._gone) != self._known:  # Python took some out, or one was listed twice
            seqs = np.array(sorted(self._gone), np.int64)
            self._known = self._takes[2] = len(seqs)
            self._takes[TAKES:] = 0
        else:
            seqs = self._seqs[: self._known]
        if len(self._seqs) < len(seqs) + events:
            self._seqs = np.zeros(2 * (len(seqs) + events), np.int64)
        self._seqs[: len(seqs)] = seqs
