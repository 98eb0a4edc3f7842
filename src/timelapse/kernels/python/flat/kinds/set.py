"""Set, as plain Python."""

from __future__ import annotations

from timelapse.kernels.python.flat.states import Form
from timelapse.kernels.python.flat.writes import Site, drop, indented, with_operands
from timelapse.kinds.set import Set


@with_operands(1)
def _add_member(site: Site, k: str) -> None:
    site.lines += [f"if {k} not in _tl_d_{site.code.name}:", *indented(site.code.put(k, "True", "_tl_A"))]


FORMS = {Set: Form(holds=True, writes={"add": _add_member, "discard": drop})}
