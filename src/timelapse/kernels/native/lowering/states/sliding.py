"""Views (`x.last(W)`, `x.ago(L)`) of compiled states. They are only read."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import ClassVar

from timelapse.kernels.native.lowering.expressions import arithmetic
from timelapse.kernels.native.lowering.states.base import StateCode, literal
from timelapse.kernels.native.lowering.states.counter import CounterCode, SumCode
from timelapse.kernels.native.lowering.states.grouped import MapOfCode, MeanCode, SetOfCode
from timelapse.kernels.native.lowering.states.set import SetCode
from timelapse.kernels.native.lowering.states.value import ExtremumCode, ValueCode
from timelapse.kernels.native.lowering.values import Refused, Value
from timelapse.kernels.native.windows import members_spec


class View(StateCode):
    """What views of all kinds share. `last`: what was done within the lag, else the state as of the lag ago."""

    def __init__(self, state: StateCode, lag: int, *, last: bool) -> None:
        super().__init__(
            state.spec, state.mode, state.layout, state._out, state.ordinal, state._index, state.views
        )
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

    def _changed(self, words: str) -> Value:
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


class CounterView(View, CounterCode):
    """Of a Counter."""

    parameters: ClassVar = {}

    def get(self, key: Value | None) -> Value:
        return self._changed(self.key(key))

    def listing(self, first: str) -> str:
        width, place = f"N{self.layout.width}", f"N{self.layout.place}"
        if not self._last:
            return f"list_past(listed, {first}, {self.table}, {width}, N{self._before})"
        return f"list_changed(listed, {first}, {self._operations}, {self.table}, {width}, {place}, N{self._before})"


class SumView(CounterView, SumCode):
    """Of a Sum."""

    lists = False

    def get(self, key: Value | None) -> Value:
        return self._amount(super().get(key))


class MeanView(View, MeanCode):
    """Of a Mean."""

    parameters: ClassVar = {"get": ("default",), "sum": (), "count": ()}

    def _part(self, key: Value | None, part: int) -> Value:
        return self._changed(self._words_of(key, part))

    def listing(self, first: str) -> str:
        if not self._last:
            return self._means(first, self._before)
        given = f"m{self._index}, N{self.layout.width}, N{self.layout.place}, N{self._before}"
        return f"list_changed_means(listed, {first}, {self._operations}, {self.table}, {given})"


class SetView(View, SetCode):
    """Of a Set: its latest operations."""

    parameters: ClassVar = {}

    def contains(self, key: Value) -> Value:
        return self._out.temp("bool", self._within(self.find(self.key(key))))

    def listing(self, first: str) -> str:
        return self._listing_within(first)


class SetOfView(SetView, SetOfCode):
    """Of a SetOf."""

    lists = False

    parameters: ClassVar = {"count": ()}

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        return self._out.hidden(members_spec(self.spec, self.lag)).get(key)


class ValueView(View, ValueCode):
    """Of a Value: what the latest operation within the lag has left."""

    parameters: ClassVar = {"get": ("default",)}
    zeros: ClassVar = False

    def _there(self, row: str) -> str:
        return self._within(row)

    def listing(self, first: str) -> str:
        return self._listing_within(first)


class MapOfView(ValueView, MapOfCode):
    """Of a MapOf."""

    lists = False
    parameters: ClassVar = {"get": ("default",)}


class ExtremumView(View, ExtremumCode):
    """Of a Max or Min: the first value in the queue of a key."""

    parameters: ClassVar = {"get": ("default",)}

    def _first(self, row: str) -> str:
        return self.word(row, self._before + 1)

    def listing(self, first: str) -> str:
        given = f"{self.table}, N{self.layout.width}, N{self._before + 1}"
        return f"list_firsts(listed, {first}, {self._operations}, {given})"

    def _there(self, row: str) -> str:
        return f"{self._first(row)} != 0"

    def read(self, row: str) -> Value:
        has = self._out.temp("bool", self._there(row)).code
        i = self.ordinal
        found = [self._out.temp("int", f"offered(w{i}, k{i}, {self._first(row)})").code]
        if self.kind != self.stored:
            found = ["1", *found]
        missing = self.constant(self.default, self.kind)
        words = [f"({w} if {has} else {literal(d)})" for w, d in zip(found, missing, strict=True)]
        return self.value(words, self.kind)


_VIEWS: dict[type[StateCode], type[View]] = {
    CounterCode: CounterView, SumCode: SumView, MeanCode: MeanView, SetCode: SetView, SetOfCode: SetOfView,
    ValueCode: ValueView, MapOfCode: MapOfView, ExtremumCode: ExtremumView,
}  # fmt: skip


def view_of(state: StateCode, lag: int, *, last: bool) -> View:
    """A view of a state. Raises Refused."""
    found = _VIEWS.get(type(state))
    if found is None:
        raise Refused(f"a view of {state.spec.name}")
    return found(state, lag, last=last)
