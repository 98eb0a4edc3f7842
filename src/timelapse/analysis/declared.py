"""What a program declares of expressions: fields of its events, parameters, values of states."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from timelapse.analysis.operations import States
from timelapse.model.events import Event
from timelapse.model.types import DecimalType, ScalarType, ValueType
from timelapse.program.program import ProgramSpec

_SCALARS = frozenset({"bool", "bytes", "float", "int", "str"})

Declared = Callable[[ast.expr], ValueType | None]
"""The declared type of an expression (`e.text`, `self.limit`, `self.total[k]`), where it has one."""


def declarations(
    spec: ProgramSpec, states: States, event: str | None, events: Sequence[type[Event]]
) -> Declared:
    """What a program declares: fields of the event (`event`: its name in the function), parameters, values of states."""
    fields: dict[str, ValueType | None] = {}
    for cls in events:
        for field in cls.__fields__:
            same = fields.setdefault(field.name, field.type) == field.type
            fields[field.name] = field.type if same else None

    def declared(node: ast.expr) -> ValueType | None:
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=field) if event is not None and name == event:
                return fields.get(field)
            case ast.Attribute(value=value, attr=param) if states.is_self(value) and param in spec.params:
                text = spec.params[param].text
                if text == "Decimal":
                    return DecimalType.of(0)  # whatever its scale: only what it is counts here
                return ScalarType(text) if text in _SCALARS else None
            case ast.Subscript():
                state = states.subscripted(node)
                return None if state is None or not state.kind.shows_declared else state.value
        return None

    return declared
