"""Counter, compiled: one word, 0 where the key is absent."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from timelapse.kernels.native.lowering.expressions import arithmetic
from timelapse.kernels.native.lowering.states.base import StateCode, one
from timelapse.kernels.native.lowering.states.forms import Form
from timelapse.kernels.native.lowering.states.sliding import View
from timelapse.kernels.native.lowering.steady import BOUND, Steps
from timelapse.kernels.native.lowering.values import NONE, Value, whole
from timelapse.kernels.native.refused import Refused
from timelapse.kernels.native.windows import is_hidden
from timelapse.kinds.counter import Counter


class CounterCode(StateCode):
    """`tl.Counter`: exact, or as sums (modulo 2^64) and values after a reset."""

    parameters: ClassVar = {"add": ("n",)}
    lists = True
    ranks = True
    steps: Steps = Steps()

    def contains(self, key: Value) -> Value:
        return self._out.temp("bool", f"{self.get(key).code} != 0")

    def get(self, key: Value | None) -> Value:
        words = self.key(key)
        if not self.rows.known():
            return whole(0)
        return self._read(self.rows.find(words))

    def _read(self, row: str) -> Value:
        value = self._out.temp("int", self.rows.word(row, self.layout.place))
        counts_rows = is_hidden(self.spec)
        small = counts_rows or self.spec.name in self._pass.steady
        return self.amount(replace(value, bound=BOUND) if small else value)

    def amount(self, whole: Value) -> Value:
        """What a word of the state stands for."""
        return whole

    def set(self, key: Value | None, value: Value) -> None:
        number = self._number(value)
        words = self.key(key)
        self.steps = self.steps.sets(number)
        if self.mode != "ignored":
            self.rows.put_word(self.rows.claim(words), number.code, f"{number.code} != 0")

    def delete(self, key: Value | None) -> None:
        self.remove(key)

    def change(
        self, key: Value | None, op: ast.operator, amount: Callable[[], Value], *, writes: bool = False
    ) -> None:
        words = self.key(key)
        if not self.rows.known():
            self._number(arithmetic(self._out, op, whole(0), amount()))
            return
        # Where n writes nothing the row is looked up once.
        row = self.rows.find(words) if writes else self.rows.claim(words)
        old, n = self._read(row), amount()
        adds = isinstance(op, ast.Add | ast.Sub)
        self.steps = self.steps.adds(n, in_loop=self._out.in_loop) if adds else self.steps.else_()
        total = self._number(arithmetic(self._out, op, old, n))
        if writes:
            row = self.rows.claim(words)
        self.rows.put_word(row, total.code, f"{total.code} != 0")

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        n = given.get("n", whole(1))
        self.change(one(key, f"{self.spec.name}.{name}()"), ast.Add(), lambda: n)
        return NONE

    def _effect(self, effect: str, key: Value | None, args: list[Value]) -> None:
        words = self.key(key)
        if effect == "_e_add" and len(args) <= 1:
            n = self._number(args[0]) if args else whole(1)
            row = self.rows.claim(words)
            self.rows.put_word(
                row, f"{self.rows.word(row, self.layout.place)} + {n.code}", self.rows.has(row)
            )
        elif effect == "_e_set" and len(args) <= 1 and self.views is None:
            n = self._number(args[0]) if args else whole(0)
            self.rows.put_word(self.rows.claim(words), n.code, "True")
        else:
            raise Refused(f"{self.spec.name}.{effect}()")

    def _number(self, value: Value) -> Value:
        value = self._certain(value)
        if value.kind != "int":
            raise Refused(f"{self.spec.name} counts {value.kind}")
        return value

    def drop(self, row: str) -> None:
        self.rows.note(row, "0")
        super().drop(row)


class CounterView(View[CounterCode]):
    """Of a Counter or Sum."""

    def contains(self, key: Value) -> Value:
        return self._out.temp("bool", f"{self.get(key).code} != 0")

    def get(self, key: Value | None) -> Value:
        return self.state.amount(self._changed(self.key(key)))

    def listing(self, first: str) -> str:
        width, place = f"N{self.layout.width}", f"N{self.layout.place}"
        if not self._last:
            return f"list_past(listed, {first}, {self.rows.table}, {width}, N{self._before})"
        return f"list_changed(listed, {first}, {self._operations}, {self.rows.table}, {width}, {place}, N{self._before})"


FORMS = {Counter: Form(CounterCode, CounterView)}
