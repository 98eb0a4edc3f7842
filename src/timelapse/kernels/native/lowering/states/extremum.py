"""Max and Min, compiled, where their values are known."""

from __future__ import annotations

from typing import ClassVar

from timelapse.kernels.native.lowering.states.base import literal, one
from timelapse.kernels.native.lowering.states.forms import Form
from timelapse.kernels.native.lowering.states.sliding import View
from timelapse.kernels.native.lowering.states.value import ValueLikeCode, ordered
from timelapse.kernels.native.lowering.values import NONE, Value
from timelapse.kinds.extremum import Max, Min


class ExtremumCode(ValueLikeCode):
    """`tl.Max` and `tl.Min`: ties keep the earlier value; NaN and None are refused by Python."""

    parameters: ClassVar = {"get": ("default",), "add": ("value",)}

    def delete(self, key: Value | None) -> None:
        self.remove(key)

    def drop(self, row: str) -> None:
        if self.views is not None:
            self._push_room()
            self._out.do(f"empty({self._queue(row)})", log=self.ordinal)
        super().drop(row)

    def _queue(self, row: str) -> str:
        """What tells the log about a row's queue."""
        assert self.views is not None
        i, at, lags = self.ordinal, self.layout.twins, len(self.views.lags)
        return f"w{i}, k{i}, {self._pass.now}, {self.table}, {row}, {at}, {lags}"

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        if name != "add":
            return super()._method(name, key, given)
        words = self.key(key)
        value = self._certain(one(given.get("value"), f"{self.spec.name}.add()"))
        ordered(self.spec.name, self.stored)
        offered = self.value(self.words(value, self.stored), self.stored)
        if offered.kind == "float":
            self._out.exit_if(f"{offered.code} != {offered.code}")
        if self.mode != "ignored":
            row = self.claim(words)
            largest = issubclass(self.spec.kind, Max)
            if self.views is not None:
                self._push_room()
                (word,) = self.words(offered, self.stored)
                order = f"{1 if largest else -1}, {int(offered.kind == 'float')}"
                self._out.do(f"enqueue({self._queue(row)}, {word}, {order})", log=self.ordinal)
            old = self.value([self.word(row, self.layout.place)], self.stored)
            sign = ">" if largest else "<"
            with self._out.when(f"{self.lacks(row)} or {offered.code} {sign} {old.code}"):
                self.put(row, self.words(offered, self.stored))
        return NONE


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


FORMS = {kind: Form(ExtremumCode, ExtremumView) for kind in (Max, Min)}
