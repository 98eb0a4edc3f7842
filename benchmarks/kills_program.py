"""The programs that `benchmarks.kills` replays: one scans, one looks back, both as plain Python, so that there is time to kill them."""

from __future__ import annotations

import timelapse as tl


class Trade(tl.Event):
    buyer: int
    seller: int
    amount: int


class Alarm(tl.Record, key="buyer"):
    buyer: int
    total: int


class Tally(tl.Program):
    """Sets and counters, alarms at round sums."""

    known: tl.Set[tuple[int, int]]
    bought: tl.Counter[int]
    sold: tl.Counter[int]

    @tl.on(Trade)
    def count(self, t: Trade) -> None:
        if (t.buyer, t.seller) not in self.known:
            self.known.add((t.buyer, t.seller))
            self.sold[t.seller] += 1
        self.bought[t.buyer] += t.amount
        if self.bought[t.buyer] > 40 * self.sold[t.buyer]:
            self.emit(Alarm(buyer=t.buyer, total=self.bought[t.buyer]))


class Lately(Tally):
    """The same, and what was bought in the last minute."""

    @tl.on(Trade)
    def look(self, t: Trade) -> None:
        if self.bought.last(tl.MINUTE)[t.buyer] > 50:
            self.emit(Alarm(buyer=t.buyer, total=-self.bought.last(tl.MINUTE)[t.buyer]))
