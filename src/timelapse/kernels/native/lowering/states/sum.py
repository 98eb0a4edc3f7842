"""Sum, compiled: a Counter of amounts in whole numbers of their smallest unit."""

from __future__ import annotations

from decimal import Decimal

from timelapse.kernels.native.lowering.expressions import fitting
from timelapse.kernels.native.lowering.states.counter import CounterCode, CounterView
from timelapse.kernels.native.lowering.states.forms import Form
from timelapse.kernels.native.lowering.values import Value, decimal_kind
from timelapse.kinds.sum import SCALE, Sum


class SumCode(CounterCode):
    """`tl.Sum`: the same, of amounts in whole numbers of their smallest unit."""

    compiled = "all but `items` and `top`"
    lists = False
    ranks = False

    @property
    def _places(self) -> int | None:
        return self.spec.option(SCALE)  # type: ignore[no-any-return]

    def get(self, key: Value | None) -> Value:
        if self.rows.known() or self._places is None:
            return super().get(key)
        self.key(key)
        return Value(decimal_kind(self._places), "0", const=Decimal(0))

    def amount(self, whole: Value) -> Value:
        return (
            whole
            if self._places is None
            else Value(decimal_kind(self._places), whole.code, bound=whole.bound)
        )

    def _number(self, value: Value) -> Value:
        if self._places is None:
            return super()._number(value)
        return fitting(self._out, self._certain(value), self._places, self.spec.name)


FORMS = {Sum: Form(SumCode, CounterView)}
