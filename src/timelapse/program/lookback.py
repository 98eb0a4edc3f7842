"""What lies behind the serial loop: what states held, and the operations that were done on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from timelapse.kinds.base import ABSENT, State, StateSpec, Store
from timelapse.kinds.past import Done, History, recording
from timelapse.program.times import unseen


class LookBack:
    """What states were, as far back as the program looks. The time of the step is told with each question; `before`: in ticks,
    which see everything before their time.

    `histories`: versions of what keys held, by state. `records`: the operations, of states whose windows need them.
    """

    def __init__(self, histories: Mapping[str, History], records: Mapping[str, Done]) -> None:
        self.histories, self.records = histories, records
        self.done: list[tuple[Done, Any]] = []
        """The operations of the step under way: in which record, under which key."""
        self._stores: dict[str, Store] = {}
        self._history_of: dict[int, History] = {}

    def state(self, spec: StateSpec, store: Store, data: dict[Any, Any], now: Callable[[], int]) -> State:
        """A state on a store, which keeps its values in `data`: what is done to it is kept."""
        if spec.name in self.histories:
            self._history_of[id(data)], self._stores[spec.name] = self.histories[spec.name], store
        record = self.records.get(spec.name)
        if record is None:
            return spec.kind(spec, store)

        def told(key: Any, operation: Any) -> None:
            record.add(now(), key, operation)
            self.done.append((record, key))

        return recording(spec, store, told)

    def ago(self, state: State, lag: int, now: int, *, before: bool) -> Any:
        """The state as of a lag ago."""
        return self._history(state._spec.name, lag).view(state._spec, now - lag, before=before)

    def last(self, state: State, width: int, now: int, *, before: bool) -> Any:
        """What happened to the state within the width."""
        name = state._spec.name
        if state.net_window:
            history = self._history(name, width)
            return history.net(state._spec, self._stores[name], now - width, before=before)
        if name not in self.records:
            raise unseen(name, "last")
        self._history(name, width)
        return self.records[name].window(state._spec, now - width, now, before=before)

    def at(self, state: State, at: int, now: int) -> Any:
        """The state as it was at a time."""
        return self._history(state._spec.name, now - at).view(state._spec, at)

    def _history(self, name: str, back: int) -> History:
        """A state's versions. Raises UsageError when it does not keep them so far back."""
        history = self.histories.get(name)
        if history is None or type(back) is not int or not 0 < back <= history.keep:
            raise unseen(name, "last and ago")
        return history

    def commit(self, ts: int, journal: Sequence[tuple[dict[Any, Any], Any, Any]]) -> None:
        """What a step has written becomes the past."""
        found = self._history_of
        for table, key, _ in journal if found else ():
            history = found.get(id(table))
            if history is not None:
                history.add(ts, key, table.get(key, ABSENT))

    def undo(self) -> None:
        """The operations of the step were not done after all."""
        for record, key in self.done:
            record.take_back(key)
        self.done.clear()

    def take(self, other: LookBack) -> None:
        """Go on from what another keeps, which goes on by itself."""
        for name, history in self.histories.items():
            history.take(other.histories[name])
        for name, record in self.records.items():
            record.take(other.records[name])
