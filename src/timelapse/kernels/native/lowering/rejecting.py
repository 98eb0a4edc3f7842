"""What follows the code of events that may be rejected: what they wrote is undone there, what they emitted taken out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from timelapse.kernels.native.lowering.code import Code
from timelapse.kernels.native.lowering.context import Context
from timelapse.kernels.native.lowering.idle import without_idle_room
from timelapse.kernels.native.lowering.rules import Rules
from timelapse.kernels.native.lowering.stateful import States
from timelapse.kernels.native.unit import REFUSED
from timelapse.kernels.native.windows import KEPT, USED


class Rejecting:
    """Writes what undoes."""

    def __init__(self, ctx: Context, code: Code, states: States, rules: Rules) -> None:
        self._ctx, self._code, self._states, self._rules = ctx, code, states, rules

    def after(self, event: int) -> list[str]:
        """After the code of an event that may be rejected: undo what it wrote, take out what it emitted."""
        self._ctx.event = event
        return self._undone(str(event), [n for n, r in enumerate(self._ctx.rejections) if r.event == event])

    def transaction(self, bodies: list[list[str]], following: list[str]) -> list[str]:
        """The code of all log events, and of what follows from them: what rejects, in one or the other, undoes both."""
        own = [
            [f"            own_ts = ts{i}[q{i}]", f"            own_seq = seq{i}[q{i}]"]
            for i in range(len(bodies))
        ]
        ends = [[f"            q{i} += ONE"] for i in range(len(bodies))]
        if not self._ctx.rejections:
            return [*_chain([[*a, *b, *c] for a, b, c in zip(own, bodies, ends, strict=True)]), *following]
        inner = ["    " + line for line in (*_chain(bodies), *following)]
        self._ctx.derived, self._ctx.event = (
            self._ctx.sent[0],
            0,
        )  # whichever it was: time and seq are the log event's own
        undone = [line[4:] for line in self._undone("k", range(len(self._ctx.rejections)))]
        self._ctx.derived = None
        lines = ["        rejected = 0", "        while True:", *inner, "            break", *undone]
        return [*_chain(own), *lines, *_chain(ends)]

    def _undone(self, event: str, places: Sequence[int]) -> list[str]:
        """Where one of these places has rejected: undo. `event`: the number of the log event's type."""
        unit = self._ctx.unit
        self._code.begin()
        with self._code.block("if rejected != 0:"):
            with self._code.block("while u > 0:"):
                self._code.line("u -= 1")
                for i, name in enumerate(unit.states):
                    layout, table = unit.layouts[name], self._states.used[name].table
                    with self._code.block(f"{'if' if i == 0 else 'elif'} undo[u, 0] == {i}:"):
                        self._code.line(f"restore(undo, u, {table}, N{layout.place}, N{layout.live})")
            for name in unit.windows:
                log = unit.states.index(name)
                if unit.windows[name].stamped:
                    table = self._states.used[name].table
                    self._code.line(f"unstamp(w{log}, k{log}, {table}, {unit.layouts[name].twins})")
                elif unit.windows[name].queued:
                    table, lags = self._states.used[name].table, len(unit.windows[name].lags)
                    given = f"{unit.layouts[name].twins}, {lags}, k{log}[{KEPT}]"
                    self._code.line(f"take_back(w{log}, k{log}, {table}, {given})")
                else:
                    self._code.line(f"k{log}[{USED}] = k{log}[{KEPT}]")
            own = self._ctx.root
            for i in (n for n, cls in enumerate(unit.records) if not cls.__reads__):
                with self._code.block(
                    f"while emitted[{i}] > 0 and o{i}_place[emitted[{i}] - 1, 1] == {own}:"
                ):
                    self._code.line(f"emitted[{i}] -= 1")
            if self._ctx.final:
                self._code.line("ordinal = 0")
                for number in places:
                    place = self._ctx.rejections[number]
                    if place.record is not None:
                        with self._code.block(f"if rejected == {number + 1}:"):
                            self._rules.write_record(place.record, place.fields)
            if self._ctx.final or unit.raising:
                self._write_refused(event, places)
        return without_idle_room(self._code.finished(), self._code.filled)

    def _write_refused(self, event: str, places: Iterable[int]) -> None:
        """A row for an event that was rejected, or at which a handler raised. Only the final pass lists the former."""
        unit = self._ctx.unit
        self._code.line(f"n = emitted[{len(unit.records)}]")
        for i, word in enumerate((self._ctx.now, self._ctx.root, event, "handler", "reason")):
            self._code.line(f"refused[n, {i}] = {word}")
        raising = [n for n in places if self._ctx.rejections[n].raises]
        for number in (n for n in raising if self._ctx.rejections[n].fields):
            with self._code.block(f"if rejected == {number + 1}:"):
                for i, word in enumerate(self._ctx.rejections[number].fields, REFUSED):
                    self._code.line(f"refused[n, {i}] = {word}")
        if raising and unit.later:
            with self._code.block("if handler < 0:"):
                self._code.line("gone[takes[2]] = refused[n, 1]")
                self._code.line("takes[2] += 1")
        ahead = "" if self._ctx.final else " if handler < 0 else n"
        self._code.line(f"emitted[{len(unit.records)}] = n + 1{ahead}")


def _chain(bodies: list[list[str]]) -> list[str]:
    """A body for each type of log event."""
    lines: list[str] = []
    for number, body in enumerate(bodies):
        lines += [f"        {'if' if number == 0 else 'elif'} k == {number}:", *body]
    return lines
