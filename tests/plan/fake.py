"""Analyses made by hand, so that the planner can be shown anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import timelapse as tl
from timelapse.analysis.result import Dependency, Diagnostic, PassHandler, PassProgram, StateFacts, Write
from timelapse.errors import Place
from timelapse.plan.strategy import Analysed
from timelapse.program.program import ProgramSpec, spec_of


class Tick(tl.Event):
    k: int


class Four(tl.Program):
    a: tl.Counter[int]
    b: tl.Counter[int]
    c: tl.Set[int]
    d: tl.Value[int, float] = tl.state(default=0.0)

    @tl.on(Tick)
    def go(self, e: Tick) -> None:
        self.a[e.k] += 1


@dataclass
class Fake:
    """What the planner needs of an analysis."""

    spec: ProgramSpec
    facts: Mapping[str, StateFacts]
    dependencies: Sequence[Dependency]
    components: Sequence[tuple[str, ...]]
    diagnostics: Sequence[Diagnostic] = ()
    trusted: Sequence[Diagnostic] = ()


EFFECTS = {"a": "add", "b": "add", "c": "set", "d": "set"}


def fake(
    depends: Mapping[str, str] = {},
    components: Sequence[str] = ("a", "b", "c", "d"),
    via: Mapping[tuple[str, str], str] = {},
    effects: Mapping[str, str] = {},
    composes: Mapping[str, str] = {},
) -> Fake:
    """`depends` maps a state to the letters of what it depends on; `components` are in topological order."""
    spec = spec_of(Four)
    dependencies = []
    facts = {}
    for line, name in enumerate(spec.states, start=10):
        on = frozenset(depends.get(name, ""))
        place = Place("rules.py", line, "Four.go")
        dependencies += [
            Dependency(name, source, place, via.get((name, source), "condition")) for source in sorted(on)
        ]
        effect = effects.get(name, EFFECTS[name])
        write = Write(name, effect, place, on)
        facts[name] = StateFacts(name, (write,), frozenset({effect}), on, composes.get(name))
    return Fake(spec, facts, dependencies, [tuple(c) for c in components])


class FakePasses:
    """Passes that keep the whole handler and need what their states depend on."""

    def __init__(self, spoil: Mapping[str, Any] = {}) -> None:
        self.spoil = spoil

    def build(
        self, analysis: Analysed, name: str, targets: Sequence[str], delta: Sequence[str]
    ) -> PassProgram:
        need: set[str] = set()
        todo = [s for t in targets for s in analysis.facts[t].depends_on]
        while todo:
            state = todo.pop()
            if state not in need:
                need.add(state)
                todo.extend(analysis.facts[state].depends_on)
        values: dict[str, Any] = {
            "targets": tuple(targets),
            "delta": frozenset(delta),
            "exact": frozenset((need | set(targets)) - set(delta)),
            "ignored": frozenset(),
            **self.spoil,
        }
        handler = PassHandler("go", (Tick,), Four.go)  # type: ignore[arg-type]
        return PassProgram(name=name, handlers=(handler,), members={}, columns={"Tick": ("k",)},
                           rejects=frozenset(), **values)  # fmt: skip

    def final(self, analysis: Analysed) -> PassProgram:
        handler = PassHandler("go", (Tick,), Four.go)  # type: ignore[arg-type]
        every = frozenset(analysis.spec.states)
        return PassProgram("final", tuple(analysis.spec.states), frozenset(), every, frozenset(), (handler,), {},
                           {"Tick": ("k",)}, frozenset())  # fmt: skip

    def share_out(self, analysis: Analysed, targets: Sequence[str]) -> None:
        return None

    def share_out_all(self, analysis: Analysed) -> None:
        return None
