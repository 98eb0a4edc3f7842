"""Max and Min, compiled, where their values are known."""

from __future__ import annotations

from typing import ClassVar

from timelapse.kernels.native.lowering.states.base import one
from timelapse.kernels.native.lowering.states.coding import ordered
from timelapse.kernels.native.lowering.states.forms import Form
from timelapse.kernels.native.lowering.states.value import Reads, ValueLikeCode, ValueView
from timelapse.kernels.native.lowering.values import NONE, Value
from timelapse.kinds.extremum import Max, Min


class ExtremumCode(ValueLikeCode):
    """`tl.Max` and `tl.Min`: ties keep the earlier value; NaN and None are refused by Python."""

    parameters: ClassVar = {"get": ("default",), "add": ("value",)}

    def delete(self, key: Value | None) -> None:
        self.remove(key)

    def drop(self, row: str) -> None:
        if self.views is not None:
            self.rows.push_room()
            self._out.do(f"empty({self._queue(row)})", log=self.rows.ordinal)
        super().drop(row)

    def _queue(self, row: str) -> str:
        """What tells the log about a row's queue."""
        assert self.views is not None
        i, at, lags = self.rows.ordinal, self.layout.twins, len(self.views.lags)
        return f"w{i}, k{i}, {self._pass.now}, {self.rows.table}, {row}, {at}, {lags}"

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        if name != "add":
            return super()._method(name, key, given)
        words = self.key(key)
        value = self._certain(one(given.get("value"), f"{self.spec.name}.add()"))
        ordered(self.spec.name, self.reads.stored)
        offered = self.coding.value(self.coding.words(value, self.reads.stored), self.reads.stored)
        if offered.kind == "float":
            self._out.exit_if(f"{offered.code} != {offered.code}")
        if self.mode != "ignored":
            row = self.rows.claim(words)
            largest = issubclass(self.spec.kind, Max)
            if self.views is not None:
                self.rows.push_room()
                (word,) = self.coding.words(offered, self.reads.stored)
                order = f"{1 if largest else -1}, {int(offered.kind == 'float')}"
                self._out.do(f"enqueue({self._queue(row)}, {word}, {order})", log=self.rows.ordinal)
            old = self.coding.value([self.rows.word(row, self.layout.place)], self.reads.stored)
            sign = ">" if largest else "<"
            with self._out.when(f"{self.rows.lacks(row)} or {offered.code} {sign} {old.code}"):
                self.rows.put(row, self.coding.words(offered, self.reads.stored))
        return NONE


class ExtremumView(ValueView):
    """Of a Max or Min: the first value in the queue of a key."""

    def __init__(self, state: ValueLikeCode, lag: int, *, last: bool) -> None:
        super().__init__(state, lag, last=last)
        self.reads = Reads(self, lambda row: f"{self._first(row)} != 0", self._offered, zeros=False)

    def _first(self, row: str) -> str:
        return self.rows.word(row, self._before + 1)

    def _offered(self, row: str) -> list[str]:
        i = self.rows.ordinal
        return [self._out.temp("int", f"offered(w{i}, k{i}, {self._first(row)})").code]

    def listing(self, first: str) -> str:
        given = f"{self.rows.table}, N{self.layout.width}, N{self._before + 1}"
        return f"list_firsts(listed, {first}, {self._operations}, {given})"


FORMS = {kind: Form(ExtremumCode, ExtremumView) for kind in (Max, Min)}
