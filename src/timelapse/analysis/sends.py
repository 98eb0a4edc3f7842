"""What a call of `self.send` says: which events it sends, and when."""

from __future__ import annotations

import ast

from timelapse.code.scope import Scope
from timelapse.model.events import Event


def sent_types(scope: Scope, node: ast.Call) -> tuple[type[Event], ...]:
    """The type of the event that is sent, if the line tells it; else empty."""
    event = node.args[0] if node.args else None
    made = scope.resolve(event.func) if isinstance(event, ast.Call) else None
    return (made,) if isinstance(made, type) and issubclass(made, Event) else ()


def surely_later(scope: Scope, node: ast.Call) -> bool:
    """Whether an event is surely sent to a later time: `after=` is a positive constant."""
    after = next((k.value for k in node.keywords if k.arg == "after"), None)
    while isinstance(after, ast.BinOp) and isinstance(after.op, ast.Mult):
        factor = after.left
        if not (isinstance(factor, ast.Constant) and type(factor.value) is int and factor.value > 0):
            return False
        after = after.right
    if after is None:
        return False
    value = after.value if isinstance(after, ast.Constant) else scope.resolve(after)
    return type(value) is int and value > 0
