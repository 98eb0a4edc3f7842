"""How a compiled pass gets the states at a slice's start: loaded whole, or key by key from where they lie (touch.py)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from timelapse.analysis.result import PassProgram
from timelapse.env.machine import carried, carried_if_set
from timelapse.kernels.native.lowering.unit import Unit
from timelapse.kernels.native.memory.changes import UNKNOWN, hashed_as
from timelapse.kernels.native.memory.hashtable import HashTable
from timelapse.kernels.native.memory.layout import layout_of
from timelapse.kernels.native.memory.strings import Interned
from timelapse.kernels.native.memory.table import NativeTable, load
from timelapse.kernels.native.memory.touch import TEXT
from timelapse.kernels.tuning import TableTuning
from timelapse.kinds.base import StateSpec
from timelapse.tables.levels import Levels, Start, whole_in_file
from timelapse.tables.sharing import at_once
from timelapse.tables.table import key_types

_FEW_ROWS = 1 << 16
_WORTH = 8
"""A start state of more than so many keys per event is not loaded: to look an event's keys up in files costs about as
much as loading six."""
_ARRAYS = 4
"""A table has two arrays, and the old and the new ones while it grows."""


def hash_tables(
    unit: Unit, asked: Collection[str] | None, *, threads: int, tuning: TableTuning
) -> list[HashTable]:
    """The unit's tables, empty. `asked`: of which states it is asked what a slice did to them (None: of all)."""
    return [
        HashTable(
            [unit.layouts[n] for n in names if n in unit.layouts],
            changes=asked is None or not set(names).isdisjoint(asked),
            threads=threads,
            tuning=tuning,
        )
        for names in unit.tables
    ]


def state_tables(
    unit: Unit, specs: Mapping[str, StateSpec], interned: Interned, hashes: Sequence[HashTable]
) -> dict[str, NativeTable]:
    """Each state's part of these."""
    shared = {n: table for names, table in zip(unit.tables, hashes, strict=True) for n in names}
    return {
        name: NativeTable(unit.hidden.get(name) or specs[name], unit.layouts[name], interned, shared[name])
        for name in unit.states
    }


def asked_tables(
    work: PassProgram, specs: Mapping[str, StateSpec], tables: Mapping[str, NativeTable], interned: Interned,
    asked: Collection[str] | None, *, final: bool,
) -> dict[str, NativeTable]:  # fmt: skip
    """The states of which it is asked what a slice did to them (None: all); one that no handler mentions is empty."""
    wanted = set(work.exact if final else work.targets) | set(work.delta)
    wanted = wanted if asked is None else set(asked)
    own = {n: spec for n, spec in specs.items() if n in wanted}
    layouts = {n: layout_of(spec, work, final=final) for n, spec in own.items()}
    return {n: tables.get(n) or NativeTable(own[n], layouts[n], interned) for n in own}


def _is_numbers(table: NativeTable) -> bool:
    """Whether keys and values are one number each."""
    kinds = [hashed_as(kind) for kind in (*key_types(table.spec), table.layout.stored)]
    return TEXT not in kinds and UNKNOWN not in kinds


def _set_apart(unit: Unit, tables: Mapping[str, NativeTable], memory: int | None) -> None:
    """Tables that no spill makes empty (`NativeKernel.state_bytes`), their logs and strings lie in files from some size on, where the user has set
    the budget. By default, which is half of the machine's memory, they do not: a file costs more."""
    room = carried_if_set(memory)
    if room is None:
        return
    stay = {table.hash for table in tables.values() if table.hash.exact}
    if not unit.windows:
        stay -= {t.hash for n, t in tables.items() if n not in unit.indexed and t.can_be_mapped}
    most = room // (_ARRAYS * (len(stay) + 1) + len(unit.windows))
    for table in tables.values():
        if table.hash in stay:
            table.hash.filed = table.interned.filed = most


def start_tables(
    unit: Unit,
    tables: Mapping[str, NativeTable],
    starts: Mapping[str, Start],
    events: int,
    memory: int | None,
    threads: int = 1,
) -> None:
    """Let the unit's tables begin with `starts`; a state missing there is empty.

    `memory`: the task's budget in bytes (None: no matter). A state in levels is one that did not fit into it. `threads`: how many
    tables are loaded at a time, where no text is in them: the codes of texts are given by one thread.
    """
    _set_apart(unit, tables, memory)
    calls: list[tuple[int, Callable[[], None]]] = []
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
        into, given = [tables[n] for n in known], [starts[n] for n in known]
        calls.append((rows, partial(load, into, given, key_by_key=by_key, budget=memory)))
    every = [tables[n] for names in unit.tables for n in names if n in tables]
    at_once(calls, threads if all(_is_numbers(table) for table in every) else 1)
    for name, counter in unit.counted.items():
        if name in starts:
            tables[counter].load_counts(whole_in_file(starts[name], memory))
