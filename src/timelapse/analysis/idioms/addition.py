"""`x[k] = x[k] + n`: an addition, written out."""

from __future__ import annotations

import ast
import inspect

from timelapse.analysis.depend import Graph
from timelapse.analysis.idioms.base import Rewritten, is_pure, reads_state, same
from timelapse.analysis.idioms.extremum import is_apart
from timelapse.analysis.ir import FunctionIR, StateWrite, Vertex
from timelapse.kinds.base import StateSpec
from timelapse.model.types import INT, TIME, DecimalType


class Addition:
    """The state's own value plus or minus something that does not mention the state."""

    name = "addition written out"

    def write(self, graph: Graph, state: StateSpec, vertex: Vertex, write: StateWrite) -> Rewritten | None:
        fn, sum_ = vertex.fn, write.value
        added = state.value in (INT, TIME) or isinstance(state.value, DecimalType)
        if "add" not in state.kind.rewritten or not added or write.effect != "set":
            return None
        if not isinstance(sum_, ast.BinOp) or not isinstance(sum_.op, ast.Add | ast.Sub):
            return None
        is_sub = isinstance(sum_.op, ast.Sub)
        orders = [(sum_.left, sum_.right)] if is_sub else [(sum_.left, sum_.right), (sum_.right, sum_.left)]
        for held, value in orders:
            is_state, key = self._held(fn, held, state)
            if is_state and same(key, write.key) and is_pure(graph, fn, key) and is_apart(value, state):
                return Rewritten("add", value, [held], negate=is_sub)
        return None

    def _held(self, fn: FunctionIR, node: ast.expr, state: StateSpec) -> tuple[bool, ast.expr | None]:
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(value=ast.Name(id=name), attr=attr), attr="get"),
                args=[key, ast.Constant(value=default)], keywords=[],
            ) if name == fn.receiver and attr == state.name and state.key is not None and _takes_default(state):  # fmt: skip
                return type(default) is int and default == state.default, key
        return reads_state(fn, node, state)


def _takes_default(state: StateSpec) -> bool:
    """Whether `get(k, d)` gives d where the key is missing."""
    method = getattr(state.kind, "get", None)
    return method is not None and "default" in inspect.signature(method).parameters
