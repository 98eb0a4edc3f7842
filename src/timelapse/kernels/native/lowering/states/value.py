"""Value, compiled, where its values are known, and what others share with it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import ClassVar

from timelapse.kernels.native.lowering.expressions import arithmetic
from timelapse.kernels.native.lowering.states.base import StateCode, literal, one
from timelapse.kernels.native.lowering.states.forms import Form
from timelapse.kernels.native.lowering.states.sliding import View
from timelapse.kernels.native.lowering.values import Refused, Value
from timelapse.kinds.value import Value as ValueKind
from timelapse.model.types import ScalarType, ValueType


class ValueLikeCode(StateCode):
    """Reads."""

    parameters: ClassVar = {"get": ("default",)}
    lists = True
    zeros: ClassVar[bool] = True
    """Whether the words of a row where nothing is there are zeros."""

    @property
    def kind(self) -> ValueType:
        """The type that reads give."""
        assert self.spec.value is not None
        return self.spec.value

    @property
    def stored(self) -> ValueType:
        """The type that is stored."""
        assert self.layout.stored is not None
        return self.layout.stored

    def contains(self, key: Value) -> Value:
        words = self.key(key)
        if not self.known():
            return self._out.temp("bool", "False")
        return self._out.temp("bool", self._there(self.find(words)))

    def _there(self, row: str) -> str:
        """Whether there is a value."""
        return self.has(row)

    def get(self, key: Value | None) -> Value:
        words = self.key(key)
        if not self.known():
            return self.missing(self.kind)
        return self.read(self.find(words))

    def read(self, row: str) -> Value:
        """The value of a row, or the default."""
        found = [self.word(row, self.layout.place + i) for i in range(self.layout.size)]
        if self.kind != self.stored:
            found = ["1", *found]
        missing = self.constant(self.default, self.kind)
        if found[0] == "1" or any(missing) or not self.zeros:
            # Elsewhere the words of an absent row, which are zeros, are the default's.
            has = self._out.temp("bool", self._there(row)).code
            found = [f"({w} if {has} else {literal(d)})" for w, d in zip(found, missing, strict=True)]
        return self.value(found, self.kind)

    def change(
        self, key: Value | None, op: ast.operator, amount: Callable[[], Value], *, writes: bool = False
    ) -> None:
        words = self.key(key)
        if not self.known():
            self.words(arithmetic(self._out, op, self._certain(self.missing(self.kind)), amount()), self.kind)
            return
        row = self.find(words) if writes else self.claim(words)
        old = self._certain(self.read(row))
        total = self.words(arithmetic(self._out, op, old, amount()), self.kind)
        if writes:
            row = self.claim(words)
        self._comes(key, row)
        self.put(row, total)

    def _get_or(self, key: Value | None, default: Value | None) -> Value:
        """`x.get(k, default)`."""
        if default is None:
            return self.get(key)
        words = self.key(key)
        if not self.known():
            return default
        row = self.find(words)
        has = self._out.temp("bool", self._there(row)).code
        found = self.read(row)
        return self.either(has, lambda: found, found, default)

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        if name == "get":
            return self._get_or(key, given.get("default"))
        raise Refused(f"{self.spec.name}.{name}()")


class ValueCode(ValueLikeCode):
    """`tl.Value`."""

    parameters: ClassVar = {"get": ("default",), "setdefault": ("value",), "pop": ()}

    def set(self, key: Value | None, value: Value) -> None:
        given = self.words(value, self.kind)
        words = self.key(key)
        if self.mode != "ignored":
            row = self.claim(words)
            self._comes(key, row)
            self.put(row, given)

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
        given = self.words(value, self.kind)
        if not self.known():
            return self.value(given, self.kind)
        row = self.claim(words)
        with self._out.when(self.lacks(row)):
            self._comes(key, row)
            self.put(row, given)
        return self.read(row)

    def _pop(self, key: Value | None) -> Value:
        words = self.key(key)
        if not self.known():
            return self.missing(self.kind)
        row = self.find(words)
        found = self.read(row)
        with self._out.when(self.has(row)):
            self._goes(key, row)
            self.drop(row)
        return found


class LatestView(View, ValueLikeCode):
    """Of what holds a value: what the latest operation within the lag has left."""

    parameters: ClassVar = {"get": ("default",)}
    zeros: ClassVar = False

    def _there(self, row: str) -> str:
        return self._within(row)

    def listing(self, first: str) -> str:
        return self._listing_within(first)


class ValueView(LatestView, ValueCode):
    """Of a Value."""


def ordered(name: str, kind: ValueType) -> None:
    """Refuse types whose order is not that of their words."""
    if not isinstance(kind, ScalarType) or kind.name in ("str", "bytes"):
        raise Refused(f"the order of {kind.text} ({name})")


FORMS = {ValueKind: Form(ValueCode, ValueView)}
