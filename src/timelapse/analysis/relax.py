"""Where idioms apply: which guards may be dropped, which reads are none, for the deltas of one state.

A guard G is dropped for state X when, in what X's writes need, everything that G decides comes down to
writes of X that change nothing if G has the opposite outcome: same key, nothing written in between,
no local set there that is used elsewhere, no loop, no call. Dropping it then gives the same effects.
In doubt nothing is dropped: the state then depends on itself, and is computed in log order.
"""

from __future__ import annotations

import ast
from functools import lru_cache

from timelapse.analysis.depend import Closure, Graph, Relaxed
from timelapse.analysis.idioms import GUARD_RULES, WRITE_RULES
from timelapse.analysis.idioms.base import Guard, is_pure, names_of, unchanged_between
from timelapse.analysis.ir import FunctionIR, StateWrite, Vertex
from timelapse.analysis.views import viewed_states
from timelapse.code import cfg
from timelapse.code.source import all_nodes


def relax(graph: Graph, state: str) -> Relaxed:
    """The idioms among the writes of one state."""
    relaxed = Relaxed()
    spec = graph.functions.spec.states[state]
    is_viewed = state in viewed_states(graph.functions.spec)
    for vertex, write in graph.writes[state]:
        if vertex.node.guarded or write.effect == "dated":
            continue
        if _writes_meanwhile(graph, vertex, write):
            # `x[k] += f()` reads x[k] before f() writes it.
            relaxed.effects[id(write.node)] = "opaque"
            write.reason = "its value writes the state too"
            continue
        for rule in WRITE_RULES if not is_viewed or spec.kind.log_form == "net" else ():
            found = rule.write(graph, spec, vertex, write)
            if found is not None:
                key = id(write.node)
                relaxed.absorbed |= {id(n) for n in found.absorbed}
                relaxed.effects[key] = found.effect
                relaxed.values[key] = found.value
                relaxed.negated[key] = found.negate
                relaxed.names[key] = rule.name
                break
    if is_viewed:  # a write that would change nothing still has its row
        return relaxed
    candidates = [v for fn in _functions(graph, state) for v in fn.vertices if _may_guard(v, state)]
    changed = True
    while changed:
        changed = False
        for guard in candidates:
            if guard not in relaxed.guards:
                trial = _drop(graph, state, guard, relaxed)
                if trial is not None:
                    relaxed, changed = trial, True
    return relaxed


def roots(graph: Graph, vertex: Vertex) -> tuple[list[Vertex], list[FunctionIR]]:
    """What has to be needed and active so that a write always happens when it should."""
    rejects = graph.rejects_with(vertex.fn)
    return [vertex, *rejects], [vertex.fn, *(r.fn for r in rejects)]


def _writes_meanwhile(graph: Graph, vertex: Vertex, write: StateWrite) -> bool:
    """Whether a statement that reads and writes the state may write it in between."""
    if not isinstance(write.node, ast.AugAssign | ast.Assign | ast.AnnAssign):
        return False
    found = vertex.node.main.found
    others = [w for w in found.writes if w.state == write.state and w is not write]
    return bool(others) or any(write.state in graph.writing[s.callee] for s in found.calls)


def _functions(graph: Graph, state: str) -> list[FunctionIR]:
    return list(dict.fromkeys(v.fn for v, _ in graph.writes[state]))


def _may_guard(vertex: Vertex, state: str) -> bool:
    found = vertex.found
    return (
        vertex.node.kind == "test"
        and vertex.expr is None
        and not vertex.node.guarded
        and [r.state for r in found.reads] == [state]
        and not found.reads[0].all_keys
        and not (found.writes or found.calls or found.emits or found.rejects or found.sends or found.late)
        and not (found.strong or found.weak)
    )


def _closure(graph: Graph, state: str, relaxed: Relaxed) -> Closure:
    needed: list[Vertex] = []
    active: list[FunctionIR] = []
    for vertex, _ in graph.writes[state]:
        more, functions = roots(graph, vertex)
        needed += more
        active += functions
    return graph.close(needed, active, relaxed)


def _drop(graph: Graph, state: str, guard: Vertex, relaxed: Relaxed) -> Relaxed | None:
    """The relaxation with this guard dropped too, if that is right."""
    fn, test = guard.fn, guard.node
    if _ends_loop(fn, test.ast):
        return None
    region = _decided_by(fn, test.index)
    written = [(v, w) for v, w in graph.writes[state] if v.fn is fn and v.node.index in region]
    if not written:
        return None
    verdicts = []
    for vertex, write in written:
        verdict = _verdict(graph, state, guard, vertex, write)
        if verdict is None:
            return None
        verdicts.append((write, verdict))
    trial = relaxed.copy()
    trial.guards[guard] = True
    closure = _closure(graph, state, trial)
    if guard in closure:
        return None
    inside = [v for v in closure.vertices if v.fn is fn and v.node.index in region]
    if not _harmless(fn, guard, inside, closure):
        return None
    outcomes: set[bool] = set()
    for write, (outcome, effect, value, name) in verdicts:
        key = id(write.node)
        if trial.effects.get(key, effect) != effect:
            return None
        outcomes.add(outcome)
        trial.effects[key] = effect
        trial.names[key] = name
        if value is not None:
            trial.values[key] = value
    if len(outcomes) != 1:
        return None
    trial.guards[guard] = outcomes.pop()
    return trial


def _ends_loop(fn: FunctionIR, test: ast.AST | None) -> bool:
    """Whether the test is a part of a `while` condition: without it the loop would not end."""
    return test in _loop_tests(fn)


@lru_cache(maxsize=16)
def _loop_tests(fn: FunctionIR) -> frozenset[ast.AST]:
    loops = (n for s in fn.body for n in all_nodes(s) if isinstance(n, ast.While))
    return frozenset(n for loop in loops for n in all_nodes(loop.test))


def _verdict(
    graph: Graph, state: str, guard: Vertex, vertex: Vertex, write: StateWrite
) -> tuple[bool, str, object, str] | None:
    fn, test = guard.fn, guard.node.ast
    spec = graph.functions.spec.states[state]
    assert test is not None
    if write.effect == "dated" or vertex.node.guarded or not is_pure(graph, fn, write.key):
        return None
    used = names_of(fn, test)  # type: ignore[arg-type]  # a test is an expression
    if not unchanged_between(graph, fn, guard.node, vertex.node, state, used):
        return None
    for rule in GUARD_RULES:
        found = rule.guard(Guard(graph, spec, fn, test, write, vertex.node))  # type: ignore[arg-type]
        if found is None:
            continue
        compares_value = found.effect in ("up", "down", "top", "bottom")
        if compares_value and not is_pure(graph, fn, found.value):
            return None
        # Another effect says the same only where the guard holds.
        if found.effect != write.effect and _avoids(fn, guard, vertex, found.outcome):
            return None
        return found.outcome, found.effect, found.value, rule.name
    return None


def _avoids(fn: FunctionIR, guard: Vertex, vertex: Vertex, outcome: bool) -> bool:
    """Whether the write can be reached although the guard had the other outcome."""
    test = guard.node.index
    real = [[e.target for e in n.edges if e.real and e.target != test] for n in fn.nodes]
    other = [e.target for e in guard.node.edges if e.real and e.label != ("true" if outcome else "false")]
    return any(vertex.node.index in cfg.reachable(real, t) for t in other if t != test)


def _decided_by(fn: FunctionIR, branch: int) -> set[int]:
    """The nodes that are control dependent on a branch, directly or through others."""
    decided = _decided_at_once(fn)
    found: set[int] = set()
    todo = [branch]
    while todo:
        new = decided.get(todo.pop(), set()) - found
        found |= new
        todo += new
    return found


@lru_cache(maxsize=16)
def _decided_at_once(fn: FunctionIR) -> dict[int, set[int]]:
    """For each branch the nodes that are directly control dependent on it."""
    found: dict[int, set[int]] = {}
    for index, on in fn.control.items():
        for branch, _ in on:
            found.setdefault(branch, set()).add(index)
    return found


def _harmless(fn: FunctionIR, guard: Vertex, inside: list[Vertex], closure: Closure) -> bool:
    """Whether executing all of `inside` although the guard said no shows in nothing but X's writes."""
    test = guard.node.index
    real = [[e.target for e in n.edges if e.real] for n in fn.nodes]
    dominators = cfg.dominators(real, 0)
    again = cfg.on_cycles([[t for t in out if t != test] for out in real])
    members = set(inside)
    for vertex in inside:
        index = vertex.node.index
        if index == test or not dominators[index] >> test & 1:
            return False
        if (
            vertex.found.calls
            or vertex.found.rejects
            or vertex.found.emits
            or vertex.found.sends
            or vertex.node.kind in ("loop", "with")
        ):
            return False
        if index in again:
            return False
        for name in vertex.node.strong | vertex.node.weak:
            if index in fn.reaching.get(test, {}).get(name, ()):
                return False
            for other in closure.vertices:
                if other.fn is not fn or other in members:
                    continue
                reaches = index in fn.reaching.get(other.node.index, {}).get(name, ())
                if name in other.found.late or (name in other.found.uses and reaches):
                    return False
    return True
