"""The program behind the stored log and run in this folder."""

from __future__ import annotations

import timelapse as tl


class Paid(tl.Event):
    user: int
    shop: str
    cents: int


class Closed(tl.Event):
    shop: str


class Large(tl.Record, key="user"):
    user: int
    shop: str
    cents: int
    before: int


class Payments(tl.Program):
    """Payments above a limit; none after a shop has closed; a payment of nothing fails."""

    limit: int = 40

    spent: tl.Counter[int]
    closed: tl.Set[str]
    latest: tl.Value[str, int | None]

    @tl.on(Paid)
    def pay(self, e):
        if e.shop in self.closed:
            self.reject("closed")
        if 100 // e.cents < 5 and e.cents > self.limit:
            self.emit(Large(user=e.user, shop=e.shop, cents=e.cents, before=self.spent[e.user]))
        self.spent[e.user] += e.cents
        self.latest[e.shop] = e.user

    @tl.on(Closed)
    def close(self, e):
        self.closed.add(e.shop)


def events(first: int, count: int) -> list[tl.Event]:
    """Events `first` to `first + count` of the log."""
    found: list[tl.Event] = []
    for n in range(first, first + count):
        if n % 37 == 36:
            found.append(Closed(shop=f"shop {n % 5}", ts=n * tl.SECOND))
        else:
            cents = n * 7919 % 90 if n % 61 else 0
            found.append(Paid(user=n % 11, shop=f"shop {n * n % 23}", cents=cents, ts=n * tl.SECOND))
    return found
