"""What is made of passes, once for each: for the compiler, and as rewritten Python."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields
from typing import Any, TypeVar

from timelapse.analysis.result import PassProgram
from timelapse.kept import Kept
from timelapse.program.identity import Identity, identity_of, params_identity
from timelapse.program.program import Program

_MOST_PROGRAMS, _MOST_PASSES = 64, 64
"""Of so many programs, each with its parameters, so many passes are kept, of each sort of what is made."""

_T = TypeVar("_T")
_Passes = dict[str, list[tuple[PassProgram, Hashable, Any]]]
"""What was made of a program's passes, by sort."""


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
        return {}
    return _KEPT.get((identity, params), dict)


_KEPT: Kept[tuple[Identity, str], _Passes] = Kept(_MOST_PROGRAMS)
_ONCE: ContextVar[_Once | None] = ContextVar("timelapse_passes", default=None)


@contextmanager
def passes_once() -> Iterator[None]:
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


def made_once(sort: str, program: Program, work: PassProgram, choice: Hashable, make: Callable[[], _T]) -> _T:
    """What `make` gives for a pass, and for one choice of what that depends on besides: made where it is not known yet. `sort`: what is made."""
    once = _ONCE.get()
    if once is None:
        return make()
    known = once.of(program).setdefault(sort, [])
    for pass_, chosen, found in known:
        if chosen == choice and _same(pass_, work):
            return found  # type: ignore[no-any-return]
    made = make()
    known.append((work, choice, made))
    del known[:-_MOST_PASSES]
    return made


def _same(one: PassProgram, other: PassProgram) -> bool:
    """Whether two passes are made of the same parts. By identity, but for names: what members hold need not be comparable."""
    return one.columns == other.columns and all(
        getattr(one, f.name) is getattr(other, f.name) for f in fields(PassProgram) if f.name != "columns"
    )
