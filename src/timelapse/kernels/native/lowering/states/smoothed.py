"""Smoothed by event, and Decayed, compiled."""

from __future__ import annotations

import ast
from typing import ClassVar

from timelapse.kernels.native.lowering.expressions import arithmetic, as_float
from timelapse.kernels.native.lowering.states.base import StateCode, literal, one
from timelapse.kernels.native.lowering.values import NONE, Refused, Value, common, fitted
from timelapse.model.types import FLOAT, OptionalType, ValueType

_EXACT = 2**53
"""Integers below it are floats, too: the quotient of two is what Python's true division gives."""


class SmoothedCode(StateCode):
    """`tl.Smoothed` with `alpha=`."""

    parameters: ClassVar = {"add": ("value",), "get": ("default",)}

    def contains(self, key: Value) -> Value:
        words = self.key(key)
        if self.mode == "ignored":
            return self._out.temp("bool", "False")
        return self._out.temp("bool", self.has(self.find(words)))

    def get(self, key: Value | None) -> Value:
        kind: ValueType = OptionalType(FLOAT) if self.default is None else FLOAT
        return self._read(key, self.value([literal(w) for w in self.constant(self.default, kind)], kind))

    def delete(self, key: Value | None) -> None:
        words = self.key(key)
        if self.mode != "ignored":
            self.drop_present(words)

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        if name == "get":
            return self.get(key) if "default" not in given else self._read(key, given["default"])
        alpha = self._alpha
        value = self._certain(one(given.get("value"), f"{self.spec.name}.add()"))
        if value.kind not in ("int", "float"):
            raise Refused(f"{self.spec.name} is given {value.kind}")
        v = self._out.temp("float", as_float(value))
        words = self.key(key)
        if self.mode == "ignored":
            return NONE
        row = self.claim(words)
        with self._out.block(f"if {self.has(row)}:"):
            old = self._out.temp("float", f"unbits({self.word(row, self.layout.place)})")
            step = arithmetic(self._out, ast.Mult(), alpha, arithmetic(self._out, ast.Sub(), v, old))
            self.put(row, [f"bits({arithmetic(self._out, ast.Add(), old, step).code})"])
        with self._out.block("else:"):
            self.put(row, [f"bits({v.code})"])
        return NONE

    @property
    def _alpha(self) -> Value:
        alpha = self.spec.option("alpha")
        if alpha is None:
            raise Refused(f"{self.spec.name}, which is smoothed by time")
        return Value("float", f"({float(alpha)!r})", const=float(alpha))

    def _read(self, key: Value | None, default: Value) -> Value:
        assert self._alpha
        words = self.key(key)
        if self.mode == "ignored":
            return default
        if self.mode == "delta":
            raise Refused(f"a read of {self.spec.name}, which this pass does not know")
        row = self.find(words)
        has = self._out.temp("bool", self.has(row)).code
        found = self._out.temp("float", f"unbits({self.word(row, self.layout.place)})")
        shape = common(found, default)
        if shape is None:
            raise Refused(f"{self.spec.name}.get() with a default of another type")
        stem = self._out.name("c")
        with self._out.block(f"if {has}:"):
            result = self._out.store(stem, fitted(found, shape))
        with self._out.block("else:"):
            self._out.store(stem, fitted(default, shape))
        return result


class DecayedCode(SmoothedCode):
    """`tl.Decayed`."""

    parameters: ClassVar = {"add": ("n",), "get": ()}

    def get(self, key: Value | None) -> Value:
        words = self.key(key)
        if self.mode == "ignored":
            return Value("float", "0.0", const=0.0)
        row = self.find(words)
        stem = self._out.name("c")
        with self._out.block(f"if {self.has(row)}:"):
            result = self._out.store(stem, self._left(row))
        with self._out.block("else:"):
            self._out.store(stem, Value("float", "0.0"))
        return result

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        if name == "get":
            return self.get(key)
        value = self._certain(one(given.get("n"), f"{self.spec.name}.add()"))
        if value.kind not in ("int", "float"):
            raise Refused(f"{self.spec.name} is given {value.kind}")
        v = self._out.temp("float", as_float(value))
        words = self.key(key)
        if self.mode == "ignored":
            return NONE
        row = self.claim(words)
        with self._out.block(f"if {self.has(row)}:"):
            left = self._left(row)
            self.put(row, [f"bits({left.code} + {v.code})", self._out.now])
        with self._out.block("else:"):
            self.put(row, [f"bits(0.0 + {v.code})", self._out.now])
        return NONE

    def _left(self, row: str) -> Value:
        """What is left now under a key that is there."""
        half, place, now = self.spec.option("half_life"), self.layout.place, self._out.now
        if half >= _EXACT:
            raise Refused(f"{self.spec.name}, whose half_life is no float")
        self._out.exit_if(f"not 0 <= minus({now}, {self.word(row, place + 1)}) < {_EXACT}")
        return self._out.temp("float", f"faded({self.table}, {row}, N{place}, {now}, {half})")
