"""Random programs: every plan is sound, and each state's strategy can be forced without changing a bit."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import deep
from tests.plan.programs import Ledger, Login, Report, Transfer
from tests.writers.sources import load_source, random_events, random_program
from timelapse import serial
from timelapse.explanation import explain
from timelapse.plan import Strategy, make_plan
from timelapse.program.program import Program, spec_of
from timelapse.run import replay
from timelapse.testing import assert_same


def program_of(seed: int) -> type[Program]:
    return load_source(random_program(random.Random(seed)))


@settings(max_examples=deep(60))
@given(st.integers(0, 10**9))
def test_plans_of_random_programs_are_sound_and_can_be_explained(seed: int) -> None:
    """`make_plan` verifies each plan that it makes; forcing any state to a chain gives a sound plan as well."""
    program = program_of(seed)
    found = explain(program, cores=4)
    assert {r.state for r in found.states} == set(spec_of(program).states)
    assert str(found)
    assert found.svg()
    for name in spec_of(program).states:
        assert make_plan(program, force={name: "chain"}).stage_of(name).strategy is Strategy.CHAIN


@settings(max_examples=deep(15))
@given(st.integers(0, 10**9), st.sampled_from([2, 3, 7]))
def test_each_strategy_forced_in_turn_gives_the_same_bits(seed: int, slices: int) -> None:
    program = program_of(seed)
    events = random_events(program, random.Random(seed + 1), 30)
    expected = serial.run(program, events)
    for name in spec_of(program).states:
        run = replay(program, events, slices=slices, spark=False, strategy={name: "chain"})
        assert run.certificate["fallback"] is None
        assert_same(expected, run, names=("serial", f"{name} as a chain"))
    assert_same(expected, replay(program, events, slices=slices, spark=False, strategy="staged"))


@pytest.mark.parametrize("slices", [2, 5])
@pytest.mark.parametrize("strategy", [None, "staged", "chain", {"reports": "chain", "failures": "chain"}])
def test_a_program_with_a_cycle_and_five_stages_gives_the_same_bits(slices: int, strategy: object) -> None:
    rng = random.Random(5)
    events = []
    for i in range(200):
        user, other = rng.randrange(4), rng.randrange(4)
        events.append(
            rng.choice(
                [
                    Transfer(
                        src=user, dst=other, amount=rng.randrange(60), region=rng.choice("ab"), ts=i // 3
                    ),
                    Login(user=user, ip=str(other), ok=rng.random() < 0.6, ts=i // 3),
                    Report(user=user, by=other, ts=i // 3),
                ]
            )
        )
    run = replay(Ledger, events, slices=slices, spark=False, strategy=strategy)  # type: ignore[arg-type]
    assert run.certificate["fallback"] is None
    assert run.counts["Refused"] > 0
    assert run.counts["Suspicious"] > 0
    assert_same(serial.run(Ledger, events), run)
