"""Who writes and who reads what, for people: event types of each state's writes, and the records that are put out."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from timelapse.code.source import all_nodes, function_source
from timelapse.errors import Place
from timelapse.model.events import Event, Record
from timelapse.program.program import HandlerSpec, Program, ProgramSpec


@dataclass(frozen=True)
class Emission:
    """A place where records of a type are put out."""

    record: str
    handler: str
    place: Place


@dataclass(frozen=True)
class Code:
    """The functions that a handler can reach through `self` and through plain helper names."""

    handler: HandlerSpec
    nodes: tuple[tuple[str, ast.AST, types.FunctionType], ...]
    """(file, tree, function)."""

    def holds(self, place: Place) -> bool:
        """Whether a place lies in one of the functions."""
        return place.line is not None and any(
            file == place.file and node.lineno <= place.line <= node.end_lineno  # type: ignore[attr-defined]
            for file, node, _ in self.nodes
        )

    def states(self, spec: ProgramSpec) -> list[str]:
        """States that the code names."""
        named = {n.attr for _, tree, _ in self.nodes for n in all_nodes(tree) if isinstance(n, ast.Attribute)}
        return [name for name in spec.states if name in named]

    def emissions(self) -> Iterator[Emission]:
        for file, tree, function in self.nodes:
            for node in all_nodes(tree):
                if (
                    isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
                    and node.func.attr in ("emit", "reject") and node.args
                ):  # fmt: skip
                    record = _record_name(node.args[0], function)
                    if record is not None or node.func.attr == "emit":
                        yield Emission(record or "records", self.handler.name, Place(file, node.lineno))


def _record_name(node: ast.expr, function: types.FunctionType) -> str | None:
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Name):
        found = function.__globals__.get(node.id)
        if isinstance(found, type) and issubclass(found, Record):
            return found.__name__
    elif isinstance(node, ast.Attribute):
        return node.attr if node.attr[:1].isupper() else None
    return None


def code_of(cls: type[Program], handler: HandlerSpec) -> Code:
    """A handler with everything that it reaches, as far as source is known."""
    todo: list[Any] = [handler.function]
    seen: list[types.FunctionType] = []
    nodes = []
    for value in todo:  # grows while it is walked
        function = _function(value)
        if function is None or function in seen:
            continue
        seen.append(function)
        source = function_source(function)
        if source.node is None:
            continue
        nodes.append((source.file, source.node, function))
        for node in all_nodes(source.node):
            if isinstance(node, ast.Attribute) and node.attr not in Program.__dict__:
                todo.extend(base.__dict__[node.attr] for base in cls.__mro__ if node.attr in base.__dict__)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found = function.__globals__.get(node.id)
                if isinstance(found, types.FunctionType) and found.__module__ == cls.__module__:
                    todo.append(found)
    return Code(handler, tuple(nodes))


def _function(value: Any) -> types.FunctionType | None:
    value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    value = getattr(value, "__wrapped__", value)
    return value if isinstance(value, types.FunctionType) else None


def events_at(places: Sequence[Place], codes: Sequence[Code]) -> tuple[type[Event], ...]:
    """The event types whose handlers reach one of the places, in order of the handlers."""
    return tuple(
        dict.fromkeys(e for code in codes if any(code.holds(p) for p in places) for e in code.handler.events)
    )


def states_behind(analysis: Any, emission: Emission) -> frozenset[str] | None:
    """The states on which an emission depends: whether it happens, and what it holds. None where that is not known."""
    graph = getattr(analysis, "graph", None)
    if graph is None:
        return None
    found: set[str] | None = None
    for fn in graph.functions.all:
        if fn.file != emission.place.file:
            continue
        for vertex in fn.vertices:
            puts_out = (*vertex.found.emits, *vertex.found.rejects)
            if any(getattr(node, "lineno", None) == emission.place.line for node in puts_out):
                closure = graph.close([vertex], [fn])
                found = (found or set()) | {r.state for v in closure.vertices for r in graph.reads(v)}
    return None if found is None else frozenset(found)
