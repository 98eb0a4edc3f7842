"""`self.send`: events that follow within the transaction of the log event that they derive from.

They wait in a queue, each the number of its type and the words of its fields, and after the log event's own code a loop
goes through it to the end, over code that is written out for each type once more: there fields come from the queue, time and
seq from the log event. How often that loop goes round is known only as it runs, so all in it counts as being in a loop. What does
not fit leaves the function; the event is undone and starts again when there is room.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from timelapse.analysis.result import PassHandler
from timelapse.kernels.native.lowering.code import Code
from timelapse.kernels.native.lowering.context import Context, Frame
from timelapse.kernels.native.lowering.emits import Emits
from timelapse.kernels.native.lowering.form import (
    Assign,
    If,
    Leave,
    Node,
    While,
    chain,
    names_used,
    with_jumps,
)
from timelapse.kernels.native.lowering.records import record_columns, sent_word
from timelapse.kernels.native.lowering.values import NONE, Env, Value, spelled
from timelapse.kernels.native.refused import Refused
from timelapse.kernels.native.status import PAUSED, SENDS, SPENT
from timelapse.model.events import Event
from timelapse.program.program import Program, spec_of

NOBODY = -1
"""Stands for the type of events that no handler of the pass listens to. They count for the bound on derived events."""


class Sends:
    """Writes sends."""

    def __init__(self, ctx: Context, code: Code, emits: Emits) -> None:
        self._ctx, self._code, self._emits = ctx, code, emits

    def send(self, node: ast.Call, env: Env, frame: Frame) -> Value:
        """`self.send(Event(...))`."""
        if len(node.args) != 1 or node.keywords:
            raise Refused("self.send() to another time", self._ctx.line)
        if self._ctx.views or self._ctx.unit.steps:
            raise Refused("self.send() in a program that reaches into other times", self._ctx.line)
        if self._ctx.unit.shared:
            raise Refused("self.send(), where events are shared out", self._ctx.line)
        if not self._emits.is_made(node.args[0], env, frame, Event):
            raise Refused("self.send() of something other than Event(...)", self._ctx.line)
        cls, codes = self._emits.made(node.args[0], env, frame, Event)
        if not _is_heard(self._ctx.program, cls):
            raise Refused(
                f"self.send() of {cls.__name__}, to which no handler listens at once", self._ctx.line
            )
        number = NOBODY
        if any(cls in handler.events for handler in self._ctx.work.handlers):
            if cls not in self._ctx.sent:
                self._ctx.sent.append(cls)
            number = self._ctx.sent.index(cls)
        self._code.exit_if(f"queued >= {self._ctx.spec.loop}")
        self._code.leave_if("queued >= sent.shape[0]", SENDS)
        words = [_word(kind, code) for (_, kind), code in zip(record_columns(cls), codes, strict=True)]
        for place, word in enumerate([spelled(number), *words]):
            self._code.assign(f"sent[queued, {place}]", word)
        self._code.assign("queued", "1", "+=")
        self._ctx.unit.sends = max(self._ctx.unit.sends, 1 + len(words))
        return NONE


class Derived:
    """Writes the code of what is sent."""

    def __init__(self, ctx: Context, code: Code) -> None:
        self._ctx, self._code = ctx, code

    def write(
        self, handlers: list[PassHandler], write_one: Callable[[PassHandler], None]
    ) -> list[list[Node]]:
        """The code of every type that is sent, also by that code itself. `write_one` writes a handler out."""
        ctx, code = self._ctx, self._code
        bodies: list[list[Node]] = []
        while len(bodies) < len(ctx.sent):
            event = ctx.derived = ctx.sent[len(bodies)]
            ctx.event = len(ctx.unit.events) + len(bodies)
            code.begin(loops=1)
            for handler in handlers:
                if event in handler.events:
                    try:
                        write_one(handler)
                    except Refused as refusal:
                        raise Refused(
                            f"{handler.name}: {refusal.reason}", refusal.line, refusal.file
                        ) from None
            bodies.append(with_jumps(code.finished()))
        ctx.derived = None
        code.begin()
        if bodies:
            ctx.unit.loops, ctx.unit.sent = True, list(ctx.sent)
        return bodies

    def loop(self, bodies: list[list[Node]]) -> list[Node]:
        """The loop over what was sent, to stand after the code of all log events."""
        ways: list[tuple[str, list[Node]]] = []
        for number, body in enumerate(bodies):
            used, words = names_used(body), enumerate(record_columns(self._ctx.sent[number]), 1)
            fields = [(sent_word(number, at), _value(kind, f"sent[place, {at}]")) for at, (_, kind) in words]
            ways.append(
                (f"what == {number}", [*(Assign(name, code) for name, code in fields if name in used), *body])
            )
        kept = " or u > paused[3]" if self._ctx.unit.undo else ""
        inner: list[Node] = [
            Assign("rounds", "1", "-="),
            If("rounds < 0", [Leave(SPENT)]),
            self._paused(f"place >= paused[1] or ordinal > paused[2]{kept}"),
            Assign("what", "sent[place, 0]"),
            *chain(ways),
            Assign("place", "1", "+="),
        ]
        return [Assign("place", "np.int64(0)"), While("place < queued", inner), self._paused("")]

    @staticmethod
    def _paused(test: str) -> Node:
        """Leave, where that is asked for (within.py) and a test holds."""
        found = [Assign(f"paused[{at}]", name) for at, name in enumerate(("place", "queued", "ordinal"), 4)]
        return If(f"paused[0] != 0 and ({test})" if test else "paused[0] != 0", [*found, Leave(PAUSED)])


def _is_heard(program: Program, cls: type[Event]) -> bool:
    """Whether Python takes events of this type."""
    listening = [h for h in spec_of(program).handlers if cls in h.events]
    return bool(listening) and all(h.after is None for h in listening)


def _word(kind: str, code: str) -> str:
    """A field's value as a word of the queue."""
    return {"float": f"bits({code})", "bool": f"np.int64({code})"}.get(kind, code)


def _value(kind: str, word: str) -> str:
    return {"float": f"unbits({word})", "bool": f"{word} != 0"}.get(kind, word)
