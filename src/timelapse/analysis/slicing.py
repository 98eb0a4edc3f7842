"""Passes: the parts of a program that some of its states need."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from timelapse.analysis.columns import columns_of, fields_read
from timelapse.analysis.depend import Closure, Relaxed
from timelapse.analysis.ir import FunctionIR
from timelapse.analysis.keys import Access, NotByKey, accesses_of, by_key
from timelapse.analysis.operations import plain_state
from timelapse.analysis.relax import roots
from timelapse.analysis.result import ByKey, PassHandler, PassProgram
from timelapse.analysis.rewrite import Cut, Cutter, compiled, definition
from timelapse.analysis.views import log_forms, viewed_states
from timelapse.code.source import function_source
from timelapse.errors import AnalysisError

if TYPE_CHECKING:
    from timelapse.analysis.analyse import Analysis


def build_pass(analysis: Analysis, name: str, targets: Iterable[str], delta: Iterable[str]) -> PassProgram:
    """What has to run so that the targets are written as the program writes them.

    Targets in `delta` are written through effects and never read; every other state that is read
    starts exact and is kept up. Raises AnalysisError for a state that cannot be in `delta`.
    """
    chosen, effects = tuple(targets), frozenset(delta)
    return analysis.once(
        ("pass", name, chosen, effects), lambda: _build_pass(analysis, name, chosen, effects)
    )


def _build_pass(
    analysis: Analysis, name: str, chosen: tuple[str, ...], effects: frozenset[str]
) -> PassProgram:
    _check(analysis, chosen, effects)
    if analysis.opaque:
        return _whole(analysis, name, chosen)
    relaxed = Relaxed()
    for state in sorted(effects):
        relaxed.update(analysis.relaxed[state])
    keep, exact = _needed(analysis, chosen, effects, relaxed)
    wrong = sorted(exact & effects)
    if wrong:
        raise AnalysisError(
            f"pass {name!r} would read {', '.join(wrong)}, whose start it does not know",
            hint="put them into an earlier stage",
        )
    written = {w.state for v in keep.vertices for w in v.found.writes}
    return _cut(analysis, name, chosen, effects, exact, frozenset(written - exact - effects), keep, relaxed)


def final_pass(analysis: Analysis) -> PassProgram:
    """The whole program, untouched, with every state exact."""
    return analysis.once("final", lambda: _whole(analysis, "final", tuple(analysis.spec.states)))


def share_out(analysis: Analysis, targets: Iterable[str]) -> ByKey | NotByKey:
    """How the events of a pass for these states, all of them exact, can be shared out by key."""
    chosen = tuple(targets)
    return analysis.once(("shared out", chosen), lambda: _share_out(analysis, chosen))


def _share_out(analysis: Analysis, chosen: tuple[str, ...]) -> ByKey | NotByKey:
    if analysis.opaque:
        return by_key(analysis, None, chosen, chosen)
    keep, exact = _needed(analysis, chosen, frozenset(), Relaxed())
    return by_key(analysis, keep, chosen, exact)


def share_out_all(analysis: Analysis) -> ByKey | NotByKey:
    """How the events of the whole program can be shared out by key."""
    states = tuple(analysis.spec.states)
    return analysis.once("shared out", lambda: by_key(analysis, None, states, states))


def accesses(analysis: Analysis, targets: Iterable[str] | None = None) -> list[Access]:
    """Every access of a state in what has to run to write these states (None: in the whole program)."""
    if targets is None or analysis.opaque:
        return accesses_of(analysis, None)
    return accesses_of(analysis, _needed(analysis, tuple(targets), frozenset(), Relaxed())[0])


def functions(analysis: Analysis, targets: Iterable[str]) -> frozenset[FunctionIR]:
    """The functions of which something has to run to write these states."""
    keep, _ = _needed(analysis, tuple(targets), frozenset(), Relaxed())
    return frozenset(vertex.fn for vertex in keep.vertices)


def _needed(
    analysis: Analysis, targets: tuple[str, ...], delta: frozenset[str], relaxed: Relaxed
) -> tuple[Closure, frozenset[str]]:
    """What the writes of the targets need, and the states that it reads or that are targets and no deltas."""
    graph = analysis.graph
    needed, active = [], []
    for state in targets:
        for vertex, _ in graph.writes[state]:
            more, functions = roots(graph, vertex)
            needed += more
            active += functions
    keep = graph.close(needed, active, relaxed, lambda s: s not in delta)
    read = {r.state for v in keep.vertices for r in graph.reads(v, relaxed)}
    return keep, frozenset(read | (set(targets) - delta))


def _check(analysis: Analysis, targets: tuple[str, ...], delta: frozenset[str]) -> None:
    for state in (*targets, *sorted(delta)):
        if state not in analysis.spec.states:
            raise AnalysisError(f"{analysis.spec.name} has no state {state!r}")
    for state in sorted(delta):
        facts = analysis.facts[state]
        if state not in targets:
            raise AnalysisError(f"{state!r} is no target of the pass")
        if facts.composes is not None:
            raise AnalysisError(f"the effects of {state!r} do not compose: {facts.composes}")
        if state in facts.depends_on:
            raise AnalysisError(f"{state!r} depends on itself")


def _cut(
    analysis: Analysis, name: str, targets: tuple[str, ...], delta: frozenset[str], exact: frozenset[str],
    ignored: frozenset[str], keep: Closure, relaxed: Relaxed,
) -> PassProgram:  # fmt: skip
    states = analysis.spec.states
    cut = Cut(keep, relaxed, delta, frozenset(s for s in states if plain_state(states[s])))
    trees: dict[FunctionIR, ast.FunctionDef] = {}

    def tree(fn: FunctionIR) -> ast.FunctionDef:
        if fn not in trees:
            trees[fn] = definition(fn, Cutter(fn, cut).body())
        return trees[fn]

    left = what_is_left(analysis, keep, cut, tree)
    kept = [fn for _, fn in left.handlers]
    rejecting = {
        e.__name__ for v, fn in analysis.graph.rejects if v in keep for e in analysis.functions.reached[fn]
    }
    columns = {
        e.__name__: columns_of(e, {a for f in kept if e in f.events for a in _read_of_event(f, tree)})
        for e in analysis.spec.events if any(e in f.events for f in kept)
    }  # fmt: skip
    return PassProgram(
        name, targets, delta, exact, ignored, tuple(h for h, _ in left.handlers), left.members, columns,
        frozenset(rejecting), logs=logs_of(analysis),
    )  # fmt: skip


class Left(NamedTuple):
    """What is left of a program that was cut: handlers, each with what it was, and what they call, by name."""

    handlers: list[tuple[PassHandler, FunctionIR]]
    members: dict[str, Any]


def what_is_left(
    analysis: Analysis, keep: Closure, cut: Cut, tree: Callable[[FunctionIR], ast.FunctionDef]
) -> Left:
    """Compile what is left of a program. `tree` gives the text of each function after `cut`."""
    touched = {v.fn for v in keep.vertices if v.node.kind not in ("entry", "exit")}
    made: dict[FunctionIR, types.FunctionType] = {}
    handlers = []
    for spec, fn in zip(analysis.spec.handlers, analysis.functions.handlers, strict=True):
        if fn in touched and not all(isinstance(s, ast.Pass) for s in tree(fn).body):
            made[fn] = made.get(fn) or compiled(fn, tree(fn))
            handlers.append((PassHandler(spec.name, spec.events, made[fn], ast.unparse(tree(fn))), fn))
    members: dict[str, Any] = {}
    while len(members) < len(cut.members):  # cutting a member may find further ones
        for member, (fn, style) in list(cut.members.items()):
            if member not in members:
                function = made[fn] = made.get(fn) or compiled(fn, tree(fn))
                members[member] = (
                    property(function) if style == "property"
                    else staticmethod(function) if style == "helper" else function
                )  # fmt: skip
    return Left(handlers, dict(sorted(members.items())))


def _whole(analysis: Analysis, name: str, targets: tuple[str, ...]) -> PassProgram:
    functions = analysis.functions
    bodies: dict[FunctionIR, ast.AST] = {}

    def body(fn: FunctionIR) -> ast.AST:
        if fn not in bodies:
            bodies[fn] = _marked(fn)
        return bodies[fn]

    handlers = tuple(
        PassHandler(s.name, s.events, s.function, _text(s.function)) for s in analysis.spec.handlers
    )
    columns = {
        e.__name__: columns_of(
            e, {a for f in functions.handlers if e in f.events for a in _read_of_event(f, body)}
        )
        for e in analysis.spec.events
    }
    if analysis.opaque:
        rejects = frozenset(e.__name__ for e in analysis.spec.events)
    else:
        rejects = frozenset(e.__name__ for _, fn in analysis.graph.rejects for e in functions.reached[fn])
    states = frozenset(analysis.spec.states)
    return PassProgram(
        name, targets, frozenset(), states, frozenset(), handlers, {}, columns, rejects,
        logs=logs_of(analysis), serial=analysis.serial_only,
    )  # fmt: skip


def _read_of_event(fn: FunctionIR, body: Any) -> frozenset[str]:
    if fn.event_param is None:
        return frozenset({"*"})
    return fields_read(fn, fn.event_param, body)


def _marked(fn: FunctionIR) -> ast.AST:
    """An uncut body, its calls marked with the functions they call."""
    for node in fn.nodes:
        for site in node.main.found.calls:
            site.node._tl_callee = site.callee  # type: ignore[attr-defined]
    return ast.Module(list(fn.body), [])


def _text(function: types.FunctionType) -> str:
    source = function_source(function)
    return "" if source.node is None else ast.unparse(source.node)


def logs_of(analysis: Analysis) -> dict[str, tuple[str, ...]]:
    """For each state that is looked back on, the logs that this takes: by what their rows say."""
    states, found = analysis.spec.states, viewed_states(analysis.spec)
    if not analysis.opaque:
        return {n: log_forms(states[n], uses, analysis.facts[n].effects) for n, uses in found.items()}
    # What no analysis sees through may look back in any way that is kept.
    for name, state in states.items():
        if name in found or state.history is not None:
            found[name] = found.get(name, frozenset()) | {"ago"}
    return {name: log_forms(states[name], uses, None) for name, uses in found.items()}
