"""Which passes can share out their events by key, and by which."""

from __future__ import annotations

import pytest

import timelapse as tl
from tests.engine.by_key_programs import Ewma, Message, Reading, Sums, Swap, Talk, pair
from timelapse.analysis import ByKey, NotByKey, analyse, share_out, share_out_all


def text(program: type[tl.Program], *states: str) -> str:
    found = share_out(analyse(program), states)
    return found.text if isinstance(found, ByKey) else f"no: {found.reason}"


def test_the_key_is_found_through_locals_and_methods() -> None:
    assert text(Ewma, "mean") == "Reading by e.sensor, Retired by e.sensor"
    found = share_out_all(analyse(Ewma))
    assert isinstance(found, ByKey)
    assert dict(found.states) == {"mean": None, "seen": None}


def test_a_helper_of_the_event_is_a_key() -> None:
    assert text(Sums, "total") == "Message by pair(e.sender, e.recipient)"


def test_a_part_of_a_key_can_be_the_common_one() -> None:
    assert text(Talk, "score") == "Message by e.sender"
    found = share_out(analyse(Talk), ["score"])
    assert isinstance(found, ByKey)
    assert dict(found.states) == {"weight": 0, "score": None}


def test_two_keys_in_one_event_are_refused_with_the_line_and_a_rewrite() -> None:
    found = share_out(analyse(Swap), ["x"])
    assert isinstance(found, NotByKey)
    assert "(e.sender, e.recipient) and (e.recipient, e.sender)" in found.reason
    assert found.place.line == Swap.both.__code__.co_firstlineno + 3
    assert "unordered pair" in (found.rewrite or "")


class NoKey(tl.Program):
    total: tl.Value[float] = tl.state(default=0.0)

    @tl.on(Reading)
    def go(self, e: Reading) -> None:
        self.total += e.value


class EveryKey(tl.Program):
    mean: tl.Value[int, float] = tl.state(default=0.0)

    @tl.on(Reading)
    def go(self, e: Reading) -> None:
        self.mean[e.sensor] = sum(v for _, v in self.mean.items()) + e.value


class KeyFromState(tl.Program):
    owner: tl.Value[int, int] = tl.state(default=0)
    mean: tl.Value[int, float] = tl.state(default=0.0)

    @tl.on(Message)
    def go(self, e: Message) -> None:
        self.owner[e.sender] = e.recipient
        self.mean[self.owner[e.recipient]] += 0.5


class KeyFromLoop(tl.Program):
    mean: tl.Value[int, float] = tl.state(default=0.0)

    @tl.on(Message)
    def go(self, e: Message) -> None:
        for k in (e.sender, e.recipient):
            self.mean[k] += 0.5


class KeyChanges(tl.Program):
    mean: tl.Value[int, float] = tl.state(default=0.0)

    @tl.on(Message)
    def go(self, e: Message) -> None:
        k = e.sender
        if e.host:
            k = e.recipient
        self.mean[k] += 0.5


class Also(tl.Program):
    """The event that asks for a pair also writes pairs, and the score depends on them."""

    met: tl.Set[tuple[int, int]]
    score: tl.Value[int, float] = tl.state(default=0.0)

    @tl.on(Message)
    def go(self, e: Message) -> None:
        if pair(e.sender, e.recipient) in self.met:
            self.score[e.sender] += 0.5
        self.met.add(pair(e.sender, e.recipient))


@pytest.mark.parametrize(
    ("program", "state", "reason"),
    [
        (NoKey, "total", "no key"),
        (EveryKey, "mean", "all keys"),
        (KeyFromState, "mean", "does not follow from the event alone"),
        (KeyFromLoop, "mean", "does not follow from the event alone"),
        (KeyChanges, "mean", "does not follow from the event alone"),
        (Also, "score", "also writes met"),
    ],
)
def test_what_cannot_be_shared_out_says_why(program: type[tl.Program], state: str, reason: str) -> None:
    found = share_out(analyse(program), [state])
    assert isinstance(found, NotByKey)
    assert reason in found.reason
    assert found.place.line is not None


class Fields(tl.Program):
    """All fields under the sender are counted, which is under the same key as its score; another score is not."""

    score: tl.Value[int, int] = tl.state(default=0)
    fields: tl.MapOf[int, int, int] = tl.state(default=0)

    @tl.on(Message)
    def go(self, e: Message) -> None:
        found = self.score[e.sender] + self.fields.count(e.sender)
        self.fields[e.sender, e.recipient] = found + self.score[e.recipient]
        self.score[e.sender] = found


class Apart(tl.Program):
    score: tl.Value[int, int] = tl.state(default=0)
    fields: tl.MapOf[int, int, int] = tl.state(default=0)

    @tl.on(Message)
    def go(self, e: Message) -> None:
        self.score[e.recipient] = self.fields.count(e.sender)
        self.fields[e.sender, e.recipient] = self.score[e.recipient]


def test_the_keys_that_are_named_are_those_in_conflict() -> None:
    """Not the first two that are written in different ways; and they are named as handlers write them."""
    assert (
        text(Fields, "score", "fields") == "no: Message uses score under two keys, e.sender and e.recipient"
    )
    assert text(Apart, "score", "fields") == (
        "no: Message uses fields and score under two keys, e.sender and e.recipient"
    )


def test_one_key_for_the_whole_program_or_none() -> None:
    assert isinstance(share_out_all(analyse(Sums)), NotByKey)
    assert isinstance(share_out_all(analyse(Talk)), NotByKey)
