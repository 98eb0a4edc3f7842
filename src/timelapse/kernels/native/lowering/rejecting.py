"""What follows the code of events that may be rejected: what they wrote is undone there, what they emitted taken out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from timelapse.kernels.native.lowering.code import Code
from timelapse.kernels.native.lowering.context import Context
from timelapse.kernels.native.lowering.form import (
    Assign,
    Break,
    Do,
    For,
    If,
    Keep,
    Look,
    Node,
    Occupy,
    While,
    chain,
    walk,
)
from timelapse.kernels.native.lowering.idle import without_idle_room
from timelapse.kernels.native.lowering.rules import Rules
from timelapse.kernels.native.lowering.stateful import States
from timelapse.kernels.native.lowering.unit import REFUSED, Unit
from timelapse.kernels.native.refused import Refused
from timelapse.kernels.native.status import Back
from timelapse.kernels.native.windows import KEPT, USED


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

        `latest` has for each event the number of its last step, 0 if it has had none, and -1 if it was taken out. `rows[j]` is step j's row among those of
        its kind, and `earlier[j]` the number of its event's step before it."""
        is_new = If(
            "latest[event] >= 0",
            [Assign("earlier[j]", "latest[event]"), Assign("latest[event]", f"j + back[{Back.HELD}]")],
        )
        return [
            Assign("turn", f"q{i}"),
            If("j < front", [Assign(f"q{i}", "np.uint64(rows[j])")]),
            Assign("event", f"seq{i}[q{i}] - back[{Back.BASE}]"),
            If("j == front", [Assign("rows[j]", f"np.int64(q{i})"), is_new]),
            Assign("rejected", "0"),
            If("latest[event] >= 0", body),
            Assign(f"q{i}", "turn + np.uint64(j == front)"),
        ]

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
                    self._code.do("take_event_out(kept, again, latest, earlier, event, j, back)")
        elif raising and unit.later:
            stays = self._ctx.work.finds_late and not self._ctx.work.decides
            with self._code.when("handler < 0 and reason == 0" if stays else "handler < 0"):
                self._code.assign("gone[takes[2]]", "refused[n, 1]")
                self._code.assign("takes[2]", "1", "+=")
        self._code.assign(f"emitted[{len(unit.records)}]", f"n + 1{ahead}")


def going_back(unit: Unit, each: list[Node]) -> list[Node]:
    """The loop over steps, of which some are done again before the next one (memory/again.py). `front`: the next one that was not done yet; `each`: what is
    done with step j."""
    tables = range(len(unit.tables))
    copies: list[Node] = [
        If(f"kept[copy, 0] == {t}", [Do(f"rewind(kept, copy, t{t}, again, back)")]) for t in tables
    ]
    entries: list[Node] = [
        If(f"kept[entry, 0] == {t}", [Do(f"settle(kept, entry, t{t}, again, back)")]) for t in tables
    ]
    due: list[Node] = [
        Assign("j", "next_due(again, kept)"),
        For("copy", "1 + j * each, 1 + j * each + noted[j]", copies),
    ]
    done: list[Node] = [
        While("again[1] > 0", [Assign("entry", "used_row(kept, again)"), *entries]),
        Do("stop_where_full(again, back)"),
    ]
    step = [
        Assign("j", "front"),
        If("again[0] > 0", due),
        Assign("noted[j]", "0"),
        *each,
        If("j < front", done, [Assign("front", "1", "+=")]),
    ]
    return [
        Assign("each", "kept[0, 1]"),
        Assign("before", f"back[{Back.NOTES}]"),
        Assign("front", "lo"),
        While(f"(front < hi or again[0] > 0) and back[{Back.STOP}] == 0", step),
        Assign(f"back[{Back.AT}]", "front"),
    ]


def noting_rows(body: Sequence[Node], words: Sequence[int], *, loops: bool) -> list[Node]:
    """The code of a step that notes each row when it looks it up (`memory.again.note`). Each key gets a row: so it is known which steps have found that it
    has none. `words`: of a row, by table. `loops`: whether some code may go round a loop. Raises Refused."""
    rounds = [node for node in walk(body) if loops and isinstance(node, For | While)]
    if any(isinstance(node, Look) for loop in rounds for node in walk(loop.body)):
        raise Refused("rows are looked up in loops")
    return _noting_rows(body, words)


def _noting_rows(body: Sequence[Node], words: Sequence[int]) -> list[Node]:
    found = list[Node]()
    for node in body:
        for block in node.blocks:
            block[:] = _noting_rows(block, words)
        if isinstance(node, Look):
            node.what = "claim"
        if not isinstance(node, Keep):
            found.append(node)
        if isinstance(node, Look | Occupy):
            found.append(Keep(node.row, node.table, words[node.table]))
    return found


def passed_over(events: int) -> list[Node]:
    """The code of steps of which nothing comes (`Batch.kinds`), for so many types of log events."""
    return chain([(f"k == {~i}", [Assign(f"q{i}", "ONE", "+=")]) for i in range(events)])


def by_type(bodies: Sequence[list[Node]]) -> list[Node]:
    """A body for each type of log event."""
    return chain([(f"k == {i}", body) for i, body in enumerate(bodies)])
