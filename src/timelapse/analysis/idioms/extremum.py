"""`if v > best[k]: best[k] = v` and `best[k] = max(best[k], v)`: a running extremum."""

from __future__ import annotations

import ast

from timelapse.analysis.depend import Graph
from timelapse.analysis.idioms.base import Guard, Rewritten, Verdict, is_pure, reads_state, same
from timelapse.analysis.idioms.values import field_types, surely_float
from timelapse.analysis.ir import FunctionIR, StateWrite, Vertex
from timelapse.analysis.tables import builtin_name
from timelapse.code.scope import Scope
from timelapse.code.source import all_nodes
from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.model.types import BYTES, FLOAT, INT, STR, TIME, DecimalType

_TOTAL = (INT, TIME, STR, BYTES)
"""Types with a total order in which equal values are identical. Not float: -0.0, NaN."""


def _ordered(state: StateSpec) -> bool:
    return (
        "up" in state.kind.rewritten
        and state.default is not ABSENT
        and (_total(state) or state.value == FLOAT)
    )


def _total(state: StateSpec) -> bool:
    return state.value in _TOTAL or isinstance(state.value, DecimalType)


def _surely_stored(graph: Graph, fn: FunctionIR, value: ast.expr, state: StateSpec) -> bool:
    """Whether a value is stored as it is: an effect checks it also where the handler would not have written it."""
    if state.value == FLOAT:
        return surely_float(graph, fn, value)
    if isinstance(state.value, DecimalType):
        types = field_types(graph, fn, value)
        return bool(types) and all(t == state.value for t in types or ())
    return True


class GuardedExtremum:
    """A write under a strict comparison with what the key holds.

    `>=` is not recognised: on a missing key it would store the default, which `>` does not.
    """

    name = "running extremum"

    def guard(self, found: Guard) -> Verdict | None:
        state, write, test = found.state, found.write, found.test
        if not _ordered(state) or write.effect != "set" or write.value is None:
            return None
        if not isinstance(test, ast.Compare) or len(test.ops) != 1:
            return None
        left, op, right = test.left, test.ops[0], test.comparators[0]
        is_state, key = reads_state(found.fn, right, state)
        if not is_state:
            is_state, key = reads_state(found.fn, left, state)
            op = _MIRROR.get(type(op), ast.Eq)()
            left = right
        if not is_state or not same(key, write.key) or not same(left, write.value):
            return None
        if not _surely_stored(found.graph, found.fn, write.value, state):
            return None
        # Now the test reads `value op held`.
        if isinstance(op, ast.Gt | ast.Lt):
            return Verdict(True, "up" if isinstance(op, ast.Gt) else "down", write.value)
        if isinstance(op, ast.GtE | ast.LtE) and _total(state):
            return Verdict(False, "up" if isinstance(op, ast.LtE) else "down", write.value)
        return None


_MIRROR: dict[type, type] = {ast.Gt: ast.Lt, ast.Lt: ast.Gt, ast.GtE: ast.LtE, ast.LtE: ast.GtE}


class WrittenExtremum:
    """`x[k] = max(x[k], v)`: the key becomes present whatever v is."""

    name = "running extremum"

    def write(self, graph: Graph, state: StateSpec, vertex: Vertex, write: StateWrite) -> Rewritten | None:
        fn, call = vertex.fn, write.value
        if not _ordered(state) or write.effect != "set" or not isinstance(call, ast.Call):
            return None
        name = builtin_name(Scope.of(fn.function, fn.receiver).resolve(call.func))
        if name not in ("max", "min") or len(call.args) != 2 or call.keywords:
            return None
        effect = "up_always" if name == "max" else "down_always"
        for held, value in ((call.args[0], call.args[1]), (call.args[1], call.args[0])):
            # Ties keep the first argument: it has to be the state, but where equal means identical.
            if held is call.args[1] and not _total(state):
                continue
            is_state, key = reads_state(fn, held, state)
            if is_state and same(key, write.key) and is_pure(graph, fn, key) and is_apart(value, state):
                if not _surely_stored(graph, fn, value, state):
                    return None
                return Rewritten(effect, value, [held])
        return None


def is_apart(value: ast.expr, state: StateSpec) -> bool:
    """Whether the other operand neither mentions the state nor is unpacked."""
    if isinstance(value, ast.Starred):
        return False
    return not any(
        isinstance(n, ast.NamedExpr) or (isinstance(n, ast.Attribute) and n.attr == state.name)
        for n in all_nodes(value)
    )
