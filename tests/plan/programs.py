"""A program with twelve states: a cycle, a float sum, several levels."""

import timelapse as tl


class Transfer(tl.Event):
    src: int
    dst: int
    amount: int
    region: str


class Login(tl.Event):
    user: int
    ip: str
    ok: bool


class Report(tl.Event):
    user: int
    by: int


class Refused(tl.Record, key="user"):
    user: int
    amount: int


class Suspicious(tl.Record, key="user"):
    user: int
    score: float


class Ledger(tl.Program):
    """Transfers refused when the balance is low, with a risk score from logins and reports."""

    limit: int = 100
    weight: float = 0.25

    balance: tl.Value[int, int] = tl.state(default=50)
    credit: tl.Value[int, int] = tl.state(default=10)
    failures: tl.Counter[str]
    addresses: tl.Set[tuple[int, str]]
    address_count: tl.Counter[int]
    reporters: tl.Set[tuple[int, int]]
    reports: tl.Counter[int]
    last_login: tl.Value[int, int | None]
    first_seen: tl.First[int, int] = tl.state(default=0)
    largest: tl.Max[str, int] = tl.state(default=0)
    score: tl.Value[int, float] = tl.state(default=0.0)
    per_region_volume: tl.Counter[str]

    @tl.on(Login)
    def login(self, e: Login) -> None:
        if not e.ok:
            self.failures[e.ip] += 1
            return
        self.last_login[e.user] = self.now
        self.first_seen.add(e.user, self.now)
        if self.failures[e.ip] < 5 and (e.user, e.ip) not in self.addresses:
            self.addresses.add((e.user, e.ip))
            self.address_count[e.user] += 1

    @tl.on(Report)
    def report(self, e: Report) -> None:
        if (e.user, e.by) not in self.reporters:
            self.reporters.add((e.user, e.by))
            self.reports[e.user] += 1

    @tl.on(Transfer)
    def transfer(self, e: Transfer) -> None:
        if self.balance[e.src] + self.credit[e.src] < e.amount:
            self.emit(Refused(user=e.src, amount=e.amount))
            return
        self.balance[e.src] -= e.amount
        self.balance[e.dst] += e.amount
        if self.balance[e.dst] > self.limit:
            self.credit[e.dst] += 1
        self.largest.add(e.region, e.amount)
        self.per_region_volume[e.region] += e.amount

    @tl.on(Transfer)
    def rate(self, e: Transfer) -> None:
        risk = self.reports[e.src] + self.address_count[e.src]
        self.score[e.src] = self.score[e.src] * (1 - self.weight) + risk * self.weight
        if self.score[e.src] > 3.0 and self.last_login[e.src] is not None:
            self.emit(Suspicious(user=e.src, score=self.score[e.src]))
