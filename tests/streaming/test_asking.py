"""Questions to a live run: why it put out a row, why it did not, what a state was. They are answered by a replay of its journal."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from tests.streaming.test_live import FAST
from timelapse.errors import RunError
from timelapse.streaming.reading import Reading
from timelapse.streaming.serve.asking import Answer, Question, Row, answer
from timelapse.streaming.values import plain


class Put(tl.Event):
    who: int
    size: int


class Sum(tl.Record):
    who: int
    total: int


class Adding(tl.Program):
    """Puts out each sum; what has the size 13 fails."""

    total: tl.Counter[int]

    @tl.on(Put)
    def put(self, e: Put) -> None:
        if e.size == 13:
            raise ValueError("unlucky")
        self.total[e.who] += e.size
        self.emit(Sum(who=e.who, total=self.total[e.who]))

    @tl.every(100)
    def tick(self) -> None:
        self.emit(Sum(who=-1, total=self.total[1]))


class Doubling(tl.Program):
    total: tl.Counter[int]

    @tl.on(Put)
    def put(self, e: Put) -> None:
        self.total[e.who] += 2 * e.size


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")


def ran(out: Path, *sent: list[Put], **options: Any) -> Reading:
    """A live run of these rows, each list of them sent when the one before is processed."""
    push = tl.Push()
    with tl.live(Adding, {Put: push}, out, idle=None, **{**FAST, **options}) as run:
        rows = 0
        for events in sent:
            push.send(events)
            rows += len(events)
            run.until(lambda e, rows=rows: sum(p.rows for p in e.partitions) >= rows)  # type: ignore[misc]
        push.close()
        run.wait()
    return Reading.open(out)


def asked(reading: Reading, row: dict[str, Any]) -> Answer:
    return answer(
        Question(str(reading.path), Row("Sum", {name: plain(value) for name, value in row.items()}))
    )


def test_each_row_is_told_by_its_own_event(tmp_path: Path) -> None:
    """Rows that are alike are told apart by their places; ticks have rows too; events that fail are taken out."""
    events = [Put(who=n % 2, size=n % 3, ts=1000 + 7 * (n // 2)) for n in range(60)]
    events.insert(20, Put(who=1, size=13, ts=1071))
    reading = ran(tmp_path / "out", sorted(events, key=lambda e: e.ts), quarantine=True)
    rows = reading.outputs("Sum").to_pylist()
    assert reading.last is not None
    assert reading.last.quarantined == 1
    for row in [*rows[::9], *(r for r in rows if r["who"] == -1)]:
        found = asked(reading, row)
        assert not found.error, found.error
        told = found.explanation["event"]
        assert (told["ts"], told["seq"]) == (row["ts"], row["seq"])
        assert {"record": "Sum", "fields": {"who": row["who"], "total": row["total"]}} in told["outputs"]


def test_rows_of_a_corrected_run(tmp_path: Path) -> None:
    """Where a late row came in, rows behind it have other numbers: they are found by what they are. Those that were retracted are not there."""
    first = [Put(who=1, size=1, ts=1000 + 10 * n) for n in range(6)]
    late = [Put(who=2, size=5, ts=1015), Put(who=1, size=4, ts=1035)]
    reading = ran(tmp_path / "out", first, late, late="correct", correct_every="10ms")
    feed = reading.feed("Sum").to_pylist()
    gone = [r for r in feed if r["@change"] == -1]
    assert gone, "nothing was corrected"
    places = ("ts", "phase", "seq", "ordinal", "who", "total")
    added = [{name: row[name] for name in places} for row in feed if row["@change"] == 1]
    left = {(r["ts"], r["who"], r["total"]) for r in reading.outputs("Sum").to_pylist()}
    for row in added:
        found = asked(reading, row)
        if (row["ts"], row["who"], row["total"]) in left:
            assert found.explanation["event"]["ts"] == row["ts"], found.error
        else:
            assert "TL609" in found.error
            assert "retracted" in found.error


def test_the_commands_take_a_live_run(tmp_path: Path) -> None:
    reading = ran(tmp_path / "out", [Put(who=1, size=n, ts=1000 + n) for n in range(5)])
    assert "total[1] = 3" in str(reading.why("Sum:total=3"))
    told = cli("why", tmp_path / "out", "Sum:total=3")
    assert told.code == 0, told.err
    assert "Put 2" in told.out
    assert "emit Sum(who=1, total=3)" in told.out
    assert "total[1] = 10" in cli("state", tmp_path / "out", "total", "--key", "1").out
    assert cli("why-not", tmp_path / "out", "2").code == 1
    assert cli("why", tmp_path / "out", "Sum:total=4").code == 2


def test_a_run_whose_program_was_changed_is_refused(tmp_path: Path) -> None:
    """No replay of all of the journal is what was put out then."""
    ran(tmp_path / "out", [Put(who=1, size=n, ts=1000 + n) for n in range(5)])
    with tl.live(Doubling, {Put: tl.Push()}, tmp_path / "out", evolve=True, idle=None, **FAST) as run:
        run.stop()
    with pytest.raises(RunError, match="changed at epoch") as caught:
        Reading.open(tmp_path / "out").replay()
    assert caught.value.code == "TL943"


def test_several_ask_at_once(tmp_path: Path) -> None:
    """The page, commands and a standby's page: each brings the journal up to now, the first one makes it."""
    reading = ran(tmp_path / "out", [Put(who=n % 3, size=n % 5, ts=1000 + n) for n in range(100)])
    together = threading.Barrier(8)

    def count(_: int) -> int:
        together.wait()
        return reading.journal().count

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(count, range(8))) == {100}
    assert not list((tmp_path / "out").glob(".journal*"))


def test_more_is_taken_out_in_all_than_of_one_epoch(tmp_path: Path) -> None:
    """A live run bounds what it takes out epoch by epoch; a replay of its journal takes out as much as it did."""
    sent = [[Put(who=1, size=12 + n % 2, ts=1000 * k + n) for n in range(1_000)] for k in range(1, 4)]
    reading = ran(tmp_path / "out", *sent, quarantine=True)
    assert reading.last is not None
    assert reading.last.quarantined == 1_500
    assert reading.parity().same
    assert "emit Sum" in reading.why("Sum@3000").text
