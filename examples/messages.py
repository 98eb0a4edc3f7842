"""Features of a message for an anti-spam model: whom the sender writes to lately, who begins, who answers, from where.

timelapse explain examples/messages.py:MessageFeatures
timelapse features examples/messages.py:MessageFeatures logs/oct --at labels.parquet --out training.parquet
"""

import re

import timelapse as tl

EMAIL = re.compile(r"[\w.]+@[\w.]+")


class Friendship(tl.Event):
    a: int
    b: int


class Report(tl.Event):
    """A user reports a message as spam; the e-mail address in it is remembered."""

    text: str


class Message(tl.Event):
    id: int
    sender: int
    recipient: int
    address: str
    text: str


class Row(tl.Record, key="message"):
    """Shares of what the sender sent, this message included."""

    message: int
    today: float
    """Of the last 7 days' messages: those of the last 24 hours."""
    responses: float
    """Of the last 7 days' messages: those to somebody who had written to the sender in the 14 days before."""
    to_friends: float
    """Of the last 7 days' messages."""
    initiated: float | None
    """Of the conversations with the sender that began in the last 7 days: those that the sender began."""
    with_email: float
    """Of the last 30 days' messages."""
    with_reported: float
    """Of the last 30 days' messages: those with an e-mail address that an earlier report names."""
    volume: int
    """Messages from the address in the last 24 hours."""
    surge: bool
    """More than half of the address's messages of the last 7 days were sent in the last 24 hours."""


class AnswerRow(tl.Record, key="message"):
    message: int
    answered: float


def pair(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)


class MessageFeatures(tl.Program):
    """Over the last day, week and month: whom the sender writes to, who began, what is in it, how busy the address is."""

    silence: int = 30 * tl.DAY
    """After it the next message between two begins a new conversation."""

    friends: tl.Set[tuple[int, int]]
    reported: tl.Set[str]
    between: tl.Counter[tuple[int, int]]
    """Messages from one to the other."""
    spoken: tl.Counter[tuple[int, int]]
    """Messages between two, whoever wrote."""
    sent: tl.Counter[int]
    responses: tl.Counter[int]
    to_friends: tl.Counter[int]
    with_email: tl.Counter[int]
    with_reported: tl.Counter[int]
    conversations: tl.Counter[int]
    initiated: tl.Counter[int]
    volume: tl.Counter[str]

    @tl.on(Friendship)
    def befriend(self, e: Friendship) -> None:
        self.friends.add(pair(e.a, e.b))

    @tl.on(Report)
    def report(self, e: Report) -> None:
        for address in EMAIL.findall(e.text):
            self.reported.add(address)

    @tl.on(Message)
    def converse(self, m: Message) -> None:
        both = pair(m.sender, m.recipient)
        if self.spoken.last(self.silence)[both] == 0:
            self.initiated[m.sender] += 1
            self.conversations[m.sender] += 1
            if m.recipient != m.sender:
                self.conversations[m.recipient] += 1
        self.spoken[both] += 1

    @tl.on(Message)
    def count(self, m: Message) -> None:
        s = m.sender
        self.sent[s] += 1
        self.volume[m.address] += 1
        if self.between.last(14 * tl.DAY)[m.recipient, s] > 0:
            self.responses[s] += 1
        self.between[s, m.recipient] += 1
        if pair(s, m.recipient) in self.friends:
            self.to_friends[s] += 1
        found = EMAIL.findall(m.text)
        if found:
            self.with_email[s] += 1
        if any(address in self.reported for address in found):
            self.with_reported[s] += 1

    @tl.on(Message)
    def row(self, m: Message) -> None:
        s = m.sender
        week, month = self.sent.last(7 * tl.DAY)[s], self.sent.last(30 * tl.DAY)[s]
        began = self.conversations.last(7 * tl.DAY)[s]
        volume = self.volume.last(tl.DAY)[m.address]
        self.emit(Row(
            message=m.id,
            today=self.sent.last(tl.DAY)[s] / week,
            responses=self.responses.last(7 * tl.DAY)[s] / week,
            to_friends=self.to_friends.last(7 * tl.DAY)[s] / week,
            initiated=self.initiated.last(7 * tl.DAY)[s] / began if began else None,
            with_email=self.with_email.last(30 * tl.DAY)[s] / month,
            with_reported=self.with_reported.last(30 * tl.DAY)[s] / month,
            volume=volume,
            surge=2 * volume > self.volume.last(7 * tl.DAY)[m.address],
        ))  # fmt: skip


class AnsweredByNow(tl.Program):
    """At each message: the share of the sender's messages of the last 7 days that the recipient has answered since.

    One message answers all that came before it from the other side. Of those between two the oldest leave first, and
    they are the answered ones, so counts are enough to know which leaves.
    """

    sent: tl.Counter[int]
    """In the last 7 days, as everything here."""
    answered: tl.Counter[int]
    waiting: tl.Counter[tuple[int, int]]
    """From one to the other, without an answer."""
    settled: tl.Counter[tuple[int, int]]
    """From one to the other, answered."""

    @tl.on(Message, after=7 * tl.DAY)
    def leave(self, m: Message) -> None:
        self.sent[m.sender] -= 1
        if self.settled[m.sender, m.recipient] > 0:
            self.settled[m.sender, m.recipient] -= 1
            self.answered[m.sender] -= 1
        else:
            self.waiting[m.sender, m.recipient] -= 1

    @tl.on(Message)
    def row(self, m: Message) -> None:
        mine, theirs = (m.sender, m.recipient), (m.recipient, m.sender)
        got = self.waiting[theirs]
        if got > 0:
            self.waiting[theirs] = 0
            self.settled[theirs] += got
            self.answered[m.recipient] += got
        self.waiting[mine] += 1
        self.sent[m.sender] += 1
        self.emit(AnswerRow(message=m.id, answered=self.answered[m.sender] / self.sent[m.sender]))
