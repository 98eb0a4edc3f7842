"""All state kinds, in the order of docs/kinds.md: where each is, and what other rooms have for it.

A kind is one file here. A room that treats some kinds in a way of its own (`kernels/python/flat/kinds/`: as plain Python,
`kernels/native/lowering/states/`: compiled; `kernels/iterate/kinds/`: traced) has a file of the same name, whose FORMS say for each kind in it how;
kinds without one are treated as all kinds can be. Everything else asks a kind's class for what it has to know
(kinds/base.py). So a new kind is such files, and its name below.
"""

from __future__ import annotations

import functools
import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from timelapse.kinds.base import State, StateSpec
    from timelapse.kinds.counter import Counter
    from timelapse.kinds.distinct import Distinct
    from timelapse.kinds.extremum import Max, Min
    from timelapse.kinds.first import First
    from timelapse.kinds.frequent import Frequent
    from timelapse.kinds.last import Last
    from timelapse.kinds.listof import ListOf
    from timelapse.kinds.mapof import MapOf
    from timelapse.kinds.mean import Mean
    from timelapse.kinds.quantiles import Quantiles
    from timelapse.kinds.recent import Recent
    from timelapse.kinds.set import Set
    from timelapse.kinds.setof import SetOf
    from timelapse.kinds.smoothed import Decayed, Smoothed
    from timelapse.kinds.sum import Sum
    from timelapse.kinds.value import Value
    from timelapse.model.types import ValueType

MODULES: dict[str, str] = {
    "Counter": "timelapse.kinds.counter",
    "Sum": "timelapse.kinds.sum",
    "Set": "timelapse.kinds.set",
    "Value": "timelapse.kinds.value",
    "Max": "timelapse.kinds.extremum",
    "Min": "timelapse.kinds.extremum",
    "First": "timelapse.kinds.first",
    "Last": "timelapse.kinds.last",
    "Mean": "timelapse.kinds.mean",
    "SetOf": "timelapse.kinds.setof",
    "MapOf": "timelapse.kinds.mapof",
    "ListOf": "timelapse.kinds.listof",
    "Recent": "timelapse.kinds.recent",
    "Smoothed": "timelapse.kinds.smoothed",
    "Decayed": "timelapse.kinds.smoothed",
    "Distinct": "timelapse.kinds.distinct",
    "Quantiles": "timelapse.kinds.quantiles",
    "Frequent": "timelapse.kinds.frequent",
}
"""The module of each kind."""

__all__ = [
    "Counter", "Decayed", "Distinct", "First", "Frequent", "Last", "ListOf", "MapOf", "Max", "Mean", "Min", "Quantiles", "Recent",
    "Set", "SetOf", "Smoothed", "Sum", "Value",
]  # fmt: skip


@functools.cache
def kinds() -> dict[str, type[State]]:
    """The kinds by name."""
    return {name: getattr(importlib.import_module(module), name) for name, module in MODULES.items()}


def forms(package: str) -> dict[type[State], Any]:
    """What the files of a package that are named as the kinds' files say of kinds: their FORMS, together."""
    found: dict[type[State], Any] = {}
    for module in dict.fromkeys(MODULES.values()):
        path = f"{package}.{module.rpartition('.')[2]}"
        if find_spec(path) is not None:
            found |= importlib.import_module(path).FORMS
    return found


def numbers(name: str, key: ValueType | None) -> StateSpec:
    """A state of the engine's own: a whole number for each key, 0 where there is none."""
    from timelapse.kinds.base import StateSpec
    from timelapse.model.types import INT

    return StateSpec(name, kinds()["Counter"], key, INT, 0)


def entries(name: str, key: ValueType, value: ValueType) -> StateSpec:
    """A state of the engine's own: what was written last for each key, until it is taken out."""
    from timelapse.kinds.base import StateSpec

    return StateSpec(name, kinds()["Value"], key, value)


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return kinds()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
