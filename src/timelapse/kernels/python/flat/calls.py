"""A pass's functions as the kernel calls them: rewritten handlers, the loop over them, and what their names stand for."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from timelapse.depth import roomy
from timelapse.kernels.python.flat import loop, states
from timelapse.kernels.python.flat.functions import Pass
from timelapse.kernels.python.flat.output import layout
from timelapse.kernels.python.flat.rewrite import handler
from timelapse.kernels.python.flat.states import PLAIN, TRACKED, StateCode, form_of
from timelapse.kernels.python.flat.types import GUARD_NAMES
from timelapse.kinds.base import ABSENT, UNKEYED
from timelapse.kinds.grouped import Grouped
from timelapse.model.events import Event
from timelapse.model.program import Rejection, params_of
from timelapse.model.types import FLOAT, TupleType
from timelapse.tables.lookup import LazyDict

if TYPE_CHECKING:
    from timelapse.kernels.python.flat.kernel import FlatKernel


class Loop:
    """A pass's functions, for one choice of states whose changes are found by comparing."""

    def __init__(self, kernel: FlatKernel, compared: frozenset[str]) -> None:
        tracked = kernel._held.tracked.keys() - compared
        nested = frozenset(
            name for name, data in kernel._dicts.items()
            if form_of(kernel._spec.states[name].kind).nests and name not in tracked and not kernel.journals
            and not isinstance(data, LazyDict) and not isinstance(kernel._spec.states[name].outer, TupleType)
            and not isinstance(kernel._spec.states[name].inner, TupleType)
        )  # fmt: skip
        while True:  # until nothing but what is written out is done to them
            self.nested = nested
            used = self._write(kernel, compared)
            whole = "_tl_self" in used
            nested = frozenset(
                n
                for n in self.nested
                if not whole and f"_tl_i_{n}" in used and used.isdisjoint({f"_tl_{w}_{n}" for w in "Sdgo"})
            )
            if nested == self.nested:
                return

    @roomy
    def _write(self, kernel: FlatKernel, compared: frozenset[str]) -> set[str]:
        """Write everything. The names that it takes from the pass; `_tl_self`: somebody has the program itself."""
        program, work, spec = kernel._program, kernel._work, kernel._spec
        self._kernel = kernel
        tracked = kernel._held.tracked.keys() - compared
        journal = kernel.journals
        codes = {
            name: StateCode(
                spec.states[name],
                TRACKED if name in tracked else PLAIN,
                journal,
                name in self.nested,
            )
            for name in kernel._dicts
        }
        cls = type(program)

        member = kernel.member
        indexed = frozenset(
            name for name, data in kernel._dicts.items()
            if issubclass(spec.states[name].kind, Grouped) and not isinstance(data, LazyDict)
        )  # fmt: skip
        handled = dict.fromkeys(event for h in work.handlers for event in h.events)
        kernel._numbers = {event: number for number, event in enumerate(handled)}
        sendable = {
            event: kernel._numbers.get(event, -1)
            for h in spec.handlers
            for event in h.events
            if h.after is None
        }
        self._pass = Pass(
            codes,
            params_of(program),
            member,
            cls.__mro__,
            indexed,
            kernel._final,
            sendable,
            spec.loop,
            rejects=kernel.rejects,
        )
        self._own: dict[str, types.CellType] = {}
        turns: dict[type[Event], tuple[list[tuple[str, bool]], list[str], bool]] = {}
        self._functions: dict[str, Any] = {}
        kept = False
        for number, spec_ in enumerate(work.handlers):
            for place, event in enumerate(spec_.events):
                calls, fields, whole = turns.setdefault(event, ([], [], False))
                name = f"_tl_h_{number}_{place}"
                made = handler(self._pass, spec_.function, event, spec_.name)
                if made is None:
                    kept = True
                    self._functions[name] = spec_.function
                    calls.append((f"{name}(_tl_self, event)", False))
                    whole = True
                else:
                    self._functions[name] = made
                    kernel._names[made.code] = spec_.name
                    arguments = [f"_tl_f_{f}" for f in made.fields] + (["event"] if made.event else [])
                    calls.append((f"{name}({', '.join(arguments)})", made.refuses))
                    fields += made.fields
                    whole = whole or made.event
                turns[event] = (calls, fields, whole)
        self.turns = []
        for event, (calls, fields, whole) in turns.items():
            used = (
                work.columns[event.__name__]
                if whole
                else [f.name for f in event.__fields__ if f.name in fields]
            )
            self.turns.append(loop.Turn(event, tuple(used), whole, tuple(calls)))
        if not self.turns:
            self.function: Callable[..., None] = lambda rows: None
            self.single = True
            return set()
        free = {
            n
            for made in (*self._functions.values(), *self._pass.made.values())
            for n in getattr(made, "free", ())
        }
        clocks = {f"_tl_S_{n}" for n in codes if spec.states[n].kind.uses_now}
        # Whoever has the program itself may ask it for the time, and send.
        whole = kept or "_tl_self" in free or bool(self._pass.kept)
        code, self.single = loop.write(
            self.turns, now=whole or bool(free & clocks), journal=kernel._journal is not None, count=True,
            sent=None if whole else self._pass.sent, rejects=kernel.rejects,
        )  # fmt: skip
        self.function = loop.bound(code, self._cell)
        return free | {"_tl_self"} if whole else free

    def begin(self, kernel: FlatKernel) -> None:
        """What names stand for in the slice that begins."""
        for name, cell in self._own.items():
            what, _, state = name.removeprefix("_tl_").partition("_")
            if what == "b" and state in kernel._held.tracked:
                cell.cell_contents = kernel._held.tracked[state].before
            elif what == "r":
                cell.cell_contents = kernel._kept(self._pass.records[int(state)]).put
            elif what == "i":
                known = kernel._nested.get(state)
                cell.cell_contents = kernel.states[state]._groups() if known is None else known
        if kernel._journal is not None:
            kernel._journal.clear()

    def _cell(self, name: str) -> types.CellType:
        """What a name of generated code stands for."""
        found = self._kernel._cells.get(name) or self._own.get(name)
        if found is None:
            found = self._own[name] = types.CellType(None)
            found.cell_contents = self._value(name)
        return found

    def _value(self, name: str) -> Any:
        kernel = self._kernel
        if name in GUARD_NAMES:
            return GUARD_NAMES[name]
        if name in self._functions:
            made = self._functions[name]
            return made.bind(self._cell) if hasattr(made, "bind") else made
        if name in self._pass.made:
            return self._pass.made[name].bind(self._cell)
        if name in self._pass.kept:
            return types.MethodType(self._pass.kept[name], kernel._bound)
        fixed = {
            "_tl_self": kernel._bound, "_tl_live": kernel._bound.__dict__, "_tl_A": ABSENT, "_tl_u": UNKEYED,
            "_tl_q": kernel._sent, "_tl_more": kernel._sent.append, "_tl_send": kernel._queue, "_tl_over": kernel._over, **states.names(),
            "_tl_refuse": kernel._refuse, "_tl_refuse_with": kernel._refuse_with,
            "_tl_caught": kernel._caught, "_tl_Rejection": Rejection, "_tl_emit": kernel._put, "_tl_journal": kernel._journal,
        }  # fmt: skip
        if name in fixed:
            return fixed[name]
        what, _, of = name.removeprefix("_tl_").partition("_")
        if name == "_tl_j":
            assert kernel._journal is not None
            return kernel._journal.append
        if what == "make":
            return self.turns[int(of)].event._raw_maker()
        if what == "p":
            return self._pass.params[of]
        if what == "w":
            packed = layout(self._pass.records[int(of)])
            assert packed is not None
            return packed.pack
        if what in ("r", "i", "b"):
            return None  # known when a slice begins
        state = kernel.states[of]
        known: dict[str, Callable[[], Any]] = {
            "d": lambda: kernel._dicts[of], "g": lambda: kernel._dicts[of].get, "S": lambda: state,
            "C": lambda: state._check_key, "O": lambda: state._outer, "V": lambda: state._check_value, "D": lambda: state._default,
            "o": lambda: state._own, "F": lambda: FLOAT.checker(f"a value of {of}"),
        }  # fmt: skip
        return known[what]()
