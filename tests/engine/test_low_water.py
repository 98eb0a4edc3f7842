"""Windows hold what some view can still see, and nothing older: rows, versions and operations behind the longest one are gone."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from timelapse.kernels.python import rowlog
from timelapse.kernels.python.extremes import Extremes
from timelapse.kernels.python.versions import Folds, Versions
from timelapse.testing import assert_same

BLOCK = 32
DAY = tl.DAY


class Message(tl.Event):
    user: int
    to: int


class Found(tl.Record):
    a: int
    b: int


class Month(tl.Program):
    """Windows of thirty days of every sort, the reads few and far between."""

    sent: tl.Counter[int]
    met: tl.Set[int]
    place: tl.Value[int, int] = tl.state(default=-1)
    then: tl.Counter[int] = tl.state(history=30 * DAY)
    best: tl.Max[int, int] = tl.state(default=-1)
    lately: tl.Smoothed[int] = tl.state(alpha=0.5)

    @tl.on(Message)
    def go(self, m: Message) -> None:
        self.sent[m.user] += 1
        self.met.add(m.to)
        self.place[m.user] = m.seq
        self.then[m.user] += 1
        self.best.add(m.user, m.to)
        self.lately.add(m.user, m.to)
        if m.seq % 40 == 0:
            back = max(0, self.now - 30 * DAY)
            self.emit(Found(a=self.sent.last(30 * DAY)[m.user], b=int(m.to in self.met.last(30 * DAY))))
            self.emit(Found(a=self.place.ago(30 * DAY)[m.user], b=self.then.get(m.user, at=back)))
            lately = self.lately.last(30 * DAY)[m.user]
            self.emit(Found(a=self.best.last(30 * DAY)[m.user], b=-1 if lately is None else round(lately)))


class Held:
    """The most that was held at a time: rows of logs, and what windows keep of them."""

    def __init__(self) -> None:
        self.rows = self.tail = self.entries = self.seen = 0

    def look(self, log: rowlog.PythonLog, times: list[int], now: int) -> None:
        self.rows = max(self.rows, sum(table.num_rows for _, table in log._blocks) + len(log.tail[0]))
        self.tail = max(self.tail, len(log.tail[0]))
        self.seen = max(self.seen, len(times) - bisect_right(times, now - 30 * DAY))
        for window in log.cursors:
            if isinstance(window, Versions):
                entries = sum(len(line.times) - line.start for line in window._lines.values())
            elif isinstance(window, Extremes):
                entries = sum(map(len, window._queues.values()))
            elif isinstance(window, Folds):
                entries = sum(map(len, window._done.values()))
            else:
                continue
            self.entries = max(self.entries, entries)


@pytest.mark.parametrize("days", [30, 120])
def test_a_window_of_thirty_days(days: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Over thirty days all rows can be seen: what is added up is in memory by key, and rows wait in files. Over a hundred and
    twenty days no more is held than over thirty."""
    monkeypatch.setattr(rowlog, "BLOCK", BLOCK)
    count = 20 * days
    events = [
        Message(user=i * 7919 % 50, to=i * 104729 % 97, ts=i * days * DAY // count) for i in range(count)
    ]
    held: dict[tuple[str, str], Held] = {}
    told = rowlog.PythonLog.told
    times: dict[int, list[int]] = {}

    def watched(self: rowlog.PythonLog, key: Any, value: Any) -> None:
        told(self, key, value)
        now = self.live["now"]
        own = times.setdefault(id(self), [])
        own.append(now)
        if len(own) % 10 == 0:
            held.setdefault((self.spec.name, self.form), Held()).look(self, own, now)

    monkeypatch.setattr(rowlog.PythonLog, "told", watched)
    log = tl.Log.from_events(tmp_path / "log", events, [Message])
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    run = tl.replay(Month, log, slices=1, spark=False, strategy="chain", cache=False)
    assert_same(tl.run_serial(Month, log), run)
    assert set(held) == {
        ("sent", "net"), ("met", "present"), ("place", "present"), ("then", "net"), ("best", "ops"),
        ("lately", "ops"),
    }  # fmt: skip
    slack = 3 * BLOCK + 1
    for (name, form), found in held.items():
        assert found.seen in (600, 599), name  # twenty a day
        assert found.tail <= slack, name
        assert found.rows <= found.seen + slack, name
        assert found.entries <= found.seen + slack, name
        if name == "best":
            assert 0 < found.entries < found.seen / 2  # what a later one beats is not held
        elif name in ("place", "then") or form == "ops":
            assert found.entries >= min(found.seen, count) - slack, name
    several = tl.replay(Month, log, slices=3, spark=False, strategy="staged", cache=False)
    assert several.digest == run.digest
