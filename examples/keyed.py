"""Three programs in which a key depends on nothing but itself: a moving average, a token bucket, sessions.

timelapse explain examples/keyed.py:Ewma
"""

import timelapse as tl


class Reading(tl.Event):
    sensor: int
    value: float


class Request(tl.Event):
    client: str


class Click(tl.Event):
    user: int


class Deviation(tl.Record, key="sensor"):
    sensor: int
    value: float
    expected: float


class Refused(tl.Record, key="client"):
    client: str


class Session(tl.Record, key=("user", "number")):
    """A session that has ended: the first click after the gap tells."""

    user: int
    number: int
    clicks: int
    length: int


class Ewma(tl.Program):
    """An exponentially weighted moving average per sensor, and an alert where a reading is far from it."""

    alpha: float = 0.2
    far: float = 3.0

    mean: tl.Value[int, float | None]

    @tl.on(Reading)
    def read(self, e: Reading) -> None:
        before = self.mean[e.sensor]
        if before is None:
            self.mean[e.sensor] = e.value
            return
        if abs(e.value - before) > self.far:
            self.emit(Deviation(sensor=e.sensor, value=e.value, expected=before))
        self.mean[e.sensor] = before + self.alpha * (e.value - before)


class RateLimiter(tl.Program):
    """A token bucket per client. Tokens are counted in millionths, so that everything stays an integer."""

    rate: int = 2
    """Tokens per second."""
    burst: int = 5

    tokens: tl.Value[str, int | None]
    filled: tl.Value[str, int] = tl.state(default=0)

    @tl.on(Request)
    def ask(self, e: Request) -> None:
        full = self.burst * tl.SECOND
        left = self.tokens[e.client]
        now = full if left is None else min(full, left + (e.ts - self.filled[e.client]) * self.rate)
        self.filled[e.client] = e.ts
        if now >= tl.SECOND:
            self.tokens[e.client] = now - tl.SECOND
        else:
            self.tokens[e.client] = now
            self.emit(Refused(client=e.client))


class Sessions(tl.Program):
    """A user's clicks belong together as long as no gap is longer than half an hour."""

    gap: int = 30 * tl.MINUTE

    begun: tl.Value[int, int | None]
    last: tl.Value[int, int] = tl.state(default=0)
    clicks: tl.Counter[int]
    number: tl.Counter[int]

    @tl.on(Click)
    def click(self, e: Click) -> None:
        begun = self.begun[e.user]
        if begun is not None and e.ts - self.last[e.user] > self.gap:
            self.number[e.user] += 1
            self.emit(Session(
                user=e.user, number=self.number[e.user], clicks=self.clicks[e.user], length=self.last[e.user] - begun
            ))  # fmt: skip
            del self.clicks[e.user]
            begun = None
        if begun is None:
            self.begun[e.user] = e.ts
        self.clicks[e.user] += 1
        self.last[e.user] = e.ts
