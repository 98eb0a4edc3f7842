"""A run says what its budget did not bound."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

import pytest

import timelapse as tl
from timelapse.cards import Card
from timelapse.env import machine
from timelapse.run import Run, replay
from timelapse.run.views import beyond_budget, card

Money = Annotated[Decimal, tl.scale(2)]


class Paid(tl.Event):
    who: int
    share: Money


class Plain(tl.Program):
    n: tl.Counter[int]

    @tl.on(Paid)
    def paid(self, e: Paid) -> None:
        self.n[e.who] += 1


class Shares(tl.Program):
    n: tl.Counter[Money]
    latest: tl.Value[int, str] = tl.state(default="")
    shares: tl.Set[int]

    @tl.on(Paid)
    def paid(self, e: Paid) -> None:
        self.n[e.share] += 1
        self.latest[e.who] = str(e.who)
        if e.who not in self.shares.last(3):
            self.shares.add(e.who)


class Held(tl.Program):
    n: tl.Counter[int]

    @tl.on(Paid)
    def paid(self, e: Paid) -> None:
        self.n[e.who] += 1
        if self.n[e.who] < 3:
            self.send(Paid(who=e.who, share=e.share), after=5)


class Looks(tl.Program):
    looked: tl.Set[int]

    @tl.on(Paid)
    def paid(self, e: Paid) -> None:
        if e.who in self.looked.last(3):
            self.reject("again")
        self.looked.add(e.who)


class Most(tl.Program):
    most: tl.Max[int, int] = tl.state(default=0)

    @tl.on(Paid)
    def paid(self, e: Paid) -> None:
        if self.most.last(3)[e.who] > 5:
            self.reject("again")
        self.most.add(e.who, e.ts)


EVENTS = [Paid(who=i % 5, share=Decimal(i) / 4, ts=i) for i in range(40)]


def told(program: type[tl.Program]) -> tuple[Run, Card]:
    run = replay(program, EVENTS, spark=False)
    return run, card(run)


def test_what_is_not_bounded_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where somebody has set a budget on the card, always in the certificate; nothing where it bounds everything."""
    run, shown = told(Shares)
    assert run.certificate["memory"]["set"] is False
    assert run.certificate["memory"]["unbounded"] == ["windows over shares"]
    assert "memory" not in dict(shown.facts)
    monkeypatch.setenv(machine.MEMORY, "100K")
    assert told(Shares)[0].certificate["memory"]["unbounded"] == []
    run, shown = told(Held)
    assert run.certificate["memory"]["budget"] == 100 << 10
    assert dict(shown.facts)["memory"] == beyond_budget(run.certificate)
    assert beyond_budget(run.certificate).endswith("what is pending")
    run, shown = told(Plain)
    assert run.certificate["memory"] == {"budget": 100 << 10, "set": True, "unbounded": []}
    assert beyond_budget(run.certificate) == ""
    assert "memory" not in dict(shown.facts)


def test_tables_and_windows_in_files_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled, with a budget that somebody has set; not where slices begin with states that are loaded."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    beyond = ["states that are loaded whole: looked", "windows over looked"]
    assert replay(Looks, EVENTS, spark=False).certificate["memory"]["unbounded"] == beyond
    monkeypatch.setenv(machine.MEMORY, "100K")
    assert replay(Looks, EVENTS, spark=False).certificate["memory"]["unbounded"] == []
    staged = replay(Looks, EVENTS, spark=False, slices=3, strategy="staged").certificate["memory"][
        "unbounded"
    ]
    assert staged[1:] == beyond[1:]


@pytest.mark.parametrize("kernel", ["interpreted", "native"])
def test_as_python_a_window_has_all_rows_of_a_key(monkeypatch: pytest.MonkeyPatch, kernel: str) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", kernel)
    monkeypatch.setenv(machine.MEMORY, "100K")
    said = ["what one key has in windows over most"] if kernel == "interpreted" else []
    run = replay(Most, EVENTS, spark=False)
    assert run.certificate["memory"]["unbounded"] == said


def test_tasks_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks side by side have a budget each."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    found = replay(Plain, EVENTS, spark=False, slices=3, strategy="staged").certificate["memory"]["unbounded"]
    assert len(found) == 1
    assert found[0].startswith("tasks that run side by side have a budget each")
    assert found[0].endswith("what slices do to n as a whole")
