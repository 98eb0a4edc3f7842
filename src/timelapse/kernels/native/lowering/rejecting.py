"""What follows the code of events that may be rejected: what they wrote is undone there, what they emitted taken out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from timelapse.kernels.native.lowering.code import Code
from timelapse.kernels.native.lowering.context import Context
from timelapse.kernels.native.lowering.form import Assign, Break, Node, While, chain
from timelapse.kernels.native.lowering.idle import without_idle_room
from timelapse.kernels.native.lowering.rules import Rules
from timelapse.kernels.native.lowering.stateful import States
from timelapse.kernels.native.unit import REFUSED
from timelapse.kernels.native.windows import KEPT, USED


class Rejecting:
    """Writes what undoes."""

    def __init__(self, ctx: Context, code: Code, states: States, rules: Rules) -> None:
        self._ctx, self._code, self._states, self._rules = ctx, code, states, rules

    def after(self, event: int) -> list[Node]:
        """After the code of an event that may be rejected: undo what it wrote, take out what it emitted."""
        self._ctx.event = event
        return self._undone(str(event), [n for n, r in enumerate(self._ctx.rejections) if r.event == event])

    def transaction(self, bodies: list[list[Node]], following: list[Node]) -> list[Node]:
        """The code of all log events, and of what follows from them: what rejects, in one or the other, undoes both."""
        ctx = self._ctx
        own: list[list[Node]] = [
            [Assign("own_ts", f"ts{i}[q{i}]"), Assign("own_seq", f"seq{i}[q{i}]")] for i in range(len(bodies))
        ]
        ends: list[list[Node]] = [[Assign(f"q{i}", "ONE", "+=")] for i in range(len(bodies))]
        if not ctx.rejections:
            return [*by_type([[*a, *b, *c] for a, b, c in zip(own, bodies, ends, strict=True)]), *following]
        ctx.derived, ctx.event = ctx.sent[0], 0  # whichever it was: time and seq are the log event's own
        undone = self._undone("k", range(len(ctx.rejections)))
        ctx.derived = None
        done = While("True", [*by_type(bodies), *following, Break()])
        return [*by_type(own), Assign("rejected", "0"), done, *undone, *by_type(ends)]

    def _undone(self, event: str, places: Sequence[int]) -> list[Node]:
        """Where one of these places has rejected: undo. `event`: the number of the log event's type."""
        unit = self._ctx.unit
        self._code.begin()
        with self._code.when("rejected != 0"):
            with self._code.repeat("u > 0"):
                self._code.assign("u", "1", "-=")
                for i, name in enumerate(unit.states):
                    layout, table = unit.layouts[name], self._states.used[name].rows.table
                    test = f"undo[u, 0] == {i}"
                    with self._code.otherwise(test) if i else self._code.when(test):
                        self._code.do(f"restore(undo, u, {table}, N{layout.place}, N{layout.live})")
            for name in unit.windows:
                log = unit.states.index(name)
                if unit.windows[name].stamped:
                    table = self._states.used[name].rows.table
                    self._code.do(f"unstamp(w{log}, k{log}, {table}, {unit.layouts[name].twins})")
                elif unit.windows[name].queued:
                    table, lags = self._states.used[name].rows.table, len(unit.windows[name].lags)
                    given = f"{unit.layouts[name].twins}, {lags}, k{log}[{KEPT}]"
                    self._code.do(f"take_back(w{log}, k{log}, {table}, {given})")
                else:
                    self._code.assign(f"k{log}[{USED}]", f"k{log}[{KEPT}]")
            own = self._ctx.root
            records = [] if self._ctx.work.decides else enumerate(unit.records)
            for i in (n for n, cls in records if not cls.__reads__):
                last = f"o{i}_place[emitted[{i}] - 1"
                test = f"emitted[{i}] > 0 and {last}, 1] == {own}"
                if self._ctx.late:  # what the event itself put out stays
                    test += f" and {last}, 0] == {self._ctx.now}"
                with self._code.repeat(test):
                    self._code.assign(f"emitted[{i}]", "1", "-=")
            if self._ctx.final and not self._ctx.work.decides:
                self._code.assign("ordinal", "0")
                for number in places:
                    place = self._ctx.rejections[number]
                    if place.record is not None:
                        with self._code.when(f"rejected == {number + 1}"):
                            self._rules.write_record(place.record, place.fields)
            if self._ctx.final or unit.raising:
                self._write_refused(event, places)
        return without_idle_room(self._code.finished(), self._code.filled)

    def _write_refused(self, event: str, places: Iterable[int]) -> None:
        """A row for an event that was rejected, or at which a handler raised. Only the final pass lists the former."""
        unit = self._ctx.unit
        self._code.assign("n", f"emitted[{len(unit.records)}]")
        for i, word in enumerate((self._ctx.now, self._ctx.root, event, "handler", "reason")):
            self._code.assign(f"refused[n, {i}]", word)
        raising = [n for n in places if self._ctx.rejections[n].raises]
        for number in (n for n in raising if self._ctx.rejections[n].fields):
            with self._code.when(f"rejected == {number + 1}"):
                for i, word in enumerate(self._ctx.rejections[number].fields, REFUSED):
                    self._code.assign(f"refused[n, {i}]", word)
        if raising and unit.later:
            stays = self._ctx.work.finds_late and not self._ctx.work.decides
            with self._code.when("handler < 0 and reason == 0" if stays else "handler < 0"):
                self._code.assign("gone[takes[2]]", "refused[n, 1]")
                self._code.assign("takes[2]", "1", "+=")
        ahead = "" if self._ctx.final else " if handler < 0 else n"
        self._code.assign(f"emitted[{len(unit.records)}]", f"n + 1{ahead}")


def by_type(bodies: Sequence[list[Node]]) -> list[Node]:
    """A body for each type of log event."""
    return chain([(f"k == {i}", body) for i, body in enumerate(bodies)])
