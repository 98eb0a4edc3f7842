"""A part of a log by time: what a replay of it means, and that nothing else is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from tests.depth import covering
from timelapse.errors import ReplayError, UsageError
from timelapse.run.views import card

HOUR = 3_600_000_000
DAY = 24 * HOUR


class Paid(tl.Event):
    who: int
    amount: int


class Seen(tl.Event):
    who: int


class Flag(tl.Record):
    who: int
    paid: int
    seen: int
    lately: int


class Watch(tl.Program):
    """Totals, a window, ticks, and an error that quarantine takes out."""

    paid: tl.Counter[int]
    seen: tl.Counter[int]

    @tl.on(Seen)
    def look(self, e: Seen) -> None:
        self.seen[e.who] += 1

    @tl.on(Paid)
    def pay(self, e: Paid) -> None:
        self.paid[e.who] += e.amount
        if self.paid[e.who] % 3 == 0:
            self.emit(
                Flag(
                    who=e.who,
                    paid=self.paid[e.who],
                    seen=self.seen[e.who],
                    lately=self.seen.last(2 * HOUR)[e.who],
                )
            )


class Careful(Watch):
    """With a handler that raises."""

    @tl.on(Seen)
    def check(self, e: Seen) -> None:
        if e.who == 3 and e.ts % 7 == 0:
            raise ValueError("three")


EVENTS: list[tl.Event] = [
    Paid(ts=n * HOUR // 8, who=n % 5, amount=n) if n % 3 else Seen(ts=n * HOUR // 8, who=n % 4)
    for n in range(400)
]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tl.Log:
    return tl.Log.from_events(tmp_path_factory.mktemp("between") / "log", EVENTS, [Paid, Seen], block=16)


def of(log: tl.Log, lo: int | None, hi: int | None) -> list[tl.Event]:
    """The events of a stretch, with the numbers that they have in the log."""
    return [e for e in log.events(Paid, Seen) if (lo is None or e.ts >= lo) and (hi is None or e.ts < hi)]


STRETCHES = [
    (None, 9 * HOUR),
    (7 * HOUR + 1, None),
    (5 * HOUR, 31 * HOUR),
    (0, 50 * HOUR),
    (HOUR, HOUR + 1),
    (90 * HOUR, None),
]


@pytest.mark.parametrize(
    ("stretch", "slices", "without"), covering(STRETCHES, [1, 3], [(), (3, 60, 61, 399)])
)
def test_a_part_is_replayed_as_the_serial_loop_processes_its_events(
    log: tl.Log, stretch: tuple[int | None, int | None], slices: int, without: tuple[int, ...]
) -> None:
    lo, hi = stretch
    part = log.without(without).between(lo, hi)
    events = of(log.without(without), lo, hi)
    assert len(part) == len(events) == part.info().count == sum(t.count for t in part.info().types)
    days: dict[str, dict[str, int]] = {}
    for e in events:
        own = days.setdefault(f"1970-01-0{e.ts // DAY + 1}", {})
        own[type(e).__name__] = own.get(type(e).__name__, 0) + 1
    info = part.info()
    assert info.days == days
    assert (info.ts_first, info.ts_last) == ((events[0].ts, events[-1].ts) if events else (None, None))
    expected = tl.run_serial(Watch, events)
    for found in (tl.run_serial(Watch, part), tl.replay(Watch, part, slices=slices, spark=False)):
        assert (found.digest, found.state_digest, found.events) == (
            expected.digest, expected.state_digest, len(events),
        )  # fmt: skip


@pytest.mark.parametrize("base", [0, 5 * HOUR])
def test_events_at_which_a_handler_raises_are_taken_out_of_a_part(log: tl.Log, base: int) -> None:
    part = log.between(base, 40 * HOUR)
    expected = tl.run_serial(Careful, of(log, base, 40 * HOUR), quarantine=True)
    found = tl.replay(Careful, part, slices=3, spark=False, quarantine=True)
    assert expected.left_out
    assert (found.digest, found.left_out) == (expected.digest, expected.left_out)
    again = tl.replay(Careful, part.without(found), slices=2, spark=False)
    assert again.digest == found.digest


def test_a_run_over_a_part_says_so_and_can_be_verified_and_asked(log: tl.Log, tmp_path: Path) -> None:
    part = log.between(5 * HOUR, 31 * HOUR)
    run = tl.replay(Watch, part, tmp_path / "run", slices=3, spark=False)
    opened = tl.Run.open(tmp_path / "run", Watch())
    assert opened.manifest.part == [40, 248]
    said = opened.certificate["part"]
    assert (said["first_seq"], said["end_seq"], said["ts_first"]) == (40, 248, 5 * HOUR)
    shown = dict(card(opened).facts)["part of the log"]
    assert "events 40 to 247" in shown
    assert "states began empty, and what came before was not seen" in shown
    assert opened.verify().ok
    assert opened.manifest.log_id != log.id
    expected = tl.run_serial(Watch, of(log, 5 * HOUR, 20 * HOUR))
    assert opened.state("paid", at=20 * HOUR).equals(expected.state("paid"))
    assert run.digest == opened.digest


def test_parts_of_parts_and_times(log: tl.Log) -> None:
    part = log.between(5 * HOUR, 31 * HOUR)
    assert part.between(HOUR, 50 * HOUR).id == part.id
    assert part.between(6 * HOUR).id == log.between(6 * HOUR, 31 * HOUR).id
    assert part.without([50]).id == log.without([50]).between(5 * HOUR, 31 * HOUR).id
    assert [e.seq for e in part.events(Seen)] == [
        e.seq for e in of(log, 5 * HOUR, 31 * HOUR) if isinstance(e, Seen)
    ]
    assert log.between("1970-01-01T05:00:00Z", "1970-01-02T07:00:00Z").id == part.id
    with pytest.raises(UsageError, match="not later"):
        log.between(HOUR, HOUR)
    assert not len(log.between(100 * HOUR))


def test_blocks_outside_are_not_read(log: tl.Log, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    whole = pq.ParquetFile.read_row_group

    def counted(self: Any, number: int, *args: Any, **more: Any) -> Any:
        read.append(number)
        return whole(self, number, *args, **more)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    part = log.between(20 * HOUR, 22 * HOUR)
    run = tl.replay(Watch, part, slices=1, spark=False, cache=False)
    assert run.events == 16
    assert set(read) <= {10, 11}


def test_a_replay_starts_from_a_run_up_to_a_time(log: tl.Log, tmp_path: Path) -> None:
    first = tl.replay(Totals, log.between(None, 20 * HOUR), tmp_path / "first", slices=2, spark=False)
    assert first.certificate["part"]["states"].startswith("empty")
    whole = tl.replay(Totals, log, spark=False)
    for part in (log, log.between(None, 45 * HOUR)):
        found = tl.replay(Totals, part, start_from=tmp_path / "first", spark=False)
        expected = whole if part is log else tl.replay(Totals, part, spark=False)
        assert (found.digest, found.state_digest) == (expected.digest, expected.state_digest)
        assert found.certificate["start_from"]["events"] == 160
        assert not found.certificate["start_from"]["reason"]


def test_a_replay_does_not_start_where_the_run_did_not_end(log: tl.Log, tmp_path: Path) -> None:
    first = tl.replay(Totals, log.between(None, 20 * HOUR), tmp_path / "first", spark=False)
    late = tl.replay(Totals, log.between(20 * HOUR), tmp_path / "late", spark=False)
    with pytest.raises(UsageError, match="begins where that run ended"):
        tl.replay(Totals, log.between(20 * HOUR), start_from=first, spark=False)
    with pytest.raises(UsageError, match="ends before"):
        tl.replay(Totals, log.between(None, 19 * HOUR), start_from=first, spark=False)
    with pytest.raises(ReplayError, match="over a part"):
        tl.replay(Totals, log, start_from=late, spark=False)
    more = tl.Log.from_events(tmp_path / "more", [Paid(ts=60 * HOUR, who=1, amount=1)], [Paid, Seen])
    with pytest.raises(UsageError, match="do not follow one another"):
        tl.replay(Totals, more, start_from=first, spark=False)


class Totals(tl.Program):
    """A scan: its states can be gone on from."""

    paid: tl.Counter[int]

    @tl.on(Paid)
    def pay(self, e: Paid) -> None:
        self.paid[e.who] += e.amount
        if self.paid[e.who] % 3 == 0:
            self.emit(Flag(who=e.who, paid=self.paid[e.who], seen=0, lately=0))


PROGRAM = """
import timelapse as tl


class Paid(tl.Event):
    who: int
    amount: int


class Total(tl.Program):
    paid: tl.Counter[int]

    @tl.on(Paid)
    def pay(self, e):
        self.paid[e.who] += e.amount
"""


def test_the_command_line_replays_a_part_and_says_so(log: tl.Log, tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text(PROGRAM)
    own = ("replay", tmp_path / "rules.py:Total", log.path, "--local", "--out", tmp_path / "run")
    done = cli(*own, "--from", "1970-01-01T05:00:00Z", "--to", "1970-01-02T07:00:00Z")
    assert done.code == 0, done.err
    assert "208 events" in done.out
    assert "states began empty, and what came before was not seen" in done.out
    assert cli("verify", tmp_path / "run").code == 0
    told = cli("report", tmp_path / "run", "--out", tmp_path / "run.html")
    assert told.code == 0, told.err
    assert "states began empty" in (tmp_path / "run.html").read_text(encoding="utf-8")
    none = cli(*own[:-1], tmp_path / "none", "--from", "1980-01-01")
    assert none.code == 2
    assert "no event of the log lies in the time" in none.err
    assert not (tmp_path / "none").exists()
