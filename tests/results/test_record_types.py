"""Which record types a run lists."""

from __future__ import annotations

import timelapse as tl


class Tick(tl.Event):
    a: int


class Old(tl.Record, key="a"):
    a: int


class New(tl.Record, key="a"):
    a: int


class Base(tl.Program):
    seen: tl.Counter[int]

    @tl.on(Tick)
    def tell(self, e: Tick) -> None:
        self.seen[e.a] += 1
        self.emit(Old(a=e.a))


class Replaced(Base):
    @tl.on(Tick)
    def tell(self, e: Tick) -> None:
        self.emit(New(a=e.a))


class Extended(Base):
    @tl.on(Tick)
    def tell(self, e: Tick) -> None:
        super().tell(e)
        if e.a > 100:
            self.emit(New(a=e.a))


class Dropped(Base):
    tell = None  # type: ignore[assignment]

    @tl.on(Tick)
    def other(self, e: Tick) -> None:
        if e.a > 100:
            self.emit(New(a=e.a))


def test_only_what_a_method_that_can_run_emits_is_counted() -> None:
    """A record of an overridden handler is not; one that `super()` reaches is, and so is one of which there are none."""
    events = [Tick(a=n, ts=n, seq=n) for n in range(3)]
    for run in (tl.run_serial(Replaced, events), tl.replay(Replaced, events, spark=False)):
        assert run.counts == {"New": 3}
    assert tl.replay(Extended, events, spark=False).counts == {"New": 0, "Old": 3}
    assert tl.replay(Dropped, events, spark=False).counts == {"New": 0}
