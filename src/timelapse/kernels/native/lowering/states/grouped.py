"""SetOf, MapOf and Mean, compiled: what they store under parts of keys, as Set, Value and Counter store it.

How many members a key has is a hidden counter, where a pass asks for it; which they are, a list through all of them that
begins in a hidden state (memory/linking.py). Other operations on everything under a key need an index, which only Python
keeps: passes with those run as Python.
"""

from __future__ import annotations

import ast
from decimal import Decimal
from functools import partial
from typing import ClassVar

from timelapse.kernels.native.lowering.expressions import arithmetic, fitting
from timelapse.kernels.native.lowering.states.base import StateCode, one
from timelapse.kernels.native.lowering.states.effects import FuncCode
from timelapse.kernels.native.lowering.states.set import SetCode
from timelapse.kernels.native.lowering.states.value import ValueCode
from timelapse.kernels.native.lowering.values import NONE, NOT_CONSTANT, Refused, Value, decimal_kind
from timelapse.kernels.native.memory.layout import LINKED
from timelapse.kernels.native.memory.linking import DROPPED, NEXT
from timelapse.kernels.native.unit import LINKS
from timelapse.kernels.native.windows import MODERATE, members_spec
from timelapse.kinds.mean import NUMBER, SUM
from timelapse.kinds.sum import SCALE
from timelapse.model.types import FLOAT, INT, OptionalType, TupleType, ValueType

_INDEXED = ("fields", "count", "clear", "items")


class Paired(StateCode):
    """Keys are pairs of a declared key and what stands under it; stored are the parts of both."""

    def key(self, key: Value | None) -> str:
        if key is None:
            raise Refused(f"{self.spec.name} used without a key")
        key = self._certain(key)
        if key.kind != "tuple" or key.cls is not None or len(key.items) != 2:
            raise Refused(f"all that is under a key of {self.spec.name}, which needs an index")
        assert self.spec.outer is not None
        assert self.spec.inner is not None
        k, m = (
            self._parts_of(v, t) for v, t in zip(key.items, (self.spec.outer, self.spec.inner), strict=True)
        )
        return super().key(Value("tuple", items=(*k, *m)))

    def _parts_of(self, value: Value, kind: ValueType) -> tuple[Value, ...]:
        value = self._certain(value)
        if not isinstance(kind, TupleType):
            return (value,)
        if value.kind != "tuple" or len(value.items) != len(kind.items):
            raise Refused(f"a key of {self.spec.name} of another type")
        return value.items

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        if name in _INDEXED:
            raise Refused(f"{self.spec.name}.{name}(), which needs an index")
        return super()._method(name, key, given)


class SetOfCode(Paired, SetCode):
    """`tl.SetOf`."""

    parameters: ClassVar = {"add": ("member",), "discard": ("member",), "count": ()}
    lists = False

    def get(self, key: Value | None) -> Value:
        raise Refused(f"{self.spec.name}[k], which needs an index")

    def delete(self, key: Value | None) -> None:
        raise Refused(f"del {self.spec.name}[k], which needs an index")

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        if name == "count":
            return self._number_of(one(key, f"{self.spec.name}.count()"))
        if name in ("add", "discard"):
            what = f"{self.spec.name}.{name}()"
            member = one(given.get("member"), what)
            key = Value("tuple", items=(one(key, what), member))
        return super()._method(name, key, {})

    def members(self, key: Value, first: str) -> str | None:
        """Code that lists a key's members from a place on, in no order, and gives how many; None where there are none."""
        if self.views is not None:
            raise Refused(f"{self.spec.name}[k], of a state of which there are windows")
        heads = self._out.heads_of(self.spec)
        try:
            words = heads.key(key)
        except Refused as refusal:
            raise Refused(f"a key of {self.spec.name} of another type", refusal.line) from None
        if not self.known():
            return None
        head = heads.word(heads.find(words), heads.layout.place)
        i, outer = self.ordinal, heads.layout.width
        given = f"N{outer}, N{self.layout.width - outer}, N{self.layout.present}"
        return f"list_members(listed, {first}, nodes{i}, linked{i}, {head}, {self.table}, m{self._index}, {given})"

    def _link(self, key: Value | None, row: str) -> None:
        """A row that is written may be of a pair that was never there: it goes to the list of its key's members."""
        out, i = self._out, self.ordinal
        heads = out.heads_of(self.spec)
        with out.block(f"if {self.flags(row)} & {LINKED} == 0:"):
            out.line(f"if linked{i}[{NEXT}] >= nodes{i}.shape[0]:")
            out.line(f"    return left(j, u, {LINKS})")
            head = heads.claim(heads.key(self._outer(key)))
            heads.save(head)
            self.save(row)
            given = f"{heads.table}, {head}, N{heads.layout.place}, {self.table}, {row}, N{self.layout.width}"
            out.line(f"link(nodes{i}, linked{i}, {given})")

    def _number_of(self, key: Value) -> Value:
        """How many members a key has."""
        if self.views is not None:
            raise Refused(f"{self.spec.name}.count(), of a state of which there are windows")
        counted = self._out.members_of(self.spec)
        if self.mode == "ignored":
            counted.key(key)
            return Value("int", "0", const=0)
        return counted.get(key)

    def _comes(self, key: Value | None, row: str) -> None:
        if self.spec.name in self._out.counted:
            with self._out.block(f"if {self.lacks(row)}:"):
                self._out.members_of(self.spec).change(self._outer(key), ast.Add(), _one)
        if self.spec.name in self._out.indexed:
            self._link(key, row)
        for lag, counted in self._counted():
            with self._out.block(f"if {self.lacks(row)} or {self._stamp(row)} < {self.edge(lag)}:"):
                counted.change(self._outer(key), ast.Add(), _one)
        self.stamp(row)

    def _goes(self, key: Value | None, row: str) -> None:
        if self.spec.name in self._out.counted:
            self._out.members_of(self.spec).change(self._outer(key), ast.Sub(), _one)
        if self.spec.name in self._out.indexed:
            self._out.line(f"linked{self.ordinal}[{DROPPED}] = 1")
        for lag, counted in self._counted():
            with self._out.block(f"if {self._stamp(row)} >= {self.edge(lag)}:"):
                counted.change(self._outer(key), ast.Sub(), _one)

    def _counted(self) -> list[tuple[int, StateCode]]:
        """The lags of views, with the counters of members within them."""
        lags = () if self.views is None else self.views.lags
        return [(lag, self._out.hidden(members_spec(self.spec, lag))) for lag in lags]

    def _stamp(self, row: str) -> str:
        return self.word(row, self.layout.twins)

    def _outer(self, key: Value | None) -> Value:
        return one(key, self.spec.name).items[0]


def _one() -> Value:
    return Value("int", "1", const=1)


class MapOfCode(Paired, ValueCode):
    """`tl.MapOf`."""

    lists = False
    parameters: ClassVar = {
        "get": ("default",), "setdefault": ("value",), "pop": (), "fields": (), "count": (), "clear": (),
    }  # fmt: skip


class MapOfFuncCode(Paired, FuncCode):
    """A delta of MapOf."""


class MeanCode(StateCode):
    """`tl.Mean`: two words under two keys, as Counter keeps them."""

    parameters: ClassVar = {
        "add": ("value",),
        "remove": ("value",),
        "get": ("default",),
        "sum": (),
        "count": (),
    }
    lists = True

    @property
    def listed_key(self) -> ValueType | None:
        return self.spec.outer

    @property
    def listed_words(self) -> int:
        return 2

    def listing(self, first: str) -> str:
        return self._means(first, self.layout.place)

    def _means(self, first: str, at: int) -> str:
        return f"list_means(listed, {first}, {self.table}, m{self._index}, N{self.layout.width}, N{at})"

    def listed(self, key: list[str], value: list[str]) -> Value:
        assert self.spec.outer is not None
        total, number = (self.value([word], INT) for word in value)
        return Value("tuple", items=(self.value(key, self.spec.outer), self._divided(total, number)))

    def contains(self, key: Value) -> Value:
        return self._out.temp("bool", f"{self._part(key, NUMBER).code} != 0")

    def get(self, key: Value | None) -> Value:
        return self._mean(key, self.missing(OptionalType(FLOAT) if self.default is None else FLOAT))

    def delete(self, key: Value | None) -> None:
        self._only_added("del")
        for part in (SUM, NUMBER):
            self.remove(self._key_of(key, part))

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        if name in ("sum", "count"):
            found = self._part(key, SUM if name == "sum" else NUMBER)
            places = self.spec.option(SCALE)
            if name == "count" or places is None:
                return found
            return Value(
                decimal_kind(places), found.code, const=Decimal(0) if found.const == 0 else NOT_CONSTANT
            )
        if name == "get":
            return self.get(key) if "default" not in given else self._mean(key, given["default"])
        value = self._integer(one(given.get("value"), f"{self.spec.name}.{name}()"))
        op: ast.operator = ast.Add() if name == "add" else ast.Sub()
        if name == "remove":
            self._only_added("remove()")
        for part, n in ((SUM, value), (NUMBER, Value("int", "1", const=1))):
            words = self._words_of(key, part)
            if self.mode == "ignored":
                continue
            row = self.claim(words)
            old = self._out.temp("int", self.word(row, self.layout.place))
            total = arithmetic(self._out, op, old, n)
            if self.views is not None and part == SUM:
                self._out.give_up_if(f"not {-MODERATE} <= {total.code} <= {MODERATE}")
            self.put_word(row, total.code, f"{total.code} != 0")
        return NONE

    def _only_added(self, what: str) -> None:
        """A window is the sum now less the sum then: not where what was taken out had been added before it."""
        if self.views is not None and self.views.windowed:
            raise Refused(f"{what} of {self.spec.name}, of which there are windows")

    def _effect(self, effect: str, key: Value | None, args: list[Value]) -> None:
        if effect == "_e_del" and not args and self.views is None:
            for part in (SUM, NUMBER):
                self.put_word(self.claim(self._words_of(key, part)), "0", "True")
            return
        if effect not in ("_e_more", "_e_less") or len(args) != 1:
            raise Refused(f"{self.spec.name}.{effect}()")
        sign = "+" if effect == "_e_more" else "-"
        for part, n in ((SUM, self._integer(args[0]).code), (NUMBER, "ONE")):
            row = self.claim(self._words_of(key, part))
            self.put_word(row, f"{self.word(row, self.layout.place)} {sign} {n}", self.has(row))

    def _words_of(self, key: Value | None, part: int) -> str:
        return self.key(self._key_of(key, part))

    def _key_of(self, key: Value | None, part: int) -> Value:
        """The key under which the sum or the number is stored."""
        key = self._certain(one(key, self.spec.name))
        scalar = not isinstance(self.spec.outer, TupleType)
        if scalar == (key.kind == "tuple"):
            raise Refused(f"a key of {self.spec.name} of another type")
        parts = (key,) if scalar else key.items
        return Value("tuple", items=(*parts, Value("int", f"({part})", const=part)))

    def _part(self, key: Value | None, part: int) -> Value:
        words = self._words_of(key, part)
        if not self.known():
            return Value("int", "0", const=0)
        return self._out.temp("int", self.word(self.find(words), self.layout.place))

    def _mean(self, key: Value | None, default: Value) -> Value:
        """Sum by number, or the default where there is nothing."""
        number = self._part(key, NUMBER)
        if self.mode == "ignored":
            return default
        total = self._part(key, SUM)
        mean = partial(self._divided, total, number)
        return self.either(f"{number.code} != 0", mean, Value("float", "0.0"), default)

    def _divided(self, total: Value, number: Value) -> Value:
        """The mean: of decimals the sum is in units, and exact only as long as both are floats without rounding."""
        places = self.spec.option(SCALE)
        if places is not None:
            unit = Value("int", f"({10**places})", const=10**places)
            number = arithmetic(self._out, ast.Mult(), number, unit)
        return arithmetic(self._out, ast.Div(), total, number)

    def _integer(self, value: Value) -> Value:
        value = self._certain(value)
        places = self.spec.option(SCALE)
        if places is not None:
            return fitting(self._out, value, places, self.spec.name)
        if value.kind != "int":
            raise Refused(f"{self.spec.name} is given {value.kind}")
        return value

    def drop(self, row: str) -> None:
        self.note(row, "0")
        super().drop(row)
