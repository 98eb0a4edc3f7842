"""Two spam rules from ReStream's evaluation (J. Schleier-Smith et al., SoCC 2016), and its micro-benchmarks.

timelapse synth --events 1000000 --seed 7 --out logs/social
timelapse explain examples/spam.py:IpSpam logs/social
timelapse replay examples/spam.py:IpSpam logs/social
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


class Ask(tl.Event):
    """Somebody wants to see the table of spammers."""

    rows: int


class Spam(tl.Record, key="message"):
    message: int
    sender: int


class Place(tl.Record, key="rank"):
    rank: int
    sender: int
    count: int


class Totals(tl.Record):
    messages: int
    spam: int
    spammers: int


class Heavy(tl.Record, key="sender"):
    sender: int


def pair(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)


class Senders(tl.Program):
    """Whom senders write to: what the spam rules share."""

    least: int = 5
    ratio: int = 2

    friends: tl.Set[tuple[int, int]]
    to_friends: tl.Counter[int]
    to_others: tl.Counter[int]

    @tl.on(Friendship)
    def befriend(self, e: Friendship) -> None:
        self.friends.add(pair(e.a, e.b))

    @tl.on(Message)
    def count(self, m: Message) -> None:
        if pair(m.sender, m.recipient) in self.friends:
            self.to_friends[m.sender] += 1
        else:
            self.to_others[m.sender] += 1

    def writes_to_strangers(self, sender: int) -> bool:
        near, far = self.to_friends[sender], self.to_others[sender]
        return near + far > self.least and far > self.ratio * near


class IpSpam(Senders):
    """Spam: from a sender who mostly writes to strangers, from an address whose messages often hold an e-mail address."""

    share: float = 0.2

    sent: tl.Counter[str]
    with_email: tl.Counter[str]

    @tl.on(Message)
    def count_address(self, m: Message) -> None:
        self.sent[m.ip] += 1
        if "@" in m.text:
            self.with_email[m.ip] += 1

    @tl.on(Message)
    def flag(self, m: Message) -> None:
        if self.writes_to_strangers(m.sender) and self.with_email[m.ip] > self.share * self.sent[m.ip]:
            self.emit(Spam(message=m.id, sender=m.sender))


class SimpleSpam(Senders):
    """The rule about senders alone, with running totals, the spammers, and who sent most spam."""

    messages: tl.Counter
    spam: tl.Counter
    spammers: tl.Set[int]
    by_sender: tl.Counter[int]

    @tl.on(Message)
    def judge(self, m: Message) -> None:
        self.messages += 1
        if self.writes_to_strangers(m.sender):
            self.spam += 1
            self.spammers.add(m.sender)
            self.by_sender[m.sender] += 1
            self.emit(Spam(message=m.id, sender=m.sender))

    @tl.on(Ask)
    def answer(self, e: Ask) -> None:
        self.emit(Totals(messages=self.messages, spam=self.spam, spammers=len(self.spammers.items())))
        for rank, (sender, count) in enumerate(self.by_sender.top(e.rows)):
            self.emit(Place(rank=rank + 1, sender=sender, count=count))


class Nothing(tl.Program):
    """Does nothing: what reading the log costs."""

    @tl.on(Message)
    def see(self, m: Message) -> None:
        pass


class CountMessages(tl.Program):
    """Counts messages by sender."""

    sent: tl.Counter[int]

    @tl.on(Message)
    def count(self, m: Message) -> None:
        self.sent[m.sender] += 1


class Ninth(CountMessages):
    """Reports senders at their ninth message."""

    @tl.on(Message)
    def report(self, m: Message) -> None:
        if self.sent[m.sender] == 9:
            self.emit(Heavy(sender=m.sender))
