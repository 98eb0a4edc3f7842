"""The compiled form of the state kinds' operations: one file per kind, named as the kind's own, and their deltas."""

from __future__ import annotations

from timelapse.kernels.native.lowering.states.asked import Writer
from timelapse.kernels.native.lowering.states.base import Pass, StateCode
from timelapse.kernels.native.lowering.states.effects import FuncCode
from timelapse.kernels.native.lowering.states.forms import compiled, form_of, view_of
from timelapse.kernels.native.lowering.states.rows import Rows
from timelapse.kernels.native.memory.layout import Layout, Mode
from timelapse.kernels.native.refused import Refused
from timelapse.kernels.native.windows import Sliding
from timelapse.kinds.base import StateSpec

__all__ = ["Pass", "StateCode", "compiled", "state_code", "view_of"]


def state_code(
    spec: StateSpec, mode: Mode, layout: Layout, out: Writer, own: Pass, index: int, table: int,
    views: Sliding | None = None,
) -> StateCode:  # fmt: skip
    """What writes the operations of a state. Raises Refused."""
    form = form_of(spec.kind)
    if form is None:
        raise Refused(f"the state kind {spec.kind.__name__} ({spec.name})")
    found = form.code
    if mode == "delta" and layout.form == "list" and not layout.live:
        raise Refused(f"what is done to {spec.name}, a {spec.kind.__name__} that this pass does not know")
    if mode == "delta" and layout.form == "func":
        found = form.delta or FuncCode
    return found(Rows(spec, mode, layout, out, own, index, table, views), own)
