"""Recent, as plain Python: a tuple per key."""

from __future__ import annotations

from timelapse.kernels.python.flat.states import Form
from timelapse.kernels.python.flat.types import ANY, INT64, Type
from timelapse.kernels.python.flat.writes import Site, drop, with_operands
from timelapse.kinds.base import StateSpec
from timelapse.kinds.recent import Recent


@with_operands(2)
def _add(site: Site, k: str, v: str) -> None:
    code = site.code
    x, o, n, keep = code.name, site.at.temporary(), site.at.temporary(), code.spec.option("last")
    site.lines += [
        f"{v} = _tl_S_{x}._check_item({v})",
        f"{o} = _tl_g_{x}({k}, _tl_u)",
        f"{n} = (*{o}, {v})",
        f"if _tl_len({n}) > {keep}:",
        f"    {n} = {n}[1:]",
    ]
    site.lines += code.put(k, n, f"({o} or _tl_A)")


def _type(spec: StateSpec, operation: str) -> Type:
    return INT64 if operation == "count" else ANY


FORMS = {
    Recent: Form(
        _type,
        holds=True,
        reads={"count": "_tl_len(_tl_g_{x}(K, _tl_u))"},
        writes={"add": _add, "delitem": drop},
    )
}
