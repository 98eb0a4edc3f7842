"""Where two versions part: the condition, the values on both sides, the state that differs."""

from __future__ import annotations

import pytest

import timelapse as tl
from timelapse.compare import Cause, Diff, diff
from timelapse.run import run_serial


class E(tl.Event):
    n: int
    who: str


class Other(tl.Event):
    n: int


class Hit(tl.Record, key="n"):
    n: int
    score: float


class Rules(tl.Program):
    """Hits above a limit, in the second handler."""

    limit: int = 2
    gain: float = 1.0
    step: int = 1
    seen: tl.Counter[str]

    @tl.on(E)
    def count(self, e: E) -> None:
        if e.n >= 0:
            self.seen[e.who] += self.step

    @tl.on(E)
    def flag(self, e: E) -> None:
        if self.seen[e.who] > self.limit and e.n % 5:
            self.emit(Hit(n=e.n, score=self.seen[e.who] * self.gain))


class Stricter(Rules):
    """One condition more, before the old one."""

    @tl.on(E)
    def flag(self, e: E) -> None:
        if e.n % 2 == 0:
            return
        if self.seen[e.who] > self.limit and e.n % 5:
            self.emit(Hit(n=e.n, score=self.seen[e.who] * self.gain))


class Edited(Rules):
    """The same condition, written in another way."""

    @tl.on(E)
    def flag(self, e: E) -> None:
        if self.seen[e.who] >= 5 and e.n % 5:
            self.emit(Hit(n=e.n, score=self.seen[e.who] * self.gain))


class Deaf(tl.Program):
    """Does not listen to E."""

    @tl.on(Other)
    def go(self, e: Other) -> None:
        self.emit(Hit(n=-e.n, score=0.0))


EVENTS: list[tl.Event] = [
    Other(n=i, ts=i) if i == 20 else E(n=i, who="a\x1b[1m"[: 1 + 4 * (i % 2)], ts=i) for i in range(24)
]


def compared(a: tl.Program, b: tl.Program) -> Diff:
    runs = [tl.replay(p, EVENTS, slices=3, spark=False) for p in (a, b)]
    return diff(runs[0], runs[1])


def first(a: tl.Program, b: tl.Program) -> Cause:
    found = compared(a, b)
    assert found.first is not None
    cause = found.causes([found.first])[found.first.seq]
    assert cause.seq == found.first.seq
    return cause


def test_another_threshold() -> None:
    """The condition that came out differently, with both sides' values."""
    cause = first(Rules(), Rules(limit=3))
    assert (cause.seq, cause.handler) == (4, "flag")
    assert cause.a is not None
    assert cause.b is not None
    assert (cause.a.outcome, cause.b.outcome) == (True, False)
    assert (cause.a.values, cause.b.values) == ("3 > 2", "3 > 3")
    assert cause.reads == ()
    [line] = cause.lines
    assert line.startswith("flag:")
    assert line.endswith("seen['a'] > limit    A 3 > 2 true    B 3 > 3 false")


def test_another_state() -> None:
    """What was read differs: the key, and both values."""
    cause = first(Rules(), Rules(step=2))
    assert cause.seq == 2
    [(a, b)] = cause.reads
    assert (a.state, a.key, a.value, b.value) == ("seen", "a", 2, 4)
    assert cause.lines[1] == "seen['a']  A 2  B 4"
    assert cause.to_json()["reads"] == [{"state": "seen", "key": "a", "a": 2, "b": 4}]


def test_conditions_that_only_one_has() -> None:
    """One that was added, one that was rewritten, a handler's event that one does not hear."""
    added = first(Rules(), Stricter())
    assert [c and c.source for c in (added.a, added.b)] == ["seen[e.who] > limit", "e.n % 2 == 0"]
    assert "B flag:" in added.lines[0]
    edited = first(Rules(), Edited())
    assert edited.a is not None
    assert edited.b is not None
    assert (edited.a.source, edited.b.source) == ("seen[e.who] > limit", "seen[e.who] >= 5")
    assert "B flag:" in edited.lines[0]
    deaf = compared(Rules(), Deaf())
    causes = deaf.causes(deaf.examples(99))
    assert causes[4].remark == "B does not listen to E"
    assert causes[20].remark == "A does not listen to Other"


def test_no_condition_differs() -> None:
    """Only what is put out differs: by a parameter, or by what was read."""
    cause = first(Rules(), Rules(gain=2.0))
    assert cause.lines == ["all conditions came out alike; gain 1.0 -> 2.0"]
    read = first(Rules(limit=-9), Rules(limit=-9, step=3))
    assert next((a.value, b.value) for a, b in read.reads) == (1, 3)


def test_rejections() -> None:
    """What one version rejected names the handler and the reason."""
    factual = tl.replay(Rules(), EVENTS, slices=3, spark=False)
    found = tl.what_if(factual, EVENTS, "event", spark=False).diff
    changes = found.examples(99)
    causes = found.causes(changes)
    rejected = next(c for c in changes if c.record == "rejected")
    assert "B rejected it in flag:" in causes[rejected.seq].lines[-1]
    assert causes[rejected.seq].lines[-1].endswith(": 'Hit'")
    assert all(c.record == "Hit" for c in found.examples(99, rejected=False))


class Timed(tl.Program):
    """Ticks, calls after= and events that it sends itself; two ticks at one time."""

    least: int = 2
    seen: tl.Counter[str]

    @tl.on(E)
    def count(self, e: E) -> None:
        self.seen[e.who] += 1
        if e.n % 5 == 0:
            self.send(Other(n=e.n), after=2)

    @tl.on(E, after=3)
    def later(self, e: E) -> None:
        if self.seen[e.who] > self.least + 1:
            self.emit(Hit(n=1000 + e.n, score=0.0))

    @tl.on(Other)
    def sent(self, o: Other) -> None:
        if self.seen["a"] >= 4 * self.least:
            self.emit(Hit(n=2000 + o.n, score=0.0))

    @tl.every(6)
    def tick(self) -> None:
        if self.seen["a"] > self.least:
            self.emit(Hit(n=3000 + self.now, score=0.0))

    @tl.every(12)
    def slow(self) -> None:
        if self.seen["a"] > 2 * self.least:
            self.reject("busy")


def test_ticks_and_dated_events_have_causes() -> None:
    """Each by its own step: the condition, what it compared, and its handler; in a long log they say who can tell."""
    found = compared(Timed(), Timed(least=3))
    changes = found.examples(99)
    causes = found.causes(changes)
    assert sum(not isinstance(c.place, int) for c in changes) >= len(changes) - 1
    handlers = set()
    for change in changes:
        cause = causes[change.place]
        handlers.add(cause.handler)
        assert cause.a is not None
        assert cause.b is not None
        assert (cause.a.outcome, cause.b.outcome) == (True, False), cause.lines
    assert handlers == {"later", "sent", "tick", "slow"}
    tick = next(c for c in changes if c.ts == 6)
    assert causes[tick.place].event.startswith("tick at ")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("timelapse.compare.causes._LONGEST", 5)
        assert "timelapse why" in found.causes([tick])[tick.place].problem


def test_what_cannot_be_traced() -> None:
    """A run in memory without its log says so; nothing is raised."""
    found = diff(run_serial(Rules(), EVENTS), run_serial(Rules(limit=3), EVENTS))
    causes = found.causes(found.examples(2))
    assert all("not there any more" in c.problem for c in causes.values())
    assert all(c.lines[0].startswith("why is not known: ") for c in causes.values())


@pytest.mark.parametrize("seed", range(3))
def test_every_change_has_a_cause(seed: int) -> None:
    """For all changes: the conditions named are those of the two versions, and they differ."""
    found = compared(Rules(limit=seed), Rules(limit=seed + 2, step=1 + seed % 2))
    changes = found.examples(999)
    assert changes
    for change, cause in ((c, found.causes(changes)[c.seq]) for c in changes):
        assert not cause.problem
        if change.kind != "changed":
            assert cause.a is not None
            assert cause.b is not None
            assert cause.a.outcome != cause.b.outcome


class Counting(tl.Program):
    """A field that comes from `+=`."""

    step: int = 1
    seen: tl.Counter[str]

    @tl.on(E)
    def count(self, e: E) -> None:
        self.seen[e.who] += self.step
        self.emit(Hit(n=e.n, score=float(self.seen[e.who])))


def test_a_field_that_comes_from_an_addition_is_shown_with_what_was_left() -> None:
    """Not with what the addition found, which is what nobody put out."""
    found = compared(Counting(), Counting(step=2))
    changes = found.examples(99)
    assert changes
    for change, cause in ((c, found.causes(changes)[c.seq]) for c in changes):
        assert cause.reads, cause
        for a, b in cause.reads:
            assert not a.own, change
            assert b.value == 2 * a.value
