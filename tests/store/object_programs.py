"""What tests of object stores replay."""

from __future__ import annotations

import timelapse as tl


class Seen(tl.Event):
    user: int
    address: str


class Often(tl.Record, key="user"):
    user: int
    times: int


class Counting(tl.Program):
    limit: int = 3
    times: tl.Counter[int]
    last: tl.Value[str] = tl.state(default="")

    @tl.on(Seen)
    def count(self, e: Seen) -> None:
        self.times[e.user] += 1
        if self.times[e.user] >= self.limit:
            self.emit(Often(user=e.user, times=self.times[e.user]))
        if e.address == "bad":
            self.reject("bad")
        self.last = e.address  # type: ignore[assignment]


PROGRAM = """
import timelapse as tl


class Seen(tl.Event):
    user: int
    address: str


class Often(tl.Record, key="user"):
    user: int
    times: int


class Counting(tl.Program):
    limit: int = 3
    times: tl.Counter[int]

    @tl.on(Seen)
    def count(self, e):
        self.times[e.user] += 1
        if self.times[e.user] >= self.limit:
            self.emit(Often(user=e.user, times=self.times[e.user]))
"""


def some(first: int, end: int) -> list[Seen]:
    return [
        Seen(user=n * 7 % 13, address=f"a{n % 5}" if n % 50 else "bad", ts=n * 1000)
        for n in range(first, end)
    ]
