"""`tl.live` as users have it: files that appear, a file that grows, rows that are sent; stopped, killed and begun again."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from tests.depth import deep
from tests.patience import LONG, until
from timelapse.errors import (
    HandlerError,
    ImpureProgram,
    NoSpace,
    RunError,
    SourceError,
    StorageError,
    UsageError,
)
from timelapse.program.program import as_program, spec_of
from timelapse.program.versions import load_named
from timelapse.progress import Silent
from timelapse.run import run_serial
from timelapse.streaming import lease, loop, saving
from timelapse.streaming.chain import Overtaken
from timelapse.streaming.checkpoints import compact, newest_whole
from timelapse.streaming.format import Epoch
from timelapse.streaming.head import Head
from timelapse.streaming.pack import Pack
from timelapse.streaming.place import LocalPlace
from timelapse.streaming.reading import Reading
from timelapse.streaming.running import Saving
from timelapse.streaming.sources import follow, sent_ids
from timelapse.streaming.sources import push as push_source


class Hit(tl.Event):
    who: int
    size: int


class Mark(tl.Event):
    who: int


class Seen(tl.Record):
    who: int
    n: int


class Watch(tl.Program):
    least: int = 3
    n: tl.Counter[int]
    marked: tl.Set[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += e.size
        if self.n[e.who] % self.least == 0 or e.who in self.marked:
            self.emit(Seen(who=e.who, n=self.n[e.who]))

    @tl.on(Mark, after=50)
    def mark(self, e: Mark) -> None:
        self.marked.add(e.who)


FAST: dict[str, Any] = {"trigger": "10ms", "ahead": None}


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")


def hits(count: int, start: int = 0) -> list[Hit]:
    return [Hit(who=n * 7 % 5, size=n % 3, ts=1000 + n * 3) for n in range(start, start + count)]


def marks(count: int) -> list[Mark]:
    return [Mark(who=n, ts=1001 + n * 40) for n in range(count)]


def lines(events: list[Hit] | list[Mark]) -> str:
    return "".join(
        json.dumps({"ts": e.ts, **{f.name: getattr(e, f.name) for f in e.__fields__}}) + "\n" for e in events
    )


def put(path: Path, text: str) -> None:
    """A file appears whole."""
    aside = path.with_name("." + path.name)
    aside.write_text(text)
    os.utime(aside, (time.time() - 5, time.time() - 5))
    aside.rename(path)


def whole(events: list[Hit], others: list[Mark], until: int | None = None) -> str:
    both: list[tl.Event] = sorted([*others, *events], key=lambda e: (e.ts, type(e) is Hit))
    return run_serial(Watch, both, until=until).digest


def test_what_is_there_once(tmp_path: Path) -> None:
    """Two types, folders of files; the digest is that of the serial loop, of the replay and of parity."""
    (tmp_path / "hits").mkdir()
    (tmp_path / "marks").mkdir()
    put(tmp_path / "hits" / "a.jsonl", lines(hits(100)))
    put(tmp_path / "hits" / "b.jsonl", lines(hits(100, 100)))
    put(tmp_path / "marks" / "a.jsonl", lines(marks(3)))
    with tl.live(
        Watch, {Mark: tmp_path / "marks", Hit: tmp_path / "hits"}, tmp_path / "out", once=True, **FAST
    ) as run:
        assert run.wait(LONG)
    assert run.health.state == "ended"
    assert run.digest == whole(hits(200), marks(3))
    found = run.parity()
    assert found.same
    assert "the same" in found.text
    opened = Reading.open(tmp_path / "out")
    assert opened.digest == run.digest
    assert opened.outputs("Seen").num_rows == found.records["Seen"][0] > 0
    replayed = opened.replay(spark=False)
    assert replayed.digest == run.digest
    assert replayed.why(f"Seen:who={replayed.stored('Seen')['who'][0].as_py()}").text
    with pytest.raises(UsageError, match="records so far: Seen"):
        opened.outputs("Sen")


def test_files_appear_and_the_run_is_stopped_and_begun_again(tmp_path: Path) -> None:
    folder, out = tmp_path / "hits", tmp_path / "out"
    folder.mkdir()
    (tmp_path / "marks").mkdir()
    streams = {Mark: tmp_path / "marks", Hit: folder}
    for number in range(4):
        with tl.live(Watch, streams, out, idle="50ms", checkpoint="100ms", **FAST) as run:
            for part in range(3):
                at = number * 3 + part
                put(folder / f"{at:03}.jsonl", lines(hits(20, at * 20)))
                run.until(lambda e, n=at: e.end_seq >= n * 20 + 19)  # type: ignore[misc]
            assert run.get("n", 1) == run.state("n")[1]
    last = Reading.open(out).last
    assert last is not None
    assert last.end_seq == 239, "the last row waits: nothing says that no more of its time will come"
    with tl.live(Watch, streams, out, once=True, **FAST) as run:
        run.wait(LONG)
    assert run.digest == whole(hits(240), [])
    assert run.parity().same


def test_a_folder_that_is_gone_for_a_while(tmp_path: Path) -> None:
    """It was taken for one without files: nothing was said, and the others did not wait for its rows, which were late then."""

    class Told(Silent):
        def note(self, text: str) -> None:
            told.append(text)

    told: list[str] = []
    here, away = tmp_path / "in", tmp_path / "away"
    here.mkdir()
    rows = hits(60)
    put(here / "a.jsonl", lines(rows[:20]))
    push = tl.Push()
    streams = {Hit: {"files": here, "sent": push}}
    with tl.live(Plain, streams, tmp_path / "out", idle="300ms", progress=Told(), **FAST) as run:
        run.until(lambda e: sum(p.rows for p in e.partitions) == 20)
        here.rename(away)
        until(lambda: any("is gone" in text for text in told), run)
        push.send(rows[40:])
        run.until(lambda e: sum(p.rows for p in e.partitions) == 40)
        assert not run.wait(1.0)  # longer than a folder that is there would be waited for
        put(away / "b.jsonl", lines(rows[20:40]))
        away.rename(here)
        push.close()
        last = run.until(lambda e: sum(p.rows for p in e.partitions) == 60)
        assert sum(p.late for p in last.partitions) == 0


def test_parity_of_a_run_without_rows_says_so(tmp_path: Path) -> None:
    with tl.live(Watch, {Mark: tl.Push(), Hit: tl.Push()}, tmp_path / "out", **FAST) as run:
        run.stop()
    assert run.parity().text == "nothing to compare: the run has no epoch yet"


def test_a_file_that_grows(tmp_path: Path) -> None:
    """Lines count when they are complete; the last one without an end counts when the source has ended."""
    path, out = tmp_path / "hits.csv", tmp_path / "out"
    text = "ts,who,size\n" + "".join(f"{e.ts},{e.who},{e.size}\n" for e in hits(200))
    (tmp_path / "marks").mkdir()
    streams = {Mark: {"m": tmp_path / "marks"}, Hit: {"h": path}}
    cuts = [0, 5, 12, 13, 400, 401, 1000, 1003]
    for number, (lo, hi) in enumerate(itertools.pairwise(cuts)):
        with open(path, "a") as file:
            file.write(text[lo:hi])
        with tl.live(Watch, streams, out, idle="20ms", **FAST) as run:
            wanted = text[:hi].count("\n") - 1
            if wanted > 1:
                run.until(lambda e, n=wanted: sum(p.rows for p in e.partitions) >= n)  # type: ignore[misc]
            else:
                time.sleep(0.05 + number * 0)
    with open(path, "a") as file:
        file.write(text[cuts[-1] : -1])
    with tl.live(Watch, streams, out, once=True, **FAST) as run:
        run.wait(LONG)
    assert run.digest == whole(hits(200), [])
    path.write_text("ts,who,size\n")
    with tl.live(Watch, streams, out, **FAST) as run, pytest.raises(SourceError) as error:
        run.wait(LONG)
    assert error.value.code == "TL945"


def test_rows_that_are_sent(tmp_path: Path) -> None:
    """Several senders at once; what is sent again counts once, also after a restart; what was answered is never lost."""
    out = tmp_path / "out"
    sent = hits(300)
    for number in range(3):
        push, others = tl.Push(), tl.Push()
        with tl.live(Watch, {Mark: others, Hit: push}, out, lateness="1s", **FAST) as run:
            part = sent[number * 100 : number * 100 + 100]

            def send(mine: int, part: list[Hit] = part, push: tl.Push = push) -> None:
                for at in range(mine, 100, 4):
                    assert push.send([part[at]], id=f"row {part[at].ts}") == 1

            threads = [threading.Thread(target=send, args=(n,)) for n in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for row in (part[0], *sent[: number and 1]):
                assert push.send([row], id=f"row {row.ts}") == 0
                with pytest.raises(UsageError, match="other rows"):
                    push.send(part[:3], id=f"row {row.ts}")
            if number == 2:
                assert others.send(marks(3)) == 3
                push.close()
                others.close()
                assert run.wait(LONG)
    assert run.digest == whole(sent, marks(3))
    assert run.parity().same
    with pytest.raises(SourceError):
        push.send(hits(1))


def test_who_sends_to_a_run_that_did_not_begin_is_told() -> None:
    """At once: it waited a minute for the run to start."""
    push = tl.Push()
    push.close()
    with pytest.raises(SourceError, match="closed"):
        push.send(hits(1), timeout=1)
    with pytest.raises(SourceError, match="closed"):
        push.parsed(b"{}")


def test_rows_that_another_process_was_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two run the same live run for a moment: both answer senders, and who goes on has all rows. It took no more of its own, and went on
    as if nothing had happened; and the other's rows were found when it was begun again."""
    monkeypatch.setattr(push_source, "LOOK", 0.02)
    monkeypatch.setattr(lease, "other", lambda *_: None)
    sent = hits(60)
    first, second = tl.Push(), tl.Push()
    run = tl.live(Plain, {Hit: first}, tmp_path / "out", **FAST)
    first.send(sent[:10], id="a")
    run.until(lambda e: e.end_seq >= 9)
    rival = tl.live(Plain, {Hit: second}, tmp_path / "out", **FAST)
    rival.until(lambda e: e.end_seq >= 9)
    assert second.send(sent[:10], id="a") == 0
    rival.pause()  # it has not heard of the other one
    until(lambda: rival.health.state == "paused", run, rival)
    assert second.send(sent[10:20], id="b") == 10
    run.until(lambda e: e.end_seq >= 19, LONG)
    assert first.send(sent[20:30]) == 10
    assert second.send(sent[30:40]) == 10
    assert first.send(sent[10:20], id="b") == 0
    assert first.send(sent[40:]) == 20
    rival.resume()
    with pytest.raises(Overtaken):
        rival.wait(LONG)
    first.close()
    run.wait(LONG)
    assert run.digest == run_serial(Plain, sent).digest


def test_ids_outlast_restarts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many segments have them: files do, of which old ones are removed. They were looked for in the last thousand segments only."""
    monkeypatch.setattr(sent_ids, "SEGMENTS", 4)
    monkeypatch.setattr(sent_ids, "REMEMBERED", 30)
    monkeypatch.setattr(sent_ids, "_READ", 1)
    out, rows = tmp_path / "out", hits(80)
    for begin in (0, 21, 66):
        push = tl.Push()
        with tl.live(Watch, {Mark: tl.Push(), Hit: push}, out, lateness="1h", **FAST) as run:
            again = rows[max(0, begin - 30) : begin]
            assert [push.send([row], id=f"{row.ts}") for row in again] == [0] * len(again)
            new = rows[begin : {0: 21, 21: 66, 66: 80}[begin]]
            assert [push.send([row], id=f"{row.ts}") for row in new] == [1] * len(new)
            run.until(lambda e: e.partitions[-1].rows > 0)
        assert len(list((out / sent_ids.FOLDER).iterdir())) <= 30 // 4 + 2
    first = min((out / sent_ids.FOLDER).iterdir())
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    with pytest.raises(StorageError, match=first.name) as altered:
        with tl.live(Watch, {Mark: tl.Push(), Hit: tl.Push()}, out, lateness="1h", **FAST) as run:
            run.wait(LONG)
    assert altered.value.code == "TL931"


def test_what_was_sent_is_processed_once_and_the_run_ends(tmp_path: Path) -> None:
    """As a command, with `--once`: it never ended, since nobody closes the stream."""
    (tmp_path / "rules.py").write_text(
        "import timelapse as tl\n\n\nclass Hit(tl.Event):\n    who: int\n\n\nclass Rules(tl.Program):\n    n: tl.Counter[int]\n\n"
        "    @tl.on(Hit)\n    def hit(self, e: Hit) -> None:\n        self.n[e.who] += 1\n"
    )
    out = tmp_path / "out"
    program = load_named(f"{tmp_path / 'rules.py'}:Rules")
    event: Any = spec_of(as_program(program)).events[0]
    push = tl.Push()
    with tl.live(program, {event: push}, out, **FAST) as run:
        run.pause()
        push.send([event(who=1, ts=1), event(who=1, ts=2)])
    assert run.last is None
    found = cli("live", f"{tmp_path / 'rules.py'}:Rules", out, "Hit=push", "--once", "--ahead", "any")
    assert found.code == 0, found
    last = Reading.open(out).last
    assert last is not None
    assert last.end_seq == 2


@pytest.mark.parametrize("what", ["none/*.jsonl", "none.jsonl"])
def test_files_that_are_missing_begin_nothing(what: str, tmp_path: Path) -> None:
    """The run's folder was there by then."""
    with pytest.raises(SourceError, match=r"there (is|are) no file") as missing:
        tl.live(Plain, {Hit: str(tmp_path / what)}, tmp_path / "out", once=True, **FAST)
    assert missing.value.code == "TL945"
    assert not (tmp_path / "out").exists()


def test_a_place_that_takes_nothing_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Senders are told, and send again; an answer that is lost does no harm; epochs wait."""
    create, failing = LocalPlace.create, [""]

    def fails(self: LocalPlace, name: str, data: bytes) -> None:
        if failing[0] == "before":
            raise NoSpace("full")
        create(self, name, data)
        if failing[0] == "after":
            raise OSError(5, "lost")

    monkeypatch.setattr(LocalPlace, "create", fails)
    push, sent = tl.Push(), hits(60)
    with tl.live(Plain, {Hit: push}, tmp_path / "out", **FAST) as run:
        push.send(sent[:20])
        failing[0] = "before"
        with pytest.raises(NoSpace):
            push.send(sent[20:40], id="a")
        failing[0] = "after"
        assert push.send(sent[20:40], id="a") == 20
        failing[0] = ""
        assert push.send(sent[40:]) == 20
        push.close()
        run.wait(LONG)
    assert run.digest == run_serial(Plain, sent).digest


class Word(tl.Event):
    text: str


class Told(tl.Record):
    text: str
    n: int


class Words(tl.Program):
    n: tl.Counter[str]

    @tl.on(Word)
    def word(self, e: Word) -> None:
        self.n[e.text[:1]] += 1
        self.emit(Told(text=e.text, n=self.n[e.text[:1]]))


def test_texts_of_the_past_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiled kernel keeps every text that it has met, so from time to time it is made anew: with the same outputs."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    monkeypatch.setattr("timelapse.streaming.head.FORGOTTEN", -(10**9))
    words = [Word(text=f"{n % 7} is number {n}", ts=n) for n in range(600)]
    push, told = tl.Push(), list[str]()

    class Heard(Silent):
        def note(self, text: str) -> None:
            told.append(text)

    with tl.live(Words, {Word: push}, tmp_path / "out", checkpoint="1ms", progress=Heard(), **FAST) as run:
        for at in range(0, 600, 20):
            push.send(words[at : at + 20])
        push.close()
        run.wait(LONG)
        assert run.compiled
    assert run.digest == run_serial(Words, words).digest
    assert any("loaded anew" in text for text in told)


def test_it_goes_on_where_it_cannot_be_loaded_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    push, told = tl.Push(), list[str]()

    def renew(head: Head) -> bool:
        raise StorageError("nothing is answered", code="TL935")

    class Heard(Silent):
        def note(self, text: str) -> None:
            told.append(text)

    monkeypatch.setattr(Head, "renew", renew)
    words = [Word(text=f"{n % 7}", ts=n) for n in range(40)]
    with tl.live(
        Words, {Word: push}, tmp_path / "out", checkpoint="1ms", lateness="0s", progress=Heard(), **FAST
    ) as run:
        for at in range(0, 40, 20):
            push.send(words[at : at + 20])
            run.until(lambda e, at=at: e.end_seq >= at + 19)  # type: ignore[misc]
        push.close()
        run.wait(LONG)
    assert run.digest == run_serial(Words, words).digest
    assert any("not loaded anew" in text for text in told)


@pytest.mark.parametrize("stopped", [False, True])
def test_it_ends_where_its_last_checkpoint_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    push, told = tl.Push(), list[str]()

    def write(saving: Saving) -> None:
        raise ValueError("of another library")

    class Heard(Silent):
        def note(self, text: str) -> None:
            told.append(text)

    monkeypatch.setattr(Saving, "write", write)
    with tl.live(
        Words, {Word: push}, tmp_path / "out", checkpoint="1h", lateness="0s", progress=Heard(), **FAST
    ) as run:
        push.send([Word(text="a", ts=1), Word(text="b", ts=2)])
        run.until(lambda e: e.end_seq >= 1)
        if not stopped:
            push.close()
            run.wait(LONG)
    assert run.health.state == ("stopped" if stopped else "ended")
    assert any(
        "the last checkpoint was not written" in text and "of another library" in text for text in told
    )


def test_many_checkpoints_and_files(tmp_path: Path) -> None:
    """Which files were read is kept in whole checkpoints."""
    folder, out = tmp_path / "hits", tmp_path / "out"
    folder.mkdir()
    for number in range(12):
        put(folder / f"{number:02}.jsonl", lines(hits(10, number * 10)))
        with tl.live(Plain, {Hit: folder}, out, once=True, **FAST) as run:
            run.wait(LONG)
        if number % 3 == 2:
            assert compact(LocalPlace(out), Plain()) is not None
    assert run.digest == run_serial(Plain, hits(120)).digest
    assert compact(LocalPlace(out), Plain()) is None
    found = newest_whole(LocalPlace(out), 100, [], lambda about: True)
    assert found is not None
    assert (found.changes, found.about.whole) == (0, True)
    put(folder / "99.jsonl", lines(hits(10, 120)))
    with tl.live(Plain, {Hit: folder}, out, once=True, **FAST) as run:
        run.wait(LONG)
    found = newest_whole(LocalPlace(out), 100, [], lambda about: True)
    assert found is not None
    assert found.changes == 1, "what stands before the whole one is not read"


def test_late_rows_and_absurd_times(tmp_path: Path) -> None:
    push = tl.Push()
    with tl.live(Plain, {Hit: push}, tmp_path / "out", lateness=0.00001, trigger="10ms", ahead="1h") as run:
        push.send([Hit(who=1, size=1, ts=t) for t in (1000, 1005, 996, 994, 995, 1005)])
        push.send([Hit(who=1, size=1, ts=time.time_ns() // 1000 + 7_200_000_000)])
        push.close()
        run.wait(LONG)
    late, aside = run.late(Hit), run.aside()
    assert late is not None
    assert late.column("ts").to_pylist() == [994]
    assert late.column("who").to_pylist() == [1]
    assert aside["absurd/Hit"].num_rows == 1
    assert run.last is not None
    assert (run.last.end_seq, run.last.complete) == (5, 1005)


class Plain(tl.Program):
    n: tl.Counter[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        if e.size == 13:
            raise ValueError("unlucky")
        self.n[e.who] += e.size
        self.emit(Seen(who=e.who, n=self.n[e.who]))


def test_a_handler_that_raises(tmp_path: Path) -> None:
    """The run stops before anything of the epoch is committed; with quarantine it goes on without the event."""
    events = [Hit(who=1, size=13 if n == 50 else 1, ts=n) for n in range(100)]
    put(tmp_path / "hits.jsonl", lines(events))
    with tl.live(Plain, {Hit: tmp_path / "hits.jsonl"}, tmp_path / "out", once=True, **FAST) as run:
        with pytest.raises(HandlerError, match="unlucky"):
            run.wait(LONG)
    assert run.last is None
    assert run.health.state == "failed"
    with tl.live(
        Plain, {Hit: tmp_path / "hits.jsonl"}, tmp_path / "out", once=True, quarantine=True, **FAST
    ) as run:
        run.wait(LONG)
    assert run.last is not None
    assert run.last.quarantined == 1
    assert run.digest == run_serial(Plain, events, quarantine=True).digest
    assert run.parity().same


class Ticking(tl.Program):
    n: tl.Counter[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        if e.size < 0:
            raise ValueError("negative")
        self.n[e.who] += e.size

    @tl.every(10)
    def tick(self) -> None:
        self.emit(Seen(who=0, n=self.n[0]))


def test_an_event_that_cannot_be_taken_out_says_what_can_be_done(tmp_path: Path) -> None:
    """Ticks begin with the first event. A filter keeps it out; without a processed row the program cannot be changed."""
    out, push = tmp_path / "out", tl.Push()
    run = tl.live(Ticking, {Hit: push}, out, quarantine=True, idle=None, **FAST)
    push.send([Hit(who=0, size=-1, ts=1_003), Hit(who=0, size=2, ts=1_005), Hit(who=0, size=2, ts=1_031)])
    with pytest.raises(HandlerError, match="negative") as caught:
        run.wait(LONG)
    assert "--filter" in str(caught.value)
    assert "replay with" not in str(caught.value)
    with pytest.raises(RunError, match="no row was processed yet"):
        tl.live(Watch, {Hit: tl.Push(), Mark: tl.Push()}, out, evolve=True, **FAST).wait(LONG)
    with tl.live(Ticking, {Hit: tl.Push()}, out, filters=["Hit: size < 0"], idle=None, **FAST) as run:
        last = run.until(lambda e: e.end_seq == 1)
    assert sum(p.filtered for p in last.partitions) == 1
    assert run.parity().same


def test_what_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (tmp_path / "in").mkdir()
    wrong: Any
    for wrong in ({}, {Mark: tmp_path / "in"}, {Hit: 3, Mark: tmp_path / "in"}):
        with pytest.raises(UsageError):
            tl.live(Watch, wrong, out)
        assert not out.exists()
    option: Any
    for option in ({"lateness": "soon"}, {"trigger": -1}, {"late": "never"}):
        with pytest.raises(UsageError):
            tl.live(Watch, {Mark: tmp_path / "in", Hit: tmp_path / "in"}, out, **option)
        assert not out.exists()
    both = {Mark: tmp_path / "in", Hit: tmp_path / "in"}
    with tl.live(Watch, both, out, once=True) as run:
        run.wait(LONG)
    with pytest.raises(RunError) as other:
        with tl.live(Watch(least=4), both, out, once=True) as run:
            run.wait(LONG)
    assert other.value.code == "TL943"
    with pytest.raises(RunError, match="in the run's order"):
        tl.live(Watch, {Hit: tmp_path / "in", Mark: tmp_path / "in"}, out)
    with pytest.raises(RunError):
        tl.live(Watch, both, tmp_path)
    with pytest.raises(ImpureProgram):
        tl.live(Clock, {Hit: tmp_path / "in"}, tmp_path / "clock")


class Clock(tl.Program):
    n: tl.Counter[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[int(time.time())] += 1


def test_damage_is_named(tmp_path: Path) -> None:
    """A checkpoint that was altered: an older one is used. An epoch that was altered: named, and nothing goes on."""
    folder, out = tmp_path / "hits", tmp_path / "out"
    folder.mkdir()
    streams = {Hit: folder}
    for number in range(3):
        put(folder / f"{number}.parquet", "")
        table = pa.table({n: [getattr(e, n) for e in hits(50, number * 50)] for n in ("ts", "who", "size")})
        pq.write_table(table, folder / f"{number}.parquet")
        with tl.live(Plain, streams, out, once=True, **FAST) as run:
            run.wait(LONG)
    names = sorted((out / "checkpoints").iterdir())
    assert len(names) >= 3
    data = bytearray(names[-1].read_bytes())
    data[-10] ^= 1
    names[-1].write_bytes(data)
    table = pa.table({n: [getattr(e, n) for e in hits(50, 150)] for n in ("ts", "who", "size")})
    pq.write_table(table, folder / "3.parquet")
    with tl.live(Plain, streams, out, once=True, **FAST) as run:
        run.wait(LONG)
    assert run.digest == run_serial(Plain, hits(200)).digest
    first = sorted((out / "epochs").iterdir())[0]
    data = bytearray(first.read_bytes())
    pack = Pack(str(first), bytes(data), Epoch, "")
    size = int.from_bytes(data[8:12], "little")
    data[16 + size + pack.sections["journal/Hit"].at + 20] ^= 1
    first.write_bytes(data)
    with pytest.raises(StorageError, match=first.name):
        Reading.open(out).journal()
    for name in (out / "checkpoints").iterdir():
        name.unlink()
    with tl.live(Plain, streams, out, **FAST) as run, pytest.raises(StorageError, match=first.name):
        run.wait(LONG)


def test_killed_again_and_again(tmp_path: Path) -> None:
    """A process that is killed at any moment and begun again: nothing is lost, nothing twice."""
    folder, out = tmp_path / "hits", tmp_path / "out"
    folder.mkdir()
    script = tmp_path / "go.py"
    script.write_text(
        textwrap.dedent(f"""
        import sys
        import timelapse as tl

        class Hit(tl.Event):
            who: int
            size: int

        class Seen(tl.Record):
            who: int
            n: int

        class Plain(tl.Program):
            n: tl.Counter[int]

            @tl.on(Hit)
            def hit(self, e: Hit) -> None:
                self.n[e.who] += e.size
                self.emit(Seen(who=e.who, n=self.n[e.who]))

        if __name__ == "__main__":
            once = sys.argv[1] == "once"
            with tl.live(Plain, {{Hit: {str(folder)!r}}}, {str(out)!r}, once=once, trigger="1ms", checkpoint="20ms", ahead=None) as run:
                print("begun", flush=True)
                run.wait()
        """)
    )
    kills = deep(6, 4)
    for number in range(kills):
        for part in range(10):
            at = number * 10 + part
            put(folder / f"{at:03}.jsonl", lines(hits(30, at * 30)))
        child = subprocess.Popen([sys.executable, str(script), "go"], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        time.sleep(0.01 + 0.06 * number)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    subprocess.run([sys.executable, str(script), "once"], check=True, timeout=LONG, capture_output=True)
    opened = Reading.open(out)
    assert opened.digest == run_serial(Plain, hits(300 * kills)).digest
    assert opened.parity().same


def test_the_live_demo(tmp_path: Path) -> None:
    """A generator, a kill, a recovery, parity."""
    found = cli("demo", "--live", "--seconds", "4", "--out", tmp_path)
    assert found.code == 0, found.out + found.err
    assert "the same: " in found.out
    assert "killing the process" in found.out


def test_the_moment_of_catching_up_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so is that sources have more than is processed, with figures."""
    notes: list[str] = []

    class Heard(Silent):
        def note(self, text: str) -> None:
            notes.append(text)

    (tmp_path / "hits").mkdir()
    for n in range(6):
        put(tmp_path / "hits" / f"{n}.jsonl", lines(hits(20, 20 * n)))
    monkeypatch.setattr(loop, "MOST_ROWS", 20)
    monkeypatch.setattr(loop, "_BEHIND", 0.0)
    streams: dict[Any, Any] = {Hit: tmp_path / "hits", Mark: tl.Push()}
    with tl.live(
        Watch, streams, tmp_path / "out", progress=Heard(), idle="1ms", trigger="10ms", ahead=None
    ) as run:
        run.until(lambda e: e.end_seq >= 119)
        until(lambda: run.health.caught_up is not None, run)
    assert sum("caught up behind epoch" in text and "120 rows in" in text for text in notes) == 1
    assert any("sources have more than is processed" in text and "rows wait here" in text for text in notes)


class Hits(tl.Program):
    n: tl.Counter[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += e.size
        self.emit(Seen(who=e.who, n=self.n[e.who]))


def test_an_epoch_waits_for_rows_or_its_time(tmp_path: Path) -> None:
    """By number: though the time is long, rows that are enough make an epoch, fewer wait. By time: fewer make one when it is over."""
    events = hits(100)
    push = tl.Push()
    with tl.live(
        Hits, {Hit: push}, tmp_path / "rows", idle=None, trigger="1h", trigger_rows=10, ahead=None
    ) as run:
        push.send(events[:4])
        push.send(events[4:9])
        time.sleep(0.3)
        assert run.last is None
        push.send(events[9:30])
        run.until(lambda e: e.end_seq >= 28)
        push.send(events[30:])
        push.close()
        run.wait()
    packs = list(Reading.open(tmp_path / "rows").epochs())
    assert len(packs) > 1
    assert all(pack.about.rows >= 9 for pack in packs[:-1])
    push = tl.Push()
    with tl.live(
        Hits, {Hit: push}, tmp_path / "time", idle=None, trigger="20ms", trigger_rows=1_000, ahead=None
    ) as run:
        for event in events:
            push.send([event])
        run.until(lambda e: e.end_seq >= 99)
        push.close()
        run.wait()
    assert Reading.open(tmp_path / "time").digest == Reading.open(tmp_path / "rows").digest
    with pytest.raises(UsageError, match="trigger_rows"):
        tl.live(Hits, {Hit: tl.Push()}, tmp_path / "none", trigger_rows=0)


def test_a_source_with_more_than_its_share_is_asked_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where all sources together gave fewer rows than an epoch takes."""
    monkeypatch.setattr(loop, "MOST_ROWS", 40)
    for name in ("hits", "marks"):
        (tmp_path / name).mkdir()
    for n in range(6):
        put(tmp_path / "hits" / f"{n}.jsonl", lines(hits(20, 20 * n)))
    streams: dict[Any, Any] = {Hit: tmp_path / "hits", Mark: tmp_path / "marks"}
    with tl.live(Watch, streams, tmp_path / "out", once=True, trigger="1h", ahead=None) as run:
        assert run.wait(LONG)
    assert run.digest == whole(hits(120), [])


def test_a_long_file_is_read_to_its_end_in_one_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_READ", 1 << 16)
    put(tmp_path / "hits.jsonl", lines(hits(5_000)))
    assert (tmp_path / "hits.jsonl").stat().st_size > 2 << 16
    streams = {Hit: {"h": tmp_path / "hits.jsonl"}}
    with tl.live(Hits, streams, tmp_path / "out", once=True, trigger="1h", ahead=None) as run:
        assert run.wait(LONG)
    assert run.digest == run_serial(Hits, hits(5_000)).digest


def test_files_that_were_read_before_a_whole_checkpoint_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process goes on over a whole checkpoint, and notes further files: the next process knows those of before as well."""
    monkeypatch.setattr(saving, "_WHOLE_AFTER", 1_000)
    folder, out = tmp_path / "hits", tmp_path / "out"
    folder.mkdir()
    with tl.live(Plain, {Hit: folder}, out, idle="20ms", checkpoint="1ms", **FAST) as run:
        for number in range(6):
            put(folder / f"{number:02}.jsonl", lines(hits(10, number * 10)))
            run.until(lambda e, rows=10 * number + 10: sum(p.rows for p in e.partitions) == rows)  # type: ignore[misc]
            if number == 2:
                run.until(lambda e: any((out / "checkpoints").iterdir()))
                assert compact(LocalPlace(out), Plain()) is not None
    put(folder / "06.jsonl", lines(hits(10, 60)))
    with tl.live(Plain, {Hit: folder}, out, once=True, **FAST) as run:
        run.wait(LONG)
    last = run.last
    assert last is not None
    assert [(p.rows, p.late) for p in last.partitions] == [(70, 0)]
    assert run.digest == run_serial(Plain, hits(70)).digest
