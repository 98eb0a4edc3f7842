"""The logs of a compiled pass: of all states with views, or of which the rows of each slice are asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import pyarrow as pa

from timelapse.analysis.result import PassProgram
from timelapse.kernels.base import Abandoned
from timelapse.kernels.native.lowering.unit import Unit
from timelapse.kernels.native.memory.effectlog import LogImage, NativeLog
from timelapse.kernels.native.memory.table import NativeTable
from timelapse.kernels.native.windows import members_spec
from timelapse.kernels.rowlog import Before
from timelapse.kinds.base import StateSpec
from timelapse.tables.effectlog import rows_table

NEAR_THE_END = "a sum of which there are windows comes near the end of int64"


class Logs(Mapping[str, NativeLog]):
    """By state. `before`: the rows of earlier slices; `asked`: the states of which the rows of each slice are asked for. Both
    only of what is added up, and of sets."""

    def __init__(
        self, unit: Unit, work: PassProgram, states: Mapping[str, StateSpec], tables: Mapping[str, NativeTable],
        before: Before | None, asked: Collection[str],
    ) -> None:  # fmt: skip
        self._work, self._states, self._asked = work, states, asked
        self._logs: dict[str, NativeLog] = {}
        for name, views in unit.windows.items():
            hidden = {lag: tables.get(members_spec(states[name], lag).name) for lag in views.lags}
            counters = {lag: table for lag, table in hidden.items() if table is not None}
            log = self._logs[name] = NativeLog(tables[name], views, counters, kept=name in asked)
            if before is not None and views.lags:
                log.recall(before(name, work.logs[name][0], views.lags[-1]))

    def __getitem__(self, name: str) -> NativeLog:
        return self._logs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._logs)

    def __len__(self) -> int:
        return len(self._logs)

    @property
    def queued(self) -> bool:
        """Whether one has queues of values, whose links change before the end."""
        return any(log.queued for log in self._logs.values())

    def begin(self) -> None:
        """A new slice begins. Raises Abandoned."""
        if any(log.is_hopeless for log in self._logs.values()):
            raise Abandoned(NEAR_THE_END)
        for log in self._logs.values():
            log.begin()

    def keep(self) -> None:
        """An event, or a step, is through."""
        for log in self._logs.values():
            log.keep()

    def rewind(self) -> None:
        """Take back what an event has done."""
        for log in self._logs.values():
            log.rewind()

    def grow(self) -> None:
        """Make room after one event of a loop needed more than there was."""
        for log in self._logs.values():
            log.grow()

    def prepare(self) -> None:
        """Have compiled, or loaded, what a slice's end and a larger table call."""
        for log in self._logs.values():
            log.prepare()

    def images(self) -> dict[tuple[str, str], LogImage | pa.Table]:
        """What the slice did to the states of which it is asked, by form, as it may be told once the next one has begun. Raises Abandoned."""
        return {(name, self._work.logs[name][0]): self._image(name) for name in self._asked}

    def _image(self, name: str) -> LogImage | pa.Table:
        log = self._logs.get(name)
        if log is None:  # nothing is done to it
            return rows_table(self._states[name], ([], [], []), self._work.logs[name][0])
        image = log.image()
        if image is None:
            raise Abandoned(NEAR_THE_END)
        return image
