"""A cache of lowered and of rewritten passes, with one entry for each; and what is asked of them without compiling anything."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from timelapse.analysis.result import PassProgram
from timelapse.analysis.views import beyond_sums
from timelapse.depth import roomy
from timelapse.env.machine import memory_setting
from timelapse.kept import Kept
from timelapse.kernels.python.starts import can_be_looked_up
from timelapse.program.identity import Identity, identity_of, params_identity
from timelapse.program.program import Program, spec_of

if TYPE_CHECKING:
    from timelapse.kernels.native.lowering.showing import Shown
    from timelapse.kernels.native.unit import Unit

_MOST_PROGRAMS, _MOST_UNITS = 64, 64
"""Of so many programs, each with its parameters, so many passes are kept."""

_T = TypeVar("_T")


class _Passes:
    """What was made of a program's passes."""

    def __init__(self) -> None:
        self.lowered: list[tuple[PassProgram, bool, Unit | Exception]] = []
        self.rewritten: list[tuple[PassProgram, Hashable, Any]] = []


class _Once:
    """What was made of passes, by program."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[Program, _Passes]] = {}

    def of(self, program: Program) -> _Passes:
        """What is known of a program's passes: from earlier on, if nothing that they are made from can be another."""
        found = self._of.get(id(program))
        if found is None:
            found = self._of[id(program)] = program, _kept(program)
        return found[1]


def _kept(program: Program) -> _Passes:
    identity = identity_of(type(program))
    params = params_identity(program) if identity.certain else None
    if params is None:
        return _Passes()
    return _KEPT.get((identity, params), _Passes)


_KEPT: Kept[tuple[Identity, str], _Passes] = Kept(_MOST_PROGRAMS)
_ONCE: ContextVar[_Once | None] = ContextVar("timelapse_lowered", default=None)


@contextmanager
def lowered_once() -> Iterator[None]:
    """What passes look like to the compiler, and as rewritten Python, is found once for each within this block: for one replay, in which neither
    program nor parameters nor what they capture can change. The next replay finds it there if they have not changed
    since (program/identity.py)."""
    if _ONCE.get() is not None:
        yield
        return
    token = _ONCE.set(_Once())
    try:
        yield
    finally:
        _ONCE.reset(token)


def lowered_pass(program: Program, work: PassProgram, *, final: bool) -> Unit:
    """A pass as the compiler gets it. Raises what `refused` gives where it does not compile. Compiles nothing."""
    once = _ONCE.get()
    if once is None:
        return _lower(program, work, final=final)
    known = once.of(program).lowered
    found = next((u for w, f, u in known if f is final and _same(w, work)), None)
    if found is None:
        try:
            found = _lower(program, work, final=final)
        except refused() as refusal:
            refusal.__context__ = refusal.__cause__ = None
            found = refusal.with_traceback(None)
        known.append((work, final, found))
        del known[:-_MOST_UNITS]
    if isinstance(found, Exception):
        raise found.with_traceback(None)
    return found


def rewritten_pass(program: Program, work: PassProgram, choice: Hashable, write: Callable[[], _T]) -> _T:
    """A pass as rewritten Python, for one choice of what its code depends on besides; what `write` gives where it is not known yet."""
    once = _ONCE.get()
    if once is None:
        return write()
    known = once.of(program).rewritten
    for pass_, chosen, found in known:
        if chosen == choice and _same(pass_, work):
            return found  # type: ignore[no-any-return]
    made = write()
    known.append((work, choice, made))
    del known[:-_MOST_UNITS]
    return made


def _same(one: PassProgram, other: PassProgram) -> bool:
    """Whether two passes are made of the same parts. By identity, but for names: what members hold need not be comparable."""
    return one.columns == other.columns and all(
        getattr(one, f.name) is getattr(other, f.name) for f in fields(PassProgram) if f.name != "columns"
    )


@roomy
def _lower(program: Program, work: PassProgram, *, final: bool) -> Unit:
    from timelapse.kernels.native.lowering.lower import lowered

    return lowered(program, _of_task(program, work, final=final), final=final)


@roomy
def shown_pass(program: Program, work: PassProgram, *, final: bool) -> Shown:
    """The compiler's form of a pass, and the source that it makes. Raises what `refused` gives where it does not compile."""
    from timelapse.kernels.native.lowering.showing import shown

    return shown(program, _of_task(program, work, final=final), final=final)


def _of_task(program: Program, work: PassProgram, *, final: bool) -> PassProgram:
    """The pass as a task runs it."""
    if final:
        return work
    if found := kept_whole(program, work):
        raise refused()(f"the rows of windows ({', '.join(sorted(found))}) are found as Python")
    return replace(work, by_key=None)  # what is shared out among tasks is filtered before it gets to them


def viewed(work: PassProgram) -> set[str]:
    """The states of a pass that are looked back on."""
    return work.logs.keys() & {*work.exact, *work.targets}


def kept_whole(program: Program, work: PassProgram) -> set[str]:
    """Those of which windows compile only where one pass goes through the whole log."""
    return viewed(work) & beyond_sums(spec_of(program), work.logs)


def refused() -> type[Exception]:
    """What says why a pass does not compile."""
    from timelapse.kernels.native.lowering.values import Refused

    return Refused


def event_bytes(program: Program, work: PassProgram, *, mapped: bool) -> int | None:
    """The memory that an event of a compiled final pass can take until its slice's end, if it touches only new keys; of a
    loop, one round. None where the pass does not compile. Compiles nothing. `mapped`: start states may be in files; tables are
    where windows look back and the user has set the budget."""
    try:
        unit = lowered_pass(program, work, final=True)
    except refused():
        return None
    return unit.event_bytes(
        mapped=mapped, filed=mapped and bool(unit.windows) and memory_setting() is not None
    )


def loaded_whole(program: Program, work: PassProgram, *, compiled: bool) -> list[str]:
    """The states with keys whose start a final pass loads whole, however large it is. Compiles nothing."""
    specs = {n: s for n, s in spec_of(program).states.items() if n in work.exact and s.key is not None}
    if not compiled:
        return sorted(name for name, spec in specs.items() if not can_be_looked_up(spec))
    from timelapse.kernels.native.memory.layout import can_be_mapped

    unit = lowered_pass(program, work, final=True)
    listed = set(specs) if unit.lists and unit.ticking else set(unit.indexed)
    own = {name: spec for name, spec in specs.items() if name in unit.layouts}
    return sorted(n for n, spec in own.items() if n in listed or not can_be_mapped(spec, unit.layouts[n]))
