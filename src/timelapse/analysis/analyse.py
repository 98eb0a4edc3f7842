"""From a program class to everything that is known of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from timelapse.analysis.depend import Graph, Relaxed
from timelapse.analysis.facts import opaque_facts, order_of, state_facts
from timelapse.analysis.purity import purity_findings
from timelapse.analysis.relax import relax
from timelapse.analysis.result import Dependency, Diagnostic, StateFacts
from timelapse.analysis.uncalled import uncalled, unheard
from timelapse.analysis.views import serial_only
from timelapse.analysis.world import Functions
from timelapse.depth import roomy
from timelapse.errors import Place
from timelapse.kept import Kept
from timelapse.program.identity import Identity, identity_of
from timelapse.program.program import Program, ProgramSpec, TimeUse, spec_of

T = TypeVar("T")


@dataclass(frozen=True)
class Analysis:
    """What is known of a program.

    facts: per state, in the order of declaration. components: groups of states that depend on each
    other, each group after what it depends on. diagnostics: opaque code, impure code, methods that nothing calls, events that nothing handles. trusted: calls that analysis cannot see through.
    """

    spec: ProgramSpec
    facts: Mapping[str, StateFacts]
    dependencies: tuple[Dependency, ...]
    components: tuple[tuple[str, ...], ...]
    diagnostics: tuple[Diagnostic, ...]
    trusted: tuple[Diagnostic, ...]
    functions: Functions = field(compare=False, repr=False)
    graph: Graph = field(compare=False, repr=False)
    relaxed: Mapping[str, Relaxed] = field(compare=False, repr=False)
    kept: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """What follows from this analysis alone, and was found already: see `once`."""

    def once(self, what: Any, find: Callable[[], T]) -> T:
        """What `find` gives, found once. It must depend on nothing but `what` and what is analysed here."""
        if what not in self.kept:
            self.kept[what] = roomy(find)()
        return cast(T, self.kept[what])

    @property
    def opaque(self) -> bool:
        """Whether some code reads and writes everything, as far as analysis can tell."""
        return bool(self.functions.opaque)

    @property
    def serial_only(self) -> TimeUse | None:
        """See analysis/views.py."""
        return serial_only(self.spec)

    def verify(self) -> None:
        """Check what planning relies on. Raises AssertionError."""
        states = list(self.spec.states)
        assert list(self.facts) == states
        assert sorted(s for c in self.components for s in c) == sorted(states)
        place = {s: i for i, c in enumerate(self.components) for s in c}
        for name, facts in self.facts.items():
            assert facts.depends_on == frozenset(s for w in facts.writes for s in w.reads), name
            assert facts.effects == frozenset(w.effect for w in facts.writes), name
            assert {d.source for d in self.dependencies if d.target == name} == facts.depends_on, name
            for source in facts.depends_on:
                assert place[source] <= place[name], f"{name} comes before {source}"
        for fn in self.functions.all:
            fn.verify()

    def text(self) -> str:
        """The facts, as text that depends on the program's text alone."""
        lines = [f"program {self.spec.name}"]
        for name, facts in self.facts.items():
            lines.append(f"  {self.spec.states[name].text} {name}")
            if facts.composes is not None:
                lines.append(f"    does not compose: {_short(facts.composes)}")
            for w in facts.writes:
                needs = ", ".join(s for s in self.facts if s in w.reads) or "nothing"
                idiom = f" ({w.idiom})" if w.idiom else ""
                lines.append(f"    {w.effect} at {_at(w.place)}{idiom} needs {needs}")
        lines += [f"  {d.target} <- {d.source}: {d.via} at {_at(d.place)}" for d in self.dependencies]
        lines.append("  order: " + " | ".join(", ".join(c) for c in self.components))
        lines += [f"  {d.code} {_at(d.place)}: {d.message}" for d in (*self.diagnostics, *self.trusted)]
        return "\n".join(lines)


def analyse(program: Program | type[Program]) -> Analysis:
    """Analyse a program's code (parameters play no part).

    The result is kept while the class, and all that its code reaches, stays as it is.
    """
    cls = program if isinstance(program, type) else type(program)
    return _KNOWN.get(identity_of(cls), lambda: roomy(_analyse)(cls))


def forget() -> None:
    """Forget all programs: they are analysed again, from the sources that there are then."""
    _KNOWN.clear()


_KNOWN: Kept[Identity, Analysis] = Kept(64)


def _analyse(cls: type[Program]) -> Analysis:
    spec = spec_of(cls)
    functions = Functions(cls, spec)
    graph = Graph(functions)
    causes = functions.opaque
    relaxed: dict[str, Relaxed] = {}
    if causes and spec.states:
        facts, dependencies = opaque_facts(graph, causes)
    else:
        facts, dependencies = {}, []
        for name in spec.states:
            relaxed[name] = relax(graph, name)
            facts[name], found = state_facts(graph, name, relaxed[name])
            dependencies += found
    return Analysis(
        spec, facts, tuple(dependencies), order_of(facts),
        (*causes, *purity_findings(cls), *uncalled(cls, functions), *unheard(functions)),
        tuple(functions.trusted.values()), functions, graph, relaxed,
    )  # fmt: skip


def _at(place: Place) -> str:
    return f"{place.what}:{place.line}"


def _short(reason: str) -> str:
    """A reason without the folder of the file it names."""
    head, paren, place = reason.rpartition(" (")
    return f"{head}{paren}{place.rpartition('/')[2]}" if paren else reason
