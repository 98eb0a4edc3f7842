"""What `explain` says to write instead: following it leads to the strategy that it promises."""

from __future__ import annotations

import random
from typing import Any

import pytest

import timelapse as tl
from timelapse.explanation.model import StateRow
from timelapse.testing import check_replay


class Deposit(tl.Event):
    account: int
    amount: int


class Transfer(tl.Event):
    source: int
    target: int
    amount: int


class Debit(tl.Event):
    source: int
    amount: int


class Credit(tl.Event):
    target: int
    amount: int


def row(program: Any, state: str = "moved") -> StateRow:
    return next(r for r in tl.explain(program).states if r.state == state)


class Ledger(tl.Program):
    """One key decides what is written under another."""

    moved: tl.Counter[int]

    @tl.on(Transfer)
    def transfer(self, e: Transfer) -> None:
        self.moved[e.source] -= e.amount
        self.moved[e.target] += e.amount
        if self.moved[e.source] < -5:
            self.reject("low")


class Skips(tl.Program):
    """The same without a rejection."""

    moved: tl.Counter[int]

    @tl.on(Transfer)
    def transfer(self, e: Transfer) -> None:
        if self.moved[e.source] - e.amount < -5:
            return
        self.moved[e.source] -= e.amount
        self.moved[e.target] += e.amount


class Halves(tl.Program):
    """What the advice says where the other half need not depend on it."""

    moved: tl.Counter[int]

    @tl.on(Debit)
    def debit(self, e: Debit) -> None:
        self.moved[e.source] -= e.amount
        if self.moved[e.source] < -5:
            self.reject("low")

    @tl.on(Credit)
    def credit(self, e: Credit) -> None:
        self.moved[e.target] += e.amount


class Elsewhere(tl.Program):
    """The rejection is decided from a state that the event does not write."""

    funds: tl.Counter[int]
    moved: tl.Counter[int]

    @tl.on(Deposit)
    def deposit(self, e: Deposit) -> None:
        self.funds[e.account] += e.amount

    @tl.on(Transfer)
    def transfer(self, e: Transfer) -> None:
        self.moved[e.source] -= e.amount
        self.moved[e.target] += e.amount
        if self.funds[e.source] < e.amount:
            self.reject("low")


@pytest.mark.parametrize("program", [Ledger, Skips])
def test_a_cycle_across_keys_names_both_lines(program: Any) -> None:
    """There is no rewrite as long as one depends on the other, and that is said."""
    found = row(program)
    first = program.transfer.__code__.co_firstlineno
    lines = {Ledger: (3, 4), Skips: (5, 2)}[program]
    assert found.strategy == "chain"
    assert found.rewrite is not None
    assert found.rewrite.startswith(
        f"none while what Transfer writes to moved[e.target] (line {first + lines[0]}) depends on the moved[e.source] that it "
        f"reads (line {first + lines[1]})."
    )
    assert (
        "log Transfer as events that each use one key of moved (of Transfer: moved[e.source], moved[e.target])"
        in found.rewrite
    )


def test_events_with_one_key_each_run_by_key() -> None:
    """As the advice for a cycle across keys says."""
    assert row(Halves).strategy == "by key"
    rng = random.Random(1)
    kinds = (lambda t: Debit(source=rng.randrange(3), amount=rng.randrange(5), ts=t),
             lambda t: Credit(target=rng.randrange(3), amount=rng.randrange(5), ts=t))  # fmt: skip
    check_replay(Halves, [rng.choice(kinds)(t // 2) for t in range(30)], slices=(1, 3))


def test_a_rejection_that_other_states_decide_is_a_scan() -> None:
    """As the advice for one that the same state decides says, which promises nothing else."""
    assert (
        row(Halves).rewrite
        == "decide the rejection from states that this event does not write: then moved is a scan"
    )
    assert row(Elsewhere).strategy == "scan"


# --- states that depend on each other ---------------------------------------------------------------


class Both(tl.Program):
    x: tl.Counter[int]
    y: tl.Counter[int]

    @tl.on(Transfer)
    def transfer(self, e: Transfer) -> None:
        if self.y[e.target] > 3:
            self.x[e.source] += 1
        if self.x[e.source] > 3:
            self.y[e.target] += 1


class One(tl.Program):
    x: tl.Counter[int]
    y: tl.Counter[int]

    @tl.on(Transfer)
    def transfer(self, e: Transfer) -> None:
        self.x[e.source] += 1
        if self.x[e.source] > 3:
            self.y[e.target] += 1


class Refuses(tl.Program):
    moved: tl.Counter[int]
    busy: tl.Counter[int]

    @tl.on(Transfer)
    def transfer(self, e: Transfer) -> None:
        self.moved[e.target] += e.amount
        self.busy[e.source] += 1
        if self.moved[e.source] > 5 and self.busy[e.target] > 4:
            self.reject("busy")


class RefusesWithout(tl.Program):
    moved: tl.Counter[int]
    busy: tl.Counter[int]

    @tl.on(Transfer)
    def transfer(self, e: Transfer) -> None:
        self.moved[e.target] += e.amount
        self.busy[e.source] += 1
        if self.moved[e.source] > 5:
            self.reject("busy")


class Twice(tl.Program):
    """Three states in two circles: x asks y and z, both ask x."""

    x: tl.Counter[int]
    y: tl.Counter[int]
    z: tl.Counter[int]

    @tl.on(Transfer)
    def transfer(self, e: Transfer) -> None:
        if self.y[e.source] > 3:
            self.x[e.source] += 1
        if self.x[e.target] > 3:
            self.y[e.source] += 1
        if self.y[e.target] > 3 and self.x[e.source] > 3:
            self.z[e.source] += 1
        if self.z[e.target] > 3:
            self.x[e.target] += 1


def test_a_link_between_states_that_is_cut() -> None:
    line = Both.transfer.__code__.co_firstlineno + 2
    assert row(Both, "x").rewrite == f"write x without asking y (line {line}): then they are separate stages"
    assert [r.strategy for r in tl.explain(One).states] == ["scan", "scan"]


def test_a_link_by_a_rejection_is_cut_for_all_that_it_undoes() -> None:
    line = Refuses.transfer.__code__.co_firstlineno + 4
    assert row(Refuses).rewrite == (
        f"decide the rejection without asking busy (line {line}): then they are separate stages; moved would still ask itself"
    )
    assert {r.state: (r.stage, r.strategy) for r in tl.explain(RefusesWithout).states} == {
        "moved": (1, "chain"), "busy": (2, "scan"),
    }  # fmt: skip


class TwiceWithout(tl.Program):
    """As the advice for Twice says."""

    x: tl.Counter[int]
    y: tl.Counter[int]
    z: tl.Counter[int]

    @tl.on(Transfer)
    def transfer(self, e: Transfer) -> None:
        if self.y[e.source] > 3:
            self.x[e.source] += 1
        if self.x[e.target] > 3:
            self.y[e.source] += 1
        if self.y[e.target] > 3 and self.x[e.source] > 3:
            self.z[e.source] += 1
        self.x[e.target] += 1


def test_a_link_that_is_not_enough_is_not_promised() -> None:
    """Without y, x still asks z, which asks y, which asks x. Without z it is apart from that at least."""
    line = Twice.transfer.__code__.co_firstlineno + 8
    assert (
        row(Twice, "x").rewrite == f"write x without asking z (line {line}): then x and z are separate stages"
    )
    stages = {r.state: r.stage for r in tl.explain(TwiceWithout).states}
    assert stages["x"] == stages["y"] != stages["z"]
