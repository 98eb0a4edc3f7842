"""Counters that are known to be small need no tests and no undo log; where they might not be, Python goes on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.native.agree import agree
from tests.writers.sources import load_source
from timelapse.analysis import analyse, final_pass
from timelapse.kernels.native.kernel import NativeKernel
from timelapse.kernels.native.lowering import steady
from timelapse.kernels.native.lowering.lower import lowered
from timelapse.kernels.native.lowering.unit import Unit
from timelapse.program.program import as_program

PROGRAM = """
import timelapse as tl

class Note(tl.Event):
    k: int
    n: int
    on: bool

class Seen(tl.Record):
    k: int
    share: float

class P(tl.Program):
    ratio: float = 1.5
    ups: tl.Counter[int]
    downs: tl.Counter[int]

    @tl.on(Note)
    def note(self, e: Note) -> None:
        {body}
"""
STEADY = """if e.on:
            self.ups[e.k] += 2
        else:
            self.downs[e.k] -= 1
        both = self.ups[e.k] * 2 - self.downs[e.k]
        if both > self.ratio * self.ups[e.k]:
            self.emit(Seen(k=e.k, share=both / 4 * self.ups[e.k]))"""
AT_MOST = {
    "a step in a loop": "for i in range(e.n):\n            self.ups[e.k] += 1",
    "a step that is not known": "self.ups[e.k] += e.n",
    "a product": "self.ups[e.k] *= 2",
    "a large step": "self.ups[e.k] += 1 << 21",
    "set to what is not known": "self.ups[e.k] = e.n",
}


def unit_of(body: str) -> Unit:
    cls = load_source(PROGRAM.format(body=body))
    return lowered(as_program(cls()), final_pass(analyse(cls)), final=True)


def test_nothing_is_tested_or_kept() -> None:
    unit = unit_of(STEADY)
    assert unit.steady == {"ups": 2, "downs": 1}
    assert unit.undo == 0
    assert "return left" not in unit.source


@pytest.mark.parametrize(
    "body", [STEADY, STEADY.replace("downs[e.k] -= 1", "downs[e.k] = -1") + "\n        assert both < 300"]
)
def test_it_agrees_with_python(body: str) -> None:
    ran, left = agree(PROGRAM.format(body=body), count=400, seed=3)
    assert (ran, left) == (400, 0)


@pytest.mark.parametrize("what", AT_MOST)
def test_what_is_not_steady(what: str) -> None:
    unit = unit_of(AT_MOST[what])
    assert not unit.steady


def test_one_that_has_come_far_is_handed_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steady, "MOST", 3)
    monkeypatch.setattr(steady, "LIMIT", 100)
    handed: list[int] = []
    whole = NativeKernel.hand_over

    def hand_over(kernel: NativeKernel) -> Any:
        handed.append(kernel.left)
        return whole(kernel)

    monkeypatch.setattr(NativeKernel, "hand_over", hand_over)
    ran, left = agree(PROGRAM.format(body=STEADY), count=60, seed=5)
    assert (ran, left) == (60, 0)
    assert handed == [0], "the first of two slices stays below, the second does not"


def test_how_far_it_can_have_come() -> None:
    reach = steady.Reach({"ups": 2, "downs": 1}, {})
    assert reach.goes_on((steady.LIMIT - steady.MOST) // 2)
    assert not reach.goes_on(1)
    assert steady.Reach({}, {}).goes_on(steady.LIMIT)
