"""Last: what it means, how it runs, what a window of it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

import timelapse as tl
from tests.native.agree import agree
from tests.writers.sources import load_source
from timelapse import serial
from timelapse.analysis import analyse
from timelapse.errors import DefinitionError
from timelapse.kernels.choose import SWITCH
from timelapse.plan import make_plan
from timelapse.plan.strategy import Strategy
from timelapse.testing import Harness, assert_same, check_replay, random_log


class Ping(tl.Event):
    k: int
    v: int
    on: bool


class Seen(tl.Record):
    before: int | None
    now: int
    window: int | None
    earlier: int
    line: int


class Program(tl.Program):
    newest: tl.Last[int, int | None]
    place: tl.Last[int, int] = tl.state(default=-1, history=4 * tl.SECOND)
    line: tl.Last[int] = tl.state(default=7)

    @tl.on(Ping)
    def note(self, e: Ping) -> None:
        before = self.newest[e.k]
        self.newest.add(e.k, None if e.on and e.v == 1 else e.v)
        if e.on:
            self.place.add(e.k, e.v)
            self.line.add(e.v)
        elif e.v == 2:
            self.place.add(e.k, 9, at=self.now + 2 * tl.SECOND)
        if e.v == 3:
            self.reject("three")
        self.emit(Seen(
            before=before, now=self.place.get(e.k, 5), window=self.newest.last(3 * tl.SECOND)[e.k],
            earlier=self.place.get(e.k, at=self.now - tl.SECOND), line=self.line.get(),
        ))  # fmt: skip


def oracle(events: list[Ping]) -> list[Seen]:
    """The same in lists of writes, from the definition."""
    newest: list[tuple[int, int, int | None]] = []
    place: list[tuple[int, int, int]] = []
    line = [7]
    out = []
    for e in events:
        if e.v == 3:
            continue
        before = [v for _, k, v in newest if k == e.k]
        newest.append((e.ts, e.k, None if e.on and e.v == 1 else e.v))
        if e.on:
            place.append((e.ts, e.k, e.v))
            line.append(e.v)
        elif e.v == 2:
            place.append((e.ts + 2 * tl.SECOND, e.k, 9))

        def at(ts: int, key: int) -> list[int]:
            # What is dated takes effect before the events of its time.
            found = sorted((t, v != 9, n, v) for n, (t, k, v) in enumerate(place) if t <= ts and k == key)
            return [v for _, _, _, v in found]

        out.append(Seen(
            before=before[-1] if before else None, now=at(e.ts, e.k)[-1] if at(e.ts, e.k) else 5,
            window=[v for t, k, v in newest if k == e.k and t > e.ts - 3 * tl.SECOND][-1],
            earlier=[-1, *at(e.ts - tl.SECOND, e.k)][-1], line=line[-1],
        ))  # fmt: skip
    return out


@pytest.fixture(scope="module")
def pings() -> list[Ping]:
    return [e for e in random_log([Ping], seed=5, count=60) if isinstance(e, Ping)]


def test_it_means_the_last_value(pings: list[Ping]) -> None:
    found = serial.run(Program, pings)
    assert [o.record for o in found.outputs] == oracle(pings)
    assert found.refused


def test_it_replays_as_the_serial_loop(pings: list[Ping], tmp_path: Path) -> None:
    reference = check_replay(Program, pings, slices=(1, 3))
    run = tl.replay(Program, pings, out=tmp_path / "run", slices=3, spark=False)
    assert run.state("newest").equals(reference.state("newest"))
    assert run.state("place").column_names == ["key", "value"]
    assert tl.Run.open(tmp_path / "run").state("line").to_pylist() == run.state("line").to_pylist()


WRITES = """
import timelapse as tl


class E(tl.Event):
    a: int
    b: int
    s: str
    f: float
    o: int | None


class Out(tl.Record):
    n: int
    s: str


class P(tl.Program):
    n: tl.Last[int, int] = tl.state(default=-1)
    text: tl.Last[tuple[int, str], str | None]
    pair: tl.Last[int, tuple[int, float]] = tl.state(default=(1, -0.0))
    one: tl.Last[float] = tl.state(default=0.5)

    @tl.on(E)
    def go(self, e):
        self.n.add(e.a % 4, e.b)
        self.text.add((e.b % 3, e.s), None if e.o is None else e.s)
        self.pair.add(key=e.a % 3, value=(e.b, e.f))
        self.one.add(e.f)
"""
READS = (
    WRITES
    + """
        if e.s == "ab" and self.n[e.b % 4] > 2:
            self.reject("ab")
        i, f = self.pair[e.b % 3]
        both = f + self.one.get(0.25) > 1.0
        self.emit(Out(n=i if both else self.n.get(e.b % 4, 5), s=self.text[e.a % 3, e.s] or "none"))
"""
)


@pytest.mark.parametrize("edges", [False, True])
def test_it_is_compiled_where_it_is_known_and_where_it_is_not(edges: bool) -> None:
    ran, left = agree(READS, count=120, edges=edges)
    assert ran == 120
    assert left == 0
    ran, left = agree(WRITES, count=120, edges=edges, only_final=False)
    assert ran >= 240
    assert left == 0


def test_it_is_a_scan_whatever_the_values_are() -> None:
    """Also where a Value is none: what is added to floats depends on their order."""
    plan = make_plan(analyse(load_source(WRITES)), cores=4, slices=4)
    assert {c.strategy for c in plan.choices} == {Strategy.SCAN}
    value = WRITES.replace("tl.Last[float]", "tl.Value[float]").replace(
        "self.one.add(e.f)", "self.one += e.f"
    )
    plan = make_plan(analyse(load_source(value)), cores=4, slices=4)
    assert Strategy.CHAIN in {c.strategy for c in plan.choices}


@pytest.mark.parametrize("switch", ["interpreted", "python", "native"])
def test_windows_of_it_are_scans_and_compile(
    pings: list[Ping], switch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Windowed(tl.Program):
        newest: tl.Last[int, int] = tl.state(default=-1)

        @tl.on(Ping)
        def note(self, e: Ping) -> None:
            self.newest.add(e.k, e.v)
            other = self.newest.last(2 * tl.SECOND).get(e.k + 1, 8)
            self.emit(Seen(before=None, now=other, window=None, earlier=0, line=0))

    monkeypatch.setenv(SWITCH, switch)
    reference = tl.run_serial(Windowed, pings)
    for slices in (1, 4):
        run = tl.replay(Windowed, pings, slices=slices, spark=False)
        assert_same(reference, run)
        assert run.verify().ok


def test_quarantine_takes_its_writes_back(pings: list[Ping], monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(tl.Program):
        newest: tl.Last[int, int | None]

        @tl.on(Ping)
        def note(self, e: Ping) -> None:
            self.newest.add(e.k, e.v)
            if e.v == 3 and e.on:
                raise ValueError(e.v)
            self.emit(Seen(before=self.newest[e.k + 1], now=0, window=None, earlier=0, line=0))

    for switch in ("interpreted", "python", "native"):
        monkeypatch.setenv(SWITCH, switch)
        assert check_replay(Failing, pings, slices=(1, 3), quarantine=True).left_out


def test_an_event_is_told_what_it_read(pings: list[Ping]) -> None:
    run = tl.replay(Program, pings, spark=False)
    first, second = [seq for seq, e in enumerate(pings) if e.k == 1 and e.v != 3][:2]
    left = None if pings[first].on and pings[first].v == 1 else pings[first].v
    assert f"newest[1] = {left}" in run.why(second).text


def test_what_it_needs_to_be_declared() -> None:
    with pytest.raises(DefinitionError, match="needs a default"):
        load_source(WRITES.replace("tl.Last[float] = tl.state(default=0.5)", "tl.Last[float]"))
    h = Harness(Program)
    h.feed(Ping(k=1, v=5, on=True))
    assert h.state("newest")[1] == 5
