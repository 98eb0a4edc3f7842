"""Views (`x.last(W)`, `x.ago(L)`) of compiled states. They are only read."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Generic, TypeVar

from timelapse.kernels.native.lowering.expressions import arithmetic
from timelapse.kernels.native.lowering.form import Key
from timelapse.kernels.native.lowering.states.base import StateCode
from timelapse.kernels.native.lowering.values import Value
from timelapse.kernels.native.refused import Refused
from timelapse.kernels.native.windows import Sliding
from timelapse.model.types import ValueType

S = TypeVar("S", bound=StateCode)


class View(StateCode, Generic[S]):
    """What views of all kinds share. `last`: what was done within the lag, else the state as of the lag ago.

    A view is given the state that it is of, and looks at its rows. Keys, and what is listed, are the state's.
    """

    def __init__(self, state: S, lag: int, *, last: bool) -> None:
        super().__init__(state.rows, state._pass)
        if state.mode != "exact" or state.views is None or lag not in state.views.lags:
            raise Refused(f"a view of {state.spec.name}, which this pass does not know")
        self.state, self.lag, self._last = state, lag, last
        self._sliding: Sliding = state.views
        self.lists, self.ranks, self.under = state.lists, state.ranks, state.under

    def key(self, key: Value | None) -> Key:
        return self.state.key(key)

    @property
    def listed_key(self) -> ValueType | None:
        return self.state.listed_key

    @property
    def listed_words(self) -> int:
        return self.state.listed_words

    def listed(self, key: list[str], value: list[str]) -> Value:
        return self.state.listed(key, value)

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
        row = self.rows.find(words)
        before = self.rows.word(row, self._before)
        if not self._last:
            return self._out.temp("int", before)
        now = self._out.temp("int", self.rows.word(row, self.layout.place))
        return arithmetic(self._out, ast.Sub(), now, self._out.temp("int", before))

    @property
    def _before(self) -> int:
        """Where rows have the integer as of the lag ago."""
        return self.layout.twins + self._sliding.lags.index(self.lag)

    @property
    def _operations(self) -> str:
        """The log, and where the operations within the lag stand in it."""
        i = self.rows.ordinal
        return f"w{i}, k{i}, N{self._sliding.cursor(self.lag)}"

    def _within(self, row: str) -> str:
        """Whether a row's key is there and its latest operation within the lag."""
        latest = self.rows.word(row, self.layout.twins)
        return f"{self.rows.has(row)} and {latest} >= {self.rows.edge(self.lag)}"

    def _listing_within(self, first: str) -> str:
        layout = self.layout
        given = f"N{layout.present}, N{layout.width}, N{layout.place}, N{layout.size}, N{layout.twins}"
        return f"list_latest(listed, {first}, {self._operations}, {self.rows.table}, {given})"
