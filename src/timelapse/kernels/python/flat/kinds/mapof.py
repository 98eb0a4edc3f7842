"""MapOf, as plain Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from timelapse.kernels.python.flat.kinds.grouped import clear, drop_if_there, new
from timelapse.kernels.python.flat.kinds.value import added_to, stored, value_of
from timelapse.kernels.python.flat.states import Form, Lines, StateCode
from timelapse.kernels.python.flat.writes import indented, with_operands
from timelapse.kinds.mapof import MapOf

if TYPE_CHECKING:
    from timelapse.kernels.python.flat.rewrite import Rewriter


def _write_under(code: StateCode, k: str, v: str, at: Rewriter) -> Lines:
    # A new field has to go into the index, if there is one.
    x = code.name
    return [f"if {k} in _tl_d_{x}:", *indented(code.put(k, v)), "else:", *indented(new(code, k, v, at))]


def fields(under: Any, data: dict[Any, Any]) -> tuple[tuple[Any, Any], ...]:
    """`MapOf.fields`, given a key's part of the index (or nothing)."""
    return tuple([(field, data[stored]) for field, stored in sorted(under.items())]) if under else ()


_set, _drop = stored(_write_under), with_operands(1)(drop_if_there)
FORMS = {
    MapOf: Form(
        value_of,
        holds=True,
        value="_tl_g_{x}(K, _tl_D_{x})",
        or_else=True,
        under={"count": "_tl_len({under})", "fields": "_tl_fields({under}, {data})"},
        writes={"clear": clear, "setitem": _set, "set": _set, "delitem": _drop, "discard": _drop},
        augmented=added_to(_write_under),
        names={"_tl_fields": fields},
    )
}
