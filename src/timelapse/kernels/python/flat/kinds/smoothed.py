"""Decayed, as plain Python. Smoothed does it itself."""

from __future__ import annotations

from timelapse.kernels.python.flat.states import Form
from timelapse.kernels.python.flat.types import ANY, FLOAT
from timelapse.kernels.python.flat.writes import Site, drop, indented, with_operands
from timelapse.kinds.base import StateSpec
from timelapse.kinds.smoothed import Decayed
from timelapse.model.types import FLOAT as KIND_FLOAT


@with_operands(2)
def _add(site: Site, k: str, v: str) -> None:
    code = site.code
    site.check_value(KIND_FLOAT, v, f"_tl_F_{code.name}")
    x, o, half = code.name, site.at.temporary(), code.spec.option("half_life")
    site.lines += [f"{o} = _tl_g_{x}({k}, _tl_A)", f"if {o} is _tl_A:"]
    site.lines += indented(code.put(k, f"(0.0 + {v}, _tl_ts)", "_tl_A"))
    faded = f"({o}[0] * 2.0 ** -((_tl_ts - {o}[1]) / {half}) + {v}, _tl_ts)"
    site.lines += ["else:", *indented(code.put(k, faded, o))]


def _left(spec: StateSpec, o: str) -> str:
    half = spec.option("half_life")
    return f"(0.0 if ({o} := _tl_g_{spec.name}(K, None)) is None else {o}[0] * 2.0 ** -((_tl_ts - {o}[1]) / {half}))"


FORMS = {
    Decayed: Form(
        lambda spec, operation: FLOAT if operation in ("getitem", "get") else ANY,
        holds=True,
        computed=_left,
        writes={"add": _add, "delitem": drop},
    )
}
