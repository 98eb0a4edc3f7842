"""SetOf, compiled: a Set under parts of keys.

How many members a key has is a hidden counter, where a pass asks for it; which they are, a list through all of them that
begins in a hidden state (memory/linking.py).
"""

from __future__ import annotations

import ast
from typing import ClassVar

from timelapse.kernels.native.lowering.states.base import StateCode, one
from timelapse.kernels.native.lowering.states.forms import Form
from timelapse.kernels.native.lowering.states.grouped import Paired
from timelapse.kernels.native.lowering.states.set import SetCode, SetView
from timelapse.kernels.native.lowering.values import Refused, Value
from timelapse.kernels.native.memory.layout import LINKED
from timelapse.kernels.native.memory.linking import DROPPED, NEXT
from timelapse.kernels.native.unit import LINKS
from timelapse.kernels.native.windows import members_spec
from timelapse.kinds.setof import SetOf


class SetOfCode(Paired, SetCode):
    """`tl.SetOf`."""

    parameters: ClassVar = {"add": ("member",), "discard": ("member",), "count": ()}
    compiled = "all but `x[k]`, `del x[k]` and `items`"
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


class SetOfView(SetView, SetOfCode):
    """Of a SetOf."""

    lists = False

    parameters: ClassVar = {"count": ()}

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        return self._out.hidden(members_spec(self.spec, self.lag)).get(key)


FORMS = {SetOf: Form(SetOfCode, SetOfView)}
