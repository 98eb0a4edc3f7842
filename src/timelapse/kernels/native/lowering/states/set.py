"""Set, compiled: presence is all there is."""

from __future__ import annotations

from typing import ClassVar

from timelapse.kernels.native.lowering.states.base import StateCode
from timelapse.kernels.native.lowering.states.forms import Form
from timelapse.kernels.native.lowering.states.sliding import View
from timelapse.kernels.native.lowering.values import NONE, Value
from timelapse.kernels.native.refused import Refused
from timelapse.kinds.set import Set


class SetCode(StateCode):
    """`tl.Set`: exact, or as the last operation on each key."""

    parameters: ClassVar = {"add": (), "discard": ()}
    lists = True

    def listed(self, key: list[str], value: list[str]) -> Value:
        assert self.spec.key is not None
        return self.coding.value(key, self.spec.key)

    def contains(self, key: Value) -> Value:
        return self.is_there(key)

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        words = self.key(key)
        if self.mode == "ignored":
            return NONE
        if name == "add":
            row = self.rows.claim(words)
            self._comes(key, row)
            self._mark(row, True)
        else:
            # Where there are windows, also what is not there has a row in the log.
            row = self.rows.find(words) if self.views is None else self.rows.claim(words)
            with self._out.when(self.rows.has(row)):
                self._goes(key, row)
                self._mark(row, False)
            self.rows.stamp(row, present=False)
        return NONE

    def _effect(self, effect: str, key: Value | None, args: list[Value]) -> None:
        if effect not in ("_e_set", "_e_del") or args:
            raise Refused(f"{self.spec.name}.{effect}()")
        row, present = self.rows.claim(self.key(key)), effect == "_e_set"
        if self.views is not None:
            self.rows.push_room()
            i = self.rows.ordinal
            self._out.do(f"push(w{i}, k{i}, {self._pass.now}, {row}, N{int(present)})", log=self.rows.ordinal)
        self._mark(row, present)

    def _mark(self, row: str, present: bool) -> None:
        self.rows.save(row)
        self._out.do(f"mark({self.rows.table}, {row}, {present}, N{self.layout.present})")


class SetView(View[SetCode]):
    """Of a Set: its latest operations."""

    def contains(self, key: Value) -> Value:
        return self._out.temp("bool", self._within(self.rows.find(self.key(key))))

    def listing(self, first: str) -> str:
        return self._listing_within(first)


FORMS = {Set: Form(SetCode, SetView)}
