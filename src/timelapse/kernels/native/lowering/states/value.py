"""Value, compiled, where its values are known, and what others share with it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from timelapse.kernels.native.lowering.expressions import arithmetic
from timelapse.kernels.native.lowering.states.base import Pass, StateCode, one
from timelapse.kernels.native.lowering.states.coding import literal
from timelapse.kernels.native.lowering.states.forms import Form
from timelapse.kernels.native.lowering.states.rows import Rows
from timelapse.kernels.native.lowering.states.sliding import View
from timelapse.kernels.native.lowering.values import Value
from timelapse.kernels.native.refused import Refused
from timelapse.kinds.value import Value as ValueKind
from timelapse.model.types import ValueType


class Reads:
    """Reads of a kind whose keys have a value each.

    `there`: whether a row has one. `found`: its words. `zeros`: whether the words of a row that has none are zeros.
    """

    def __init__(
        self, state: StateCode, there: Callable[[str], str], found: Callable[[str], list[str]], *, zeros: bool
    ) -> None:
        self._state, self._out, self._rows, self._coding = state, state.rows.out, state.rows, state.coding
        self._there, self._found, self._zeros = there, found, zeros

    @property
    def kind(self) -> ValueType:
        """The type that reads give."""
        assert self._state.spec.value is not None
        return self._state.spec.value

    @property
    def stored(self) -> ValueType:
        """The type that is stored."""
        assert self._state.layout.stored is not None
        return self._state.layout.stored

    def contains(self, key: Value) -> Value:
        """`k in x`."""
        words = self._state.key(key)
        if not self._rows.known():
            return self._out.temp("bool", "False")
        return self._out.temp("bool", self._there(self._rows.find(words)))

    def get(self, key: Value | None) -> Value:
        """`x[k]`."""
        words = self._state.key(key)
        if not self._rows.known():
            return self._coding.missing(self.kind)
        return self.read(self._rows.find(words))

    def read(self, row: str) -> Value:
        """The value of a row, or the default."""
        missing = self._coding.constant(self._coding.default, self.kind)
        inner = self.kind != self.stored
        if not inner and not any(missing) and self._zeros:
            return self._coding.value(self._found(row), self.kind)  # zeros are the default's words, too
        has = self._out.temp("bool", self._there(row)).code
        found = ["1", *self._found(row)] if inner else self._found(row)
        words = [f"({w} if {has} else {literal(d)})" for w, d in zip(found, missing, strict=True)]
        return self._coding.value(words, self.kind)

    def get_or(self, key: Value | None, default: Value | None) -> Value:
        """`x.get(k, default)`."""
        if default is None:
            return self.get(key)
        words = self._state.key(key)
        if not self._rows.known():
            return default
        row = self._rows.find(words)
        has = self._out.temp("bool", self._there(row)).code
        found = self.read(row)
        return self._coding.either(has, lambda: found, found, default)


def words_of(rows: Rows, row: str) -> list[str]:
    """The words of a row's value."""
    return [rows.word(row, rows.layout.place + i) for i in range(rows.layout.size)]


class ValueLikeCode(StateCode):
    """What kinds with a value under a key share."""

    parameters: ClassVar = {"get": ("default",)}
    lists = True

    def __init__(self, rows: Rows, own: Pass) -> None:
        super().__init__(rows, own)
        self.reads = Reads(self, rows.has, partial(words_of, rows), zeros=True)

    def contains(self, key: Value) -> Value:
        return self.reads.contains(key)

    def get(self, key: Value | None) -> Value:
        return self.reads.get(key)

    def change(
        self, key: Value | None, op: ast.operator, amount: Callable[[], Value], *, writes: bool = False
    ) -> None:
        words, kind = self.key(key), self.reads.kind
        if not self.rows.known():
            old = self._certain(self.coding.missing(kind))
            self.coding.words(arithmetic(self._out, op, old, amount()), kind)
            return
        row = self.rows.find(words) if writes else self.rows.claim(words)
        old = self._certain(self.reads.read(row))
        total = self.coding.words(arithmetic(self._out, op, old, amount()), kind)
        if writes:
            row = self.rows.claim(words)
        self._comes(key, row)
        self.rows.put(row, total)

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        if name == "get":
            return self.reads.get_or(key, given.get("default"))
        raise Refused(f"{self.spec.name}.{name}()")


class ValueCode(ValueLikeCode):
    """`tl.Value`."""

    parameters: ClassVar = {"get": ("default",), "setdefault": ("value",), "pop": ()}

    def set(self, key: Value | None, value: Value) -> None:
        given = self.coding.words(value, self.reads.kind)
        words = self.key(key)
        if self.mode != "ignored":
            row = self.rows.claim(words)
            self._comes(key, row)
            self.rows.put(row, given)

    def delete(self, key: Value | None) -> None:
        self.remove(key)

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        if name == "setdefault":
            return self._setdefault(key, one(given.get("value"), f"{self.spec.name}.setdefault()"))
        if name == "pop":
            return self._pop(key)
        return super()._method(name, key, given)

    def _setdefault(self, key: Value | None, value: Value) -> Value:
        if self.views is not None:
            raise Refused(f"setdefault() of {self.spec.name}, of which there are windows")
        words = self.key(key)
        given = self.coding.words(value, self.reads.kind)
        if not self.rows.known():
            return self.coding.value(given, self.reads.kind)
        row = self.rows.claim(words)
        with self._out.when(self.rows.lacks(row)):
            self._comes(key, row)
            self.rows.put(row, given)
        return self.reads.read(row)

    def _pop(self, key: Value | None) -> Value:
        words = self.key(key)
        if not self.rows.known():
            return self.coding.missing(self.reads.kind)
        row = self.rows.find(words)
        found = self.reads.read(row)
        with self._out.when(self.rows.has(row)):
            self._goes(key, row)
            self.drop(row)
        return found


class ValueView(View[ValueLikeCode]):
    """Of what holds a value."""

    parameters: ClassVar = {"get": ("default",)}
    reads: Reads

    def contains(self, key: Value) -> Value:
        return self.reads.contains(key)

    def get(self, key: Value | None) -> Value:
        return self.reads.get(key)

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        return self.reads.get_or(key, given.get("default"))


class LatestView(ValueView):
    """What the latest operation within the lag has left."""

    def __init__(self, state: ValueLikeCode, lag: int, *, last: bool) -> None:
        super().__init__(state, lag, last=last)
        self.reads = Reads(self, self._within, partial(words_of, self.rows), zeros=False)

    def listing(self, first: str) -> str:
        return self._listing_within(first)


FORMS = {ValueKind: Form(ValueCode, LatestView)}
