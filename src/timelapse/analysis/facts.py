"""What the writes of each state depend on, and in which order states can be computed."""

from __future__ import annotations

import ast

from timelapse.analysis.depend import Closure, Graph, Relaxed
from timelapse.analysis.ir import FunctionIR, StateRead, StateWrite, Vertex
from timelapse.analysis.relax import roots
from timelapse.analysis.result import Dependency, Diagnostic, StateFacts, Write
from timelapse.analysis.views import not_a_scan, viewed_states
from timelapse.code import cfg
from timelapse.code.source import all_nodes
from timelapse.errors import Place


def state_facts(graph: Graph, name: str, relaxed: Relaxed) -> tuple[StateFacts, list[Dependency]]:
    """The facts of one state, and its dependencies with the lines that cause them."""
    spec = graph.functions.spec.states[name]
    writes: list[Write] = []
    found: dict[tuple[str, str], Dependency] = {}
    reasons: list[str] = []
    for vertex, write in graph.writes[name]:
        key = id(write.node)
        effect = relaxed.effects.get(key, write.effect)
        reads: set[str] = set()
        for via, read, at in _reads(graph, vertex, write, relaxed):
            reads.add(read.state)
            found.setdefault((read.state, via), Dependency(name, read.state, at, via))
        place = Place(vertex.fn.file, getattr(write.node, "lineno", vertex.node.line), vertex.fn.name)
        if effect == "dated":
            reasons.append(f"{write.reason} ({place})")
        if effect == "opaque":
            reasons.append(f"{write.reason or 'a write that composes in no known way'} ({place})")
            reads.add(name)
            found.setdefault((name, "opaque"), Dependency(name, name, place, "opaque"))
        writes.append(Write(name, effect, place, frozenset(reads), relaxed.names.get(key)))
    effects = frozenset(w.effect for w in writes)
    composes = reasons[0] if reasons else spec.kind.composes(spec, effects)
    if composes is None and (uses := viewed_states(graph.functions.spec).get(name)):
        composes = not_a_scan(spec, uses, effects)
    depends = frozenset(s for w in writes for s in w.reads)
    order = {s: i for i, s in enumerate(graph.functions.spec.states)}
    dependencies = sorted(found.values(), key=lambda d: order[d.source])
    return StateFacts(name, tuple(writes), effects, depends, composes), dependencies


def opaque_facts(graph: Graph, causes: list[Diagnostic]) -> tuple[dict[str, StateFacts], list[Dependency]]:
    """The facts of a program with opaque code in it: every state depends on every other."""
    names = list(graph.functions.spec.states)
    place = causes[0].place
    facts = {}
    for name in names:
        known = [
            Write(
                name, w.effect, Place(v.fn.file, getattr(w.node, "lineno", None), v.fn.name), frozenset(names)
            )
            for v, w in graph.writes[name]
        ]
        writes = (*known, *(Write(name, "opaque", c.place, frozenset(names)) for c in causes))
        effects = frozenset(w.effect for w in writes)
        facts[name] = StateFacts(name, writes, effects, frozenset(names), causes[0].message)
    return facts, [Dependency(t, s, place, "opaque") for t in names for s in names]


def order_of(facts: dict[str, StateFacts]) -> tuple[tuple[str, ...], ...]:
    """Components of the state graph, each after what it depends on; ties in the order of declaration."""
    graph = {name: [s for s in facts if s in f.depends_on] for name, f in facts.items()}
    return tuple(cfg.components(graph))


def _reads(
    graph: Graph, vertex: Vertex, write: StateWrite, relaxed: Relaxed
) -> list[tuple[str, StateRead, Place]]:
    """Every read that a write depends on: how (key, value, condition, reject), which, where."""
    in_key = {id(n) for n in all_nodes(write.key)} if write.key is not None else set()
    key_names = (
        {n.id for n in all_nodes(write.key) if isinstance(n, ast.Name)} if write.key is not None else set()
    )
    own = graph.reads(vertex, relaxed)
    found: list[tuple[str, StateRead, Place]] = []

    def add(via: str, closure: Closure, reads: list[StateRead], at: FunctionIR) -> None:
        found.extend((via, r, _place(at, r)) for r in reads)
        for reached in closure.vertices:
            found.extend((via, r, _place(reached.fn, r)) for r in graph.reads(reached, relaxed))

    add("key", graph.close(graph.data(vertex, key_names), (), relaxed),
        [r for r in own if id(r.node) in in_key], vertex.fn)  # fmt: skip
    others = vertex.found.uses | vertex.found.late
    value = [*graph.data(vertex, others - key_names), *graph.calls(vertex)]
    add("value", graph.close(value, (), relaxed), [r for r in own if id(r.node) not in in_key], vertex.fn)
    add("condition", graph.close(graph.control(vertex, relaxed), [vertex.fn], relaxed), [], vertex.fn)
    needed, active = roots(graph, vertex)
    if needed[1:]:
        add("reject", graph.close(needed[1:], active[1:], relaxed), [], vertex.fn)
    return found


def _place(fn: FunctionIR, read: StateRead) -> Place:
    return Place(fn.file, getattr(read.node, "lineno", fn.line), fn.name)
