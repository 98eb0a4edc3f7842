"""What the compiled forms of SetOf, MapOf and Mean share: their keys. And of SetOf and MapOf: what stands under a key.

How much that is is a hidden counter, where a pass asks for it; what it is, a list through all of it that begins in a hidden state
(memory/linking.py).
"""

from __future__ import annotations

import ast

from timelapse.kernels.native.lowering.form import Key
from timelapse.kernels.native.lowering.states.base import StateCode, one
from timelapse.kernels.native.lowering.values import (
    Refused,
    Value,
    whole,
)
from timelapse.kernels.native.memory.layout import LINKED, value_words
from timelapse.kernels.native.memory.linking import DROPPED, NEXT
from timelapse.kernels.native.unit import LINKS
from timelapse.model.types import TupleType, ValueType


class Paired(StateCode):
    """Keys are pairs of a declared key and what stands under it; stored are the parts of both."""

    def key(self, key: Value | None) -> Key:
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


class Listed(Paired):
    """What stands under a key is counted, listed and taken out."""

    def members(self, key: Value, what: str) -> tuple[str, str] | None:
        """List what stands under a key, in no order: from where on, and how much it is. None where there is nothing. `what`: the
        operation, for messages."""
        if self.views is not None:
            raise Refused(f"{self.spec.name}{what}, of a state of which there are windows")
        heads = self._pass.heads_of(self.spec)
        words = self._declared(heads, key)
        if not self.known():
            return None
        head = heads.word(heads.find(words), heads.layout.place)
        i, layout, outer = self.ordinal, self.layout, heads.layout.width
        sizes = f"N{outer}, N{layout.width - outer}, N{layout.present}, N{layout.place}, N{layout.size}"
        return self._pass.list_of(
            lambda first: (
                f"list_members(listed, {first}, nodes{i}, linked{i}, {head}, {self.table}, m{self._index}, {sizes})"
            ),
            layout.width - outer + layout.size,
        )

    def _declared(self, hidden: StateCode, key: Value) -> Key:
        """The words of a declared key."""
        try:
            return hidden.key(key)
        except Refused as refusal:
            raise Refused(f"a key of {self.spec.name} of another type", refusal.line) from None

    def member(self, first: str, number: Value) -> tuple[Value, Value | None]:
        """What stands under a key, from such a list by its number; and its value, if the kind has one."""
        inner = self.spec.inner
        assert inner is not None
        row, width = self._out.temp("int", f"{first} + {number.code}").code, value_words(inner)
        own = self.value([f"listed[{row}, {w}]" for w in range(width)], inner)
        if self.spec.value is None or not self.spec.kind.has_value:
            return own, None
        found = [f"listed[{row}, {width + w}]" for w in range(self.layout.size)]
        if self.spec.value != self.layout.stored:
            found = ["1", *found]
        return own, self.value(found, self.spec.value)

    def clear(self, key: Value, what: str) -> None:
        """Take out all that stands under a key."""
        found = self.members(key, what)
        if found is None:
            return
        out, (first, count) = self._out, found
        heads = self._pass.heads_of(self.spec)
        words, outer = self._declared(heads, key), heads.layout.width
        with out.rounds(count) as n:
            row = out.temp("int", f"{first} + {n}").code
            inner = [out.temp("int", f"listed[{row}, {w}]").code for w in range(self.layout.width - outer)]
            self.drop(self.find((*words, *inner)))
        with out.when(f"{count} != 0"):
            out.assign(f"linked{self.ordinal}[{DROPPED}]", "1")
            if self.spec.name in self._pass.counted:
                self._pass.members_of(self.spec).change(key, ast.Sub(), lambda: Value("int", count))

    def number_of(self, key: Value) -> Value:
        """How much stands under a key."""
        if self.views is not None:
            raise Refused(f"{self.spec.name}.count(), of a state of which there are windows")
        counted = self._pass.members_of(self.spec)
        if self.mode == "ignored":
            counted.key(key)
            return whole(0)
        return counted.get(key)

    def _link(self, key: Value | None, row: str) -> None:
        """A row that is written may be of a pair that was never there: it goes to the list of what stands under its key."""
        out, i = self._out, self.ordinal
        heads = self._pass.heads_of(self.spec)
        with out.when(f"{self.flags(row)} & {LINKED} == 0"):
            out.leave_if(f"linked{i}[{NEXT}] >= nodes{i}.shape[0]", LINKS)
            head = heads.claim(heads.key(self._outer(key)))
            heads.save(head)
            self.save(row)
            given = f"{heads.table}, {head}, N{heads.layout.place}, {self.table}, {row}, N{self.layout.width}"
            out.do(f"link(nodes{i}, linked{i}, {given})")

    def _comes(self, key: Value | None, row: str) -> None:
        if self.spec.name in self._pass.counted:
            with self._out.when(self.lacks(row)):
                self._pass.members_of(self.spec).change(self._outer(key), ast.Add(), single)
        if self.spec.name in self._pass.indexed:
            self._link(key, row)
        super()._comes(key, row)

    def _goes(self, key: Value | None, row: str) -> None:
        if self.spec.name in self._pass.counted:
            self._pass.members_of(self.spec).change(self._outer(key), ast.Sub(), single)
        if self.spec.name in self._pass.indexed:
            self._out.assign(f"linked{self.ordinal}[{DROPPED}]", "1")
        super()._goes(key, row)

    def _outer(self, key: Value | None) -> Value:
        return self._certain(one(key, self.spec.name)).items[0]


def single() -> Value:
    """The number 1."""
    return whole(1)
