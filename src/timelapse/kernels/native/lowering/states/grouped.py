"""What the compiled forms of SetOf and MapOf share: what stands under a key.

How much that is is a hidden counter, where a pass asks for it; what it is, a list through all of it that begins in a hidden state
(memory/linking.py).
"""

from __future__ import annotations

import ast

from timelapse.kernels.native.lowering.form import Key
from timelapse.kernels.native.lowering.states.base import Pass, StateCode, one
from timelapse.kernels.native.lowering.states.coding import Coding, certain
from timelapse.kernels.native.lowering.states.rows import Rows
from timelapse.kernels.native.lowering.values import Value, whole
from timelapse.kernels.native.memory.layout import LINKED, value_words
from timelapse.kernels.native.memory.linking import DROPPED, NEXT
from timelapse.kernels.native.refused import Refused
from timelapse.kernels.native.status import LINKS


class Members:
    """What stands under the keys of a state is counted, listed and taken out.

    `loop`: how a loop asks for it.
    """

    def __init__(self, rows: Rows, coding: Coding, own: Pass, loop: str) -> None:
        self._rows, self._coding, self._pass, self._out, self.loop = rows, coding, own, rows.out, loop
        self.spec, self._layout = rows.spec, rows.layout

    def listed(self, key: Value, what: str) -> tuple[str, str] | None:
        """List what stands under a key, in no order: from where on, and how much it is. None where there is nothing. `what`: the
        operation, for messages."""
        if self._rows.views is not None:
            raise Refused(f"{self.spec.name}{what}, of a state of which there are windows")
        heads = self._pass.heads_of(self.spec)
        words = self._declared(heads, key)
        if not self._rows.known():
            return None
        head = heads.rows.word(heads.rows.find(words), heads.layout.place)
        i, layout, outer = self._rows.ordinal, self._layout, heads.layout.width
        sizes = f"N{outer}, N{layout.width - outer}, N{layout.present}, N{layout.place}, N{layout.size}"
        return self._pass.list_of(
            lambda first: (
                f"list_members(listed, {first}, nodes{i}, linked{i}, {head}, {self._rows.table}, m{self._rows.index}, {sizes})"
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
        own = self._coding.value([f"listed[{row}, {w}]" for w in range(width)], inner)
        if self.spec.value is None or not self.spec.kind.has_value:
            return own, None
        found = [f"listed[{row}, {width + w}]" for w in range(self._layout.size)]
        if self.spec.value != self._layout.stored:
            found = ["1", *found]
        return own, self._coding.value(found, self.spec.value)

    def clear(self, key: Value, what: str) -> None:
        """Take out all that stands under a key."""
        found = self.listed(key, what)
        if found is None:
            return
        out, (first, count) = self._out, found
        heads = self._pass.heads_of(self.spec)
        words, outer = self._declared(heads, key), heads.layout.width
        with out.rounds(count) as n:
            row = out.temp("int", f"{first} + {n}").code
            inner = [out.temp("int", f"listed[{row}, {w}]").code for w in range(self._layout.width - outer)]
            self._rows.drop(self._rows.find((*words, *inner)))
        with out.when(f"{count} != 0"):
            out.assign(f"linked{self._rows.ordinal}[{DROPPED}]", "1")
            if self.spec.name in self._pass.counted:
                self._pass.members_of(self.spec).change(key, ast.Sub(), lambda: Value("int", count))

    def number_of(self, key: Value) -> Value:
        """How much stands under a key."""
        if self._rows.views is not None:
            raise Refused(f"{self.spec.name}.count(), of a state of which there are windows")
        counted = self._pass.members_of(self.spec)
        if self._rows.mode == "ignored":
            counted.key(key)
            return whole(0)
        return counted.get(key)

    def _link(self, key: Value | None, row: str) -> None:
        """A row that is written may be of a pair that was never there: it goes to the list of what stands under its key."""
        out, i = self._out, self._rows.ordinal
        heads = self._pass.heads_of(self.spec)
        with out.when(f"{self._rows.flags(row)} & {LINKED} == 0"):
            out.leave_if(f"linked{i}[{NEXT}] >= nodes{i}.shape[0]", LINKS)
            head = heads.rows.claim(heads.key(self.outer(key)))
            heads.rows.save(head)
            self._rows.save(row)
            given = f"{heads.rows.table}, {head}, N{heads.layout.place}, {self._rows.table}, {row}, N{self._layout.width}"
            out.do(f"link(nodes{i}, linked{i}, {given})")

    def comes(self, key: Value | None, row: str) -> None:
        """Before a row is written."""
        if self.spec.name in self._pass.counted:
            with self._out.when(self._rows.lacks(row)):
                self._pass.members_of(self.spec).change(self.outer(key), ast.Add(), single)
        if self.spec.name in self._pass.indexed:
            self._link(key, row)

    def goes(self, key: Value | None) -> None:
        """Before a key that is there is taken out."""
        if self.spec.name in self._pass.counted:
            self._pass.members_of(self.spec).change(self.outer(key), ast.Sub(), single)
        if self.spec.name in self._pass.indexed:
            self._out.assign(f"linked{self._rows.ordinal}[{DROPPED}]", "1")

    def outer(self, key: Value | None) -> Value:
        """The declared key of a pair."""
        return certain(self._out, one(key, self.spec.name)).items[0]


def single() -> Value:
    """The number 1."""
    return whole(1)
