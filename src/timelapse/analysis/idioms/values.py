"""What the text tells of a value's type."""

from __future__ import annotations

import ast

from timelapse.analysis.depend import Graph
from timelapse.analysis.ir import FunctionIR
from timelapse.analysis.tables import builtin_name
from timelapse.code.scope import Scope
from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.model.types import FLOAT, OptionalType, ValueType


def field_types(graph: Graph, fn: FunctionIR, node: ast.expr) -> list[ValueType] | None:
    """For a field of a handler's event: its type in every event type that may reach here."""
    if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
        return None
    if (
        fn.event_param is None
        or node.value.id != fn.event_param
        or fn.definitions(fn.event_param) != [fn.entry]
    ):
        return None
    if graph.functions.sites[fn]:  # also called as a method, with anything
        return None
    found = []
    for event in fn.events:
        types = {f.name: f.type for f in event.__fields__}
        if node.attr not in types:
            return None
        found.append(types[node.attr])
    return found


def never_none(graph: Graph, fn: FunctionIR, node: ast.expr | None) -> bool:
    """Whether an expression surely is not None."""
    match node:
        case ast.Constant(value=value):
            return value is not None
        case ast.Tuple() | ast.JoinedStr() | ast.Compare() | ast.BinOp() | ast.UnaryOp():
            return True
        case ast.IfExp(body=body, orelse=orelse):
            return never_none(graph, fn, body) and never_none(graph, fn, orelse)
        case ast.Attribute(value=ast.Name(id=name), attr=attr):
            if name == fn.receiver:
                state = graph.functions.spec.states.get(attr)
                return attr == "now" or (state is not None and _always_there(state))
            if name == fn.event_param and attr in ("ts", "seq") and fn.definitions(name) == [fn.entry]:
                return True
            types = field_types(graph, fn, node)
            return bool(types) and not any(isinstance(t, OptionalType) for t in types or ())
        case ast.Call(func=func):
            name_ = builtin_name(Scope.of(fn.function, fn.receiver).resolve(func))
            return name_ in ("int", "float", "str", "bytes", "bool", "len", "tuple", "repr")
        case ast.Name(id=name):
            definitions = list(fn.definitions(name))
            values = [
                d.ast.value for d in definitions
                if isinstance(d.ast, ast.Assign) and len(d.ast.targets) == 1 and isinstance(d.ast.targets[0], ast.Name)
            ]  # fmt: skip
            return len(definitions) == len(values) == 1 and never_none(graph, fn, values[0])
    return False


def _always_there(state: StateSpec) -> bool:
    """Whether `self.x` reads as a value that is not None, whatever was written."""
    declared = state.value is not None and not isinstance(state.value, OptionalType)
    return state.kind.attribute_style and declared and state.default not in (ABSENT, None)


def surely_float(graph: Graph, fn: FunctionIR, node: ast.expr) -> bool:
    """Whether an expression surely is a float."""
    if isinstance(node, ast.Constant):
        return type(node.value) is float
    if isinstance(node, ast.Call):
        return builtin_name(Scope.of(fn.function, fn.receiver).resolve(node.func)) == "float"
    types = field_types(graph, fn, node)
    return bool(types) and all(t == FLOAT for t in types or ())
