"""Passes of random programs give the serial state, and states stay as they are when unrelated reads lie."""

from __future__ import annotations

import random

from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.analysis.driver import Perturbed, above, lies, run_pass, scannable
from tests.depth import deep
from tests.writers.sources import load_source, random_events, random_program
from timelapse import serial
from timelapse.analysis import analyse, build_pass, final_pass
from timelapse.model.order import in_order
from timelapse.program.binding import bind
from timelapse.program.program import Rejection, rejection, spec_of

# A seed says nothing when it gets smaller: the program is printed instead.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)


def check_passes(text: str, seed: int) -> None:
    program = load_source(text)
    events = list(in_order(random_events(program, random.Random(seed), 60)))
    expected = serial.run(program, events).states
    analysis = analyse(program)
    analysis.verify()
    assert run_pass(program, final_pass(analysis), events) == expected
    for component in analysis.components:
        if scannable(analysis, component):
            found = run_pass(program, build_pass(analysis, "delta", component, component), events)
            assert found == {s: expected[s] for s in component}, f"{component} by deltas"
        found = run_pass(program, build_pass(analysis, "exact", component, ()), events)
        assert found == {s: expected[s] for s in component}, f"{component} exactly"


def check_interference(text: str, seed: int) -> None:
    program = load_source(text)
    events = list(in_order(random_events(program, random.Random(seed), 60)))
    analysis = analyse(program)
    expected = serial.run(program, events).states
    for liar in analysis.facts:
        try:
            found = run_lying(program, events, liar, seed)
        except (ArithmeticError, TypeError, LookupError, tl.TimelapseError):
            continue  # a lie may make a program fail; then it has no state
        for name in analysis.facts:
            if name != liar and liar not in above(analysis, name):
                assert found[name] == expected[name], f"{name} changed when reads of {liar} lied"


def run_lying(program: type[tl.Program], events: list[tl.Event], liar: str, seed: int) -> dict[str, object]:
    spec = spec_of(program)
    journal: list[tuple[dict[object, object], object, object]] = []
    stores = {
        n: Perturbed(journal, s, lies(random.Random(seed))) if n == liar else serial.DictStore(journal)
        for n, s in spec.states.items()
    }
    states = {n: s.kind(s, stores[n]) for n, s in spec.states.items()}

    def reject(reason: object = "") -> None:
        raise rejection(reason)  # type: ignore[arg-type]

    bound = bind(program(), states, {"emit": lambda _: None, "reject": reject, "now": 0})
    for event in events:
        bound.__dict__["now"] = event.ts
        journal.clear()
        try:
            for handler in spec.handlers_of(type(event)):
                handler.function(bound, event)
        except Rejection:
            for table, key, old in reversed(journal):
                if repr(old) == "ABSENT":
                    table.pop(key, None)
                else:
                    table[key] = old
    return {n: s.data for n, s in stores.items()}


@given(seed=st.integers(0, 10**9), size=st.integers(1, 4))
@settings(max_examples=deep(40), phases=PHASES)
def test_a_pass_gives_its_targets_the_serial_state(seed: int, size: int) -> None:
    """By deltas and exactly, reading only the columns it names, rejecting only where it says."""
    text = random_program(random.Random(seed), size)
    note(text)
    check_passes(text, seed)


@given(seed=st.integers(0, 10**9), size=st.integers(1, 4))
@settings(max_examples=deep(40), phases=PHASES)
def test_a_state_does_not_depend_on_what_analysis_says_it_does_not(seed: int, size: int) -> None:
    """Reads of Y lie; X stays the same wherever X is not said to depend on Y."""
    text = random_program(random.Random(seed), size)
    note(text)
    check_interference(text, seed)
