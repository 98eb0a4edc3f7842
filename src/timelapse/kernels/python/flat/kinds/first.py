"""First, as plain Python."""

from __future__ import annotations

from timelapse.kernels.python.flat.kinds.value import value_of
from timelapse.kernels.python.flat.states import Form
from timelapse.kernels.python.flat.writes import value_first
from timelapse.kinds.first import First

FORMS = {First: Form(value_of, holds=True, value="_tl_g_{x}(K, _tl_D_{x})", writes={"add": value_first})}
