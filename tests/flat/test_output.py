"""What rewritten handlers put out: rows of numbers are packed, all others are tuples, and both can be taken back."""

from __future__ import annotations

import random
from typing import Any

import pytest

import timelapse as tl
from tests.flat.agree import agree
from timelapse.ids import INT64_MAX, INT64_MIN
from timelapse.kernels.python.flat.output import Packed, Tuples, rows_of
from timelapse.model.order import in_order


class Seen(tl.Event):
    n: int
    x: float
    on: bool
    word: str
    maybe: int | None


class Numbers(tl.Record):
    n: int
    x: float
    on: bool
    at: tl.Time


class Words(tl.Record):
    word: str
    n: int
    maybe: int | None


class Nothing(tl.Record):
    pass


class Out(tl.Record):
    n: int
    x: float


class Everything(tl.Program):
    """Puts out rows of all forms, and rejects, or fails, when some are there already."""

    total: tl.Counter[int]

    @tl.on(Seen)
    def tell(self, e: Seen) -> None:
        self.emit(Numbers(n=e.n, x=e.x, on=e.on, at=e.ts))
        self.emit(Words(word=e.word, n=e.n, maybe=e.maybe))
        if e.on:
            self.emit(Nothing())
            self.emit(Out(x=e.n % 7, n=self.total[e.n % 5]))
        row = Out(n=1, x=e.n % 3)
        self.emit(row)
        self.total[e.n % 5] += 1
        if e.maybe == 1:
            self.reject(Out(n=e.n, x=-0.0))
        if e.maybe == 2:
            self.reject(Words(word="rejected", n=0, maybe=None))
        self.emit(Out(n=10 // (e.n % 11), x=float("nan")))


NUMBERS = (0, 1, -1, 7, INT64_MAX, INT64_MIN, 1 << 53)
FLOATS = (0.0, -0.0, 1.5, float("nan"), float("inf"), 5e-324)


def _events(seed: int, count: int) -> list[Any]:
    draw = random.Random(seed)
    return list(in_order(
        Seen(
            ts=place // 2, n=draw.choice(NUMBERS) if draw.random() < 0.2 else draw.randrange(1, 1000),
            x=draw.choice(FLOATS), on=draw.random() < 0.5, word=draw.choice(("", "ä", "a\0b", "word")),
            maybe=draw.choice((None, 0, 1, 2, 3, 4)),
        )
        for place in range(count)
    ))  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_all_forms_agree(seed: int) -> None:
    events = _events(seed, 400)
    found = agree(Everything(), events, (0, 130, 131, 400), quarantine=True)
    if seed == 0:
        names = {cls.__name__ for result in found for cls in result.outputs}
        assert names == {"Numbers", "Words", "Nothing", "Out"}
        assert any(result.quarantined for result in found)
        assert any(result.rejected is not None and result.rejected.num_rows for result in found)


def test_a_failure_without_quarantine_is_at_the_same_event() -> None:
    found = agree(Everything(), _events(1, 400), (0, 400))
    assert found[-1].failure is not None


def test_rows_of_numbers_are_packed() -> None:
    assert isinstance(rows_of(Numbers), Packed)
    assert isinstance(rows_of(Nothing), Packed)
    assert isinstance(rows_of(Words), Tuples)


@pytest.mark.parametrize("cls", [Out, Words])
def test_taking_back_leaves_what_earlier_events_put_out(cls: type[tl.Record]) -> None:
    rows = rows_of(cls)
    values = (1, 2.0) if cls is Out else ("a", 1, None)
    for seq, place in ((4, 0), (4, 1), (9, 0), (9, 1), (9, 2)):
        rows.add(100 + seq, seq, place, *values)
    rows.take_back(8)
    assert rows.table().num_rows == 5
    rows.take_back(9)
    table = rows.table()
    assert table.column("seq").to_pylist() == [4, 4]
    assert table.column("ordinal").to_pylist() == [0, 1]
    rows.add(110, 10, 0, *values)
    rows.take_back(10)
    rows.take_back(4)
    assert rows.table().num_rows == 0
