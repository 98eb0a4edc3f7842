"""SetOf, as plain Python."""

from __future__ import annotations

from timelapse.kernels.python.flat.kinds.grouped import clear, drop_if_there, new
from timelapse.kernels.python.flat.states import TRACKED, Form
from timelapse.kernels.python.flat.types import ANY, INT64, Type, declared
from timelapse.kernels.python.flat.writes import Site, indented, with_operands
from timelapse.kinds.base import StateSpec
from timelapse.kinds.setof import SetOf


@with_operands(1, pair=True)
def _add(site: Site, k: str) -> None:
    x = site.code.name
    site.lines += [f"if {k} not in _tl_d_{x}:", *indented(new(site.code, k, "True", site.at))]
    if site.code.mode == TRACKED:  # it is written all the same
        site.lines += [f"elif {k} not in _tl_b_{x}:", f"    _tl_b_{x}[{k}] = True"]


def _type(spec: StateSpec, operation: str) -> Type:
    if operation == "getitem" and spec.inner is not None:
        return ("list", declared(spec.inner))
    return INT64 if operation == "count" else ANY


FORMS = {
    SetOf: Form(
        _type,
        holds=True,
        under={"count": "_tl_len({under})", "getitem": "_tl_tuple(_tl_sorted({under}))"},
        nests=True,
        writes={"add": _add, "discard": with_operands(1, pair=True)(drop_if_there), "delitem": clear},
    )
}
