"""Enforced flags: each event judged by a plain loop that asks the serial meaning of what was let through."""

from __future__ import annotations

import random
from typing import Any

import pytest

import timelapse as tl
from timelapse import serial
from timelapse.compare.enforcing import enforce, what_if
from timelapse.errors import UsageError
from timelapse.run import run_serial


class Msg(tl.Event):
    n: int
    who: str
    to: str


class Login(tl.Event):
    n: int
    who: str


class Tick(tl.Event):
    n: int


class Flag(tl.Record, key="n"):
    n: int
    who: str
    rule: int


class Note(tl.Record):
    n: int


class Rules(tl.Program):
    """Two rules that flag, one record that does not, one rejection."""

    limit: int = 2
    sent: tl.Counter[str]
    got: tl.Counter[str]
    ticks: tl.Counter[int]

    @tl.on(Tick)
    def tick(self, e: Tick) -> None:
        self.ticks[0] += 1

    @tl.on(Msg, Login)
    def seen(self, e: Any) -> None:
        self.sent[e.who] += 1
        if e.n % 11 == 10:
            self.reject("odd")

    @tl.on(Msg)
    def first(self, e: Msg) -> None:
        self.got[e.to] += 1
        if self.sent[e.who] > self.limit:
            self.emit(Flag(e.n, rule=1, who=e.who))
        self.emit(Note(n=e.n))

    @tl.on(Msg)
    def second(self, e: Msg) -> None:
        victim = "ä" + e.to
        self.more(e, victim)

    def more(self, e: Msg, victim: str) -> None:
        "Blames the recipient: its text has two bytes for 'ä' before the flag."
        if self.got[e.to] % 3 == 0 and (self.ticks[0] % 2 == 1 or victim == "äb"):
            self.emit(Flag(n=-e.n, who=e.to, rule=2))


class Sub(Rules):
    """A handler in a subclass, after the others; `super()` on the way."""

    @tl.on(Login)
    def third(self, e: Login) -> None:
        if self.sent[e.who] % 4 == 3:
            self.emit(
                Flag(
                    n=1000 + e.n,
                    who=e.who,
                    rule=3,
                )
            )

    def more(self, e: Msg, victim: str) -> None:
        if e.n % 7:
            self.emit(Flag(n=-e.n, who=e.to, rule=4))


def log_of(count: int, seed: int) -> list[tl.Event]:
    rng = random.Random(seed)
    made: list[tl.Event] = []
    for n in range(count):
        who, to = rng.choice("abcd"), rng.choice("abcd")
        kind = rng.random()
        ts = n // 2 * 10
        made.append(
            Tick(n=n, ts=ts) if kind < 0.15 else Login(n=n, who=who, ts=ts) if kind < 0.4
            else Msg(n=n, who=who, to=to, ts=ts)
        )  # fmt: skip
    return made


def rows(run: Any, name: str) -> list[Any]:
    return [tuple(r.values()) for r in run.stored(name).drop_columns(["phase", "seq", "ordinal"]).to_pylist()]


def flags_of(program: tl.Program, events: list[tl.Event]) -> list[Any]:
    found = [(o.position.ts, o.record) for o in serial.run(program, events).outputs]
    return [(ts, r.n, r.who, r.rule) for ts, r in found if isinstance(r, Flag)]


def gateway(program: tl.Program, events: list[tl.Event]) -> tuple[list[Any], list[tl.Event]]:
    """Block each event that is flagged, and keep its first flag."""
    passed: list[tl.Event] = []
    flags: list[Any] = []
    for event in events:
        now = flags_of(program, [*passed, event])
        if now:
            flags.append(now[0])
        else:
            passed.append(event)
    return flags, passed


def ban(program: tl.Program, events: list[tl.Event], length: int) -> tuple[list[Any], list[tl.Event]]:
    """Drop what comes from those who are banned."""
    passed: list[tl.Event] = []
    flags: list[Any] = []
    until: dict[str, int] = {}
    for event in events:
        if event.ts < until.get(getattr(event, "who", ""), -1):
            continue
        passed.append(event)
        now = flags_of(program, passed)
        for row in now[len(flags) :]:
            until[row[2]] = event.ts + length
        flags = now
    return flags, passed


def same(run: Any, enforced: tl.Program, events: list[tl.Event], passed: list[tl.Event]) -> None:
    """Besides flags the run is that of the events that passed; in other slices it is the same."""
    plain = run_serial(type(enforced).__mro__[1](**{n: run.params[n] for n in ("limit",)}), passed)
    assert rows(run, "Note") == rows(plain, "Note")
    for name in ("sent", "got", "ticks"):
        assert run.state(name).equals(plain.state(name)), name
    assert run_serial(enforced, events).digest == run.digest
    assert tl.replay(enforced, events, slices=3, spark=False).digest == run.digest


@pytest.mark.parametrize("program", [Rules(), Sub()])
def test_a_gateway(program: tl.Program) -> None:
    """Outputs and states are those of the events that were let through."""
    events = log_of(36, 1)
    flags, passed = gateway(program, events)
    assert flags
    found = what_if(program, events, "event", flags=["Flag"], spark=False)
    assert rows(found.diff.b, "Flag") == flags
    assert found.blocked == len(flags)
    same(found.diff.b, enforce(program, "event", flags=["Flag"]), events, passed)


@pytest.mark.parametrize("program", [Rules(limit=4), Sub(limit=3)])
@pytest.mark.parametrize(("seed", "length"), [(1, 25), (3, 10)])
def test_a_ban(program: tl.Program, seed: int, length: int) -> None:
    """The same for a ban: what is dropped is as if it had not been in the log; free again at the very end."""
    events = log_of(36, seed)
    flags, passed = ban(program, events, length)
    assert len(passed) < len(events)
    found = what_if(program, events, "who", duration=length, flags=["Flag"], spark=False)
    assert rows(found.diff.b, "Flag") == flags
    assert found.blocked == len(events) - len(passed)
    same(found.diff.b, enforce(program, "who", duration=length, flags=["Flag"]), events, passed)


def test_compared_with_the_facts() -> None:
    """A is the factual run, which may be finished already; the warning is plain."""
    events = log_of(36, 1)
    factual = tl.replay(Rules, events, spark=False)
    found = what_if(factual, events, "event", flags=["Flag"], spark=False)
    assert found.diff.a is factual
    assert found.diff.records["Note"].counts["gone"] > 0
    assert "behave differently" in found.warning
    assert "events blocked" in repr(found)


class Hidden(Rules):
    """A flag that does not show."""

    @tl.on(Msg)
    def first(self, e: Msg) -> None:
        put = self.emit
        put(Flag(n=e.n, who=e.who, rule=1))


class Variable(Rules):
    """A record made elsewhere."""

    @tl.on(Msg)
    def first(self, e: Msg) -> None:
        made = Flag(n=e.n, who=e.who, rule=1)
        self.emit(made)


class Called(Rules):
    """A key that is computed by a call."""

    @tl.on(Msg)
    def first(self, e: Msg) -> None:
        self.emit(Flag(n=e.n, who=e.who.lower(), rule=1))


class Overridden(Rules):
    """Calls a method that flags through super()."""

    def more(self, e: Msg, victim: str) -> None:
        super().more(e, victim)


class Quiet(tl.Program):
    """Flags nobody."""

    @tl.on(Msg)
    def go(self, e: Msg) -> None:
        self.emit(Note(n=e.n))


@pytest.mark.parametrize(
    ("program", "how", "options", "words"),
    [(Hidden, "event", {}, "does not see"), (Hidden, "who", {"duration": 9}, "does not see"),
     (Variable, "event", {}, "does not show"), (Called, "who", {"duration": 9}, "no plain expression"),
     (Overridden, "event", {}, "super"), (Rules, "to", {"duration": 9}, "no field to"),
      (Rules, "event", {"duration": 9}, "length"), (Rules, "who", {}, "length"),
     (Rules, "who", {"duration": 0}, "positive"), (Rules, "event", {"flags": ["X"]}, "X is no record"),
     (Rules, "event", {"flags": []}, "which of these"), (Quiet, "who", {"duration": 1, "flags": []}, "no field who"),
     (Rules, "a b", {"duration": 9}, "no field a b")],
)  # fmt: skip
def test_what_cannot_be_enforced(program: Any, how: str, options: dict[str, Any], words: str) -> None:
    """Said with TL821, never wrong quietly."""
    with pytest.raises(UsageError) as caught:
        what_if(program, log_of(36, 1), how, **{"flags": ["Flag"], **options}, spark=False)
    assert caught.value.code == "TL821"
    assert words in caught.value.message
