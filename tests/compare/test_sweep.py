"""Sweeps: each point is what a replay gives, states are found once, what is there stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import timelapse as tl
from tests.tuned import tune_cache
from timelapse.compare import Sweep
from timelapse.errors import UsageError
from timelapse.run import run_serial
from timelapse.segments.decoded import DecodedReader


class E(tl.Event):
    n: int
    who: str


class Skip(tl.Event):
    n: int


class Hit(tl.Record, key="n"):
    n: int
    who: str


class Rules(tl.Program):
    """`step` is part of the states, `limit` and `least` of the last rule only."""

    step: int = 1
    limit: int = 3
    least: float = 0.0
    seen: tl.Counter[str]
    skipped: tl.Counter[int]

    @tl.on(Skip)
    def skip(self, e: Skip) -> None:
        self.skipped[e.n] += 1

    @tl.on(E)
    def count(self, e: E) -> None:
        self.seen[e.who] += self.step

    @tl.on(E)
    def flag(self, e: E) -> None:
        if self.seen[e.who] > self.limit and self.skipped[e.n] >= self.least:
            self.emit(Hit(n=e.n, who=e.who))


RNG = np.random.default_rng(5)
EVENTS: list[tl.Event] = [
    Skip(n=int(RNG.integers(9)), ts=i)
    if RNG.random() < 0.2
    else E(n=int(RNG.integers(9)), who="abcé"[i % 4], ts=i)
    for i in range(400)
]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tl.Log:
    return tl.Log.from_events(tmp_path_factory.mktemp("sweep") / "log", EVENTS)


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_STATES", str(tmp_path / "states"))
    tune_cache(tmp_path / "states", least_events=1)


def same(found: Sweep) -> None:
    """Every point is what the serial meaning gives."""
    for point in found.points:
        serial = run_serial(Rules(**point.values), EVENTS)
        assert (point.run.digest, point.run.state_digest) == (serial.digest, serial.state_digest), (
            point.values
        )


@pytest.mark.usefixtures("cached")
def test_states_are_found_once(log: tl.Log) -> None:
    """Two values of a parameter of the states: two replays; all else are the last rules alone."""
    found = tl.sweep(Rules, log, {"limit": [1, 5, 20], "step": [1, 2], "least": [0, 2.5]}, spark=False)
    same(found)
    assert [p.source for p in found.points].count("replay") == 2
    assert [p.source for p in found.points].count("last rules") == 10
    assert [dict(p.values) for p in found.points][:3] == [
        {"limit": 1, "step": 1, "least": 0}, {"limit": 1, "step": 1, "least": 2.5}, {"limit": 1, "step": 2, "least": 0}
    ]  # fmt: skip
    table = found.table()
    assert table.column_names == ["limit", "step", "least", "Hit", "rejected", "seconds", "needed"]
    assert table.column("Hit").to_pylist() == [p.run.counts["Hit"] for p in found.points]
    assert repr(found) == "<Sweep Rules: 12 points over limit, step, least>"
    assert found.best() is None


def test_without_a_cache(log: tl.Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every point is a replay of its own, with the same results; a list of settings, some of which are the same."""
    monkeypatch.setenv("TIMELAPSE_STATES", "off")
    found = tl.sweep(Rules(limit=7), log, [{"step": 2}, {"least": 1.0}, {"step": 2}], spark=False)
    assert [dict(p.values) for p in found.points] == [{"step": 2, "least": 0.0}, {"step": 1, "least": 1.0}]
    assert {p.source for p in found.points} == {"replay"}
    for point in found.points:
        assert point.run.digest == run_serial(Rules(limit=7, **point.values), EVENTS).digest


@pytest.mark.usefixtures("cached")
def test_it_goes_on_where_it_stopped(log: tl.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there is not made again, unless it is of another program, or is none at all."""
    from timelapse.compare import sweeps
    from timelapse.run import start

    made: list[Any] = []
    real = start.replay_one_of

    def failing(several: Any, program: Any, *args: Any, **kw: Any) -> Any:
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(program)
        return real(several, program, *args, **kw)

    monkeypatch.setattr(sweeps, "replay_one_of", failing)
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        tl.sweep(Rules, log, {"limit": [1, 2, 3, 4]}, out, spark=False)
    assert not list(out.glob(".*"))
    monkeypatch.setattr(sweeps, "replay_one_of", real)
    found = tl.sweep(Rules, log, {"limit": [1, 2, 3, 4]}, out, spark=False)
    assert [p.resumed for p in found.points] == [True, True, False, False]
    same(found)
    for point in found.points[:1]:
        assert point.run.path is not None
        (point.run.path / "run.json").write_text("{}")
    again = tl.sweep(Rules, log, {"limit": [1, 3, 9]}, out, spark=False)
    assert [p.resumed for p in again.points] == [False, True, False]
    same(again)


@pytest.mark.usefixtures("cached")
def test_labels(log: tl.Log) -> None:
    """Precision and recall of each point, as its own judgement gives them."""
    labels = pa.table({"n": [0, 1, 2, 3, 4], "label": [True, False, True, True, False]})
    found = tl.sweep(Rules, log, {"limit": [0, 30, 90, 200]}, labels=labels, spark=False)
    for point in found.points:
        put = set(point.run.table("Hit").column("n").to_pylist())
        assert point.judged is not None
        score = point.judged.total.b
        assert (score.right, score.judged, score.positives) == (
            len(put & {0, 2, 3}),
            len(put & set(range(5))),
            3,
        )
    assert found.table().column("recall").to_pylist()[0] == 1.0
    assert found.points[-1].judged is not None
    assert found.points[-1].judged.total.b.precision is None
    best = found.best()
    assert best is not None
    assert best.values["limit"] in (0, 30, 90)


def test_mistakes(log: tl.Log) -> None:
    """Unknown parameters, nothing to vary, far too much, a log in memory."""
    wrong: list[tuple[Any, Any, str]] = [
        (log, {"x": [1]}, "TL801"), (log, {}, "TL820"), (log, {"limit": []}, "TL820"),
        (log, {"limit": range(200), "step": range(200)}, "TL820"), (EVENTS, {"limit": [1]}, "TL810"),
    ]  # fmt: skip
    for where, settings, code in wrong:
        with pytest.raises(UsageError) as caught:
            tl.sweep(Rules, where, settings, spark=False)
        assert caught.value.code == code


def test_what_was_read_is_read_once(log: tl.Log, tmp_path: Path) -> None:
    """The decoded reader gives what its base gives, from files the second time; an unfinished reading leaves nothing."""
    base = log.reader
    reader = DecodedReader(base, str(tmp_path), "x")
    columns = {"E": ["who", "n"], "Skip": None}
    for lo, hi in ((0, 400), (100, 250), (400, 400)):
        expected = list(base.chunks(lo, hi, columns))
        for chunk in reader.chunks(lo, hi, columns):
            assert chunk.seq_lo >= lo
            break
        for _ in range(2):
            got = list(reader.chunks(lo, hi, columns))
            assert [(c.seq_lo, c.seq_hi) for c in got] == [(c.seq_lo, c.seq_hi) for c in expected]
            for one, two in zip(got, expected, strict=True):
                assert {n: t.to_pydict() for n, t in one.tables.items()} == {
                    n: t.to_pydict() for n, t in two.tables.items()
                }
    assert len(list(tmp_path.iterdir())) == 3  # a folder for each range
    other = DecodedReader(base, str(tmp_path), "y")
    assert [e.seq for e in other.events(0, 9, {"E": E, "Skip": Skip})] == list(range(9))
