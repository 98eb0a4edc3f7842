"""Steps that stay at hand for some time: the last ones, whatever batches they came in."""

from __future__ import annotations

import numpy as np
import pytest

from tests.quarantine.test_rewinding import Mark, Move
from timelapse.kernels.native.decode import Batch, counts_of
from timelapse.kernels.native.heldsteps import HeldSteps
from timelapse.kernels.native.lowering.unit import Column, Unit
from timelapse.segments.reader import Chunk


def _batch(rng: np.random.Generator, first: int, count: int) -> Batch:
    """So many steps, one or a few at a time; the last column is of the second kind."""
    kinds = rng.integers(0, 2, count).astype(np.int8)
    when = first + np.cumsum(rng.integers(0, 2, count))
    arrays = []
    for kind in (0, 1):
        own = np.flatnonzero(kinds == kind)
        arrays += [when[own], first + own]
    arrays.append(arrays[3] * 7)
    for array in arrays:
        array.setflags(write=False)
    return Batch(kinds, arrays, Chunk(0, 0, {}), when)


@pytest.mark.parametrize(("piece", "span"), [(5, 3), (16, 40), (64, 3), (7, 300)])
def test_the_last_steps_are_held_as_they_came(piece: int, span: int) -> None:
    rng = np.random.default_rng(piece)
    unit = Unit(events=[Move, Mark], columns=[Column(1, "who", "int")])
    held, of, first = HeldSteps(unit, {0, 1}, 1, 3, span), [0, 0, 1, 1, 1], 0
    kinds = np.zeros(0, np.int8)
    arrays = [np.zeros(0, np.int64) for _ in of]
    for count in (40, 3, 90, 1, 200, 64):
        batch, position = _batch(rng, first, count), np.zeros(2, np.int64)
        assert batch.when is not None
        for lo in range(0, count, piece):
            hi = min(lo + piece, count)
            at = held.add(batch, lo, hi, position, 0)
            kinds = np.concatenate([kinds, batch.kinds[lo:hi]])
            there, had = held.batch, len(kinds) - held.count
            assert at == held.count - (hi - lo)
            assert there.kinds.tolist() == kinds[had:].tolist()
            for kind, so_far, array, now in zip(of, arrays, batch.arrays, there.arrays, strict=True):
                all_of = np.concatenate([so_far, array[: position[kind]]])
                assert now.tolist() == all_of[np.count_nonzero(kinds[:had] == kind) :].tolist()
                assert not now.flags.writeable
            held.position[:] = counts_of(there.kinds, 2)
            held.make_room(held.end)
            held.settle(int(batch.when[hi - 1]))
        arrays = [np.concatenate([so_far, array]) for so_far, array in zip(arrays, batch.arrays, strict=True)]
        first += count
    assert span > 100 or held.count < 100
