"""The program that `benchmarks.live_kills` runs: timers, a window, a tick, a call later."""

from __future__ import annotations

import timelapse as tl


class Web(tl.Event):
    who: int
    size: int


class App(tl.Event):
    who: int


class Wake(tl.Event):
    who: int


class Told(tl.Record):
    who: int
    n: int
    recent: int


class Tally(tl.Program):
    n: tl.Counter[int]
    asleep: tl.Set[int]

    @tl.on(Web)
    def web(self, e: Web) -> None:
        self.n[e.who] += e.size
        self.send(Wake(who=e.who), after=5_000, key=e.who)
        if e.who not in self.asleep:
            self.emit(Told(who=e.who, n=self.n[e.who], recent=self.n.last(20_000)[e.who]))

    @tl.on(App, after=3_000)
    def app(self, e: App) -> None:
        self.asleep.add(e.who)

    @tl.on(Wake)
    def wake(self, e: Wake) -> None:
        self.asleep.discard(e.who)

    @tl.every(tl.SECOND // 20)
    def tick(self) -> None:
        self.emit(Told(who=-1, n=self.n[0], recent=0))
