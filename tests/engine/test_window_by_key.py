"""Windows over a SetOf's members where events are shared out by key."""

from __future__ import annotations

import random

import timelapse as tl
from timelapse.testing import check_replay


class Hit(tl.Event):
    k: int
    v: int


class Told(tl.Record, key="k"):
    k: int
    n: int


class Busy(tl.Program):
    """Counts members in a window, under the event's own key."""

    members: tl.SetOf[int, int]

    @tl.on(Hit)
    def go(self, e: Hit) -> None:
        self.members.add(e.k, e.v)
        if self.members.last(5).count(e.k) > 2:
            self.emit(Told(k=e.k, n=e.v))


def test_members_in_a_window_by_key() -> None:
    chance = random.Random(3)
    events = [Hit(k=chance.randrange(4), v=chance.randrange(5), ts=n) for n in range(60)]
    run = check_replay(Busy, events, slices=(1, 3), strategies=("by-key", "chain"))
    assert run.counts["Told"]
