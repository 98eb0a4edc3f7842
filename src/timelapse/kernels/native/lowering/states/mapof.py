"""MapOf, compiled: a Value under parts of keys."""

from __future__ import annotations

from typing import ClassVar

from timelapse.kernels.native.lowering.states.effects import FuncCode
from timelapse.kernels.native.lowering.states.forms import Form
from timelapse.kernels.native.lowering.states.grouped import Paired
from timelapse.kernels.native.lowering.states.value import ValueCode, ValueView
from timelapse.kinds.mapof import MapOf


class MapOfCode(Paired, ValueCode):
    """`tl.MapOf`."""

    compiled = "all but `fields`, `count`, `clear` and `items`"
    lists = False
    parameters: ClassVar = {
        "get": ("default",), "setdefault": ("value",), "pop": (), "fields": (), "count": (), "clear": (),
    }  # fmt: skip


class MapOfFuncCode(Paired, FuncCode):
    """A delta of MapOf."""


class MapOfView(ValueView, MapOfCode):
    """Of a MapOf."""

    lists = False
    parameters: ClassVar = {"get": ("default",)}


FORMS = {MapOf: Form(MapOfCode, MapOfView, MapOfFuncCode)}
