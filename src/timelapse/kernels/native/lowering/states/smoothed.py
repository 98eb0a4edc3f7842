"""Smoothed by event, and Decayed, compiled."""

from __future__ import annotations

import ast
from typing import ClassVar

from timelapse.kernels.native.lowering.expressions import arithmetic, as_float
from timelapse.kernels.native.lowering.states.base import StateCode, one
from timelapse.kernels.native.lowering.states.forms import Form
from timelapse.kernels.native.lowering.values import NONE, Value
from timelapse.kernels.native.refused import Refused
from timelapse.kinds.smoothed import Decayed, Smoothed
from timelapse.model.types import FLOAT, OptionalType

_EXACT = 2**53
"""Integers below it are floats, too: the quotient of two is what Python's true division gives."""


class SmoothedCode(StateCode):
    """`tl.Smoothed` with `alpha=`."""

    compiled = "by event, all but `items`"
    parameters: ClassVar = {"add": ("value",), "get": ("default",)}

    def contains(self, key: Value) -> Value:
        return self.is_there(key)

    def get(self, key: Value | None) -> Value:
        return self._read(
            key, self.coding.missing(OptionalType(FLOAT) if self.coding.default is None else FLOAT)
        )

    def delete(self, key: Value | None) -> None:
        self.remove(key)

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        if name == "get":
            return self.get(key) if "default" not in given else self._read(key, given["default"])
        alpha = self._alpha
        v = self._given(given, "value")
        words = self.key(key)
        if self.mode == "ignored":
            return NONE
        row = self.rows.claim(words)
        with self._out.when(self.rows.has(row)):
            old = self._out.temp("float", f"unbits({self.rows.word(row, self.layout.place)})")
            step = arithmetic(self._out, ast.Mult(), alpha, arithmetic(self._out, ast.Sub(), v, old))
            self.rows.put(row, [f"bits({arithmetic(self._out, ast.Add(), old, step).code})"])
        with self._out.otherwise():
            self.rows.put(row, [f"bits({v.code})"])
        return NONE

    def _given(self, given: dict[str, Value], parameter: str) -> Value:
        """The number that add() is given, as a float."""
        value = self._certain(one(given.get(parameter), f"{self.spec.name}.add()"))
        if value.kind not in ("int", "float"):
            raise Refused(f"{self.spec.name} is given {value.kind}")
        return self._out.temp("float", as_float(value))

    @property
    def _alpha(self) -> Value:
        alpha = self.spec.option("alpha")
        if alpha is None:
            raise Refused(f"{self.spec.name}, which is smoothed by time")
        return Value("float", f"({float(alpha)!r})", const=float(alpha))

    def _read(self, key: Value | None, default: Value) -> Value:
        assert self._alpha
        words = self.key(key)
        if not self.rows.known():
            return default
        row = self.rows.find(words)
        has = self._out.temp("bool", self.rows.has(row)).code
        found = self._out.temp("float", f"unbits({self.rows.word(row, self.layout.place)})")
        return self.coding.either(has, lambda: found, found, default)


class DecayedCode(SmoothedCode):
    """`tl.Decayed`."""

    compiled = "all but `items` and `top`"
    parameters: ClassVar = {"add": ("n",), "get": ()}

    def get(self, key: Value | None) -> Value:
        words, nothing = self.key(key), Value("float", "0.0", const=0.0)
        if not self.rows.known():
            return nothing
        row = self.rows.find(words)
        return self.coding.either(self.rows.has(row), lambda: self._left(row), nothing, nothing)

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        if name == "get":
            return self.get(key)
        v = self._given(given, "n")
        words = self.key(key)
        if self.mode == "ignored":
            return NONE
        row = self.rows.claim(words)
        with self._out.when(self.rows.has(row)):
            left = self._left(row)
            self.rows.put(row, [f"bits({left.code} + {v.code})", self._pass.now])
        with self._out.otherwise():
            self.rows.put(row, [f"bits(0.0 + {v.code})", self._pass.now])
        return NONE

    def _left(self, row: str) -> Value:
        """What is left now under a key that is there."""
        half, place, now = self.spec.option("half_life"), self.layout.place, self._pass.now
        if half >= _EXACT:
            raise Refused(f"{self.spec.name}, whose half_life is no float")
        self._out.exit_if(f"not 0 <= minus({now}, {self.rows.word(row, place + 1)}) < {_EXACT}")
        return self._out.temp("float", f"faded({self.rows.table}, {row}, N{place}, {now}, {half})")


FORMS = {Smoothed: Form(SmoothedCode), Decayed: Form(DecayedCode)}
