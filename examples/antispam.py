"""Flag who mostly writes to strangers, from addresses that often send e-mail addresses.

Over a generated social network, or any log with these two events:

    timelapse synth --events 1000000 --exponent 0.8 --seed 7 --out logs/social
    timelapse explain examples/antispam.py:Antispam logs/social
    timelapse replay examples/antispam.py:Antispam logs/social --slices 4
    timelapse replay examples/antispam.py:Antispam logs/social --set ratio=3.0
    timelapse verify @last --events 100000
"""

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


def pair(a: int, b: int) -> tuple[int, int]:
    """The unordered pair of two users."""
    return (a, b) if a < b else (b, a)


class Antispam(tl.Program):
    """Flag who mostly writes to strangers, from addresses that often send e-mail addresses."""

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
