"""What a pass that runs as Python gives to `last` and `ago`: windows over the rows of its states (rowlog.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType
from typing import Any

import pyarrow as pa

from timelapse.analysis.result import PassProgram
from timelapse.analysis.views import LOOKING
from timelapse.kernels.python.extremes import QUEUED, Extremes
from timelapse.kernels.python.latest import Latest, Sums
from timelapse.kernels.python.rowlog import Cursor, PythonLog, block_rows
from timelapse.kernels.python.versions import Folds, Versions
from timelapse.kernels.rowlog import Before, Earlier
from timelapse.kinds.base import ABSENT, State, Store
from timelapse.kinds.effects import Journal
from timelapse.kinds.grouped import Grouped
from timelapse.kinds.past import recording
from timelapse.program.program import Program, TimeUse, spec_of
from timelapse.program.times import kept, unseen, width_of
from timelapse.tables.effectlog import NET, OPS, PRESENT
from timelapse.tables.shelf import Shelf


class LoggedStore:
    """A store of which a log is told what is done to it."""

    __slots__ = ("_drop", "_log", "_put", "drop", "get", "items", "put", "side", "told")

    def __init__(self, store: Store, log: PythonLog) -> None:
        self.get, self.items, self.side = store.get, store.items, store.side
        self._put, self._drop, self.told, self._log = store.put, store.drop, log.told, log
        net = log.form == NET
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
        self._log.old = self.get(key, ABSENT)
        self._put(key, value)
        self.told(key, value)

    def _take(self, key: Any) -> None:
        self._log.old = self.get(key, ABSENT)
        self._drop(key)
        self.told(key, ABSENT)


class Windows:
    """What the states of a pass ask for the past (kinds.base.Clock)."""

    def __init__(
        self, program: Program, work: PassProgram, journal: Journal | None, *, final: bool,
        folder: Path | None = None, keep: bool = True, room: int | None = None,
    ) -> None:  # fmt: skip
        """`keep`: whether anybody asks for the rows of a slice. `folder`: where rows wait, and what is put away. `room`: bytes that the pass's states
        should not exceed by much (None: no matter)."""
        spec = spec_of(program)
        self._live: Mapping[str, Any] = {"now": 0}
        self.date: Callable[[str, int, str, tuple[Any, ...]], None] | None = None
        """What takes dated writes, in programs that have any."""
        self.tick = 0
        """1 in ticks, which see nothing of their own time, and W back what stood before: rows leave later."""
        self._specs = spec.states
        self._lasting = {use.state for use in spec.times if use.what == "last"}
        self._widths = kept(program)
        looks = final or _looks_back(work)
        self.logs: dict[tuple[str, str], PythonLog] = {}
        self._kept = {n for n in work.logs if keep and (final or n in work.targets)}
        for name, forms in work.logs.items():
            if (looks and name in work.exact) or name in self._kept:
                for form in forms:
                    log = self.logs[name, form] = PythonLog(spec.states[name], form, journal, folder)
                    log.asked = name in self._kept
        self._shelf = None if room is None or folder is None else Shelf(folder, room)
        for log in self.logs.values():
            log.shelf = self._shelf
        self._windows: dict[tuple[str, str, int], Cursor] = {}
        self._views: dict[tuple[str, int], State] = {}
        if looks:
            for use in spec.times:
                if use.what in LOOKING and use.state in work.exact:
                    self._prepare(program, use)
            for name, forms in work.logs.items():
                more = OPS in forms or spec.states[name].history is not None
                if more and name in work.exact and self._log(name, "versions") is not None:
                    self._window(name, "versions", self._widths[name])
        if room is not None:
            for log in self.logs.values():
                log.size = block_rows(room, len(self.logs), len(self._windows))

    def _prepare(self, program: Program, use: TimeUse) -> None:
        name, width = use.state, self._widths[use.state]
        if use.what == "last":
            self._window(name, "last", width_of(program, use))
        elif use.what == "ago" and (name, NET) in self.logs:
            self._window(name, "sums", width_of(program, use))
        else:
            self._window(name, "versions", width)

    def state(self, name: str, store: Any) -> State:
        """A state that the pass knows, and whose log is told what is done to it."""
        values = next((log for (n, form), log in self.logs.items() if n == name and form != OPS), None)
        if values is not None:
            store = LoggedStore(store, values)
        operations = self.logs.get((name, OPS))
        spec = self._specs[name]
        if operations is None:
            return spec.kind(spec, store)
        told = operations.told
        return recording(spec, store, lambda key, operation: told(key, (self._live["now"], operation)))

    def told(self, name: str) -> Callable[[Any, Any], None] | None:
        """What is told of the effects on a state that the pass does not know."""
        return next((log.told for (n, _), log in self.logs.items() if n == name), None)

    def use(self, live: Mapping[str, Any]) -> None:
        """`live`: where the pass keeps the time of the step, as `now`."""
        self._live = live
        for log in self.logs.values():
            log.live = live

    def _log(self, name: str, what: str) -> PythonLog | None:
        """The log that a window is over: `last` prefers operations, as they are kept only where it takes them."""
        forms = (OPS, NET, PRESENT) if what == "last" else (NET, PRESENT)
        return next((self.logs[name, form] for form in forms if (name, form) in self.logs), None)

    def _window(self, name: str, what: str, width: int) -> Cursor:
        found = self._windows.get((name, what, width))
        if found is None or not found.alive:
            log = self._log(name, what)
            assert log is not None
            found = _made(log, what, width)
            found.what = what
            found.fill()
            log.cursors.append(found)
            self._windows[name, what, width] = found
        return found

    def start(self, before: Before) -> None:
        """Take the rows of earlier slices, before the pass begins."""
        for (name, form), log in self.logs.items():
            if log.cursors:
                earlier = before(name, form, self._widths[name])
                if isinstance(earlier.log, PythonLog):
                    log.go_on(earlier.log)
                    self._shelf = log.shelf
                else:
                    log.recall(earlier)
            for cursor in log.cursors:
                self._windows[name, cursor.what, cursor.width] = cursor

    @property
    def nbytes(self) -> int:
        """What windows have by key in memory, roughly, where it can be put away."""
        if self._shelf is None:
            return 0
        return self._shelf.nbytes + sum(log.nbytes for log in self.logs.values())

    def carried(self) -> Before:
        """For a pass that goes on from here: see `start`. What windows have by key is put away."""
        found = {}
        is_away = self._shelf is not None and self._shelf.put_away()
        for at, log in self.logs.items():
            if is_away:
                log.put_away()
            versions = next((w for w in log.cursors if isinstance(w, Versions)), None)
            if versions is None:
                found[at] = Earlier(log.kept(), end=self.now(), log=log)
            else:
                behind = versions.place - log.first
                found[at] = Earlier(log.kept(), behind, versions.before_first, self.now(), log)
        return lambda name, form, width: found.get((name, form), Earlier(()))

    def begin(self) -> None:
        """A new slice begins."""
        for log in self.logs.values():
            log.begin()

    def rows(self) -> dict[tuple[str, str], pa.Table]:
        """The slice's rows, of the states of which they are asked for, by form."""
        return {at: log.table_of_rows() for at, log in self.logs.items() if at[0] in self._kept}

    # --- kinds.base.Clock -------------------------------------------------------------------------

    def now(self) -> int:
        return self._live["now"]  # type: ignore[no-any-return]

    def dated(self, state: State, at: int, method: str, arguments: tuple[Any, ...]) -> None:
        if self.date is None:
            raise unseen(state._spec.name, "at=")
        self.date(state._spec.name, at, method, arguments)

    def at(self, state: State, at: int) -> Any:
        versions = self._known(state, "versions", self._widths.get(state._spec.name, 0))
        assert isinstance(versions, Versions)
        return versions.view(state, lambda: at, lambda: False)

    def ago(self, state: State, lag: int) -> Any:
        name = state._spec.name
        if (name, NET) in self.logs:
            window = self._known(state, "sums", lag)
            assert isinstance(window, Sums)
            return window.past(state)
        self._check(state, lag)
        versions = self._known(state, "versions", self._widths[name])
        assert isinstance(versions, Versions)
        found = self._views.get((name, lag))
        if found is None:
            found = versions.view(state, lambda: self.now() - lag, lambda: self.tick > 0)
            if not isinstance(found, Grouped):  # those keep an index of what they saw
                self._views[name, lag] = found
        return found

    def last(self, state: State, width: int) -> Any:
        return self._known(state, "last", width).state

    def _known(self, state: State, what: str, width: int) -> Cursor:
        """A window, as of now."""
        name = state._spec.name
        found = self._windows.get((name, what, width))
        if found is None or not found.alive:
            self._check(state, width)
            known = what != "last" or name in self._lasting or state.net_window
            if not known or self._log(name, what) is None:
                raise unseen(name, "last and ago")
            found = self._window(name, what, width)
        found.leave(self._live["now"] - width - self.tick)
        return found

    def _check(self, state: State, width: int) -> None:
        name = state._spec.name
        if type(width) is not int or not 0 < width <= self._widths.get(name, 0):
            raise unseen(name, "last and ago")


def _made(log: PythonLog, what: str, width: int) -> Cursor:
    if what == "versions":
        return Versions(log, width)
    if log.form == NET:
        return Sums(log, width)
    if log.form != OPS:
        return Latest(log, width)
    return Extremes(log, width) if log.spec.kind.window_form in QUEUED else Folds(log, width)


def _looks_back(work: PassProgram) -> bool:
    """Whether some code of a pass may ask for a view."""
    functions = [h.function for h in work.handlers]
    for member in work.members.values():
        found = getattr(member, "fget", None) or getattr(member, "__func__", member)
        functions.append(found)
    return any(_names_view(f.__code__) for f in functions)


def _names_view(code: CodeType) -> bool:
    inner = (c for c in code.co_consts if isinstance(c, CodeType))
    dated = any(isinstance(c, tuple) and "at" in c for c in code.co_consts)  # the name of an argument
    return dated or any(name in LOOKING for name in code.co_names) or any(map(_names_view, inner))
