"""ListOf, as plain Python: a tuple per key."""

from __future__ import annotations

from typing import Any

from timelapse.kernels.python.flat.states import Form
from timelapse.kernels.python.flat.types import ANY, INT64, Type, declared
from timelapse.kernels.python.flat.writes import Site, drop, with_operands
from timelapse.kinds.base import StateSpec
from timelapse.kinds.listof import ListOf


@with_operands(2)
def _append(site: Site, k: str, v: str) -> None:
    code = site.code
    kind: Any = code.spec.value
    site.check_value(kind.inner, v, f"_tl_S_{code.name}._check_item")
    x, o, n, keep = code.name, site.at.temporary(), site.at.temporary(), code.spec.option("last")
    site.lines += [f"{o} = _tl_g_{x}({k}, _tl_u)", f"{n} = (*{o}, {v})"]
    if keep is not None:
        site.lines += [f"if _tl_len({n}) > {keep}:", f"    {n} = {n}[-{keep}:]"]
    site.lines += code.put(k, n, f"({o} or _tl_A)")


def _type(spec: StateSpec, operation: str) -> Type:
    if operation in ("getitem", "get"):
        return declared(spec.value)
    return INT64 if operation == "count" else ANY


FORMS = {
    ListOf: Form(
        _type,
        holds=True,
        value="_tl_g_{x}(K, _tl_u)",
        reads={"count": "_tl_len(_tl_g_{x}(K, _tl_u))"},
        writes={"append": _append, "delitem": drop},
    )
}
