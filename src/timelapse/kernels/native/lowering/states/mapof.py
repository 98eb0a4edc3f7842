"""MapOf, compiled: a Value under parts of keys."""

from __future__ import annotations

from typing import ClassVar

from timelapse.kernels.native.lowering.form import Key
from timelapse.kernels.native.lowering.states.base import Pass, one
from timelapse.kernels.native.lowering.states.effects import FuncCode
from timelapse.kernels.native.lowering.states.forms import Form
from timelapse.kernels.native.lowering.states.grouped import Members
from timelapse.kernels.native.lowering.states.rows import Rows
from timelapse.kernels.native.lowering.states.value import LatestView, ValueCode
from timelapse.kernels.native.lowering.values import NONE, Value
from timelapse.kernels.native.refused import Refused
from timelapse.kinds.mapof import MapOf


class MapOfCode(ValueCode):
    """`tl.MapOf`."""

    compiled = "all but `fields` other than in loops, and `items`"
    lists = False
    parameters: ClassVar = {
        "get": ("default",), "setdefault": ("value",), "pop": (), "fields": (), "count": (), "clear": (),
    }  # fmt: skip

    under: Members

    def __init__(self, rows: Rows, own: Pass) -> None:
        super().__init__(rows, own)
        self.under = Members(rows, self.coding, own, ".fields()")

    def key(self, key: Value | None) -> Key:
        return self.keys.pair(key)

    def _comes(self, key: Value | None, row: str) -> None:
        self.under.comes(key, row)
        super()._comes(key, row)

    def _goes(self, key: Value | None, row: str) -> None:
        self.under.goes(key)
        super()._goes(key, row)

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        what = f"{self.spec.name}.{name}()"
        if name == "count":
            return self.under.number_of(one(key, what))
        if name == "clear":
            self.under.clear(one(key, what), ".clear()")
            return NONE
        if name == "fields":
            raise Refused(f"{what} other than in a loop, which needs an index")
        return super()._method(name, key, given)


class MapOfFuncCode(FuncCode):
    """A delta of MapOf."""

    def key(self, key: Value | None) -> Key:
        return self.keys.pair(key)


FORMS = {MapOf: Form(MapOfCode, LatestView, MapOfFuncCode)}
