"""Whose event it is, where workers share out the events by key."""

from __future__ import annotations

from timelapse.kernels.native.lowering.code import Code
from timelapse.kernels.native.lowering.context import Context
from timelapse.kernels.native.lowering.flow import is_name
from timelapse.kernels.native.lowering.form import Leave, Node, Room, walk, with_jumps
from timelapse.kernels.native.lowering.rules import Rules
from timelapse.kernels.native.lowering.stateful import States
from timelapse.kernels.native.lowering.states.coding import word
from timelapse.kernels.native.lowering.values import EventRef, SelfRef
from timelapse.kernels.native.refused import Refused


class Owners:
    """Writes what finds an event's key."""

    def __init__(self, ctx: Context, code: Code, states: States, rules: Rules) -> None:
        self._ctx, self._code, self._states, self._rules = ctx, code, states, rules

    def of(self, event: str) -> list[Node]:
        """The code that finds an event's key, and last whose event it is."""
        assert self._ctx.work.by_key is not None
        key = self._ctx.work.by_key.keys.get(event)
        self._code.begin()
        self._states.own = None
        if key is None:  # it touches no state: one worker is as good as another
            self._code.assign("whose", "0")
        else:
            text = key.function.__dict__["__tl_text__"]
            value = self._rules.call(key.function, [SelfRef(), EventRef()], {}, 0, text)
            items = value.items if value.kind == "tuple" else (value,)
            if any(item.kind not in ("int", "bool", "str", "bytes") for item in items):
                raise Refused(f"events shared out by {key.text}, which is {value.text}", self._ctx.line)
            own = tuple(word(i if is_name(i) else self._code.temp(i.kind, i.code)) for i in items)
            self._states.own = own
            folded = own[0]
            for more in own[1:]:
                folded = f"fold({folded}, {more})"
            self._code.assign("whose", f"owner({folded}, workers)")
        body = self._code.finished()
        if any(isinstance(node, Leave | Room) for node in walk(body)):
            raise Refused(
                f"events shared out by {key.text if key else ''}, which may leave to Python", self._ctx.line
            )
        return with_jumps(body)
