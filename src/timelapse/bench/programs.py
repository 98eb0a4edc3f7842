"""The benchmark's programs: the anti-spam program over numbers, and over strings and text."""

from __future__ import annotations

import timelapse as tl


class Friendship(tl.Event):
    """Two users become friends."""

    a: int
    b: int


class Sent(tl.Event):
    """A private message, as numbers."""

    id: int
    sender: int
    recipient: int
    ip: int
    has_email: bool


class Message(tl.Event):
    """A private message."""

    id: int
    sender: int
    recipient: int
    ip: str
    text: str


class Spam(tl.Record, key="message"):
    """A message that is flagged."""

    message: int
    sender: int


def pair(a: int, b: int) -> tuple[int, int]:
    """The unordered pair of two users."""
    return (a, b) if a < b else (b, a)


class IntAntispam(tl.Program):
    """Flag who mostly writes to strangers, from addresses that often send e-mail addresses."""

    ratio: float = 2.0
    share: float = 0.2

    friends: tl.Set[tuple[int, int]]
    to_friends: tl.Counter[int]
    to_others: tl.Counter[int]
    sent: tl.Counter[int]
    with_email: tl.Counter[int]

    @tl.on(Friendship)
    def befriend(self, e: Friendship) -> None:
        self.friends.add(pair(e.a, e.b))

    @tl.on(Sent)
    def count(self, m: Sent) -> None:
        if pair(m.sender, m.recipient) in self.friends:
            self.to_friends[m.sender] += 1
        else:
            self.to_others[m.sender] += 1
        self.sent[m.ip] += 1
        if m.has_email:
            self.with_email[m.ip] += 1

    @tl.on(Sent)
    def flag(self, m: Sent) -> None:
        strangers = self.to_others[m.sender] > self.ratio * self.to_friends[m.sender]
        if strangers and self.with_email[m.ip] > self.share * self.sent[m.ip]:
            self.emit(Spam(message=m.id, sender=m.sender))


class TextAntispam(tl.Program):
    """The same with addresses as strings, and e-mail addresses looked for in the text."""

    ratio: float = 2.0
    share: float = 0.2

    friends: tl.Set[tuple[int, int]]
    to_friends: tl.Counter[int]
    to_others: tl.Counter[int]
    sent: tl.Counter[str]
    with_email: tl.Counter[str]

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

    @tl.on(Message)
    def flag(self, m: Message) -> None:
        strangers = self.to_others[m.sender] > self.ratio * self.to_friends[m.sender]
        if strangers and self.with_email[m.ip] > self.share * self.sent[m.ip]:
            self.emit(Spam(message=m.id, sender=m.sender))


class Reading(tl.Event):
    """What a sensor reads."""

    id: int
    sensor: int
    value: float


class Deviation(tl.Record, key="reading"):
    """A reading far from its sensor's smoothed mean."""

    reading: int
    sensor: int
    mean: float


class Ewma(tl.Program):
    """Exponentially weighted mean and spread of every sensor, and an alert on a deviation: all under one key."""

    ratio: float = 2.0
    alpha: float = 0.1

    mean: tl.Value[int, float] = tl.state(default=0.0)
    spread: tl.Value[int, float] = tl.state(default=1.0)

    @tl.on(Reading)
    def observe(self, e: Reading) -> None:
        k = e.sensor
        old, usual = self.mean[k], self.spread[k]
        off = abs(e.value - old)
        self.mean[k] = old + self.alpha * (e.value - old)
        self.spread[k] = usual + self.alpha * (off - usual)
        if off > 2.0 * self.ratio * usual:
            self.emit(Deviation(reading=e.id, sensor=k, mean=old))
