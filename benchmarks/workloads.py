"""The benchmark's programs: the anti-spam program over numbers, and over strings and text."""

from __future__ import annotations

import zlib

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


class PythonAntispam(IntAntispam):
    """The same, with a rule that does not compile: text made from states, and a library's checksum of it."""

    @tl.on(Sent)
    def flag(self, m: Sent) -> None:
        far, near = self.to_others[m.sender], self.to_friends[m.sender]
        address, mail = self.sent[m.ip], self.with_email[m.ip]
        told = f"{m.sender}:{near}:{far}:{address}:{mail}"
        if zlib.crc32(told.encode()) >= 0 and far > self.ratio * near and mail > self.share * address:
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


class Scored(tl.Record, key="message"):
    """A message, and how many of five rules it breaks, times ten."""

    message: int
    score: int


class WindowedSpam(tl.Program):
    """ReStream's windowed spam: five rules over sliding windows of two hours to thirty days."""

    ratio: float = 2.0

    friends: tl.Set[tuple[int, int]]
    sent: tl.Counter[int]
    to_friends: tl.Counter[int]
    to_others: tl.Counter[int]
    strangers: tl.SetOf[int, int]
    with_email: tl.Counter[int]
    first: tl.First[int, int | None]
    between: tl.Counter[tuple[int, int]]
    responses: tl.Counter[int]

    @tl.on(Friendship)
    def befriend(self, e: Friendship) -> None:
        self.friends.add(pair(e.a, e.b))

    @tl.on(Sent)
    def count(self, m: Sent) -> None:
        s = m.sender
        self.sent[s] += 1
        self.first.add(s, m.ts)
        if m.has_email:
            self.with_email[s] += 1
        if pair(s, m.recipient) in self.friends:
            self.to_friends[s] += 1
        else:
            self.to_others[s] += 1
            self.strangers.add(s, m.recipient)
        if self.between.last(7 * tl.DAY)[m.recipient, s] > 0:
            self.responses[s] += 1
        self.between[s, m.recipient] += 1

    @tl.on(Sent)
    def score(self, m: Sent) -> None:
        s, score = m.sender, 0
        near, far, sent = self.to_friends[s], self.to_others[s], self.sent[s]
        if sent > 5 and far > self.ratio * near:
            score += 10
        if self.to_others.last(2 * tl.HOUR)[s] > 7 and self.strangers.last(2 * tl.HOUR).count(s) >= 5:
            score += 10
        if self.with_email.last(30 * tl.DAY)[s] > 0.5 * self.sent.last(30 * tl.DAY)[s]:
            score += 10
        since = self.first[s]
        if since is not None and m.ts - since >= 7 * tl.DAY:
            if self.sent.last(tl.DAY)[s] > 0.2 * self.sent.last(7 * tl.DAY)[s]:
                score += 10
        if self.responses[s] < 0.1 * sent:
            score += 10
        self.emit(Scored(message=m.id, score=score))


class Busy(tl.Record):
    """A sender who wrote much in the last hour."""

    sender: int
    sent: int


class Hourly(tl.Program):
    """At every hour: who wrote most in the last one."""

    sent: tl.Counter[int]

    @tl.on(Sent)
    def count(self, m: Sent) -> None:
        self.sent[m.sender] += 1

    @tl.every(tl.HOUR)
    def report(self) -> None:
        for sender, sent in self.sent.last(tl.HOUR).top(10):
            self.emit(Busy(sender=sender, sent=sent))


class Suspicion(tl.Event):
    """Sent by the program: a message that may be spam."""

    id: int
    sender: int


class Suspecting(tl.Program):
    """Messages to strangers raise a suspicion, which is an event of its own."""

    patience: int = 5

    friends: tl.Set[tuple[int, int]]
    suspicions: tl.Counter[int]

    @tl.on(Friendship)
    def befriend(self, e: Friendship) -> None:
        self.friends.add(pair(e.a, e.b))

    @tl.on(Sent)
    def judge(self, m: Sent) -> None:
        if m.has_email and pair(m.sender, m.recipient) not in self.friends:
            self.send(Suspicion(id=m.id, sender=m.sender))

    @tl.on(Suspicion)
    def suspect(self, s: Suspicion) -> None:
        self.suspicions[s.sender] += 1
        if self.suspicions[s.sender] > self.patience:
            self.emit(Spam(message=s.id, sender=s.sender))
