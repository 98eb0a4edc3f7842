"""Sum, as plain Python: the state does it, and says of what type amounts are."""

from __future__ import annotations

from timelapse.kernels.python.flat.states import Form
from timelapse.kernels.python.flat.types import ANY, Type, declared
from timelapse.kinds.base import StateSpec
from timelapse.kinds.sum import Sum, amount_type


def _type(spec: StateSpec, operation: str) -> Type:
    return declared(amount_type(spec)) if operation in ("getitem", "get") else ANY


FORMS = {Sum: Form(_type)}
