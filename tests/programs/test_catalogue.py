"""Every program of the catalogue: the serial meaning against its oracle, replays in slices against the serial meaning."""

from __future__ import annotations

import pytest

import timelapse as tl
from tests.depth import some
from tests.programs import oracles
from tests.programs.catalogue import CATALOGUE, EXAMPLES, FEATURES, Entry
from tests.programs.data import make
from timelapse import serial
from timelapse.program.program import spec_of
from timelapse.run import replay, run_serial
from timelapse.testing import assert_same

EVENTS = 400
KEYS = 5
SILENT = (oracles.nothing, oracles.count_messages)
"""Oracles of programs that put out nothing."""


def _outputs(program: tl.Program, events: list[tl.Event]) -> oracles.Out:
    found = serial.run(program, events).outputs
    return [(o.position.ts, type(o.record).__name__, tuple(tuple.__iter__(o.record))) for o in found]


@pytest.mark.parametrize(("number", "entry"), [*enumerate(CATALOGUE)], ids=lambda e: getattr(e, "name", ""))
def test_a_program_gives_what_its_oracle_gives_however_it_runs(number: int, entry: Entry) -> None:
    """Outputs to the last bit, at the same times in the same order; then every strategy in slices, in the usual run some."""
    program, made = entry.program(), make(entry.mix(KEYS), EVENTS, seed=3)
    events = made.events(entry.classes())
    wanted = entry.oracle(made.rows())
    assert _outputs(program, events) == wanted
    assert entry.loop(made.rows()) == wanted
    assert len(wanted) > 3 or entry.oracle in SILENT
    reference = run_serial(program, events)
    asked = [(3, None), (2, "chain")] if spec_of(program).times else [(3, None), (4, "staged"), (2, "chain")]
    for slices, strategy in some(asked, 2, number % 2):
        run = replay(program, events, slices=slices, spark=False, strategy=strategy)
        assert run.certificate["fallback"] is None
        assert_same(reference, run, names=("serial", f"{slices} slices, {strategy}"))
        assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest)


@pytest.mark.parametrize("entry", [e for e in CATALOGUE if e.grain > 1], ids=lambda e: e.name)
def test_windows_end_where_the_oracle_says_with_events_exactly_on_their_ends(entry: Entry) -> None:
    """Times are coarse: most events share theirs with others, and many stand exactly a window apart."""
    program, made = entry.program(), make(entry.mix(KEYS), EVENTS, seed=4, grain=entry.grain)
    events = made.events(entry.classes())
    wanted = entry.oracle(made.rows())
    assert _outputs(program, events) == wanted
    assert entry.loop(made.rows()) == wanted
    reference = run_serial(program, events)
    assert_same(reference, replay(program, events, slices=5, spark=False), names=("serial", "5 slices"))


def test_features_stand_where_the_list_says() -> None:
    for _, where in FEATURES:
        file, _, field = where.partition(":")
        record, _, name = field.partition(".")
        text = (EXAMPLES / file).read_text(encoding="utf-8").partition(f"class {record}(tl.Record")[2]
        assert f"\n    {name}: " in text.partition("\nclass ")[0], where
