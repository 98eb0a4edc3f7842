"""How a compiled pass gets the states at a slice's start: loaded whole, or key by key from where they lie (touch.py)."""

from __future__ import annotations

from collections.abc import Mapping

from timelapse.env.machine import carried
from timelapse.kernels.native.memory.table import NativeTable, load
from timelapse.kernels.native.unit import Unit
from timelapse.tables.levels import Levels, Start

_FEW_ROWS = 1 << 16
_WORTH = 8
"""A start state of more than so many keys per event is not loaded: to look an event's keys up in files costs about as
much as loading six."""


def start_tables(
    unit: Unit,
    tables: Mapping[str, NativeTable],
    starts: Mapping[str, Start],
    events: int,
    memory: int | None,
) -> None:
    """Let the unit's tables begin with `starts`; a state missing there is empty.

    `memory`: the task's budget in bytes (None: no matter). A state in levels is one that did not fit into it.
    """
    for names in unit.tables:
        own = [n for n in names if n in tables]
        if not own:
            continue
        table = tables[own[0]].hash
        table.most = None if memory is None else carried(memory)
        known = [n for n in own if n in starts]
        if not known:
            continue
        rows = max(starts[n].num_rows for n in known)
        few = rows >= _FEW_ROWS and 0 < _WORTH * events < rows
        large = memory is not None and rows * table.row_bytes > carried(memory)
        large = large or any(isinstance(starts[n], Levels) for n in known)
        listed = bool(unit.lists and unit.ticking) or not unit.indexed.keys().isdisjoint(names)
        by_key = (few or large) and not listed
        load([tables[n] for n in known], [starts[n] for n in known], key_by_key=by_key, budget=memory)
