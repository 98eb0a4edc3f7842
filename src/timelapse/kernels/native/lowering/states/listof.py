"""ListOf with `last=n`, compiled: a row has how many values there are, and then the values, oldest first."""

from __future__ import annotations

from typing import ClassVar

from timelapse.kernels.native.lowering.states.base import Pass, StateCode, one
from timelapse.kernels.native.lowering.states.forms import Form
from timelapse.kernels.native.lowering.states.rows import Rows
from timelapse.kernels.native.lowering.values import NONE, Value, optional, whole
from timelapse.kernels.native.memory.layout import BoundedList
from timelapse.kernels.native.refused import Refused
from timelapse.kinds.listof import ListOf

_MANY = 2**40
"""`tail` asks for less: what is added to the list's length then stays in int64."""


class ListOfCode(StateCode):
    """`tl.ListOf`. What is read is a copy: a later write does not change it."""

    compiled = "with `tl.state(last=n)` up to 32 and values that are no optionals, all but `items`"
    parameters: ClassVar = {"append": ("value",), "pop": (), "get": (), "tail": ("n",), "count": ()}

    def __init__(self, rows: Rows, own: Pass) -> None:
        super().__init__(rows, own)
        self._kind = self._list()

    def _list(self) -> BoundedList:
        """The type of a row's list. Raises Refused where it may be of any length."""
        stored = self.layout.stored
        if not isinstance(stored, BoundedList):
            raise Refused(
                f"{self.spec.name}, a ListOf without tl.state(last=n), with a large n, or of optionals"
            )
        return stored

    def contains(self, key: Value) -> Value:
        return self.is_there(key)

    def get(self, key: Value | None) -> Value:
        """The list."""
        words, most = self.key(key), self._kind.most
        row = None if self.mode == "ignored" else self.rows.find(words)
        count = self._out.temp("int", "0" if row is None else self.rows.word(row, self.layout.place))
        items = [
            self.coding.value(
                ["0" if row is None else self.rows.word(row, self.layout.place + 1 + i)], self._kind.inner
            )
            for i in range(most)
        ]
        name = self._out.name("x")
        self._out.assign(name, f"({', '.join(i.code for i in items)},)")
        zero = whole(0)
        return Value("list", name, (zero, count, Value(items[0].kind)), bound=most)

    def delete(self, key: Value | None) -> None:
        self.remove(key)

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        if name == "get":
            return self.get(key)
        if name == "tail":
            return self._tail(key, one(given.get("n"), f"{self.spec.name}.tail()"))
        if name == "append":
            return self._append(key, one(given.get("value"), f"{self.spec.name}.append()"))
        words = self.key(key)
        if self.mode == "ignored":
            return whole(0) if name == "count" else NONE
        row, place = self.rows.find(words), self.layout.place
        count = self._out.temp("int", self.rows.word(row, place))
        if name == "count":
            return count
        first = self.coding.value([self.rows.word(row, place + 1)], self._kind.inner)
        there = self._out.temp("bool", f"{count.code} != 0")
        with self._out.when(there.code):
            self.rows.save(row)
            self._out.do(
                f"take_oldest({self.rows.table}, {row}, N{place}, N{self._kind.most}, N{self.layout.present})"
            )
        return optional(there.code, first)

    def _effect(self, effect: str, key: Value | None, args: list[Value]) -> None:
        if effect == "_e_append" and len(args) == 1:
            self._push(key, args[0], self.layout.touched)
        elif effect == "_e_del" and not args:
            row, layout = self.rows.claim(self.key(key)), self.layout
            self.rows.save(row)
            self._out.do(
                f"drop({self.rows.table}, {row}, N{layout.place}, N{layout.size}, N{layout.present})"
            )
            self._out.assign(self.rows.flags(row), f"{layout.present}", "|=")
        else:
            raise Refused(f"{self.spec.name}.{effect}()")

    def _tail(self, key: Value | None, n: Value) -> Value:
        n = self._certain(n)
        if n.kind != "int":
            raise Refused(f"{self.spec.name}.tail() of {n.kind}")
        found = self.get(key)
        _, count, element = found.items
        self._out.exit_if(f"not -{_MANY} < {n.code} < {_MANY}")
        first = self._out.temp("int", f"min({count.code}, max(0, {count.code} - {n.code}))")
        return Value("list", found.code, (first, count, element), bound=found.bound)

    def _append(self, key: Value | None, value: Value) -> Value:
        self._push(key, value, self.layout.present | self.layout.touched)
        return NONE

    def _push(self, key: Value | None, value: Value, flags: int) -> None:
        (word,) = self.coding.words(value, self._kind.inner)
        words = self.key(key)
        if self.mode == "ignored":
            return
        row = self.rows.claim(words)
        self.rows.save(row)
        given = f"{self.rows.table}, {row}, N{self.layout.place}, N{self._kind.most}, {word}"
        self._out.do(f"push_newest({given})")
        self._out.assign(self.rows.flags(row), f"{flags}", "|=")


FORMS = {ListOf: Form(ListOfCode)}
