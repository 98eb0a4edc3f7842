"""Rules over sliding windows: ReStream's windowed spam, answered messages, brute-force logins, road tolls.

timelapse explain examples/windows.py:WindowedSpam
"""

import timelapse as tl


class Friendship(tl.Event):
    a: int
    b: int


class Message(tl.Event):
    id: int
    sender: int
    recipient: int
    text: str


class Failed(tl.Event):
    address: str


class Accepted(tl.Event):
    address: str
    user: int


class Car(tl.Event):
    """Where a vehicle is, and how fast."""

    vehicle: int
    segment: int
    speed: int


class Scored(tl.Record, key="message"):
    message: int
    score: int


class Answered(tl.Record, key="message"):
    message: int
    share: float | None


class Break(tl.Record, key=("address", "user")):
    address: str
    user: int
    failures: int


class Toll(tl.Record):
    vehicle: int
    segment: int
    toll: int


def pair(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)


class WindowedSpam(tl.Program):
    """Five rules, each adding 10 to a message's score."""

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

    @tl.on(Message)
    def count(self, m: Message) -> None:
        s = m.sender
        self.sent[s] += 1
        self.first.add(s, m.ts)
        if "@" in m.text:
            self.with_email[s] += 1
        if pair(s, m.recipient) in self.friends:
            self.to_friends[s] += 1
        else:
            self.to_others[s] += 1
            self.strangers.add(s, m.recipient)
        if self.between.last(7 * tl.DAY)[m.recipient, s] > 0:
            self.responses[s] += 1
        self.between[s, m.recipient] += 1

    @tl.on(Message)
    def score(self, m: Message) -> None:
        s, score = m.sender, 0
        near, far, sent = self.to_friends[s], self.to_others[s], self.sent[s]
        if sent > 5 and far > 2 * near:
            score += 10
        if self.to_others.last(120 * tl.MINUTE)[s] > 7 and self.strangers.last(120 * tl.MINUTE).count(s) >= 5:
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


class AnsweredInADay(tl.Program):
    """At each message: the share of the sender's messages of 7 days to 24 hours ago that were answered within 24 hours."""

    between: tl.Counter[tuple[int, int]]
    settled: tl.Counter[int]
    answered: tl.Counter[int]

    @tl.on(Message, after=tl.DAY)
    def settle(self, m: Message) -> None:
        """A day later it is known whether the message was answered."""
        self.settled[m.sender] += 1
        if self.between.last(tl.DAY)[m.recipient, m.sender] > 0:
            self.answered[m.sender] += 1

    @tl.on(Message)
    def row(self, m: Message) -> None:
        self.between[m.sender, m.recipient] += 1
        of = self.settled.last(6 * tl.DAY)[m.sender]
        share = self.answered.last(6 * tl.DAY)[m.sender] / of if of else None
        self.emit(Answered(message=m.id, share=share))


class RecentBruteForce(tl.Program):
    """A login that succeeds after many failures from the same address within ten minutes."""

    limit: int = 5

    failures: tl.Counter[str]

    @tl.on(Failed)
    def fail(self, e: Failed) -> None:
        self.failures[e.address] += 1

    @tl.on(Accepted)
    def accept(self, e: Accepted) -> None:
        failures = self.failures.last(10 * tl.MINUTE)[e.address]
        if failures >= self.limit:
            self.emit(Break(address=e.address, user=e.user, failures=failures))


class TollProcessing(tl.Program):
    """A car that enters a segment pays by how many cars were there in the last five minutes, and how slow they were."""

    free: int = 3
    fast: float = 60.0

    place: tl.Value[int, int | None]
    cars: tl.SetOf[int, int]
    speeds: tl.Mean[int]

    @tl.on(Car)
    def move(self, e: Car) -> None:
        entered = self.place[e.vehicle] != e.segment
        self.place[e.vehicle] = e.segment
        self.cars.add(e.segment, e.vehicle)
        self.speeds.add(e.segment, e.speed)
        if entered:
            cars = self.cars.last(5 * tl.MINUTE).count(e.segment)
            slow = self.speeds.last(5 * tl.MINUTE)[e.segment] < self.fast
            toll = 2 * (cars - self.free) ** 2 if slow and cars > self.free else 0
            self.emit(Toll(vehicle=e.vehicle, segment=e.segment, toll=toll))
