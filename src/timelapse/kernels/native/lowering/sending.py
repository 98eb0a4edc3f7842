"""`self.send`: events that follow within the transaction of the log event that they derive from.

They wait in a queue, each the number of its type and the words of its fields, and after the log event's own code a loop
goes through it to the end, over code that is written out for each type once more: there fields come from the queue, time and
seq from the log event. How often that loop goes round is known only as it runs, so all in it counts as being in a loop. What does
not fit leaves the function; the event is undone and starts again when there is room.
"""

from __future__ import annotations

import ast
from typing import Any

from timelapse.analysis.result import PassHandler
from timelapse.kernels.native.lowering.emitter import SPEND, Frame
from timelapse.kernels.native.lowering.flow import Level, rendered
from timelapse.kernels.native.lowering.raising import Raising
from timelapse.kernels.native.lowering.records import record_columns
from timelapse.kernels.native.lowering.values import (
    NONE,
    Env,
    EventRef,
    Refused,
    SelfRef,
    Value,
    optional,
)
from timelapse.kernels.native.unit import SENDS
from timelapse.model.events import Event, Field
from timelapse.model.program import Program, spec_of
from timelapse.model.types import OptionalType

NOBODY = -1
"""Stands for the type of events that no handler of the pass listens to. They count for the bound on derived events."""
SENT = "queued += 1"
"""The line after which an event is in the queue."""


class Sending(Raising):
    """Writes sends, and the code of what is sent."""

    # --- sends ------------------------------------------------------------------------------------

    def _send(self, node: ast.Call, env: Env, frame: Frame) -> Value:
        """`self.send(Event(...))`."""
        if len(node.args) != 1 or node.keywords:
            raise Refused("self.send() to another time", self._line)
        if self._views or self.unit.steps:
            raise Refused("self.send() in a program that reaches into other times", self._line)
        if self.unit.shared:
            raise Refused("self.send(), where events are shared out", self._line)
        if not self._is_made(node.args[0], env, frame, Event):
            raise Refused("self.send() of something other than Event(...)", self._line)
        cls, codes = self._record(node.args[0], env, frame, Event)
        if not _is_heard(self._program, cls):
            raise Refused(f"self.send() of {cls.__name__}, to which no handler listens at once", self._line)
        number = NOBODY
        if any(cls in handler.events for handler in self._work.handlers):
            if cls not in self._sent:
                self._sent.append(cls)
            number = self._sent.index(cls)
        self.exit_if(f"queued >= {spec_of(self._program).loop}")
        self.line("if queued >= sent.shape[0]:")
        self.line(f"    return left(j, u, {SENDS})")
        words = [_word(kind, code) for (_, kind), code in zip(record_columns(cls), codes, strict=True)]
        for place, word in enumerate([f"({number})", *words]):
            self.line(f"sent[queued, {place}] = {word}")
        self.line(SENT)
        self.unit.sends = max(self.unit.sends, 1 + len(words))
        return NONE

    # --- what is sent -----------------------------------------------------------------------------

    def _write_derived(self, handlers: list[PassHandler]) -> list[list[str]]:
        """The code of every type that is sent, also by that code itself."""
        bodies: list[list[str]] = []
        while len(bodies) < len(self._sent):
            event = self._derived = self._sent[len(bodies)]
            self._event = len(self.unit.events) + len(bodies)
            self._lines, self._levels, self._indent, self._loops = [], [Level(1)], 4, 1
            for handler in handlers:
                if event in handler.events:
                    self._handler = self.unit.handlers.index(handler.name)
                    try:
                        self._call_handler(handler, [SelfRef(), EventRef()])
                    except Refused as refusal:
                        raise Refused(
                            f"{handler.name}: {refusal.reason}", refusal.line, refusal.file
                        ) from None
            body = rendered(self._lines)
            if any("jump" in line for line in body):
                body.insert(0, "                jump = 0")
            bodies.append(body)
        self._derived, self._indent, self._loops = None, 3, 0
        if bodies:
            self.unit.loops = True
        return bodies

    def _call_handler(self, handler: PassHandler, given: list[Any]) -> None:
        """Write a handler out."""
        raise TypeError("abstract")

    def _following(self, bodies: list[list[str]]) -> list[str]:
        """The loop over what was sent, to stand after the code of all log events."""
        lines = [
            "        place = np.int64(0)",
            "        while place < queued:",
            "            rounds -= 1",
            "            if rounds < 0:",
            f"                {SPEND}",
            "            what = sent[place, 0]",
        ]
        for number, body in enumerate(bodies):
            text = "\n".join(body)
            lines.append(f"            {'if' if number == 0 else 'elif'} what == {number}:")
            words = enumerate(record_columns(self._sent[number]), 1)
            fields = [(_name(number, at), _value(kind, f"sent[place, {at}]")) for at, (_, kind) in words]
            lines += [f"                {name} = {code}" for name, code in fields if name in text]
            lines += [*body, "                pass"]
        return [*lines, "            place += 1"]

    # --- what reads the event ---------------------------------------------------------------------

    @property
    def now(self) -> str:
        """The time of the step."""
        return super().now if self._derived is None else "own_ts"

    @property
    def root(self) -> str:
        """The seq of the log event that the step is of."""
        return super().root if self._derived is None else "own_seq"

    def _field_of(self, node: ast.expr, env: Env) -> Field | None:
        """The event's field in the log that this reads, if it does."""
        return super()._field_of(node, env) if self._derived is None else None

    def _field(self, node: ast.Attribute) -> Value:
        """The value of a field of the event."""
        if self._derived is None:
            return super()._field(node)
        if node.attr in ("ts", "seq"):
            return Value("int", self.now if node.attr == "ts" else self.root)
        columns = record_columns(self._derived)
        for place, field in enumerate(self._derived.__fields__):
            if field.name == node.attr:
                at = 1 + columns.index(next(c for c in columns if c[0] == str(place)))
                number = self._sent.index(self._derived)
                inner = Value(columns[at - 1][1], _name(number, at))
                if isinstance(field.type, OptionalType):
                    return optional(_name(number, at - 1), inner)
                return inner
        raise Refused(f"the event's attribute {node.attr}", self._line)

    def _computed(self, node: ast.expr, env: Env, frame: Frame, mark: Any) -> Value | None:
        """What Python makes of the event alone is a column of the log: a derived event has none."""
        return super()._computed(node, env, frame, mark) if self._derived is None else None


def _is_heard(program: Program, cls: type[Event]) -> bool:
    """Whether Python takes events of this type."""
    listening = [h for h in spec_of(program).handlers if cls in h.events]
    return bool(listening) and all(h.after is None for h in listening)


def _name(number: int, at: int) -> str:
    """The variable for a word of a derived event."""
    return f"d{number}_{at}_"


def _word(kind: str, code: str) -> str:
    """A field's value as a word of the queue."""
    return {"float": f"bits({code})", "bool": f"np.int64({code})"}.get(kind, code)


def _value(kind: str, word: str) -> str:
    return {"float": f"unbits({word})", "bool": f"{word} != 0"}.get(kind, word)
