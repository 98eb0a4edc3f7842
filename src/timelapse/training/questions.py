"""Whether a program only reads at an event type: rows that are asked must not change what they see.

Where analysis sees all that handlers do there, it says which state they write. Where it does not (a look back at
another time, code of a kind it does not follow), their text is read: every use of `self` must be one that reads.
"""

from __future__ import annotations

import ast
import types
from typing import Any

from timelapse.analysis import analyse
from timelapse.analysis.ir import FunctionIR
from timelapse.code.source import function_source
from timelapse.errors import Place, UsageError
from timelapse.model.events import Event
from timelapse.program.program import Program, spec_of
from timelapse.program.times import VIEWS

_SENDS = ("send", "cancel")
_HARMLESS = ("emit", "reject", "now")


def refuse_writes(program: Program, kind: type[Event]) -> None:
    """Raise UsageError (TL835) where a handler of the event type may write a state or send something."""
    reached = [fn for fn, events in analyse(program).functions.reached.items() if kind in events]
    # What is sent is handled at once: the line that sends comes before what that leads to.
    for fn in sorted(reached, key=lambda fn: not _sends(fn)):
        if fn.opaque is None and not _sends(fn):
            for vertex in fn.vertices:
                for write in vertex.found.writes:
                    raise _refused(kind, f"{write.state} is written", fn.file, write.node, fn.name)
        else:
            _Reading(program, kind, fn.name).check(fn.function)


def _sends(fn: FunctionIR) -> bool:
    return bool(set(_SENDS) & set(fn.function.__code__.co_names))


def _refused(kind: type[Event], what: str, file: str | None, node: Any, name: str) -> UsageError:
    return UsageError(
        f"{what} at {kind.__name__}: rows that are asked must not change what they see",
        place=Place(file, getattr(node, "lineno", None), name), code="TL835",
        hint=f"do it in a handler that does not listen to {kind.__name__}",
    )  # fmt: skip


class _Reading:
    """Reads the text of functions, and of the program's methods that they call."""

    def __init__(self, program: Program, kind: type[Event], name: str) -> None:
        self._cls, self._spec, self._kind, self._name = type(program), spec_of(program), kind, name
        self._seen: set[types.FunctionType] = set()

    def check(self, function: types.FunctionType) -> None:
        """Raise UsageError where the function may do more than read."""
        if function in self._seen:
            return
        self._seen.add(function)
        source = function_source(function)
        if source.node is None:
            raise self._bad(
                f"what {function.__name__} does cannot be seen ({source.problem}),", source.file, None
            )
        receiver = function.__code__.co_varnames[0] if function.__code__.co_argcount else ""
        parents = {child: node for node in ast.walk(source.node) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(source.node):
            if not isinstance(node, ast.Name):
                continue
            if node.id == "super":
                raise self._bad("super() is called, which is not followed,", source.file, node)
            if node.id == receiver:
                self._use(node, parents, source.file)

    def _use(self, node: ast.Name, parents: dict[ast.AST, ast.AST], file: str | None) -> None:
        use = parents[node]
        if isinstance(node.ctx, ast.Load) and not isinstance(use, ast.Attribute):
            raise self._bad("self is handed on", file, node)
        if not isinstance(use, ast.Attribute):
            raise self._bad("self is given another meaning", file, node)
        state = self._spec.states.get(use.attr)
        if not isinstance(use.ctx, ast.Load):
            raise self._bad(f"{use.attr} is written", file, use)
        if use.attr in _SENDS:
            raise self._bad("events are sent or cancelled", file, use)
        if use.attr in _HARMLESS or use.attr in self._spec.params:
            return
        if state is None:
            self._member(use.attr, file, use)
        elif state.key is not None or not state.kind.attribute_style:
            self._state(use, parents, file)

    def _state(self, use: ast.Attribute, parents: dict[ast.AST, ast.AST], file: str | None) -> None:
        """A state as an object: `self.x[k]`, `k in self.x`, `self.x.get(k)`, `self.x.last(W)[k]`."""
        around = parents[use]
        if isinstance(around, ast.Subscript) and around.value is use and isinstance(around.ctx, ast.Load):
            return
        if isinstance(around, ast.Compare) and use in around.comparators:
            return
        if isinstance(around, ast.Attribute) and isinstance(parents[around], ast.Call):
            op = self._spec.states[use.attr].kind.ops.get(around.attr)
            if around.attr in VIEWS or (op is not None and op.effect is None):
                return
        raise self._bad(f"{use.attr} is written, or handed on,", file, use)

    def _member(self, name: str, file: str | None, use: ast.Attribute) -> None:
        for base in self._cls.__mro__:
            if name in base.__dict__:
                value = base.__dict__[name]
                inner = value.fget if isinstance(value, property) else value
                if isinstance(value, staticmethod):
                    return  # it is not given the program
                if isinstance(inner, types.FunctionType):
                    self.check(inner)
                    return
                break
        raise self._bad(f"what self.{name} does cannot be seen,", file, use)

    def _bad(self, what: str, file: str | None, node: Any) -> UsageError:
        return _refused(self._kind, what, file, node, self._name)
