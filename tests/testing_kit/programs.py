"""A program with every way of ending an event, for the tests of the kit."""

import timelapse as tl


class Move(tl.Event):
    who: str
    amount: int


class Reset(tl.Event):
    who: str


class Big(tl.Record, key="who"):
    who: str
    total: int


class Bad(tl.Record):
    who: str


class Account(tl.Program):
    limit: int = 10

    moved: tl.Counter[str]
    seen: tl.Set[str]
    last: tl.Value[str, float] = tl.state(default=-0.0)
    total: tl.Counter
    best: tl.Max[int] = tl.state(default=0)

    @tl.on(Move)
    def move(self, e: Move) -> None:
        self.seen.add(e.who)
        self.moved[e.who] += e.amount
        self.total += e.amount
        self.best.add((), e.amount)
        self.last[e.who] = self.now / 2
        if e.amount == 13:
            raise ValueError("unlucky")
        if e.amount < 0:
            self.reject("negative")
        if e.amount > 100:
            self.reject(Bad(who=e.who))
        if self.moved[e.who] > self.limit:
            self.emit(Big(who=e.who, total=self.moved[e.who]))

    @tl.on(Reset)
    def reset(self, e: Reset) -> None:
        del self.moved[e.who]
        self.seen.discard(e.who)
