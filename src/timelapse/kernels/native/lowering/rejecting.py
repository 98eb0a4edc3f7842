"""What follows the code of events that may be rejected: what they wrote is undone there, what they emitted taken out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from timelapse.kernels.native.lowering.code import Code
from timelapse.kernels.native.lowering.context import Context
from timelapse.kernels.native.lowering.form import Assign, Break, If, Keep, Look, Node, Occupy, While, chain
from timelapse.kernels.native.lowering.idle import without_idle_room
from timelapse.kernels.native.lowering.rules import Rules
from timelapse.kernels.native.lowering.stateful import States
from timelapse.kernels.native.unit import REFUSED, Back
from timelapse.kernels.native.windows import KEPT, USED

_LOOKED = 16
"""How many steps can be looked through in the time in which one is done again."""


class Rejecting:
    """Writes what undoes."""

    def __init__(self, ctx: Context, code: Code, states: States, rules: Rules) -> None:
        self._ctx, self._code, self._states, self._rules = ctx, code, states, rules

    def after(self, event: int) -> list[Node]:
        """After the code of an event that may be rejected: undo what it wrote, take out what it emitted."""
        self._ctx.event = event
        return self._undone(str(event), [n for n, r in enumerate(self._ctx.rejections) if r.event == event])

    def of_step(self, i: int, body: list[Node]) -> list[Node]:
        """The code of a step in the part that decides, around `body`. An event that was taken out is passed over.

        `first` has for each event the number of its first step, 0 if it has had none, and -1 if it was taken out. `noted[j]` is how many rows step j has
        looked up, and `whose[j]` its event."""
        begins = If("first[event] == 0", [Assign("first[event]", f"j + back[{Back.HELD}]")])
        return [
            Assign("seq", f"seq{i}[q{i}]"),
            Assign("event", f"seq - back[{Back.BASE}]"),
            Assign("whose[j]", "seq"),
            Assign("rejected", "0"),
            If("first[event] >= 0", [begins, *body]),
            Assign(f"q{i}", "ONE", "+="),
        ]

    def _go_back(self, event: str) -> None:
        """Take an event out after one of its steps has failed: undo all steps since its first one, and go on from there. If no other step has looked up
        rows of the event's steps since, undo only these, and go on behind the failed step."""
        code, unit = self._code, self._ctx.unit
        code.assign("place", f"first[event] - back[{Back.HELD}]")
        code.assign("first[event]", "-1")
        code.assign("noted[j]", "0")  # what it wrote is undone by now
        with code.when(f"place < 0 or event < back[{Back.SETTLED}]"):  # it is too late for that
            code.assign(f"back[{Back.TOO_LATE}]", "1")
            code.assign("place", "j")
        apart = "False" if isinstance(unit.touches, str) else "is_apart(kept, noted, whose, place, j)"
        code.assign("apart", apart)
        code.assign(f"back[{Back.ALLOWED}]", f"(j - place) // {_LOOKED} if apart else j - place", "-=")
        code.assign("at", "j")
        with code.repeat("at > place"):
            code.assign("at", "1", "-=")
            with code.when("not apart or whose[at] == seq"), code.repeat("noted[at] > 0"):
                code.assign("noted[at]", "1", "-=")
                code.assign("copy", "1 + at * kept[0, 1] + noted[at]")
                for t in range(len(unit.tables)):
                    with code.when(f"kept[copy, 0] == {t}"):
                        code.do(f"give_back(kept, copy, t{t})")
            with code.when("not apart"):
                for kind in range(len(unit.events)):
                    with code.when(f"kind[at] == {kind}"):
                        code.assign(f"q{kind}", "ONE", "-=")
        with code.when("not apart"):  # the next step is the one at `place`, of which nothing comes
            code.assign("j", "place - 1")
            code.assign(f"q{event}", "ONE", "-=")

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
        ahead = "" if self._ctx.final else " if handler < 0 else n"
        if self._ctx.goes_back:
            ahead = " if handler < 0 else n"
            if raising:
                with self._code.when("handler < 0"):
                    self._go_back(event)
        elif raising and unit.later:
            stays = self._ctx.work.finds_late and not self._ctx.work.decides
            with self._code.when("handler < 0 and reason == 0" if stays else "handler < 0"):
                self._code.assign("gone[takes[2]]", "refused[n, 1]")
                self._code.assign("takes[2]", "1", "+=")
        self._code.assign(f"emitted[{len(unit.records)}]", f"n + 1{ahead}")


def noting_rows(body: Sequence[Node]) -> list[Node]:
    """The code of a step that notes each row when it looks it up (`memory.keeping.note`)."""
    found = list[Node]()
    for node in body:
        for block in node.blocks:
            block[:] = noting_rows(block)
        if not isinstance(node, Keep):
            found.append(node)
        if isinstance(node, Look | Occupy):
            found.append(Keep(node.row, node.table, by_step=True))
    return found


def passed_over(events: int) -> list[Node]:
    """The code of steps of which nothing comes (`Batch.kinds`), for so many types of log events."""
    return chain([(f"k == {~i}", [Assign(f"q{i}", "ONE", "+=")]) for i in range(events)])


def by_type(bodies: Sequence[list[Node]]) -> list[Node]:
    """A body for each type of log event."""
    return chain([(f"k == {i}", body) for i, body in enumerate(bodies)])
