"""What a pass that runs as Python gives to `last` and `ago`: windows over the rows of its states (rowlog.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

import pyarrow as pa

from timelapse.analysis.result import PassProgram
from timelapse.analysis.views import VIEWS, viewed_states
from timelapse.kernels.rowlog import EffectLog, Latest, Sums, Window
from timelapse.kinds.base import ABSENT, State
from timelapse.kinds.effects import Journal
from timelapse.model.program import Program, spec_of
from timelapse.model.times import kept, unseen, width_of
from timelapse.tables.effectlog import is_net

Before = Callable[[str, int], Sequence[pa.Table]]
"""Gives the rows of a state's log from before the pass, at least as far back as a length of time."""


class LoggedStore:
    """A store of which a log is told what is done to it."""

    __slots__ = ("_drop", "_put", "drop", "get", "items", "put", "side", "told")

    def __init__(self, store: Any, log: EffectLog) -> None:
        self.get, self.items, self.side = store.get, store.items, store.side
        self._put, self._drop, self.told = store.put, store.drop, log.told
        net = is_net(log.spec)
        self.put: Callable[[Any, Any], None] = self._add if net else self._leave
        self.drop: Callable[[Any], None] = self._add_back if net else self._take

    def _add(self, key: Any, value: Any) -> None:
        change = value - self.get(key, 0)
        self._put(key, value)
        if change:
            self.told(key, change)

    def _add_back(self, key: Any) -> None:
        held = self.get(key, 0)
        self._drop(key)
        if held:
            self.told(key, -held)

    def _leave(self, key: Any, value: Any) -> None:
        self._put(key, value)
        self.told(key, value)

    def _take(self, key: Any) -> None:
        self._drop(key)
        self.told(key, ABSENT)


class Windows:
    """What the states of a pass ask for the past (kinds.base.Clock)."""

    def __init__(
        self, program: Program, work: PassProgram, journal: Journal | None, *, final: bool,
        folder: Path | None = None, keep: bool = True,
    ) -> None:  # fmt: skip
        """`keep`: whether anybody asks for the rows of a slice. `folder`: where rows wait."""
        spec = spec_of(program)
        self._live: Mapping[str, Any] = {"now": 0}
        self.tick = 0
        """1 in ticks, which see nothing of their own time, and W back what stood before: rows leave later."""
        self._widths = kept(program)
        looks = final or _looks_back(work)
        self.logs: dict[str, EffectLog] = {}
        self._kept = {n for n in viewed_states(spec) if keep and (final or n in work.targets)}
        for name in viewed_states(spec):
            if (looks and name in work.exact) or name in self._kept:
                self.logs[name] = EffectLog(spec.states[name], journal, folder)
        self._windows: dict[tuple[str, int], Window] = {}
        if looks:
            for use in spec.times:
                if use.what in VIEWS and use.state in work.exact:
                    self._window(use.state, width_of(program, use))

    def use(self, live: Mapping[str, Any]) -> None:
        """`live`: where the pass keeps the time of the step, as `now`."""
        self._live = live
        for log in self.logs.values():
            log.live = live

    def _window(self, name: str, width: int) -> Window:
        log = self.logs[name]
        found = self._windows.get((name, width))
        if found is None or not found.alive:
            found = Sums(log, width) if is_net(log.spec) else Latest(log, width)
            found.fill()
            log.windows.append(found)
            self._windows[name, width] = found
        return found

    def start(self, before: Before) -> None:
        """Take the rows of earlier slices, before the pass begins."""
        for name, log in self.logs.items():
            if log.windows:
                log.before(before(name, self._widths[name]))
                for window in log.windows:
                    window.fill()

    def carried(self) -> Before:
        """For a pass that goes on from here: see `start`."""
        found = {name: log.kept() for name, log in self.logs.items()}
        return lambda name, width: found.get(name, [])

    def begin(self) -> None:
        """A new slice begins."""
        for log in self.logs.values():
            log.begin()

    def rows(self) -> dict[str, pa.Table]:
        """The slice's rows, of the states of which they are asked for."""
        return {name: self.logs[name].rows() for name in self._kept if name in self.logs}

    # --- kinds.base.Clock -------------------------------------------------------------------------

    def now(self) -> int:
        return self._live["now"]  # type: ignore[no-any-return]

    def dated(self, state: State, at: int, method: str, arguments: tuple[Any, ...]) -> None:
        raise unseen(state._spec.name, "at=")

    def at(self, state: State, at: int) -> Any:
        raise unseen(state._spec.name, "at=")

    def ago(self, state: State, lag: int) -> Any:
        window = self._known(state, lag)
        if not isinstance(window, Sums):
            raise unseen(state._spec.name, "ago")
        window.leave(self._live["now"] - lag - self.tick)
        return window.past(state)

    def last(self, state: State, width: int) -> Any:
        window = self._known(state, width)
        window.leave(self._live["now"] - width - self.tick)
        return window.state

    def _known(self, state: State, width: int) -> Window:
        name = state._spec.name
        found = self._windows.get((name, width))
        if found is not None and found.alive:
            return found
        if type(width) is not int or not 0 < width <= self._widths.get(name, 0):
            raise unseen(name, "last and ago")
        return self._window(name, width)


def _looks_back(work: PassProgram) -> bool:
    """Whether some code of a pass may ask for a view."""
    functions = [h.function for h in work.handlers]
    for member in work.members.values():
        found = getattr(member, "fget", None) or getattr(member, "__func__", member)
        functions.append(found)
    return any(_names_view(f.__code__) for f in functions)


def _names_view(code: CodeType) -> bool:
    inner = (c for c in code.co_consts if isinstance(c, CodeType))
    return any(name in VIEWS for name in code.co_names) or any(map(_names_view, inner))
