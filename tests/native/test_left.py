"""Events that read every key run as Python, on the tables of a compiled pass."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

import timelapse as tl
from tests.native.oracle import assert_equal
from timelapse.analysis import analyse, final_pass
from timelapse.kernels.base import PassResult
from timelapse.kernels.choose import SWITCH, SliceKernel, choice
from timelapse.kernels.source import Source
from timelapse.log import MemoryLog
from timelapse.model.events import Event


class Note(tl.Event):
    k: int
    s: str
    n: int


class Ask(tl.Event):
    rows: int


class Row(tl.Record):
    s: str
    n: int


class Odd(tl.Record):
    k: int


class Table(tl.Program):
    """Counts, and shows the largest of them when somebody asks. Who asks is counted too, and may ask too much."""

    seen: tl.Counter[str]
    keys: tl.Set[int]
    asked: tl.Counter

    @tl.on(Note)
    def count(self, e: Note) -> None:
        self.seen[e.s] += e.n
        self.keys.add(e.k)
        if e.k == 3 and self.asked > 2:  # type: ignore[operator]
            self.emit(Odd(k=e.k))

    @tl.on(Ask)
    def show(self, e: Ask) -> None:
        self.asked += 1
        for s, n in self.seen.top(e.rows):
            self.emit(Row(s=s, n=n))
        self.seen[f"asked for {e.rows}"] += 1
        if e.rows == 7:
            self.reject("seven")
        self.emit(Odd(k=len(self.keys.items())))


class Unseen(Table):
    """A state that compiled events do not mention has no table for the others."""

    extra: tl.Counter[int]

    @tl.on(Ask)
    def show(self, e: Ask) -> None:
        self.extra[len(self.seen.items())] += 1


def _run(events: list[Event], cuts: list[int], switch: str) -> tuple[list[PassResult], SliceKernel]:
    work = final_pass(analyse(Table))
    log = MemoryLog(events, [Note, Ask])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, switch)
        kernel = SliceKernel(Table(), work, {}, 0, final=True)
        classes: Any = {"Note": Note, "Ask": Ask}
        return [
            kernel.run(Source(log, lo, hi, classes, work.columns), lambda _: None)
            for lo, hi in pairwise(cuts)
        ], kernel


@pytest.mark.parametrize("share", [0.005, 0.5])
def test_events_that_are_left_to_python_see_and_write_the_tables(share: float) -> None:
    """Few of them do not keep the pass from running compiled; with many the rest of it runs as Python."""
    rng = random.Random(4)
    events: list[Event] = []
    for i in range(2000):
        words = ["a", "b", "é", f"w{rng.randrange(40)}"]
        if rng.random() < share:
            events.append(Ask(rows=rng.choice((0, 3, 7, 50)), ts=i // 2))
        else:
            events.append(Note(k=rng.randrange(9), s=rng.choice(words), n=rng.randrange(-2, 4), ts=i // 2))
    expected, _ = _run(events, [0, 900, 900, 2000], "interpreted")
    found, kernel = _run(events, [0, 900, 900, 2000], "native")
    assert kernel.compiled is (share < 0.1)
    for a, b in zip(found, expected, strict=True):
        assert_equal(a, b)
    assert sum(r.rejected.num_rows for r in found if r.rejected is not None) > 0


def test_a_pass_compiles_only_if_all_its_states_have_tables() -> None:
    assert choice(Table(), final_pass(analyse(Table)), final=True).compiled
    refused = choice(Unseen(), final_pass(analyse(Unseen)), final=True)
    assert not refused.compiled
    assert "a read of every key" in refused.reason
