"""Slices that left a key of an onward state as it was are not gone through: what is told is what the serial loop tells."""

from __future__ import annotations

import random
from typing import Any

import pytest

import timelapse as tl
from tests.trace.programs import Edge
from tests.trace.test_few import without_slices
from tests.trace.test_thin import Spreading, _shut
from timelapse.log import MemoryLog
from timelapse.run import replay
from timelapse.trace import focus as focus_module
from timelapse.trace import likely as likely_module
from timelapse.trace import whole as whole_module
from timelapse.trace.knowledge import Ask, Uncompiled, Unfocused
from timelapse.trace.moments import Past
from timelapse.trace.whole import FromBeginning, past_of


@pytest.mark.parametrize(("slow", "most"), [(False, -1), (True, 10_000)])
def test_labels_that_have_spread(slow: bool, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while all nodes have the smallest label, and nothing writes one."""
    rng = random.Random(8)
    events = [Edge(a=rng.randrange(30), b=rng.randrange(30))._at(n * tl.SECOND, n) for n in range(150)]
    run = replay(Spreading, MemoryLog(events, [Edge]), slices=5, spark=False)
    assert sum(not run.changed("label", node, n) for node in range(30) for n in range(5)) > 30
    joined = run.table("Joined")["seq"].to_pylist()

    def answers() -> list[Any]:
        return [
            *(run.history("label", node, at=at, last=5).to_json() for node in (0, 7, 13, 29)
              for at in (None, 20 * tl.SECOND, 90 * tl.SECOND, 500 * tl.SECOND)),
            *(run.history("busy", node, last=5).to_json() for node in range(3)),
            *(without_slices(run.why(seq, depth=2).to_json()) for seq in joined[5:60:27]),
            *(without_slices(run.why_not(seq, depth=2).to_json()) for seq in (60, 119, 140)),
        ]  # fmt: skip

    with monkeypatch.context() as patch:
        patch.setattr(Past, "focus", _shut(Unfocused))
        patch.setattr(Past, "walk", _shut(Uncompiled))
        wanted = answers()
    monkeypatch.setattr(focus_module, "MOST", most)
    monkeypatch.setattr(whole_module, "_slow_starts", lambda run: slow)
    assert type(past_of(run)) is (FromBeginning if slow else Past)
    assert answers() == wanted


def test_slices_that_left_it_as_it_was_are_not_gone_through(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [Edge(a=0, b=n % 20)._at(n * tl.SECOND, n) for n in range(100)]
    run = replay(Spreading, MemoryLog(events, [Edge]), slices=4, spark=False)
    past = past_of(run)
    assert past.settled(("label", 3), 100) == past.settled(("label", 3), 60) == 25
    assert past.settled(("label", 3), 20) == 20
    assert past.settled(("label", 99), 100) == 0
    assert past.settled(("near", (0, 3)), 100) == 100
    monkeypatch.setattr(Past, "focus", _shut(Unfocused))
    through: list[int] = []
    monkeypatch.setattr(Past, "_pass", _noting(through, Past._pass))
    told = run.history("label", 3)
    assert [e.event.seq for e in told.entries] == [3]
    assert max(through) <= 25


def test_what_is_gone_through_ends_once_keys_hold_what_they_hold_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = [Edge(a=0, b=n % 20)._at(n * tl.SECOND, n) for n in range(100)]
    run = replay(Spreading, MemoryLog(events, [Edge]), slices=1, spark=False)
    monkeypatch.setattr(Past, "focus", _shut(Unfocused))
    stops: list[int] = []
    visit = likely_module.Watch.visit

    def noting(watch: Any, moment: Any) -> None:
        stops.append(moment.seq)
        visit(watch, moment)

    monkeypatch.setattr(likely_module.Watch, "visit", noting)
    told = run.history("label", 3)
    assert [(e.event.seq, e.after) for e in told.entries] == [(3, 0)]
    assert max(stops) == 4
    stops.clear()
    assert [e.event.seq for e in run.history("label", 3, at=50 * tl.SECOND).entries] == [3]
    assert max(stops) == 4
    stops.clear()
    assert [e.event.seq for e in run.history("busy", 0, last=2).entries] == [60, 80]
    assert 80 < max(stops) < 100


def _noting(through: list[int], go: Any) -> Any:
    def going(self: Past, slice_id: int, reader: Any, stops: Any, *args: Any, **given: Any) -> None:
        through.append(max(stops))
        go(self, slice_id, reader, stops, *args, **given)

    return going


def test_likely_writers_are_looked_for_up_to_where_a_key_may_have_been_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = [Edge(a=0, b=n % 20)._at(n * tl.SECOND, n) for n in range(100)]
    past = past_of(replay(Spreading, MemoryLog(events, [Edge]), slices=4, spark=False))
    asked: list[int] = []
    own = likely_module.likely

    def noting(past: Past, lo: int, hi: int, places: Any) -> Any:
        asked.append(hi)
        return own(past, lo, hi, places)

    monkeypatch.setattr(likely_module, "likely", noting)
    asks = [Ask(("label", 3), 25), Ask(("label", 4), 30)]
    found = likely_module.candidates(past, 0, 100, asks)
    assert asked == [30]
    assert [seqs.tolist() for seqs in map(found.__getitem__, asks)] == [[3, 23], [4, 24]]
