"""What random handlers have found: programs that compiled to something else than they mean."""

from __future__ import annotations

from typing import Any

import pytest

import timelapse as tl
from tests.native.oracle import compare
from tests.native.programs import A, Note
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


@pytest.mark.parametrize("program", [ReadsTheStateItself, ReadsItByGet], ids=lambda p: p.__name__)
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
