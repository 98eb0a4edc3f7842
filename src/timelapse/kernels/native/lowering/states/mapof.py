"""MapOf, compiled: a Value under parts of keys."""

from __future__ import annotations

from typing import ClassVar

from timelapse.kernels.native.lowering.states.base import one
from timelapse.kernels.native.lowering.states.effects import FuncCode
from timelapse.kernels.native.lowering.states.forms import Form
from timelapse.kernels.native.lowering.states.grouped import Listed, Paired
from timelapse.kernels.native.lowering.states.value import ValueCode, ValueView
from timelapse.kernels.native.lowering.values import NONE, Refused, Value
from timelapse.kinds.mapof import MapOf


class MapOfCode(Listed, ValueCode):
    """`tl.MapOf`."""

    compiled = "all but `fields` other than in loops, and `items`"
    lists = False
    parameters: ClassVar = {
        "get": ("default",), "setdefault": ("value",), "pop": (), "fields": (), "count": (), "clear": (),
    }  # fmt: skip

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        what = f"{self.spec.name}.{name}()"
        if name == "count":
            return self.number_of(one(key, what))
        if name == "clear":
            self.clear(one(key, what), ".clear()")
            return NONE
        if name == "fields":
            raise Refused(f"{what} other than in a loop, which needs an index")
        return super()._method(name, key, given)


class MapOfFuncCode(Paired, FuncCode):
    """A delta of MapOf."""


class MapOfView(ValueView, MapOfCode):
    """Of a MapOf."""

    lists = False
    parameters: ClassVar = {"get": ("default",)}


FORMS = {MapOf: Form(MapOfCode, MapOfView, MapOfFuncCode)}
