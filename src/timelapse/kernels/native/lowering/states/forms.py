"""What each kind's file in this folder says: by what its states are compiled (kinds/registry.py)."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from timelapse.kernels.native.lowering.states.base import StateCode
from timelapse.kernels.native.refused import Refused
from timelapse.kinds.base import State
from timelapse.kinds.registry import forms

if TYPE_CHECKING:
    from timelapse.kernels.native.lowering.states.sliding import View


@dataclass(frozen=True)
class Form:
    """How a kind compiles. `code`: its states; `view`: windows of them, if they compile; `delta`: what a slice does to a state
    that it does not know, where that has the form *func* and keys of the kind's own."""

    code: type[StateCode]
    view: type[View[Any]] | None = None
    delta: type[StateCode] | None = None


@functools.cache
def _all() -> dict[type[State], Form]:
    return forms(__package__)


def form_of(kind: type[State]) -> Form | None:
    """How a kind compiles; None: it does not."""
    return _all().get(kind)


def compiled(kind: type[State]) -> str:
    """What of a kind compiles, in words."""
    form = form_of(kind)
    return "no, as Python" if form is None else form.code.compiled


def view_of(state: StateCode, lag: int, *, last: bool) -> View[Any]:
    """A view of a state. Raises Refused."""
    form = form_of(state.spec.kind)
    if form is None or form.view is None or type(state) is not form.code:
        raise Refused(f"a view of {state.spec.name}")
    return form.view(state, lag, last=last)
