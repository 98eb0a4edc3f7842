"""Mean, compiled: two words under two keys."""

from __future__ import annotations

import ast
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import ClassVar

from timelapse.kernels.native.lowering.expressions import arithmetic, fitting
from timelapse.kernels.native.lowering.form import Key
from timelapse.kernels.native.lowering.states.base import Pass, StateCode, one
from timelapse.kernels.native.lowering.states.forms import Form
from timelapse.kernels.native.lowering.states.rows import Rows
from timelapse.kernels.native.lowering.states.sliding import View
from timelapse.kernels.native.lowering.values import NONE, NOT_CONSTANT, Value, decimal_kind, whole
from timelapse.kernels.native.refused import Refused
from timelapse.kernels.native.windows import MODERATE
from timelapse.kinds.mean import NUMBER, SUM, Mean
from timelapse.kinds.sum import SCALE
from timelapse.model.types import FLOAT, INT, OptionalType, TupleType, ValueType

_PARTS = f"N{NUMBER}, N{SUM}"
"""What is listed has values, and their sum comes before their number."""


class Means:
    """Reads. `part`: the sum or the number under a key."""

    def __init__(self, state: StateCode, part: Callable[[Value | None, int], Value]) -> None:
        self._state, self._spec, self._out, self._part = state, state.spec, state.rows.out, part

    def contains(self, key: Value) -> Value:
        """`k in x`."""
        return self._out.temp("bool", f"{self._part(key, NUMBER).code} != 0")

    def get(self, key: Value | None) -> Value:
        """`x[k]`."""
        coding = self._state.coding
        return self._mean(key, coding.missing(OptionalType(FLOAT) if coding.default is None else FLOAT))

    def method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        """`x.sum(k)`, `x.count(k)`, `x.get(k)`."""
        if name == "get":
            return self.get(key) if "default" not in given else self._mean(key, given["default"])
        found = self._part(key, SUM if name == "sum" else NUMBER)
        places = self._spec.option(SCALE)
        if name == "count" or places is None:
            return found
        const = Decimal(0) if found.const == 0 else NOT_CONSTANT
        return Value(decimal_kind(places), found.code, const=const)

    def _mean(self, key: Value | None, default: Value) -> Value:
        """Sum by number, or the default where there is nothing."""
        number = self._part(key, NUMBER)
        if self._state.mode == "ignored":
            return default
        total = self._part(key, SUM)
        mean = partial(self.divided, total, number)
        return self._state.coding.either(f"{number.code} != 0", mean, Value("float", "0.0"), default)

    def divided(self, total: Value, number: Value) -> Value:
        """The mean: of decimals the sum is in units, and exact only as long as both are floats without rounding."""
        places = self._spec.option(SCALE)
        if places is not None:
            unit = whole(10**places)
            number = arithmetic(self._out, ast.Mult(), number, unit)
        return arithmetic(self._out, ast.Div(), total, number)


class MeanCode(StateCode):
    """`tl.Mean`: two words under two keys, as Counter keeps them."""

    parameters: ClassVar = {
        "add": ("value",),
        "remove": ("value",),
        "get": ("default",),
        "sum": (),
        "count": (),
    }
    compiled = "all but `items`"
    lists = True

    def __init__(self, rows: Rows, own: Pass) -> None:
        super().__init__(rows, own)
        self._reads = Means(self, self._part)

    @property
    def listed_key(self) -> ValueType | None:
        return self.spec.outer

    @property
    def listed_words(self) -> int:
        return 2

    def listing(self, first: str) -> str:
        return self.means(first, self.layout.place)

    def means(self, first: str, at: int) -> str:
        """Code that lists all keys with the words that stand at a place of their rows."""
        rows = self.rows
        return (
            f"list_pairs(listed, {first}, {rows.table}, m{rows.index}, N{self.layout.width}, N{at}, {_PARTS})"
        )

    def listed(self, key: list[str], value: list[str]) -> Value:
        assert self.spec.outer is not None
        total, number = (self.coding.value([word], INT) for word in value)
        return Value(
            "tuple", items=(self.coding.value(key, self.spec.outer), self._reads.divided(total, number))
        )

    def contains(self, key: Value) -> Value:
        return self._reads.contains(key)

    def get(self, key: Value | None) -> Value:
        return self._reads.get(key)

    def delete(self, key: Value | None) -> None:
        self._only_added("del")
        for part in (SUM, NUMBER):
            self.remove(self._key_of(key, part))

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        if name not in ("add", "remove"):
            return self._reads.method(name, key, given)
        value = self._integer(one(given.get("value"), f"{self.spec.name}.{name}()"))
        op: ast.operator = ast.Add() if name == "add" else ast.Sub()
        if name == "remove":
            self._only_added("remove()")
        for part, n in ((SUM, value), (NUMBER, whole(1))):
            words = self.words_of(key, part)
            if self.mode == "ignored":
                continue
            row = self.rows.claim(words)
            old = self._out.temp("int", self.rows.word(row, self.layout.place))
            total = arithmetic(self._out, op, old, n)
            if self.views is not None and part == SUM:
                self._out.give_up_if(f"not {-MODERATE} <= {total.code} <= {MODERATE}")
            self.rows.put_word(row, total.code, f"{total.code} != 0")
        return NONE

    def _only_added(self, what: str) -> None:
        """A window is the sum now less the sum then: not where what was taken out had been added before it."""
        if self.views is not None and self.views.windowed:
            raise Refused(f"{what} of {self.spec.name}, of which there are windows")

    def _effect(self, effect: str, key: Value | None, args: list[Value]) -> None:
        if effect == "_e_del" and not args and self.views is None:
            for part in (SUM, NUMBER):
                self.rows.put_word(self.rows.claim(self.words_of(key, part)), "0", "True")
            return
        if effect not in ("_e_more", "_e_less") or len(args) != 1:
            raise Refused(f"{self.spec.name}.{effect}()")
        sign = "+" if effect == "_e_more" else "-"
        for part, n in ((SUM, self._integer(args[0]).code), (NUMBER, "ONE")):
            row = self.rows.claim(self.words_of(key, part))
            self.rows.put_word(
                row, f"{self.rows.word(row, self.layout.place)} {sign} {n}", self.rows.has(row)
            )

    def words_of(self, key: Value | None, part: int) -> Key:
        return self.key(self._key_of(key, part))

    def _key_of(self, key: Value | None, part: int) -> Value:
        """The key under which the sum or the number is stored."""
        key = self._certain(one(key, self.spec.name))
        scalar = not isinstance(self.spec.outer, TupleType)
        if scalar == (key.kind == "tuple"):
            raise Refused(f"a key of {self.spec.name} of another type")
        parts = (key,) if scalar else key.items
        return Value("tuple", items=(*parts, whole(part)))

    def _part(self, key: Value | None, part: int) -> Value:
        words = self.words_of(key, part)
        if not self.rows.known():
            return whole(0)
        return self._out.temp("int", self.rows.word(self.rows.find(words), self.layout.place))

    def _integer(self, value: Value) -> Value:
        value = self._certain(value)
        places = self.spec.option(SCALE)
        if places is not None:
            return fitting(self._out, value, places, self.spec.name)
        if value.kind != "int":
            raise Refused(f"{self.spec.name} is given {value.kind}")
        return value

    def drop(self, row: str) -> None:
        self.rows.note(row, "0")
        super().drop(row)


class MeanView(View[MeanCode]):
    """Of a Mean."""

    parameters: ClassVar = {"get": ("default",), "sum": (), "count": ()}

    def __init__(self, state: MeanCode, lag: int, *, last: bool) -> None:
        super().__init__(state, lag, last=last)
        self._reads = Means(self, lambda key, part: self._changed(state.words_of(key, part)))

    def contains(self, key: Value) -> Value:
        return self._reads.contains(key)

    def get(self, key: Value | None) -> Value:
        return self._reads.get(key)

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        return self._reads.method(name, key, given)

    def listing(self, first: str) -> str:
        if not self._last:
            return self.state.means(first, self._before)
        given = f"m{self.rows.index}, N{self.layout.width}, N{self.layout.place}, N{self._before}"
        return (
            f"list_changed_pairs(listed, {first}, {self._operations}, {self.rows.table}, {given}, {_PARTS})"
        )


FORMS = {Mean: Form(MeanCode, MeanView)}
