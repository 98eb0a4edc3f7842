"""States of which no key gets a value back that it has left: every write goes on, and in one direction.

`if self.first[k] is None: self.first[k] = v`, `if v < self.best[k]: self.best[k] = v` and `self.count[k] += 1` are such writes. A stretch of
the log that leaves a key of such a state as it was has not written it. In doubt a state is not among them.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from timelapse.analysis.depend import Graph
from timelapse.analysis.idioms.base import is_pure, names_of, reads_state, same, still, unchanged_between
from timelapse.analysis.idioms.values import never_none
from timelapse.analysis.ir import FunctionIR, Node, StateWrite, Vertex
from timelapse.code import cfg
from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.model.types import BYTES, INT, STR, TIME, OptionalType

if TYPE_CHECKING:
    from timelapse.analysis.analyse import Analysis

_ORDERED = (INT, TIME, STR, BYTES)
"""Types in which what is less differs, and is stored as it is."""
_UP, _DOWN = "up", "down"


def onward_states(analysis: Analysis) -> frozenset[str]:
    """Their names."""
    if analysis.opaque:
        return frozenset()
    return analysis.once("onward", lambda: _onward_states(analysis.graph))


def _onward_states(graph: Graph) -> frozenset[str]:
    specs = graph.functions.spec.states
    return frozenset(name for name, spec in specs.items() if _goes_on(graph, spec))


def _goes_on(graph: Graph, spec: StateSpec) -> bool:
    if not spec.kind.one_way:
        return False
    of = _counts if spec.kind.one_way == "added" else _moves
    directions: set[str] = set()
    for vertex, write in graph.writes[spec.name]:
        found = of(graph, spec, vertex, write)
        if found is None:
            return False
        directions |= found
    return len(directions) < 2


def _counts(graph: Graph, spec: StateSpec, vertex: Vertex, write: StateWrite) -> set[str] | None:
    """In which direction a counter is changed by a number that stands there; None: that is not known."""
    del graph, spec, vertex
    value = write.value
    if write.effect != "add" or not isinstance(value, ast.Constant) or type(value.value) is not int:
        return None
    return {_DOWN if write.negate else _UP} if value.value > 0 else None


def _moves(graph: Graph, spec: StateSpec, vertex: Vertex, write: StateWrite) -> set[str] | None:
    """In which directions a write takes a key's value (none: from None to something); None: that is not known."""
    fn, node = vertex.fn, vertex.node
    kind = spec.value.inner if isinstance(spec.value, OptionalType) else spec.value
    alone = vertex.expr is None and write.effect == "set" and write.value is not None and not node.guarded
    if not alone or kind not in _ORDERED or not is_pure(graph, fn, write.key):
        return None
    good: dict[tuple[int, str], set[str]] = {}
    for test in fn.nodes:
        if test.kind == "test" and test.index in fn.live and not test.guarded:
            found = _says(graph, spec, fn, test, write, node)
            if found is not None:
                label, direction = found
                good[test.index, label] = direction
    ways = [[e.target for e in n.edges if e.real and (n.index, e.label) not in good] for n in fn.nodes]
    # Neither the first time nor, in a loop, once more without a test.
    if any(node.index in cfg.reachable(ways, at) for at in (fn.entry.index, *ways[node.index])):
        return None
    return set().union(*good.values())


def _says(
    graph: Graph, spec: StateSpec, fn: FunctionIR, test: Node, write: StateWrite, node: Node
) -> tuple[str, set[str]] | None:
    """The outcome of a test under which the write goes on, and in which direction."""
    compared = test.ast
    if not isinstance(compared, ast.Compare) or len(compared.ops) != 1:
        return None
    left, op, right = compared.left, compared.ops[0], compared.comparators[0]
    if isinstance(op, ast.Is | ast.IsNot):
        if not isinstance(right, ast.Constant) or right.value is not None or not _none_is_nothing(spec):
            return None
        if not _holds(graph, spec, fn, left, test, write, node) or not _surely(graph, fn, write.value):
            return None
        return ("true" if isinstance(op, ast.Is) else "false"), set()
    if not isinstance(op, ast.Lt | ast.Gt):
        return None
    less = isinstance(op, ast.Lt)
    for value, held, direction in (
        (left, right, _DOWN if less else _UP),
        (right, left, _UP if less else _DOWN),
    ):
        if same(value, write.value) and is_pure(graph, fn, value) and _holds(graph, spec, fn, held, test, write, node):  # fmt: skip
            return "true", {direction}
    return None


def _none_is_nothing(spec: StateSpec) -> bool:
    """Whether a key that is not there reads as None."""
    return isinstance(spec.value, OptionalType) and spec.default in (ABSENT, None)


def _holds(
    graph: Graph, spec: StateSpec, fn: FunctionIR, held: ast.expr, test: Node, write: StateWrite, node: Node
) -> bool:
    """Whether an expression in a test is what the key holds where it is written: itself, or a local that it was put into."""
    assert isinstance(test.ast, ast.expr)
    used = names_of(fn, test.ast, write.key, write.value)
    if not unchanged_between(graph, fn, test, node, spec.name, used):
        return False
    if isinstance(held, ast.Name):
        since = fn.definitions(held.id)
        if len(since) != 1 or held.id in fn.params or not isinstance(since[0].ast, ast.Assign):
            return False
        (put,) = since
        assert isinstance(put.ast, ast.Assign)
        if [type(t) for t in put.ast.targets] != [ast.Name] or put.main.found.writes or put.main.found.calls:
            return False
        # Nor is it written twice while the local stays.
        rest = [[e.target for e in n.edges if e.real and e.target != put.index] for n in fn.nodes]
        again = any(node.index in cfg.reachable(rest, t) for t in rest[node.index])
        if again or put.index == node.index or not still(graph, fn, put, node, spec.name, used - {held.id}):
            return False
        held = put.ast.value
    is_state, key = reads_state(fn, held, spec)
    return is_state and same(key, write.key)


def _surely(graph: Graph, fn: FunctionIR, value: ast.expr | None) -> bool:
    """Whether a value is never None."""
    if never_none(graph, fn, value):
        return True
    match value:
        case ast.Name(id=name):
            loops = [d.ast for d in fn.definitions(name)]
            return bool(loops) and name not in fn.params and all(
                isinstance(loop, ast.For) and isinstance(loop.target, ast.Name) and isinstance(loop.iter, ast.Tuple)
                and all(_surely(graph, fn, item) for item in loop.iter.elts)
                for loop in loops
            )  # fmt: skip
        case ast.Attribute(value=ast.Name(id=name), attr=attr):
            sent = all(site.style == "send" for _, site in graph.functions.sites[fn])
            if name != fn.event_param or not sent or fn.definitions(name) != [fn.entry]:
                return False
            kinds = [{f.name: f.type for f in event.__fields__}.get(attr) for event in fn.events]
            return bool(kinds) and not any(k is None or isinstance(k, OptionalType) for k in kinds)
    return False


__all__ = ["onward_states"]
