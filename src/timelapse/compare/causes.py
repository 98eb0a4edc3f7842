"""Where two versions part: the condition, and the state it read, that differ at an event.

The event is done again in both runs under observation (`timelapse.trace`), each from the states that it met. Conditions of the two
are laid side by side, handler by handler, by how they are written; the first that came out differently is the cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from timelapse.compare.enforcing import BANNED, GATE, UNTIL
from timelapse.display import moment
from timelapse.errors import RunError, TimelapseError
from timelapse.ids import Phase
from timelapse.run.run import Run
from timelapse.trace.event import Place
from timelapse.trace.event import events as traced
from timelapse.trace.event import steps as traced_steps
from timelapse.trace.steps import (
    Condition,
    EventTrace,
    HandlerTrace,
    Read,
    Tick,
    brief,
    name_of,
    place_text,
    plain,
)

if TYPE_CHECKING:
    from timelapse.compare.differences import Diff
    from timelapse.compare.records import At, Change

_LONGEST = 1_000_000
"""Events of a log through which the serial loop goes, where it has to, to explain ticks and dated events."""
_MOST_READS = 4
"""States that are named where no condition differs."""

_SAME = 0.6
"""Conditions whose texts agree in so much are taken for one that was edited."""


@dataclass(frozen=True)
class Cause:
    """Why A and B differ at one event. `event` is its text; `problem` says why nothing more is known.

    `a` and `b` are the condition in either version (None where a version has no such one, or none differs; two that are
    not alike are what each tests at the place where they part); `handler` is where. `reads` are pairs of reads of one key that saw different values.
    """

    seq: int
    event: str = ""
    handler: str = ""
    a: Condition | None = None
    b: Condition | None = None
    reads: tuple[tuple[Read, Read], ...] = ()
    remark: str = ""
    problem: str = ""

    @property
    def lines(self) -> list[str]:
        """For people: where, and what differs."""
        if self.problem:
            return [f"why is not known: {self.problem}"]
        found = []
        one = self.a or self.b
        if one is not None:
            line = f"{self.handler}:{one.line}  {one.text}"
            other = self.b if one is self.a else None
            if other is not None and other.text != one.text:
                line = f"{self.handler}:{one.line}  A {one.text}  B {self.handler}:{other.line} {other.text}"
            sides = [f"{side} {_outcome(c)}" for side, c in (("A", self.a), ("B", self.b))]
            found.append(f"{line}    {'    '.join(sides)}")
        found += [f"{place_text(a.state, a.key)}  A {_seen(a)}  B {_seen(b)}" for a, b in self.reads]
        if self.remark:
            found.append(self.remark)
        return found

    def to_json(self) -> dict[str, Any]:
        """The cause as JSON holds it."""
        return {
            "seq": self.seq, "event": self.event, "handler": self.handler, "problem": self.problem or None,
            "a": None if self.a is None else self.a.to_json(), "b": None if self.b is None else self.b.to_json(),
            "reads": [
                {"state": a.state, "key": plain(a.key), "a": plain(a.value), "b": plain(b.value)} for a, b in self.reads
            ],
            "remark": self.remark or None,
        }  # fmt: skip


def _outcome(condition: Condition | None) -> str:
    if condition is None:
        return "has no such condition, or did not come to it"
    return f"{condition.values} {'true' if condition.outcome else 'false'}"


def _seen(read: Read) -> str:
    return brief(read.value) if read.present else f"{brief(read.value)} (missing)"


def causes(diff: Diff, changes: Iterable[Change]) -> dict[At, Cause]:
    """The cause of each change, by the step at which it shows (`Change.place`).

    What cannot be traced (a run whose program or log is not to be had any more, ticks and dated events of a long log)
    has a `problem` instead; nothing is raised.
    """
    places = list(dict.fromkeys(change.place for change in changes))
    seqs = sorted(place for place in places if isinstance(place, int))
    steps = [place for place in places if not isinstance(place, int)]
    try:
        sides, untold = zip(*(_sides(run, seqs, steps) for run in (diff.a, diff.b)), strict=True)
    except TimelapseError as error:
        return {p: Cause(_seq(p), problem=error.message) for p in places}
    problem = f"only the serial loop tells it, and there are more than {_LONGEST:,} events: `timelapse why` looks at it alone"
    left = {p: Cause(_seq(p), problem=problem) for p in set().union(*untold)}
    return {p: left.get(p) or _cause(_seq(p), sides[0].get(p), sides[1].get(p)) for p in places}


def _seq(place: At) -> int:
    return place if isinstance(place, int) else place[2]


def _sides(run: Run, seqs: Sequence[int], steps: Sequence[Place]) -> tuple[dict[At, EventTrace], set[Place]]:
    """What was done at the places, and those of which that would take too long."""
    stepped, untold = traced_steps(run, steps, most=_LONGEST)
    both: list[Mapping[Any, EventTrace]] = [_traces(run, seqs), stepped]
    return {place: trace for found in both for place, trace in found.items()}, untold


def _traces(run: Run, seqs: Sequence[int]) -> dict[int, EventTrace]:
    """Traces by seq; an event that the program does not listen to is left out."""
    if not seqs:
        return {}
    try:
        return traced(run, seqs)
    except RunError as error:
        if error.code != "TL606":
            raise
    found: dict[int, EventTrace] = {}
    for seq in seqs:
        try:
            found |= traced(run, [seq])
        except RunError as error:
            if error.code != "TL606":
                raise
    return found


def _cause(seq: int, a: EventTrace | None, b: EventTrace | None) -> Cause:
    some = a or b
    if some is None:
        return Cause(seq, problem="neither version does anything there")
    text = name_of(some.event, some.phase) if isinstance(some.event, Tick) else brief(some.event, 300)
    if a is None or b is None:
        side, what = "A" if a is None else "B", type(some.event).__name__
        in_log = some.phase == Phase.LOG_EVENT
        return Cause(
            seq, text, remark=f"{side} does not listen to {what}" if in_log else f"{side} has no such step"
        )
    left, right = ({h.name: h for h in t.handlers} for t in (a, b))
    fallback: Cause | None = None
    for name in dict.fromkeys([*left, *right]):
        one, two = left.get(name), right.get(name)
        if one is None or two is None:
            side, trace = ("A", a) if one is None else ("B", b)
            remark = (
                f"{side} {_rejection(trace)}"
                if trace.rejected
                else f"{side} did not come to a handler {name}"
            )
            fallback = fallback or Cause(seq, text, name, remark=remark)
            continue
        found, decides = _conditions(seq, text, name, one, two)
        if found is not None and decides:
            return found
        fallback = fallback or found
    if fallback is not None:
        return fallback
    return _without_condition(seq, text, a, b)


def _rejection(trace: EventTrace) -> str:
    assert trace.rejected is not None
    handler, reason, line = trace.rejected
    if handler == GATE and reason == BANNED:
        for ban in (r for h in trace.handlers if h.name == GATE for r in h.reads if r.state == UNTIL):
            return f"dropped it: {brief(ban.key)} is banned until {moment(ban.value)}"
    return f"rejected it in {handler}:{line}: {brief(reason)}"


def _conditions(
    seq: int, text: str, name: str, a: HandlerTrace, b: HandlerTrace
) -> tuple[Cause | None, bool]:  # fmt: skip
    """The first condition that came out differently; else one that only one of them has. Whether it is the former."""
    mine, theirs = a.conditions, b.conditions
    unsure: Cause | None = None
    matcher = SequenceMatcher(None, [c.source for c in mine], [c.source for c in theirs], autojunk=False)
    for tag, i, j, k, n in matcher.get_opcodes():
        pairs: list[tuple[Condition | None, Condition | None]] = list(
            zip(mine[i:j], theirs[k:n], strict=False)
        )
        pairs += [(c, None) for c in mine[i + len(pairs) : j]]
        pairs += [(None, c) for c in theirs[k + (j - i) : n]] if n - k > j - i else []
        for one, two in pairs:
            if one is not None and two is not None and (tag == "equal" or _alike(one.source, two.source)):
                if one.outcome != two.outcome:
                    return Cause(seq, text, name, one, two, _differing(one.reads, two.reads)), True
            elif unsure is None:
                unsure = Cause(seq, text, name, one, two)
    return unsure, False


def _alike(a: str, b: str) -> bool:
    """Whether two conditions are one that was edited."""
    return SequenceMatcher(None, a, b, autojunk=False).ratio() > _SAME


def _differing(a: Iterable[Read], b: Iterable[Read]) -> tuple[tuple[Read, Read], ...]:
    """For each key that both read: the first time that they saw different things there."""
    seen: dict[tuple[str, str], list[Read]] = {}
    for read in b:
        seen.setdefault((read.state, repr(read.key)), []).append(read)
    found: dict[tuple[str, str], tuple[Read, Read]] = {}
    counts: dict[tuple[str, str], int] = {}
    for read in a:
        key = (read.state, repr(read.key))
        nth = counts[key] = counts.get(key, -1) + 1
        others = seen.get(key, [])
        if nth < len(others) and (repr(others[nth].value), others[nth].present) != (
            repr(read.value),
            read.present,
        ):
            found.setdefault(key, (read, others[nth]))
    return tuple(found.values())


def _without_condition(seq: int, text: str, a: EventTrace, b: EventTrace) -> Cause:
    """All conditions came out alike: what was read differs, or what is made of it."""
    # What `x[k] += 1` found is not what was made of it: that is read afterwards, if at all.
    plain_reads = ([r for r in trace.reads if not r.own] for trace in (a, b))
    reads = (_differing(*plain_reads) or _differing(a.reads, b.reads))[:_MOST_READS]
    params = {
        n: (v, b.params[n]) for n, v in a.params.items() if n in b.params and repr(v) != repr(b.params[n])
    }
    remark = "; ".join(f"{side} {_rejection(t)}" for side, t in (("A", a), ("B", b)) if t.rejected)
    if not reads and not remark:
        shown = ", ".join(f"{n} {v!r} -> {w!r}" for n, (v, w) in params.items())
        remark = "all conditions came out alike" + (
            f"; {shown}" if shown else "; what is put out is made differently"
        )
    return Cause(seq, text, reads=reads, remark=remark)
