"""Every program of the catalogue: the serial meaning against its oracle, replays in slices against the serial meaning."""

from __future__ import annotations

import pytest

from tests.programs.catalogue import CATALOGUE, Entry
from tests.programs.data import make
from timelapse import serial
from timelapse.model.program import spec_of
from timelapse.run import replay, run_serial
from timelapse.testing import assert_same

EVENTS = 400
KEYS = 5


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda e: e.name)
def test_a_program_gives_what_its_oracle_gives_however_it_runs(entry: Entry) -> None:
    """Outputs to the last bit, at the same times in the same order; then every strategy in slices."""
    program, made = entry.program(), make(entry.mix(KEYS), EVENTS, seed=3)
    events = made.events(entry.classes())
    found = serial.run(program, events)
    wanted = entry.oracle(made.rows())
    got = [(o.position.ts, type(o.record).__name__, tuple(tuple.__iter__(o.record))) for o in found.outputs]
    assert got == wanted
    assert entry.loop(made.rows()) == wanted
    assert len(wanted) > 3 or not found.outputs
    reference = run_serial(program, events)
    asked = [(3, None), (2, "chain")] if spec_of(program).times else [(3, None), (4, "staged"), (2, "chain")]
    for slices, strategy in asked:
        run = replay(program, events, slices=slices, spark=False, strategy=strategy)
        assert run.certificate["fallback"] is None
        assert_same(reference, run, names=("serial", f"{slices} slices, {strategy}"))
        assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest)
