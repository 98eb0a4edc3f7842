"""Last, as plain Python."""

from __future__ import annotations

from timelapse.kernels.python.flat.kinds.value import value_of
from timelapse.kernels.python.flat.states import Form
from timelapse.kernels.python.flat.writes import Site, with_operands
from timelapse.kinds.last import Last


@with_operands(2)
def _add(site: Site, k: str, v: str) -> None:
    site.check_stored(v)
    site.lines += site.code.put(k, v)


FORMS = {Last: Form(value_of, holds=True, value="_tl_g_{x}(K, _tl_D_{x})", writes={"add": _add})}
