"""What tests/streaming/test_declared.py declares first, as a later version declares it."""

from __future__ import annotations

import timelapse as tl
from tests.streaming.text_version import Seen as TextSeen


class Hit(tl.Event):
    who: int
    device: str | None
    size: int | None


class Refund(tl.Event):
    who: int
    n: int


class Seen(tl.Record, key="who"):
    who: int
    n: int
    device: str | None


class Label(tl.Record):
    who: int
    number: int


class Later(tl.Program):
    """Hit has a device besides and no note, its size may be missing; refunds are heard."""

    n: tl.Counter[int]
    devices: tl.Counter[tuple[int, str]]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        size = e.size
        if size is not None:
            self.n[e.who] += size
        device = e.device
        if device is not None:
            self.devices[e.who, device] += 1
        if self.n[e.who] % 3 == 0:
            self.emit(Seen(who=e.who, n=self.n[e.who], device=device))

    @tl.on(Hit, after=30)
    def later(self, e: Hit) -> None:
        device = e.device
        many = 0 if device is None else self.devices[e.who, device]
        self.emit(Seen(who=e.who, n=-1000 - many, device=device))

    @tl.on(Refund)
    def refund(self, r: Refund) -> None:
        self.n[r.who] -= r.n
        self.emit(Seen(who=r.who, n=self.n[r.who], device="refund"))


class Tied(tl.Program):
    """The version before up to a time, and this one behind it, over the same states: what a change means."""

    at: int = 0
    n: tl.Counter[int]
    devices: tl.Counter[tuple[int, str]]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        size, device = e.size, e.device
        if size is not None:
            self.n[e.who] += size
        if device is not None:
            self.devices[e.who, device] += 1
        if self.n[e.who] % (2 if e.ts <= self.at else 3) == 0:
            self.emit(Seen(who=e.who, n=self.n[e.who], device=device))

    @tl.on(Hit, after=30)
    def later(self, e: Hit) -> None:
        device = e.device
        many = 0 if device is None else self.devices[e.who, device]
        self.emit(Seen(who=e.who, n=-self.n[e.who] if self.now <= self.at else -1000 - many, device=device))

    @tl.on(Refund)
    def refund(self, r: Refund) -> None:
        self.n[r.who] -= r.n
        self.emit(Seen(who=r.who, n=self.n[r.who], device="refund"))


class Texts(tl.Program):
    n: tl.Counter[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += 1
        self.emit(TextSeen(who=e.who, n="x"))

    @tl.on(Refund)
    def refund(self, r: Refund) -> None:
        self.n[r.who] -= 1


def hidden_texts() -> type[tl.Program]:
    """The same, and its code does not say which record it is."""
    made = TextSeen

    class Hidden(tl.Program):
        n: tl.Counter[int]

        @tl.on(Hit)
        def hit(self, e: Hit) -> None:
            self.n[e.who] += 1
            self.emit(made(who=e.who, n="x"))

        @tl.on(Refund)
        def refund(self, r: Refund) -> None:
            self.n[r.who] -= 1

    return Hidden
