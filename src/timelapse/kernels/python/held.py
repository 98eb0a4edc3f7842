"""The states that handlers see when they run as Python, and what a slice does to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from timelapse.analysis.result import PassProgram
from timelapse.kernels.base import PassResult
from timelapse.kernels.python.starts import bytes_of
from timelapse.kernels.python.stores import NullStore, PlainStore, TrackedStore
from timelapse.kernels.python.windows import Windows
from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.kinds.effects import Delta, Journal
from timelapse.tables.apply import Change, changes_table
from timelapse.tables.table import effect_table

Live = Callable[[str, Journal | None], Any]
"""Gives the object for a state that somebody else keeps; None for others."""


def nobody_else(name: str, journal: Journal | None) -> None:
    """No state is kept by somebody else."""


class Held:
    """The states of one pass: exact ones in stores, others as what collects effects, or drops them."""

    def __init__(
        self, specs: Mapping[str, StateSpec], work: PassProgram, starts: Mapping[str, dict[Any, Any]], *, final: bool,
        journal: Journal | None, windows: Windows | None, live: Live,
    ) -> None:  # fmt: skip
        """`starts`: of each exact state its value per key; the dicts are taken over."""
        self._specs, self._work, self._final = specs, work, final
        self._journal, self.windows = journal, windows
        self.deltas: dict[str, Delta] = {}
        """What collects the effects on states that are not known."""
        self.tracked: dict[str, TrackedStore] = {}
        """Stores of exact states whose changes are asked for."""
        self.stores: dict[str, TrackedStore | PlainStore] = {}
        """Of all exact states."""
        self.states: dict[str, Any] = {}
        """What handlers see."""
        self.is_begun = False
        for name in specs:
            given = live(name, journal)
            self.states[name] = self._state(name, starts.get(name, {})) if given is None else given

    def _state(self, name: str, start: dict[Any, Any]) -> Any:
        spec, work = self._specs[name], self._work
        if name in work.delta:
            delta = self.deltas[name] = spec.kind.delta(spec, self._journal)
            if self.windows is not None:
                delta.told = self.windows.told(name)
            return delta
        if name not in work.exact:
            ignored: Any = spec.kind(spec, NullStore())
            ignored._clock = self.windows
            return ignored
        store: TrackedStore | PlainStore
        if name in work.targets or self._final or self._journal is not None:
            store = tracked = TrackedStore(start, self._journal)
            if name in work.targets or self._final:
                self.tracked[name] = tracked
        else:
            store = PlainStore(start)
        self.stores[name] = store
        state: Any = spec.kind(spec, store) if self.windows is None else self.windows.state(name, store)
        state._clock = self.windows
        return state

    @property
    def nbytes(self) -> int:
        """What the exact states and their windows take in memory, roughly."""
        plain = [store.data for store in self.stores.values() if isinstance(store, PlainStore)]
        windows = 0 if self.windows is None else self.windows.nbytes
        return bytes_of([*(store.data for store in self.tracked.values()), *plain]) + windows

    def take_written(self, name: str, key: Any) -> bool:
        """Whether a key of an exact state was written since the slice began, or since this was last asked."""
        return self.tracked[name].before.pop(key, self) is not self

    def resume(self, name: str, before: dict[Any, Any]) -> None:
        """Go on in the middle of a slice: what the keys of an exact state that were written held at its start."""
        if name in self.tracked:
            self.tracked[name].before = before

    def begin(self) -> None:
        """A new slice begins."""
        self.is_begun = True
        for delta in self.deltas.values():
            delta.clear()
        for tracked in self.tracked.values():
            tracked.begin()
        if self.windows is not None:
            self.windows.begin()

    def changed(self, name: str) -> tuple[pa.Table, Change]:
        """What the slice did to an exact state."""
        tracked = self.tracked[name]
        return changes_table(self._specs[name], tracked.since_start, tracked.data, ABSENT)

    def end(self, result: PassResult, changed: Callable[[str], tuple[pa.Table, Change]]) -> None:
        """The slice ends: note what it did. `changed`: to exact states."""
        for name, delta in self.deltas.items():
            result.effects[name] = effect_table(delta)
        for name in self.tracked:
            result.effects[name], result.changes[name] = changed(name)
        if self.windows is not None:
            result.rows = self.windows.rows()
        self.is_begun = False
