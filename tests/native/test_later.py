"""Ticks and handlers that are called later, in compiled passes: what the serial loop gives, to the last bit."""

from __future__ import annotations

import random

import pytest

from tests.native.fuzz.emulate import emulated
from tests.native.window_programs import windowed_log, windowed_program
from timelapse.analysis import analyse, final_pass
from timelapse.errors import HandlerError
from timelapse.kernels.choose import SWITCH, choice
from timelapse.kernels.native import build, kernel
from timelapse.kernels.native.lowering.lower import lowered
from timelapse.model.program import spec_of
from timelapse.run import replay, run_serial
from timelapse.testing import assert_same
from timelapse.testing.sources import load_source


@pytest.mark.parametrize(("piece", "seeds"), [(32768, (0, 7)), (3, (7, 15))])
def test_random_programs_as_the_serial_loop(
    piece: int, seeds: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run without compiling them, also in small pieces; ticks and late handlers write, put out, reject, and leave."""
    monkeypatch.setenv(SWITCH, "native")
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    monkeypatch.setattr(kernel, "PIECE", piece)
    through = looked = ticking = 0
    for seed in range(*seeds):
        program = load_source(windowed_program(seed, timed=True))()
        assert {u.what for u in spec_of(program).times} & {"after", "every"}
        found = choice(program, final_pass(analyse(type(program))), final=True)
        assert found.compiled, (seed, found.reason)
        ticking += bool(lowered(program, final_pass(analyse(type(program))), final=True).ticking)
        rng = random.Random(seed)
        events = windowed_log(program, seed, 45, edges=rng.random() < 0.3)
        slices = rng.choice((1, 3))
        try:
            reference = run_serial(program, events)
        except HandlerError as failed:
            with pytest.raises(HandlerError) as also:
                replay(program, events, slices=slices, spark=False, cache=False)
            assert also.value.message == failed.message
            assert (also.value.ts, also.value.seq) == (failed.ts, failed.seq)
            continue
        looked += 1
        try:
            run = replay(program, events, slices=slices, spark=False, cache=False)
            assert_same(reference, run)
            assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest)
        except Exception as error:
            raise AssertionError(f"seed {seed}, {slices} slices: {error!r}") from error
        through += run.certificate["passes"] == {"final": "compiled"}
    assert looked > 4
    assert ticking > 1
    assert through > 0.6 * looked
