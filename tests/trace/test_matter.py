"""Which events matter to some keys: given up as soon as they are too many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timelapse as tl
from timelapse.log import Log, MemoryLog
from timelapse.run import replay
from timelapse.trace import columns
from timelapse.trace.columns import Columns, picked_of
from timelapse.trace.knowledge import Unfocused
from timelapse.trace.matter import Matter
from timelapse.trace.whole import past_of


class Seen(tl.Event):
    a: int
    b: int
    c: int


class Three(tl.Program):
    x: tl.Counter[int]
    y: tl.Counter[int]
    z: tl.Counter[int]

    @tl.on(Seen)
    def see(self, e: Seen) -> None:
        self.x[e.a] += 1
        self.y[e.b] += 1
        self.z[e.c] += 1


@pytest.mark.parametrize("most", [5, 6, 9])
def test_what_is_too_much_is_not_looked_for_to_its_end(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three events write each key: some write two of them, and count once."""
    keys = [(0, 1, 1)] * 2 + [(0, 0, 1)] + [(1, 0, 1)] * 2 + [(1, 1, 0)] * 3
    events = [Seen(a=a, b=b, c=c, ts=n) for n, (a, b, c) in enumerate(keys)]
    run = replay(Three(), MemoryLog(events, [Seen]), spark=False)
    asked: list[Any] = []
    holding = Columns.holding

    def noting(columns: Columns, pattern: Any, *more: Any) -> Any:
        asked.append(pattern)
        return holding(columns, pattern, *more)

    monkeypatch.setattr(Columns, "holding", noting)
    past = past_of(run)
    matter = Matter(past, past.stepwise, 0, len(events), (), most)
    matter.demand([("x", 0), ("y", 0)])
    assert sorted(matter.events) == [0, 1, 2, 3, 4]
    assert matter.events[2] == {"x", "y"}
    if most == 9:
        matter.demand([("z", 0)])
        assert sorted(matter.events) == list(range(8))
        return
    with pytest.raises(Unfocused, match="too many events"):
        matter.demand([("z", 0), ("x", 1)])
    assert len(asked) == 3  # not who wrote x[1]


def test_columns_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever core reads a piece: the blocks are those of the log, and fields that are added later fit them."""
    monkeypatch.setattr(columns, "_PIECE", 2)
    events = [Seen(a=n, b=n % 7, c=-n, ts=n) for n in range(100)]
    reader = Log.from_events(tmp_path / "log", events, [Seen], block=8).reader
    for lo, hi in ((0, 100), (5, 77), (16, 32), (20, 22), (99, 100)):
        found = Columns(reader, lo, hi, {"Seen": ["a"]})
        found.add({"Seen": ["c", "ts"]})
        fields = {"Seen": ["a", "c"]}
        assert [*found.chunks(lo, hi, fields)] == [*reader.chunks(lo, hi, fields)]
        for step in (1, 3):
            seqs = np.arange(lo, hi, step)
            fields = {"Seen": ["b", "c"]}
            apart = found.apart(seqs, {"Seen": ["ts", "b", "c"]})
            assert apart.covers(lo, hi, fields)
            assert [*apart.chunks(lo, int(seqs[-1]) + 1, fields)] == [
                picked_of(chunk, seqs) for chunk in reader.chunks(lo, int(seqs[-1]) + 1, fields)
            ]
