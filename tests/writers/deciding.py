"""Random programs in which states decide whether calls fail that come long after their events."""

from __future__ import annotations

import random

_HEAD = """import timelapse as tl
from tests.quarantine.test_rewinding import Mark, Move, Out


class P(tl.Program):
    one: str = "a"
    two: str = "b"
    total: tl.Counter[int]
    names: tl.Counter[str]
    held: tl.Value[int, int] = tl.state(default=0)
    seen: tl.Set[tuple[int, int]]
    best: tl.Max[int, int] = tl.state(default=0)
    first: tl.First[int, int] = tl.state(default=0)
"""
_NUMBERS = {"Move": ["e.who", "e.amount"], "Mark": ["e.who"]}
_FURTHER = {
    "Move": ["e.who % 4", "e.who + e.amount", "e.seq % 5"],
    "Mark": ["e.who % 3", "e.who * 2", "e.seq % 4"],
}
_STATES = ["total", "names", "held", "seen", "best", "first"]


def deciding_program(rng: random.Random, *, early: bool = False, lag: int = 6) -> str:
    """The source of a module with a program `P` of `Move` and `Mark`: calls `lag` units later fail by what some states hold. In most programs other
    handlers leave these states alone. `early`: events' own steps write to them, and most
    keys are fields."""
    states = rng.sample(_STATES, rng.randint(1, 3))
    others = [name for name in _STATES if name not in states]
    lines: list[str] = []

    def handler(name: str, heard: str, of: list[str], *, fails: str = "", after: int = 0) -> None:
        event = rng.choice(["Move", "Mark"]) if "," in heard else heard
        numbers = list(_NUMBERS["Mark" if "," in heard else event])
        if (
            of is states and not early
        ) or rng.random() < 0.1:  # what may leave int64, under a condition, depends on the condition
            numbers += _FURTHER["Mark" if "," in heard else event]
        lines.append(f"    @tl.on({heard}{f', after={after}' if after else ''})")
        lines.append(f"    def {name}(self, e):")
        writer = _Writer(rng, numbers, heard == "Mark", of is states or rng.random() < 0.1)
        failing = writer.failing(fails, of)
        body = [line for _ in range(rng.randint(1, 3)) for line in writer.statement(of)]
        lines.extend(
            f"        {line}" for line in ([*failing, *body] if rng.random() < 0.3 else [*body, *failing])
        )
        if rng.random() < 0.6:
            lines.append(f"        self.emit(Out(who=e.who, total={writer.read(rng.choice(of))}))")
        lines.append("")

    if rng.random() < 0.9:
        handler("go", "Move", states if early else others, fails=rng.choice(["", "", "event", "reject"]))
    if rng.random() < 0.9:
        handler("mark", "Mark", states if early else others, fails=rng.choice(["", "event"]))
    if rng.random() < 0.3:
        handler("soon", "Move", others, fails=rng.choice(["", "event"]), after=3)
    called = rng.choice(["Move", "Mark", "Move, Mark"])
    handler("called", called, states, fails="state", after=lag)
    if "," not in called and rng.random() < 0.5:
        other = "Mark" if called == "Move" else "Move"
        handler("again", other, states, fails=rng.choice(["", "state", "event"]), after=lag)
    if rng.random() < 0.4:
        mine = states if rng.random() < 0.2 else others
        handler("last", "Move", mine, fails=rng.choice(["", "", "event"]), after=lag + 3)
    if rng.random() < 0.2:
        lines += [
            "    @tl.every(5)",
            "    def tick(self):",
            f"        self.total[{rng.randrange(3)}] += 1",
            "",
        ]
    return _HEAD + "\n" + "\n".join(lines)


class _Writer:
    """Writes statements of one handler."""

    def __init__(self, rng: random.Random, numbers: list[str], named: bool, sums: bool) -> None:
        """`sums`: whether it adds numbers up, but for counters."""
        self._rng, self._numbers, self._named, self._sums = rng, numbers, named, sums

    def number(self) -> str:
        return self._rng.choice([*self._numbers, "1", "2"])

    def sum(self, of: str) -> str:
        return f"({of} + {self.number()})" if self._sums else of

    def name(self) -> str:
        return "e.name" if self._named else self._rng.choice(["self.one", "self.two"])

    def read(self, state: str) -> str:
        """A whole number that a state gives."""
        if state == "total" and not self._sums and self._rng.random() < 0.5:
            return f"self.total.{self._rng.choice(['last(9)', 'last(20)', 'ago(7)'])}[{self.number()}]"
        if state == "names":
            return f"self.names[{self.name()}]"
        if state == "seen":
            return f"(1 if ({self.number()}, {self.number()}) in self.seen else 0)"
        return f"self.{state}[{self.number()}]"

    def statement(self, states: list[str]) -> list[str]:
        rng = self._rng
        state = rng.choice(states)
        match state:
            case "names":
                made = f"self.names[{self.name()}] += {self.number()}"
            case "total":
                made = f"self.total[{self.number()}] {rng.choice(['+=', '-='])} {self.number()}"
            case "held":
                made = rng.choice([
                    f"self.held[{self.number()}] = {self.sum(self.read(rng.choice(states)))} % 50",
                    f"del self.held[{self.number()}]",
                ])  # fmt: skip
            case "seen":
                made = (
                    f"self.seen.{rng.choice(['add', 'add', 'discard'])}(({self.number()}, {self.number()}))"
                )
            case _:
                made = f"self.{state}.add({self.number()}, {self.sum(self.number())})"
        if rng.random() < 0.3:
            return [f"if {self.read(rng.choice(states))} % 3 == {rng.randrange(3)}:", f"    {made}"]
        return [made]

    def failing(self, how: str, states: list[str]) -> list[str]:
        """What fails, or rejects."""
        rng = self._rng
        event = f"{self.sum(self.number())} % 7 == {rng.randrange(7)}"
        if how == "event":
            return [f"if {event}:", f"    raise ValueError(f'event {{{self.number()}}}')"]
        if how == "reject":
            return [f"if {event}:", "    self.reject('event')"]
        if not how:
            return []
        read, shown = self.read(rng.choice(states)), self.read(rng.choice(states))
        if rng.random() < 0.25:
            return [f"self.emit(Out(who=10 // (({read} + {self.number()}) % 6), total=e.who))"]
        test = f"if ({read} + {self.number()}) % {rng.choice([3, 5, 9])} == {rng.randrange(3)}:"
        return [
            test,
            f"    raise {rng.choice(['KeyError', 'ValueError'])}(f'state {{{shown}}} {{{self.number()}}}')",
        ]
