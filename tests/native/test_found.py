"""What random handlers have found: programs that compiled to something else than they mean."""

from __future__ import annotations

from typing import Any

import pytest

import timelapse as tl
from tests.native.oracle import compare
from tests.native.programs import A, Note


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
