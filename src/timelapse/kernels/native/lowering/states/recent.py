"""Recent, compiled: a row has how many values there are, and then the values, oldest first, as a ListOf has."""

from __future__ import annotations

import ast
from decimal import Decimal
from typing import Any, ClassVar

from timelapse.kernels.native.lowering.expressions import arithmetic
from timelapse.kernels.native.lowering.states.base import StateCode, one
from timelapse.kernels.native.lowering.states.forms import Form
from timelapse.kernels.native.lowering.states.listof import ListOfCode
from timelapse.kernels.native.lowering.values import NONE, NOT_CONSTANT, Value, decimal_kind, kind_of, whole
from timelapse.kernels.native.memory.layout import LONGEST_LIST, BoundedList
from timelapse.kernels.native.refused import Refused
from timelapse.kinds.recent import Recent, limit_of, places_of
from timelapse.model.types import FLOAT, ValueType

_SIGNS = {"least": "<", "largest": ">"}


class RecentCode(ListOfCode):
    """`tl.Recent`: each read goes over the values."""

    compiled = f"with `tl.state(last=n)` up to {LONGEST_LIST}, all but `items`"
    parameters: ClassVar = {
        "add": ("value",), "count": (), "sum": (), "mean": ("default",), "least": ("default",), "largest": ("default",),
    }  # fmt: skip

    def _list(self) -> BoundedList:
        stored = self.layout.stored
        if not isinstance(stored, BoundedList):
            raise Refused(f"{self.spec.name}, a Recent of more than {LONGEST_LIST} values")
        return stored

    @property
    def _item(self) -> ValueType:
        return self._kind.inner

    def get(self, key: Value | None) -> Value:
        return StateCode.get(self, key)

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        if name == "add":
            return self._append(key, one(given.get("value"), f"{self.spec.name}.add()"))
        words = self.key(key)
        if self.mode == "ignored":
            nothing = whole(0) if name == "count" else self._number("0", 0)
            return nothing if name in ("count", "sum") else given.get("default", NONE)
        row = self.rows.find(words)
        count = self._out.temp("int", self.rows.word(row, self.layout.place))
        if name == "count":
            return count
        if name == "sum":
            return self._sum(row, count)
        default, some = given.get("default", NONE), f"{count.code} != 0"
        if name == "mean":
            return self.coding.either(some, lambda: self._mean(row, count), Value("float", "0.0"), default)
        return self.coding.either(
            some, lambda: self._best(row, count, _SIGNS[name]), self._number("0"), default
        )

    def _push(self, key: Value | None, value: Value, flags: int) -> None:
        (word,) = self.coding.words(value, self._item)
        new = self._out.temp("int", word)
        if self._item == FLOAT:
            self._out.exit_if(f"unbits({new.code}) != unbits({new.code})")
        else:
            limit = limit_of(self.spec)
            self._out.exit_if(f"not -{limit} <= {new.code} <= {limit}")
        super()._push(key, Value(kind_of(self._item) or "", self._coded(new.code)), flags)

    def _coded(self, word: str) -> str:
        """The number whose word this is."""
        return f"unbits({word})" if self._item == FLOAT else word

    def _number(self, code: str, const: Any = NOT_CONSTANT) -> Value:
        """A number of the values' type."""
        places = places_of(self.spec)
        if places is not None:
            return Value(decimal_kind(places), code, const=Decimal(const) if const == 0 else const)
        if self._item == FLOAT:
            return Value("float", "0.0" if code == "0" else code, const=0.0 if const == 0 else const)
        return Value("int", code, const=const)

    def _sum(self, row: str, count: Value) -> Value:
        out, first = self._out, self.layout.place + 1
        total, at = out.name("x"), out.name("i")
        out.assign(total, f"{'0.0' if self._item == FLOAT else 'np.int64(0)'}")
        with out.each(at, f"{first}, {first} + {count.code}"):
            out.assign(total, f"{self._coded(f'{self.rows.table}[{row}, {at}]')}", "+=")
        return self._number(total)

    def _mean(self, row: str, count: Value) -> Value:
        total, places = self._sum(row, count), places_of(self.spec)
        if places is not None:
            count = arithmetic(self._out, ast.Mult(), count, whole(10**places))
        total = total if self._item == FLOAT else Value("int", total.code)
        return arithmetic(self._out, ast.Div(), total, count)

    def _best(self, row: str, count: Value, sign: str) -> Value:
        """The first value that no other beats."""
        out, first = self._out, self.layout.place + 1
        best, at = out.name("x"), out.name("i")
        out.assign(best, f"{self._coded(self.rows.word(row, first))}")
        with out.each(at, f"{first + 1}, {first} + {count.code}"):
            other = self._coded(f"{self.rows.table}[{row}, {at}]")
            with out.when(f"{other} {sign} {best}"):
                out.assign(best, other)
        return self._number(best)


FORMS = {Recent: Form(RecentCode)}
