"""Views (`x.last(W)`, `x.ago(L)`) of compiled states. They are only read."""

from __future__ import annotations

import ast
from collections.abc import Callable

from timelapse.kernels.native.lowering.expressions import arithmetic
from timelapse.kernels.native.lowering.form import Key
from timelapse.kernels.native.lowering.states.base import StateCode
from timelapse.kernels.native.lowering.values import Refused, Value


class View(StateCode):
    """What views of all kinds share. `last`: what was done within the lag, else the state as of the lag ago."""

    def __init__(self, state: StateCode, lag: int, *, last: bool) -> None:
        super().__init__(
            state.spec, state.mode, state.layout, state._out, state._pass, state.ordinal, state._index,
            state.views,
        )  # fmt: skip
        if state.mode != "exact" or state.views is None or lag not in state.views.lags:
            raise Refused(f"a view of {state.spec.name}, which this pass does not know")
        self._state, self.lag, self._last = state, lag, last

    def set(self, key: Value | None, value: Value) -> None:
        raise self._only_read()

    def delete(self, key: Value | None) -> None:
        raise self._only_read()

    def change(
        self, key: Value | None, op: ast.operator, amount: Callable[[], Value], *, writes: bool = False
    ) -> None:
        raise self._only_read()

    def _only_read(self) -> Refused:
        return Refused(f"a view of {self.spec.name} that is written to")

    def _changed(self, words: Key) -> Value:
        """The integer under a key as of the lag ago, or what it has changed since."""
        assert self.views is not None
        row = self.find(words)
        before = self.word(row, self._before)
        if not self._last:
            return self._out.temp("int", before)
        now = self._out.temp("int", self.word(row, self.layout.place))
        return arithmetic(self._out, ast.Sub(), now, self._out.temp("int", before))

    @property
    def _before(self) -> int:
        """Where rows have the integer as of the lag ago."""
        assert self.views is not None
        return self.layout.twins + self.views.lags.index(self.lag)

    @property
    def _operations(self) -> str:
        """The log, and where the operations within the lag stand in it."""
        assert self.views is not None
        i = self.ordinal
        return f"w{i}, k{i}, N{self.views.cursor(self.lag)}"

    def _within(self, row: str) -> str:
        """Whether a row's key is there and its latest operation within the lag."""
        return f"{self.has(row)} and {self.word(row, self.layout.twins)} >= {self.edge(self.lag)}"

    def _listing_within(self, first: str) -> str:
        layout = self.layout
        given = f"N{layout.present}, N{layout.width}, N{layout.place}, N{layout.size}, N{layout.twins}"
        return f"list_latest(listed, {first}, {self._operations}, {self.table}, {given})"
