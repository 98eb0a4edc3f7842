"""Rows that an operator keeps from a live run, while it runs and when it is begun again."""

from __future__ import annotations

import io
import json
import random
import threading
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest

import timelapse as tl
from tests.depth import deep
from tests.streaming.test_asking import Adding, Put
from tests.streaming.test_live import FAST
from tests.streaming.test_serve import Client
from timelapse.cli.live_view import print_end
from timelapse.errors import HandlerError, UsageError
from timelapse.log.looking import first_events
from timelapse.streaming.live import Live
from timelapse.streaming.reading import Reading
from timelapse.streaming.serve.app import Server

FITS = {
    "Put: who == 1": lambda e: e.who == 1,
    "Put: size > 4 and who != 2": lambda e: e.size > 4 and e.who != 2,
    'Put: ts < "1970-01-01T00:00:00.001100"': lambda e: e.ts < 1100,
}


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")


def rows_of(reading: Reading, part: str) -> list[tuple[int, int, int, int]]:
    """Rows of a section, with the epoch that each is in."""
    found = []
    for pack in reading.epochs():
        if f"{part}/Put" in pack.sections:
            for row in pack.table(f"{part}/Put").to_pylist():
                ts = row["ts"] if isinstance(row["ts"], int) else round(row["ts"].timestamp() * 1e6)
                found.append((pack.about.number, ts, row["who"], row["size"]))
    return found


@pytest.mark.parametrize("late", ["side", "correct"])
@pytest.mark.parametrize("seed", range(deep(3)))
def test_what_fits_is_aside_and_all_else_is_processed(seed: int, late: str, tmp_path: Path) -> None:
    """Filters change while the run goes on, and between runs: each row is in one place, and a replay of the journal is what was put out."""
    rng, out = random.Random(seed), tmp_path / "out"
    options: dict[str, Any] = {**FAST, "idle": None, "late": late, "correct_every": "20ms"}
    sent: list[Put] = []
    now: list[str] = []
    for turn in range(3):
        push = tl.Push()
        asked = rng.choice([None, [], rng.sample(sorted(FITS), 1)])
        with tl.live(Adding, {Put: push}, out, filters=asked, **options) as run:
            now = now if asked is None else asked
            for _ in range(4):
                begin = 1000 + 100 * turn + rng.choice([0, 0, 40])
                events = [
                    Put(who=rng.randrange(4), size=rng.randrange(8), ts=begin + rng.randrange(90))
                    for _ in range(12)
                ]
                sent += sorted(events, key=lambda e: e.ts)
                push.send(sorted(events, key=lambda e: e.ts))
                count = len(sent)
                run.until(lambda e, n=count: sum(p.rows for p in e.partitions) >= n)  # type: ignore[misc]
                if rng.random() < 0.5:
                    now = rng.sample(sorted(FITS), rng.randrange(3))
                    assert run.keep_out(*now)
            assert [f.text for f in run.filters] == now
            if turn == 2:
                push.close()
                run.wait()
    reading = Reading.open(out)
    assert reading.parity().same
    holding = {pack.about.number: pack.about.filters for pack in reading.epochs()}
    kept_out = rows_of(reading, "filtered")
    for number, ts, who, size in kept_out:
        event = Put(who=who, size=size, ts=ts)
        assert any(FITS[f.text](event) for f in holding[number])
    last = reading.last
    assert last is not None
    assert len(kept_out) == sum(p.filtered for p in last.partitions)
    for part in ("held", "late"):
        for number, ts, who, size in rows_of(reading, part):
            assert not any(FITS[f.text](Put(who=who, size=size, ts=ts)) for f in holding[number])
    journal = [(e.ts, e.who, e.size) for e in reading.journal().events(Put)]
    late_ones = [] if late == "correct" else [row[1:] for row in rows_of(reading, "late")]
    assert sorted([*journal, *late_ones, *(row[1:] for row in kept_out)]) == sorted(
        (e.ts, e.who, e.size) for e in sent
    )


def test_a_row_that_fails_is_kept_out_and_the_run_goes_on(tmp_path: Path) -> None:
    """The run stops at it, nothing of its epoch is committed; with a filter it goes on from there."""
    events = [Put(who=1, size=13 if n == 7 else n % 5, ts=1000 + n) for n in range(20)]
    (tmp_path / "in.jsonl").write_text(
        "".join(json.dumps({"ts": e.ts, "who": e.who, "size": e.size}) + "\n" for e in events)
    )

    def run(**options: Any) -> Live:
        found = tl.live(Adding, {Put: tmp_path / "in.jsonl"}, tmp_path / "out", once=True, **FAST, **options)
        found.wait()
        return found

    with pytest.raises(HandlerError, match="unlucky") as caught:
        run()
    for helps in ("--filter", "--quarantine", "--evolve"):
        assert helps in str(caught.value.hint)
    assert "replay" not in str(caught.value.hint)
    told = io.StringIO()
    ended = run(filters=["Put: size == 13"])
    print_end(ended, lambda *parts: print(*(p if isinstance(p, str) else p[0] for p in parts), file=told))
    assert "1 row put aside by a filter" in told.getvalue()
    reading = Reading.open(tmp_path / "out")
    assert reading.parity().same
    assert reading.journal().count == 19
    assert [row[1:] for row in rows_of(reading, "filtered")] == [(1007, 1, 13)]
    assert any(
        "put aside from here on: Put: size == 13" in line
        for pack in reading.epochs()
        for line in pack.about.decisions
    )
    assert [t.num_rows for name, t in reading.aside().items() if name == "filtered/Put"] == [1]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("Pat: who == 1", "no event type"), ("who == 1", "names no event type"), ("Put: whom == 1", "no field"), ("Put: seq == 3", "no seq"),
        ("Put: who == ", "does not parse"), ("Put: who", "not a comparison"), ('Put: who == "ann"', "differs in type"), ("Put:", "parse"),
        (f"Put: who == {10**30}", "too large"), (f"Put: ts < {10**30}", "too large"), ("Put: ts < 1e400", "infinity"),
        ('Put: __import__("os").system("x") == 1', "no field '__import__'"),
    ],
)  # fmt: skip
def test_what_is_no_filter_is_refused(text: str, wrong: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=wrong):
        tl.live(Adding, {Put: tl.Push()}, tmp_path / "out", filters=[text])
    assert not (tmp_path / "out").exists()


def test_nothing_is_said_of_rows_as_they_lie_in_files(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Arrow warns of columns that are not aligned, on the run's standard error."""
    push = tl.Push()
    with tl.live(Adding, {Put: push}, tmp_path / "out", idle=None, **FAST) as run:
        run.pause()
        while run.health.state != "paused":
            pass
        for n in range(1, 10):
            push.send([Put(who=1, size=1, ts=1000 + n)] * n)
    with tl.live(
        Adding, {Put: tl.Push()}, tmp_path / "out", idle=None, filters=["Put: who == 1"], **FAST
    ) as run:
        run.until(lambda e: sum(p.filtered for p in e.partitions) >= 45)
    assert capfd.readouterr().err == ""


def test_over_http(tmp_path: Path) -> None:
    push = tl.Push()
    with tl.live(Adding, {Put: push}, tmp_path / "out", idle=None, **FAST) as run:
        server = Server(run, "127.0.0.1:0")
        try:
            client = Client(server)
            body = json.dumps(["Put: who == 1"]).encode()
            assert client.ask("/api/filters", body, right="read")[0] == 401
            assert client.ask("/api/filters", body, right="operate") == (
                200,
                {"filters": ["Put: who == 1"], "recorded": True},
            )
            for wrong in (b"{}", b'["Put: seq == 1"]', b"["):
                assert client.ask("/api/filters", wrong, right="operate")[0] == 400
            push.send([Put(who=n % 2, size=1, ts=1000 + n) for n in range(10)])
            run.until(lambda e: sum(p.rows for p in e.partitions) >= 10)
            status = client.ask("/api/status")[1]
            assert (status["filters"], status["filtered"]) == (["Put: who == 1"], 5)
            assert (
                'timelapse_partition_filtered_total{stream="Put",partition="push"} 5\n'
                in client.ask("/metrics")[1]
            )
            more = json.dumps({"add": ["Put: who == 7", "Put: who == 8"]}).encode()
            assert client.ask("/api/filters", more, right="operate")[1]["filters"] == [
                "Put: who == 1",
                "Put: who == 7",
                "Put: who == 8",
            ]
            both = json.dumps(
                {"add": ["Put: who == 9"], "remove": ["Put: who == 7", "Put: who == 70"]}
            ).encode()
            found = client.ask("/api/filters", both, right="operate")[1]
            assert found == {"filters": ["Put: who == 1", "Put: who == 8", "Put: who == 9"], "recorded": True}
            for wrong in (
                b'{"add": []}',
                b'{"put": ["Put: who == 1"]}',
                b'{"add": ["Nothing: who == 1"]}',
                b'{"remove": 1}',
            ):
                assert client.ask("/api/filters", wrong, right="operate")[0] == 400
            assert client.ask("/api/filters", b"[]", right="operate")[1]["recorded"]
            assert client.ask("/api/status")[1]["filters"] == []
        finally:
            server.close()


def test_a_paused_run_records_it_when_it_goes_on(tmp_path: Path) -> None:
    push = tl.Push()
    with tl.live(Adding, {Put: push}, tmp_path / "out", idle=None, **FAST) as run:
        push.send([Put(who=1, size=1, ts=1000)])
        run.until(lambda e: True)
        run.pause()
        while run.health.state != "paused":
            pass
        assert not run.keep_out("Put: who == 2", timeout=0.1)
        run.resume()
        run.until(lambda e: bool(e.filters))
        assert run.keep_out("Put: who == 1", "Put: who == 1")


def test_what_was_asked_for_last_holds_when_another_process_takes_over(tmp_path: Path) -> None:
    """A standby was started with filters; those that the run got later are newer."""
    out, old, new = tmp_path / "out", "Put: who == 1", "Put: who == 2"
    options: dict[str, Any] = {**FAST, "idle": None}
    with tl.live(Adding, {Put: tl.Push()}, out, filters=[old], **options) as first:
        first.until(lambda e: bool(e.filters))
        push = tl.Push()
        with tl.live(Adding, {Put: push}, out, filters=[old], standby="60s", **options) as second:
            second.until(lambda e: bool(e.filters))  # it has seen those that are older
            assert first.keep_out(new)
            second.until(lambda e: [f.text for f in e.filters] == [new])
            first.stop()
            push.send([Put(who=n, size=1, ts=1000) for n in (1, 2)])
            second.until(lambda e: sum(p.rows for p in e.partitions) >= 2)
            assert [f.text for f in second.filters] == [new]


class Paid(tl.Event):
    who: str
    price: Annotated[Decimal, tl.scale(2)]
    day: tl.Time | None


class Paying(tl.Program):
    n: tl.Counter[str]

    @tl.on(Paid)
    def paid(self, e: Paid) -> None:
        self.n[e.who] += 1


@pytest.mark.parametrize(
    ("where", "fits"),
    [
        ("price == 3", "b"), ("price < 0", "a"), ("price > 0 and price < 3", ""), ("price >= 2.5", "b"), ("price in (3, -1)", "ab"),
        ("price == 99999999999999999999", ""), ("day is None", "a"), ("ts < day", "b"), ("day == ts", "c"), ('day > "1970-01-02"', "b"),
        ("day in (30,)", "c"), ("not day > 30", "c"),
    ],
)  # fmt: skip
def test_decimals_and_times(where: str, fits: str, tmp_path: Path) -> None:
    """An integer beside a decimal was refused, and two times that are compared were accepted and ended the run."""
    push = tl.Push()
    events = [
        Paid(who="a", price=Decimal("-1.00"), day=None, ts=10),
        Paid(who="b", price=Decimal("3.00"), day=10**15, ts=20),
        Paid(who="c", price=Decimal("0.00"), day=30, ts=30),
    ]
    with tl.live(
        Paying, {Paid: push}, tmp_path / "out", idle=None, filters=[f"Paid: {where}"], **FAST
    ) as run:
        push.send(events)
        push.close()
        run.wait()
        aside = [row["who"] for table in run.aside().values() for row in table.to_pylist()]
    assert "".join(sorted(aside)) == fits
    log = tl.Log.from_events(tmp_path / "log", events, [Paid])
    found = first_events(log, 10, (), where)
    assert "".join(sorted(e.who for e in found)) == fits  # type: ignore[attr-defined]


def test_operators_do_not_undo_what_others_did(tmp_path: Path) -> None:
    """Several at once, each with filters of its own: all hold in the end, and each is recorded."""
    push = tl.Push()
    with tl.live(Adding, {Put: push}, tmp_path / "out", idle=None, **FAST) as run:
        assert run.filter(add=["Put: who == 100"])
        done: list[bool] = []

        def operate(mine: int) -> None:
            for number in range(5):
                done.append(run.filter(add=[f"Put: who == {mine * 10 + number}"]))
            done.append(run.filter(remove=[f"Put: who == {mine * 10}"]))

        threads = [threading.Thread(target=operate, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(done)
        wanted = {100, *(mine * 10 + number for mine in range(3) for number in range(1, 5))}
        assert {f.text for f in run.filters} == {f"Put: who == {n}" for n in wanted}
        with pytest.raises(UsageError):
            run.filter(add=["Put who"])
