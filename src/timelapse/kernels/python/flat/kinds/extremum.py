"""Max and Min, as plain Python."""

from __future__ import annotations

from timelapse.kernels.python.flat.kinds.value import value_of
from timelapse.kernels.python.flat.states import Form
from timelapse.kernels.python.flat.types import fits
from timelapse.kernels.python.flat.writes import Site, drop, indented, with_operands
from timelapse.kinds.extremum import Max, Min
from timelapse.model.types import FLOAT as KIND_FLOAT
from timelapse.model.types import OptionalType


@with_operands(2)
def _extremum(site: Site, k: str, v: str) -> None:
    site.check_stored(v)
    code = site.code
    x, o, sign = code.name, site.at.temporary(), ">" if issubclass(code.kind, Max) else "<"
    # NaN beats nothing, and None is no value of its own: both are refused.
    refused = f"_tl_S_{x}.add({v if code.spec.key is None else f'{k}, {v}'})"
    stored = code.spec.value
    if isinstance(stored, OptionalType):
        stored = stored.inner
        if not fits(stored, site.at.type_of(site.args[-1])):
            site.lines += [f"if {v} is None:", f"    {refused}"]
    site.lines += [f"{o} = _tl_g_{x}({k}, _tl_A)", f"if {o} is _tl_A or {v} {sign} {o}:"]
    if stored != KIND_FLOAT:
        site.lines += indented(code.put(k, v, o))
        return
    site.lines += [f"    if {v} == {v}:", *indented(indented(code.put(k, v, o))), "    else:", f"        {refused}",
                   f"elif {v} != {v}:", f"    {refused}"]  # fmt: skip


FORMS = {
    kind: Form(
        value_of,
        holds=True,
        value="_tl_g_{x}(K, _tl_D_{x})",
        writes={"add": _extremum, "delitem": drop, "discard": drop},
    )
    for kind in (Max, Min)
}
