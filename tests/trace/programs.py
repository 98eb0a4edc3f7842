"""Programs whose events are traced."""

from __future__ import annotations

import timelapse as tl


class Friendship(tl.Event):
    a: int
    b: int


class Message(tl.Event):
    id: int
    sender: int
    recipient: int
    ip: str
    text: str


class Spam(tl.Record, key="message"):
    message: int
    sender: int


class Edge(tl.Event):
    a: int
    b: int


class Label(tl.Event):
    node: int
    label: int


def pair(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)


class Antispam(tl.Program):
    """The example of the design, with a rejection and a total."""

    ratio: float = 2.0
    share: float = 0.2

    friends: tl.Set[tuple[int, int]]
    to_friends: tl.Counter[int]
    to_others: tl.Counter[int]
    sent: tl.Counter[str]
    with_email: tl.Counter[str]
    total: tl.Counter
    last: tl.Value[int, str | None]

    @tl.on(Friendship)
    def befriend(self, e: Friendship) -> None:
        self.friends.add(pair(e.a, e.b))

    @tl.on(Message)
    def count(self, m: Message) -> None:
        if pair(m.sender, m.recipient) in self.friends:
            self.to_friends[m.sender] += 1
        else:
            self.to_others[m.sender] += 1
        self.sent[m.ip] += 1
        if "@" in m.text:
            self.with_email[m.ip] += 1
        self.total += 1
        self.last[m.sender] = m.text

    @tl.on(Message)
    def flag(self, m: Message) -> None:
        if m.text == "bad":
            self.reject("bad word")
        if self.total < 3:  # type: ignore[operator]
            return
        strangers = self.to_others[m.sender] > self.ratio * self.to_friends[m.sender]
        if strangers and self.with_email[m.ip] > self.share * self.sent[m.ip]:
            self.alert(m)

    def alert(self, m: Message) -> None:
        self.emit(Spam(message=m.id, sender=m.sender))


class Odd(tl.Program):
    """Much of what Python's expressions and statements have, in one handler."""

    __limit: int = 2

    seen: tl.Counter[int]
    best: tl.Max[str, int] = tl.state(default=0)

    @property
    def most(self) -> int:
        return self.__limit if self.__limit > 1 else 1

    @staticmethod
    def size(text: str) -> int:
        return len(text)

    @tl.on(Message)
    def work(self, m: Message) -> None:
        k = [m.sender, m.recipient][0]
        for i, c in enumerate(m.text[:3]):
            if c == "x" or i in (1, 2):
                continue
            self.seen[k % 3] += ord(c) % 5
        while self.seen[k % 3] > 9:
            self.seen[k % 3] -= 4
        top = max([self.seen[j] for j in range(3) if j != k], default=0)
        match (k % 2, m.text):
            case (0, t) if len(t) > self.most:
                self.best.add(t, top)
            case (1, "@"):
                self.best.add("at", -top)
            case _:
                pass
        try:
            if not 0 <= m.recipient - 1 < 5 or 10 // (m.recipient - 2) < 0:
                raise ValueError("far")
        except (ValueError, ZeroDivisionError) as error:
            if (n := len(str(error))) > 3 and self.size(m.text) != 7:
                self.emit(Spam(message=n, sender=top if top is not None else -1))
        text = f"{k!r:>4}{self.best['at']:+d}"
        assert text, "never"
        sorted([3, 1], key=lambda v: -v * self.most)


class Louder(Odd):
    """Overrides a handler and goes on to it."""

    @tl.on(Message)
    def work(self, m: Message) -> None:
        if self.seen[m.sender] < 5:
            super().work(m)


class Tangled(tl.Program):
    """What a value was compared with is told where it was assigned, and read through a method."""

    n: tl.Counter[int]
    total: tl.Counter

    def busy(self, k: int) -> bool:
        return self.n[k] >= 2

    @tl.on(Friendship)
    def work(self, e: Friendship) -> None:
        self.n[e.a] += 1
        self.total += 1
        if not self.busy(e.a):
            return
        even = self.total % 2 == 0 and e.b != 3  # type: ignore[operator]
        if even or e.b in (7, 8):
            self.emit(Spam(message=e.b, sender=e.a))


class Grouped(tl.Program):
    """Kinds that keep an index beside their values, or need the time."""

    last: tl.ListOf[int, int] = tl.state(last=2)
    who: tl.SetOf[int, int]
    mean: tl.Mean[int]
    slow: tl.Decayed[int] = tl.state(half_life=10)

    @tl.on(Friendship)
    def work(self, e: Friendship) -> None:
        self.last.append(e.a, e.b)
        self.mean.add(e.a, e.b)
        self.slow.add(e.a, 1)
        if (e.a, e.b) in self.who:
            self.who.discard(e.a, e.b)
        elif self.who.count(e.a) < 3:
            self.who.add(e.a, e.b)
        if e.a == 5:
            self.reject()
        if self.slow[e.a] > 1.5 and e.b // (e.a - 4) < 9:
            self.emit(Spam(message=len(self.last[e.a]), sender=e.a))


class Timed(tl.Program):
    """Windows, timers, ticks, and a rejection."""

    n: tl.Counter[int]
    total: tl.Counter

    @tl.on(Friendship)
    def befriend(self, e: Friendship) -> None:
        self.n[e.a] += 1
        self.total += 1
        if self.n.last(10)[e.a] > 1 and self.n.ago(5)[e.a] < 40:
            self.alert(e)
        if e.b == 4:
            self.reject("four")

    def alert(self, e: Friendship) -> None:
        self.emit(Spam(message=self.n[e.a], sender=e.a))
        self.n.add(e.a, 1, at=self.now + 7)

    @tl.every(3_600 * tl.SECOND)
    def tick(self) -> None:
        self.emit(Spam(message=-1, sender=-1))
