"""Taking events out where what fails comes long after the event."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import deep
from timelapse.errors import HandlerError
from timelapse.run import Run
from timelapse.testing import check_replay


class Move(tl.Event):
    who: int
    amount: int


class Due(tl.Event):
    who: int
    amount: int


class Other(tl.Event):
    who: int


class Out(tl.Record):
    who: int
    total: int


class Later(tl.Program):
    """Counts at once; what may raise comes later: a call after a while, a dated event, a dated write."""

    total: tl.Counter[int]
    recent: tl.Counter[int]

    @tl.on(Move)
    def at_once(self, m: Move) -> None:
        self.total[m.who] += m.amount
        self.recent[m.who] += 1
        self.emit(Out(who=m.who, total=self.recent.last(4)[m.who]))
        if m.amount == 2:
            self.send(Due(who=m.who, amount=m.amount), after=3)
        if m.amount == 3:
            self.total.add(m.who, 2**63 - 2, at=self.now + 2)

    @tl.on(Move, after=3)
    def later(self, m: Move) -> None:
        self.emit(Out(who=m.who, total=12 // m.amount))

    @tl.on(Due)
    def due(self, d: Due) -> None:
        if self.total[d.who] > 6:
            raise ValueError("too much")


def moves(rows: list[tuple[int, int, int]]) -> list[tl.Event]:
    now = 0
    found: list[tl.Event] = []
    for i, (who, amount, step) in enumerate(rows):
        now += step
        found.append(Move(who=who, amount=amount)._at(now, i))
    return found


ROWS = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from([1, 1, 2, 2, 3, 0]), st.sampled_from([0, 1, 1, 2, 5])),
    max_size=12,
)


@given(rows=ROWS)
@settings(max_examples=deep(5))
def test_the_result_is_that_of_the_log_without_the_events(rows: list[tuple[int, int, int]]) -> None:
    events = moves(rows)
    run = tl.run_serial(Later, events, quarantine=True)
    gone = run.quarantined["seq"].to_pylist()
    plain = tl.run_serial(Later, [e for e in events if e.seq not in gone])
    assert (run.digest, run.state_digest, run.left_out) == (plain.digest, plain.state_digest, gone)
    assert [i for i, (_, amount, _) in enumerate(rows) if amount == 0 and i not in gone] == [
        # A call that lies beyond the end of the log has not failed yet.
        i for i, e in enumerate(events) if rows[i][1] == 0 and i not in gone and e.ts + 3 > events[-1].ts
    ]  # fmt: skip
    check_replay(Later, events, slices=(1, 3), strategies=(None,), quarantine=True)


EVENTS = moves([(0, 1, 1), (0, 0, 1), (1, 2, 1), (0, 1, 0), (0, 2, 5), (0, 6, 1), (1, 1, 9)])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("times")
    log = tl.Log.from_events(folder / "log", EVENTS, [Move])
    return tl.replay(Later, log, folder / "run", slices=3, spark=False, quarantine=True)


def test_what_came_at_once_goes_too(run: Run) -> None:
    """Event 1 fails three units later, event 4 because of event 5: nothing of them is left."""
    rows = run.quarantined.to_pylist()
    assert [(r["seq"], r["handler"], r["error"].split(":")[0]) for r in rows] == [
        (1, "later", "ZeroDivisionError"), (4, "due", "ValueError"),
    ]  # fmt: skip
    assert dict(zip(*(run.state("total")[c].to_pylist() for c in ("key", "value")), strict=True)) == {
        0: 8,
        1: 3,
    }
    assert 1 not in run.table(Out)["seq"].to_pylist()


def test_it_verifies_whole_and_in_part(run: Run) -> None:
    assert run.verify().ok
    assert run.verify(events=4).ok
    assert run.path is not None
    opened = Run.open(run.path, program=Later())
    assert opened.verify().ok
    assert opened.quarantined == run.quarantined
    serial = tl.run_serial(Later, EVENTS, quarantine=True)
    for at in (4, 8, 9):
        assert opened.state("total", at=at) == run.state("total", at=at) == serial.state("total", at=at)


def test_the_log_without_them_gives_the_same(run: Run) -> None:
    assert run.manifest.log is not None
    again = tl.replay(Later, tl.Log.open(run.manifest.log).without(run), spark=False)
    assert (again.digest, again.state_digest) == (run.digest, run.state_digest)


def test_a_list_that_is_wrong_is_found(run: Run) -> None:
    class Wrong(Run):
        def stored_quarantined(self):  # type: ignore[no-untyped-def]
            return super().stored_quarantined().slice(1)

    assert not Wrong(run.manifest, run._data, run.path, run._context).verify().ok


def test_a_tick_stems_from_no_event(tmp_path: Path) -> None:
    class Ticking(tl.Program):
        n: tl.Counter

        @tl.on(Other)
        def go(self, e: Other) -> None:
            self.n += 1

        @tl.every(tl.SECOND)
        def tick(self) -> None:
            raise ValueError("always")

    events = [Other(who=1, ts=i * tl.SECOND) for i in range(3)]
    for attempt in (tl.run_serial, tl.replay):
        with pytest.raises(HandlerError, match="always"):
            attempt(Ticking, events, quarantine=True)
