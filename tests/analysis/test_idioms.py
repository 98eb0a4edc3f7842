"""Idioms are recognised where they hold, and nothing that only looks like one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.analysis.cases import Case, analysis, cases, program, said
from tests.analysis.driver import run_pass, scannable
from timelapse import serial
from timelapse.analysis import analyse, build_pass
from timelapse.analysis.idioms import GUARD_RULES, WRITE_RULES

IDIOMS = cases("membership.txt") + cases("extremum.txt") + cases("addition.txt") + cases("first.txt")


@pytest.mark.parametrize("case", IDIOMS, ids=str)
def test_fixture(case: Case) -> None:
    """The effects of each write and what they need, as the fixture says."""
    found = analysis(case.body, methods=case.methods, top=case.top)
    for state, expected in case.expected:
        assert said(found, state) == expected, found.text()


@pytest.mark.parametrize("case", IDIOMS, ids=str)
def test_the_pass_of_a_fixture_gives_the_serial_state(case: Case) -> None:
    """Whatever was recognised: effects applied one by one give what the program gives."""
    made = program(case.body, methods=case.methods, top=case.top)
    rng = random.Random(case.title)
    event: Any = made.__spec__.events[0]
    events = [
        event(
            a=rng.randrange(3), b=rng.randrange(-2, 4), s=rng.choice("xyz"), x=rng.choice([-1.0, 0.5, 2.0]),
            o=rng.choice([None, 1, 2]), on=rng.random() < 0.5, items=[rng.randrange(3) for _ in range(2)],
            ts=i, seq=i,
        ) for i in range(80)
    ]  # fmt: skip
    expected = serial.run(made, events).states
    found = analyse(made)
    for component in found.components:
        delta = component if scannable(found, component) else ()
        work = build_pass(found, "pass", component, delta)
        assert run_pass(made, work, events) == {s: expected[s] for s in component}


def test_every_rule_has_a_fixture_that_it_recognises() -> None:
    """A rule that recognises nothing any more is noticed."""
    used = {
        w.idiom
        for c in IDIOMS
        for f in analysis(c.body, methods=c.methods, top=c.top).facts.values()
        for w in f.writes
    }
    assert used >= {r.name for r in GUARD_RULES} | {r.name for r in WRITE_RULES}
