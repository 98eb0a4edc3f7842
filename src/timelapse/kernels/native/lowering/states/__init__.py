"""The compiled form of the state kinds' operations: one module per family of kinds, and their deltas."""

from __future__ import annotations

from timelapse.kernels.native.lowering.states.base import StateCode, Writer
from timelapse.kernels.native.lowering.states.counter import CounterCode, SumCode
from timelapse.kernels.native.lowering.states.effects import FuncCode
from timelapse.kernels.native.lowering.states.grouped import MapOfCode, MapOfFuncCode, MeanCode, SetOfCode
from timelapse.kernels.native.lowering.states.listof import ListOfCode
from timelapse.kernels.native.lowering.states.set import SetCode
from timelapse.kernels.native.lowering.states.smoothed import DecayedCode, SmoothedCode
from timelapse.kernels.native.lowering.states.value import ExtremumCode, FirstCode, ValueCode
from timelapse.kernels.native.lowering.values import Refused
from timelapse.kernels.native.memory.layout import Layout, Mode
from timelapse.kernels.native.windows import Sliding
from timelapse.kinds.base import StateSpec
from timelapse.kinds.counter import Counter
from timelapse.kinds.extremum import Max, Min
from timelapse.kinds.first import First
from timelapse.kinds.listof import ListOf
from timelapse.kinds.mapof import MapOf
from timelapse.kinds.mean import Mean
from timelapse.kinds.set import Set
from timelapse.kinds.setof import SetOf
from timelapse.kinds.smoothed import Decayed, Smoothed
from timelapse.kinds.sum import Sum
from timelapse.kinds.value import Value

__all__ = ["StateCode", "Writer", "compiles", "state_code"]

_CODE: dict[type, type[StateCode]] = {
    Counter: CounterCode, Sum: SumCode, Set: SetCode, Value: ValueCode, First: FirstCode, Max: ExtremumCode, Min: ExtremumCode,
    Mean: MeanCode, SetOf: SetOfCode, MapOf: MapOfCode, Smoothed: SmoothedCode,
    ListOf: ListOfCode, Decayed: DecayedCode,
}  # fmt: skip


def compiles(kind: type) -> bool:
    """Whether the kind has a compiled form."""
    return kind in _CODE


def state_code(
    spec: StateSpec, mode: Mode, layout: Layout, out: Writer, index: int, table: int, views: Sliding | None = None,
) -> StateCode:  # fmt: skip
    """What writes the operations of a state. Raises Refused."""
    found = _CODE.get(spec.kind)
    if found is None:
        raise Refused(f"the state kind {spec.kind.__name__} ({spec.name})")
    if mode == "delta" and layout.form == "list":
        raise Refused(f"what is done to {spec.name}, a ListOf that this pass does not know")
    if mode == "delta" and layout.form == "func":
        found = MapOfFuncCode if found is MapOfCode else FuncCode
    return found(spec, mode, layout, out, index, table, views)
