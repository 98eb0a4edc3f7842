"""What random handlers have found: programs that compiled to something else than they mean."""

from __future__ import annotations

from typing import Any

import pytest

import timelapse as tl
from tests.native.oracle import compare
from tests.native.programs import A, Note
from timelapse import serial
from timelapse.kernels.native import computed, decode


def events(*values: int) -> list[Any]:
    return [A(k=v, v=v, s="a", b=v > 0, x=0.5, raw=b"", at=0, ts=i) for i, v in enumerate(values)]


class ReadsTheStateItself(tl.Program):
    """`self.first` is the state, not what it holds: the sum is a TypeError."""

    first: tl.First[int] = tl.state(default=0)

    @tl.on(A)
    def go(self, e: A) -> None:
        self.first.add(e.v)
        self.emit(Note(n=self.first + 1, s=""))  # type: ignore[operator]


class ReadsItByGet(tl.Program):
    first: tl.First[int] = tl.state(default=0)
    low: tl.Min[int] = tl.state(default=7)

    @tl.on(A)
    def go(self, e: A) -> None:
        self.emit(Note(n=self.first.get() * 10 + self.low.get(), s=""))
        self.first.add(e.v)
        self.low.add(e.v)


class ReadsItWithADefault(tl.Program):
    """Where there is no key the first argument is the default, as it is the value of `add`."""

    first: tl.First[int] = tl.state(default=0)
    mean: tl.Smoothed = tl.state(alpha=0.5)
    few: tl.Recent = tl.state(last=2)

    @tl.on(A)
    def go(self, e: A) -> None:
        before = self.first.get(5) * 100 + self.few.largest(3)
        if self.mean.get(0.5) > 1.0:
            before += 10000
        self.emit(Note(n=before, s=""))
        if e.v > 1:
            self.first.add(e.v)
            self.mean.add(e.v)
            self.few.add(e.v)


def test_the_first_argument_is_the_default_where_there_is_no_key() -> None:
    found = serial.run(ReadsItWithADefault, events(1, 2, 1))
    assert [o.record.n for o in found.outputs] == [503, 503, 10202]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "program", [ReadsTheStateItself, ReadsItByGet, ReadsItWithADefault], ids=lambda p: p.__name__
)
def test_compiled_as_interpreted(program: type[tl.Program], monkeypatch: pytest.MonkeyPatch) -> None:
    compare(program, events(3, 1, 2), [0, 2, 3], monkeypatch)


class LongIfAsked(tl.Program):
    """What comes after `and` would not end for some events; the handler does not ask for those."""

    n: tl.Counter

    @tl.on(A)
    def go(self, e: A) -> None:
        if e.v < 1000 and len("".join([str(i) for i in range(e.v)])) > 5:
            self.n += 1
            self.emit(Note(n=self.n, s=""))  # type: ignore[arg-type]


def test_columns_that_would_take_for_ever_are_left_to_the_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computed, "ALL_SECONDS", 0.05)
    monkeypatch.setattr(computed, "ROW_SECONDS", 0.02)
    asked: list[int] = []
    real = computed.compute
    monkeypatch.setattr(decode, "compute", lambda *a: asked.append(1) or real(*a))  # type: ignore[func-returns-value]
    values = (3, 10**15, 9, 12, 10**14, 10**13, 10**12, 7, 40)
    compare(LongIfAsked, events(*values), [0, 3, 9], monkeypatch)
    assert asked
