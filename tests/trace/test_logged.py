"""Events of a log by their seqs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

import timelapse as tl
from timelapse.errors import RunError
from timelapse.log import MemoryLog
from timelapse.segments.reader import Chunk
from timelapse.trace.logged import events_at


class Many(tl.Event):
    text: str


class Few(tl.Event):
    number: int


class Heard(tl.Program):
    seen: tl.Counter[int]

    @tl.on(Many)
    def many(self, e: Many) -> None:
        self.seen[len(e.text)] += 1

    @tl.on(Few)
    def few(self, e: Few) -> None:
        self.seen[e.number] += 1


@dataclass
class _Noting:
    """A reader that notes of which types fields are read."""

    base: Any
    read: set[str] = field(default_factory=set)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)

    def chunks(self, lo: int, hi: int, columns: Any) -> Iterator[Chunk]:
        self.read |= {name for name, fields in columns.items() if fields}
        return self.base.chunks(lo, hi, columns)  # type: ignore[no-any-return]


def test_fields_are_read_of_the_types_that_are_asked_for() -> None:
    events: list[Any] = [
        (Few(number=n) if n % 10 == 3 else Many(text=f"{n}"))._at(n * tl.SECOND, n) for n in range(100)
    ]
    reader = _Noting(MemoryLog(events, [Many, Few]))
    for seqs, types in (((3, 13, 93), {"Few"}), ((0, 99), {"Many"}), ((2, 3), {"Few", "Many"}), ((), set())):
        reader.read.clear()
        found = events_at(reader, Heard(), seqs)
        assert found == {seq: events[seq] for seq in seqs}
        assert reader.read == types
    with pytest.raises(RunError, match="no event with seq 100"):
        events_at(reader, Heard(), (3, 100))
