"""A pass's functions as a kernel calls them: what the names in their code (written.py) stand for."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from timelapse.kernels.once import made_once
from timelapse.kernels.python.flat import loop, states
from timelapse.kernels.python.flat.output import layout
from timelapse.kernels.python.flat.states import form_of
from timelapse.kernels.python.flat.types import GUARD_NAMES
from timelapse.kernels.python.flat.written import Choice, Written
from timelapse.kinds.base import ABSENT, UNKEYED
from timelapse.kinds.grouped import Grouped
from timelapse.model.types import FLOAT, TupleType
from timelapse.program.program import Rejection, params_of
from timelapse.tables.lookup import LazyDict

if TYPE_CHECKING:
    from timelapse.kernels.python.flat.kernel import FlatKernel


class Loop:
    """A pass's functions, for one choice of states whose changes are found by comparing."""

    def __init__(self, kernel: FlatKernel, compared: frozenset[str]) -> None:
        program, work, spec = kernel._program, kernel._work, kernel._spec
        tracked = kernel._held.tracked.keys() - compared
        own = {name for name, data in kernel._dicts.items() if not isinstance(data, LazyDict)}
        nested = frozenset(
            name for name in own
            if form_of(spec.states[name].kind).nests and name not in tracked and not kernel.journals
            and not isinstance(spec.states[name].outer, TupleType) and not isinstance(spec.states[name].inner, TupleType)
        )  # fmt: skip
        indexed = frozenset(name for name in own if issubclass(spec.states[name].kind, Grouped))
        choice = Choice(
            kernel._final, tuple(kernel._dicts), frozenset(tracked), nested, indexed,
            kernel._journal is not None, kernel.journals, kernel.rejects,
        )  # fmt: skip
        self._kernel = kernel
        made = made_once("rewritten", program, work, choice, lambda: Written.of(program, work, choice))
        self._pass, self._functions = made.made, made.functions
        self.turns, self.single, self.nested = made.turns, made.single, made.nested
        self._own: dict[str, types.CellType] = {}
        kernel._numbers = made.numbers
        kernel._names.update(made.names)
        self.function: Callable[..., None] = (
            (lambda rows: None) if made.code is None else loop.bound(made.code, self._cell)
        )

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
            return params_of(kernel._program)[of]
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
