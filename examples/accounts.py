"""Features of accounts and addresses for an anti-spam model, one row at each login and message.

timelapse explain examples/accounts.py:AccountFeatures
"""

import re

import timelapse as tl

EMAIL = re.compile(r"[\w.]+@[\w.]+")


class Login(tl.Event):
    id: int
    user: int
    address: str


class Message(tl.Event):
    id: int
    sender: int
    recipient: int
    text: str


class Report(tl.Event):
    """A user reports a message as spam; the e-mail address in it is remembered."""

    text: str


class LoginRow(tl.Record, key="login"):
    login: int
    user: int
    new_address: bool
    addresses: int
    users_of_address: int


class MessageRow(tl.Record, key="message"):
    message: int
    sender: int
    recipients: int
    with_email: float
    with_reported: float
    answered: float
    last_texts: int
    rate: float


class AccountFeatures(tl.Program):
    """How many addresses a user has, whom they write to, what they write, how often they are answered."""

    used: tl.SetOf[int, str]
    users: tl.SetOf[str, int]
    reported: tl.Set[str]
    sent: tl.Counter[int]
    with_email: tl.Counter[int]
    with_reported: tl.Counter[int]
    recipients: tl.SetOf[int, int]
    waiting: tl.Set[tuple[int, int]]
    """Who wrote to whom, and had no answer."""
    answered: tl.Counter[int]
    texts: tl.ListOf[int, str] = tl.state(last=5)
    rate: tl.Decayed[int] = tl.state(half_life=tl.HOUR)

    @tl.on(Login)
    def login(self, e: Login) -> None:
        new = (e.user, e.address) not in self.used
        self.used.add(e.user, e.address)
        self.users.add(e.address, e.user)
        self.emit(LoginRow(
            login=e.id, user=e.user, new_address=new, addresses=self.used.count(e.user),
            users_of_address=self.users.count(e.address),
        ))  # fmt: skip

    @tl.on(Report)
    def report(self, e: Report) -> None:
        for found in EMAIL.findall(e.text):
            self.reported.add(found)

    @tl.on(Message)
    def note(self, m: Message) -> None:
        self.sent[m.sender] += 1
        self.rate.add(m.sender, 1)
        self.recipients.add(m.sender, m.recipient)
        self.texts.append(m.sender, m.text)
        found = EMAIL.findall(m.text)
        if found:
            self.with_email[m.sender] += 1
        if any(address in self.reported for address in found):
            self.with_reported[m.sender] += 1

    @tl.on(Message)
    def answer(self, m: Message) -> None:
        if (m.recipient, m.sender) in self.waiting:
            self.waiting.discard((m.recipient, m.sender))
            self.answered[m.recipient] += 1
        else:
            self.waiting.add((m.sender, m.recipient))

    @tl.on(Message)
    def row(self, m: Message) -> None:
        sent = self.sent[m.sender]
        self.emit(MessageRow(
            message=m.id, sender=m.sender, recipients=self.recipients.count(m.sender),
            with_email=self.with_email[m.sender] / sent, with_reported=self.with_reported[m.sender] / sent, answered=self.answered[m.sender] / sent,
            last_texts=len(set(self.texts[m.sender])), rate=self.rate[m.sender],
        ))  # fmt: skip
