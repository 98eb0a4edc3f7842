"""First, compiled, where its values are known."""

from __future__ import annotations

from typing import ClassVar

from timelapse.kernels.native.lowering.states.base import one
from timelapse.kernels.native.lowering.states.forms import Form
from timelapse.kernels.native.lowering.states.value import ValueLikeCode
from timelapse.kernels.native.lowering.values import NONE, Value
from timelapse.kinds.first import First


class FirstCode(ValueLikeCode):
    """`tl.First`."""

    parameters: ClassVar = {"get": ("default",), "add": ("value",)}

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        if name != "add":
            return super()._method(name, key, given)
        words = self.key(key)
        new = self.coding.words(one(given.get("value"), f"{self.spec.name}.add()"), self.reads.kind)
        if self.mode != "ignored":
            row = self.rows.claim(words)
            with self._out.when(self.rows.lacks(row)):
                self.rows.put(row, new)
        return NONE


FORMS = {First: Form(FirstCode)}
