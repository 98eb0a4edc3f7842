"""A pass's functions as code: rewritten handlers and the loop over them, for any number of kernels that bind them (calls.py)."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from timelapse.analysis.result import PassProgram
from timelapse.depth import roomy
from timelapse.kernels.python.flat import loop
from timelapse.kernels.python.flat.functions import Made, Pass
from timelapse.kernels.python.flat.infer import MISSING
from timelapse.kernels.python.flat.rewrite import handler
from timelapse.kernels.python.flat.states import PLAIN, TRACKED, StateCode
from timelapse.model.events import Event
from timelapse.program.program import RUNTIME_NAMES, Program, params_of, spec_of


@dataclass(frozen=True)
class Choice:
    """What the code depends on besides the program and the pass."""

    final: bool
    states: tuple[str, ...]
    """Those whose values are at hand."""
    tracked: frozenset[str]
    """Those of which it is noted what they held before."""
    nested: frozenset[str]
    """Those that may be kept by key alone."""
    indexed: frozenset[str]
    """Grouped states of which an index may be kept."""
    journal: bool
    """Whether there is a journal."""
    journals: bool
    """Whether writes are entered in it."""
    rejects: bool
    """Whether events may be rejected."""


@dataclass(frozen=True)
class Written:
    """The code of a pass."""

    made: Pass
    functions: dict[str, Made | types.FunctionType]
    """Handlers by the names under which the loop calls them."""
    turns: list[loop.Turn]
    code: types.CodeType | None
    """The loop; None where nothing happens at any event."""
    single: bool
    numbers: dict[type[Event], int]
    """Event types by the number of what happens at them."""
    names: dict[types.CodeType, str]
    """The names of handlers by their code."""
    used: frozenset[str]
    """The names that it takes from the pass; `_tl_self`: somebody has the program itself."""
    nested: frozenset[str]
    """The states that are kept by key alone."""

    @classmethod
    def of(cls, program: Program, work: PassProgram, choice: Choice) -> Self:
        """Write it."""
        nested = choice.nested
        while True:  # until nothing but what is written out is done to them
            written = cls._of(program, work, choice, nested)
            used = written.used
            nested = frozenset(
                n
                for n in written.nested
                if "_tl_self" not in used
                and f"_tl_i_{n}" in used
                and used.isdisjoint({f"_tl_{w}_{n}" for w in "Sdgo"})
            )
            if nested == written.nested:
                return written

    @classmethod
    @roomy
    def _of(cls, program: Program, work: PassProgram, choice: Choice, nested: frozenset[str]) -> Self:
        spec = spec_of(program)
        codes = {
            name: StateCode(
                spec.states[name], TRACKED if name in choice.tracked else PLAIN, choice.journals, name in nested
            )
            for name in choice.states
        }  # fmt: skip
        handled = dict.fromkeys(event for h in work.handlers for event in h.events)
        numbers = {event: number for number, event in enumerate(handled)}
        sendable = {
            event: numbers.get(event, -1) for h in spec.handlers for event in h.events if h.after is None
        }
        made = Pass(
            codes, params_of(program), members_of(type(program), work), type(program).__mro__, choice.indexed,
            choice.final, sendable, spec.loop, rejects=choice.rejects,
        )  # fmt: skip
        turns: dict[type[Event], tuple[list[tuple[str, bool]], list[str], bool]] = {}
        functions: dict[str, Made | types.FunctionType] = {}
        names: dict[types.CodeType, str] = {}
        kept = False
        for number, spec_ in enumerate(work.handlers):
            for place, event in enumerate(spec_.events):
                calls, fields, whole = turns.setdefault(event, ([], [], False))
                name = f"_tl_h_{number}_{place}"
                one = handler(made, spec_.function, event, spec_.name)
                if one is None:
                    kept = True
                    functions[name] = spec_.function
                    calls.append((f"{name}(_tl_self, event)", False))
                    whole = True
                else:
                    functions[name] = one
                    names[one.code] = spec_.name
                    arguments = [f"_tl_f_{f}" for f in one.fields] + (["event"] if one.event else [])
                    calls.append((f"{name}({', '.join(arguments)})", one.refuses))
                    fields += one.fields
                    whole = whole or one.event
                turns[event] = (calls, fields, whole)
        done = []
        for event, (calls, fields, whole) in turns.items():
            used = (
                work.columns[event.__name__]
                if whole
                else [f.name for f in event.__fields__ if f.name in fields]
            )
            done.append(loop.Turn(event, tuple(used), whole, tuple(calls)))
        if not done:
            return cls(made, functions, done, None, True, numbers, names, frozenset(), nested)
        free = {n for one in (*functions.values(), *made.made.values()) for n in getattr(one, "free", ())}
        clocks = {f"_tl_S_{n}" for n in codes if spec.states[n].kind.uses_now}
        # Whoever has the program itself may ask it for the time, and send.
        whole = kept or "_tl_self" in free or bool(made.kept)
        code, single = loop.write(
            done, now=whole or bool(free & clocks), journal=choice.journal, count=True,
            sent=None if whole else made.sent, rejects=choice.rejects,
        )  # fmt: skip
        taken = frozenset(free | {"_tl_self"} if whole else free)
        return cls(made, functions, done, code, single, numbers, names, taken, nested)


def members_of(cls: type[Program], work: PassProgram) -> Callable[[str], Any]:
    """What a program's class (or the pass) has under a name; MISSING where there is nothing, or it is the run's."""

    def member(name: str) -> Any:
        if name in RUNTIME_NAMES:
            return MISSING
        return work.members.get(name, inspect.getattr_static(cls, name, MISSING))

    return member
