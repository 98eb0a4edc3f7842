"""Programs whose states, or some of them, run by key."""

import hashlib
import ipaddress
import re

import timelapse as tl


def pair(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)


class Reading(tl.Event):
    sensor: int
    value: float


class Retired(tl.Event):
    sensor: int


class Friendship(tl.Event):
    a: int
    b: int


class Message(tl.Event):
    sender: int
    recipient: int
    host: str


class Alert(tl.Record):
    sensor: int
    mean: float


class Ewma(tl.Program):
    """A smoothed mean per sensor, and an alert on a deviation."""

    alpha: float = 0.1

    mean: tl.Value[int, float] = tl.state(default=0.0)
    seen: tl.Counter[int]

    @tl.on(Reading)
    def observe(self, e: Reading) -> None:
        k = e.sensor
        old = self.mean[k]
        self.seen[k] += 1
        if self.seen[k] > 2 and abs(e.value - old) > 0.5:
            self.emit(Alert(sensor=k, mean=old))
        self.update(e)

    def update(self, r: Reading) -> None:
        self.mean[r.sensor] += self.alpha * (r.value - self.mean[r.sensor])

    @tl.on(Retired)
    def retire(self, e: Retired) -> None:
        if e.sensor not in self.mean:
            self.reject("unknown")
        del self.mean[e.sensor]


class Sums(tl.Program):
    """Float sums: nothing depends on itself, and yet the order of additions matters."""

    total: tl.Value[tuple[int, int], float] = tl.state(default=0.0)
    per_host: tl.Value[str, float] = tl.state(default=0.0)

    @tl.on(Message)
    def add(self, e: Message) -> None:
        self.total[pair(e.sender, e.recipient)] += 0.1 * e.sender
        self.per_host[e.host] += 0.1


class Talk(tl.Program):
    """A score by sender needs pairs of friends, which everybody keeps, and a weight by sender and recipient."""

    friends: tl.Set[tuple[int, int]]
    weight: tl.Value[tuple[int, int], float] = tl.state(default=1.0)
    score: tl.Value[int, float] = tl.state(default=0.0)

    @tl.on(Friendship)
    def befriend(self, e: Friendship) -> None:
        self.friends.add(pair(e.a, e.b))

    @tl.on(Message)
    def talk(self, m: Message) -> None:
        if pair(m.sender, m.recipient) in self.friends:
            self.score[m.sender] = self.score[m.sender] * 0.9 + self.weight[m.sender, m.recipient]
            self.weight[m.sender, m.recipient] *= 0.5
            if self.score[m.sender] > 1.5:
                self.emit(Alert(sensor=m.sender, mean=self.score[m.sender]))


class Swap(tl.Program):
    """One event, two keys: not by key."""

    x: tl.Value[tuple[int, int], float] = tl.state(default=0.0)

    @tl.on(Message)
    def both(self, e: Message) -> None:
        self.x[e.sender, e.recipient] += 1.0
        self.x[e.recipient, e.sender] += 0.5


class Seen(tl.Event):
    text: str
    value: float


def network(address: str, bits: int = 24) -> str:
    found = ipaddress.ip_network(f"{address}/{bits}", strict=False)
    return str(found.network_address)


def domain(text: str) -> str:
    found = re.search("@([a-z.]+)", text.strip().lower())
    return found.group(1) if found else ""


class Lowered(tl.Program):
    """The key is made with methods of text."""

    mean: tl.Value[str, float] = tl.state(default=0.0)

    @tl.on(Seen)
    def go(self, s: Seen) -> None:
        key = s.text.split("-")[0].strip()[:3].lower()
        self.mean[key] = self.mean[key] * 0.5 + s.value


class Matched(Lowered):
    """By an expression of `re`, in a helper."""

    @tl.on(Seen)
    def go(self, s: Seen) -> None:
        self.mean[domain(s.text)] = self.mean[domain(s.text)] * 0.5 + s.value


class Networks(Lowered):
    """By `ipaddress`, which raises at what is no address: such events have the key of all that raise."""

    @tl.on(Seen)
    def go(self, s: Seen) -> None:
        if "." not in s.text or "@" in s.text:
            return
        key = network(s.text, bits=16)
        self.mean[key] = self.mean[key] * 0.5 + s.value


class Hashed(Lowered):
    """By a hash, a format and a regular expression."""

    @tl.on(Seen)
    def go(self, s: Seen) -> None:
        key = f"{hashlib.sha1(s.text.encode()).hexdigest()[:1]}{re.sub('[0-9]+', '', s.text)[:1]!r:>4}"
        self.mean[key] = self.mean[key] * 0.5 + s.value
