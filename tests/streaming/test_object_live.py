"""Live runs in an object store: what they do in a folder they do there, and what a store may do besides does no harm."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from tests.patience import LONG, until
from tests.s3_server import Gate, S3Server
from tests.streaming.test_live import FAST, Hit, Plain, hits, lines, put
from timelapse.errors import RunError, SourceError, StorageError
from timelapse.run import run_serial
from timelapse.store import waiting
from timelapse.store.place import Place
from timelapse.streaming import chain, lease
from timelapse.streaming.chain import Overtaken
from timelapse.streaming.checkpoints import compact
from timelapse.streaming.collecting import collect
from timelapse.streaming.following import follow
from timelapse.streaming.format import CHECKPOINTS
from timelapse.streaming.live import Live
from timelapse.streaming.place import ObjectLive, live_place
from timelapse.streaming.reading import Reading
from timelapse.streaming.restoring import restore
from timelapse.streaming.sinks import Callback


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    monkeypatch.setenv("TIMELAPSE_SCRATCH", str(tmp_path / "scratch"))


@pytest.fixture
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is away is waited for less long where the length is not what counts."""
    monkeypatch.setattr(chain, "_BRIEF", 0.2)
    monkeypatch.setattr(waiting, "_LAST", 0.1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "hits").mkdir()
    return tmp_path / "hits"


def _runs(folder: Path, out: str, **options: Any) -> tl.Live:
    return tl.live(Plain, {Hit: folder}, out, **{"once": True, **FAST, **options})


def test_as_in_a_folder(bucket: str, s3: S3Server, folder: Path, tmp_path: Path) -> None:
    """The same digest, outputs, states and answers; in the store there are only files that were written once, and hints."""
    put(folder / "0.jsonl", lines(hits(120)))
    outs: list[str] = [f"{bucket}/some/live", str(tmp_path / "live")]
    called: list[tuple[str, int]] = []
    for out in outs:
        sink = Callback(lambda record, table, epoch: called.append((record, table.num_rows)))
        with _runs(folder, out, checkpoint="10ms", sinks=[sink]) as run:
            run.wait(LONG)
        put(folder / f"1-{len(out)}.jsonl", "")
    there, here = (Reading.open(out) for out in outs)
    assert str(there.path) == outs[0]
    assert there.digest == here.digest == run_serial(Plain, hits(120)).digest
    assert there.outputs("Seen").equals(here.outputs("Seen"))
    assert called[: len(called) // 2] == called[len(called) // 2 :]
    assert there.parity().same
    assert there.why("Seen:who=1").text == here.why("Seen:who=1").text
    assert there.journal().id == here.journal().id
    keys = {key.removeprefix("some/live/") for key in s3.keys(bucket.removeprefix("s3://"))}
    assert {key.partition("/")[0] for key in keys} == {
        "live.json", "versions", "epochs", "checkpoints", "newest", "lease", "sinks"
    }  # fmt: skip


def test_stopped_and_begun_again_on_another_machine(
    bucket: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that is needed lies on the first machine's disk: not the journal, not a checkpoint, not the program's file."""
    out, events = f"{bucket}/live", hits(300)
    module = tmp_path / "kept_rules.py"
    module.write_text(_PROGRAM)
    for number in range(3):
        put(folder / f"{number}.jsonl", lines(events[number * 100 : number * 100 + 100]))
        monkeypatch.setenv("TIMELAPSE_SCRATCH", str(tmp_path / f"machine-{number}"))
        result = cli(
            "live", f"{module}:Kept", out, f"Hit={folder}", "--once", "--ahead", "any", "--checkpoint", "1ms"
        )
        assert result.code == 0, result.err
        assert f"timelapse parity {out}" in result.out
    module.unlink()
    reading = Reading.open(out)
    assert reading.last is not None
    assert reading.last.end_seq == 300
    assert reading.program_name == "Kept"
    for command, part in (
        (("parity", out), "the same: 300 outputs"), (("why", out, "Seen:who=1"), "Seen"), (("state", out), "n"),
        (("state", "checkpoint", out, str(tmp_path / "states")), "states"),
    ):  # fmt: skip
        result = cli(*command)
        assert result.code == 0, result.err
        assert part in result.out
    assert (tmp_path / "states" / "snapshot.json").is_file()


_PROGRAM = """
import timelapse as tl

class Hit(tl.Event):
    who: int
    size: int

class Seen(tl.Record):
    who: int
    n: int

class Kept(tl.Program):
    n: tl.Counter[int]

    @tl.on(Hit)
    def hit(self, e):
        self.n[e.who] += e.size
        self.emit(Seen(who=e.who, n=self.n[e.who]))
"""


def test_what_was_sent(bucket: str, s3: S3Server) -> None:
    """Rows are in the store before their sender is told; the same id counts once, also in the next process."""
    push, sent = tl.Push(), hits(90)
    with tl.live(Plain, {Hit: push}, f"{bucket}/live", **FAST) as run:
        assert push.send(sent[:30], id="a") == 30
        assert [k for k in s3.keys(bucket.removeprefix("s3://")) if "/push/" in k]
        run.until(lambda e: e.partitions[0].position == 29)
    push = tl.Push()
    with tl.live(Plain, {Hit: push}, f"{bucket}/live", **FAST) as run:
        assert push.send(sent[:30], id="a") == 0
        assert push.send(sent[30:]) == 60
        push.close()
        assert run.wait(LONG)
    assert run.digest == run_serial(Plain, sent).digest


class Unsure(ObjectLive):
    """A store whose answers are lost; what it did not take may land later."""

    mode = ""
    later: list[tuple[str, bytes]]

    def create(self, name: str, data: bytes) -> None:
        if self.mode == "later" and not name.startswith(CHECKPOINTS):
            self.later = [*getattr(self, "later", []), (name, data)]
            raise StorageError("no answer", code="TL935")
        super().create(name, data)
        if self.mode == "lost":
            raise StorageError("no answer", code="TL935")

    def land(self) -> None:
        for name, data in self.later:
            try:
                super().create(name, data)
            except FileExistsError:
                continue
        self.later = []


def test_a_segment_that_lands_after_its_sender_was_told_otherwise(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts once: the sender sends it again under its id, and further rows take the next place."""
    place = Unsure(live_place(f"{bucket}/live").path)  # type: ignore[arg-type]
    monkeypatch.setattr("timelapse.streaming.live.live_place", lambda out: place)
    push, sent = tl.Push(), hits(80)
    with tl.live(Plain, {Hit: push}, f"{bucket}/live", **FAST) as run:
        assert push.send(sent[:20]) == 20
        run.until(lambda e: e.partitions[0].position == 19)
        for part, name in ((sent[20:40], "a"), (sent[20:40], "a"), (sent[40:60], "b")):
            place.mode = "later"
            with pytest.raises(StorageError, match="no answer"):
                push.send(part, id=name)
        place.mode = ""
        place.land()
        assert push.send(sent[20:40], id="a") == 0
        place.mode = "lost"
        assert push.send(sent[40:60], id="b") == 20
        assert push.send(sent[60:]) == 20
        push.close()
        assert run.wait(LONG)
    assert run.digest == run_serial(Plain, sent).digest
    assert run.parity().same


def test_what_was_tried_in_vain_is_not_kept(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is tried: the segment that lands in the end says by itself what it has."""
    place = Unsure(live_place(f"{bucket}/live").path)  # type: ignore[arg-type]
    monkeypatch.setattr("timelapse.streaming.live.live_place", lambda out: place)
    push, sent = tl.Push(), hits(400)
    with tl.live(Plain, {Hit: push}, f"{bucket}/live", **FAST) as run:
        assert push.send(sent[:20]) == 20
        for part in range(1, 20):
            place.mode = "later"
            with pytest.raises(StorageError, match="no answer"):
                push.send(sent[20 * part : 20 * part + 20], id=f"part {part}")
        place.mode = ""
        kept = [value for value in vars(push).values() if isinstance(value, list | dict | tuple)]
        assert sum(map(len, kept)) < 5
        place.land()
        counted = [push.send(sent[20 * part : 20 * part + 20], id=f"part {part}") for part in range(1, 20)]
        assert sorted(counted) == [0, *[20] * 18]
        push.close()
        assert run.wait(LONG)
    assert run.parity().same
    assert run.last is not None
    assert sum(p.rows for p in run.last.partitions) == 400


def test_two_at_once(bucket: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes that both think that the run is theirs: one commits, the other stops; nothing is there twice."""
    monkeypatch.setattr(lease, "other", lambda *_: None)
    put(folder / "0.jsonl", lines(hits(50)))
    out = f"{bucket}/live"
    first, second = (_runs(folder, out, once=False) for _ in range(2))
    number = itertools.count(1)

    def failed() -> list[Live]:
        at = next(number)
        put(folder / f"{at:03}.jsonl", lines(hits(20, 30 + 20 * at)))
        return [run for run in (first, second) if run.health.state == "failed"]

    until(failed, look=0.02)
    (overtaken,) = (run for run in (first, second) if run.health.state == "failed")
    with pytest.raises(Overtaken) as error:
        overtaken.wait(LONG)
    assert error.value.code == "TL941"
    (second if overtaken is first else first).stop()
    with _runs(folder, out) as run:
        run.wait(LONG)
    assert run.last is not None
    assert run.digest == run_serial(Plain, hits(run.last.end_seq)).digest
    assert run.parity().same


@pytest.mark.usefixtures("_hasty")
def test_a_store_that_is_away(
    bucket: str, s3: S3Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epoch waits, and the run says so; a sink, a standby and who follows wait too; when it is there again all goes on."""
    gate = Gate(s3.port)
    monkeypatch.setenv("AWS_ENDPOINT_URL", gate.url)
    monkeypatch.setenv("TIMELAPSE_PATIENCE", "0.2")
    out = f"s3://{s3.bucket()}/live"
    put(folder / "0.jsonl", lines(hits(50)))
    given: list[int] = []
    sink = Callback(lambda record, table, epoch: given.append(table.num_rows))
    with _runs(folder, out, once=False, checkpoint="50ms", sinks=[sink]) as run:
        run.until(lambda e: e.end_seq >= 49)
        with _runs(folder, out, once=False, standby="5s") as standby, follow(out) as followed:
            standby.until(lambda e: e.end_seq >= 49)
            followed.until(lambda e: e.end_seq >= 49)
            before = followed.state("n")
            gate.shut()
            put(folder / "1.jsonl", lines(hits(50, 50)))
            until(lambda: run.health.state == "waiting", run)
            assert "cannot be written" in run.health.problem
            time.sleep(0.4)  # longer than anybody's patience
            assert (run.health.state, standby.health.state) == ("waiting", "standby")
            assert (followed.health.state, followed.state("n")) == ("following", before)
            gate.open()
            run.until(lambda e: e.end_seq >= 99)
            standby.until(lambda e: e.end_seq >= 99)
            assert standby.health.state == "standby"
            followed.until(lambda e: e.end_seq >= 99)
            assert followed.state("n") == run.state("n")
    with _runs(folder, out) as again:
        again.wait(LONG)
    assert again.digest == run_serial(Plain, hits(100)).digest
    assert sum(given) == 99
    gate.shut()


@pytest.mark.usefixtures("_hasty")
def test_stopped_while_the_store_is_away(
    bucket: str, s3: S3Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends long before the store's patience does, and nothing is lost or half written."""
    gate = Gate(s3.port)
    monkeypatch.setenv("AWS_ENDPOINT_URL", gate.url)
    monkeypatch.setenv("TIMELAPSE_PATIENCE", "3600")
    out = f"s3://{s3.bucket()}/live"
    put(folder / "0.jsonl", lines(hits(50)))
    sink, push = Callback(lambda record, table, epoch: None), tl.Push()
    streams = {Hit: {"a": folder, "b": push}}
    run = tl.live(Plain, streams, out, checkpoint="50ms", sinks=[sink], idle="10ms", **FAST)
    run.until(lambda e: e.end_seq >= 49)
    gate.shut()
    waits = push.sending(hits(10, 200), id="x", timeout=5)
    put(folder / "1.jsonl", lines(hits(50, 50)))
    until(lambda: run.health.state == "waiting", run)
    run.stop()  # an hour, if it waited as long as it may
    assert run.health.state == "stopped"
    with pytest.raises(StorageError):
        waits.result(LONG)
    with pytest.raises(SourceError, match="closed"):
        push.send(hits(1), timeout=5)
    gate.open()
    with tl.live(Plain, {Hit: {"a": folder, "b": (again := tl.Push())}}, out, once=True, **FAST) as run:
        assert again.send(hits(10, 200), id="x") == 10
        again.close()
        run.wait(LONG)
    assert run.digest == run_serial(Plain, [*hits(100), *hits(10, 200)]).digest
    gate.shut()


def test_killed_and_taken_over(bucket: str, folder: Path, tmp_path: Path) -> None:
    """The process is killed; a standby with a disk of its own takes over; begun again at the end, all is there once."""
    out, script = f"{bucket}/live", tmp_path / "go.py"
    script.write_text(
        textwrap.dedent(f"""
        import timelapse as tl
        from tests.streaming.test_live import Hit, Plain

        with tl.live(Plain, {{Hit: {str(folder)!r}}}, {out!r}, trigger="5ms", ahead=None, checkpoint="30ms") as run:
            run.until(lambda e: e.end_seq >= 99)
            print("begun", flush=True)
            run.wait()
        """)
    )
    put(folder / "0.jsonl", lines(hits(101)))
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "TIMELAPSE_SCRATCH": str(tmp_path / "other")}
    first = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert first.stdout is not None
    assert first.stdout.readline() == "begun\n"
    with _runs(folder, out, once=False, standby="1s") as run:
        run.until(lambda e: e.end_seq >= 99)
        for number in range(10):
            put(folder / f"{number + 1:02}.jsonl", lines(hits(20, 101 + 20 * number)))
        time.sleep(random.random() / 5)
        first.send_signal(signal.SIGKILL)
        first.wait()
        first.stdout.close()
        put(folder / "end.jsonl", lines(hits(20, 301)))
        run.until(lambda e: e.end_seq >= 319)
        assert run.health.state == "running"
    with _runs(folder, out) as run:
        run.wait(LONG)
    assert run.digest == run_serial(Plain, hits(321)).digest
    assert run.parity().same


def test_checkpoints_are_put_together_and_collected(bucket: str, folder: Path) -> None:
    out = f"{bucket}/live"
    place = live_place(out)
    for number in range(12):
        put(folder / f"{number:02}.jsonl", lines(hits(10, 10 * number)))
        with _runs(folder, out, checkpoint="1h") as run:
            run.wait(LONG)
        if number % 3 == 2:
            assert compact(place, Plain()) is not None
    before = len(list(place.names(CHECKPOINTS)))
    gone = collect(place, corrected=False)
    assert len(gone) >= 3
    assert len(list(place.names(CHECKPOINTS))) == before - len(gone)
    with _runs(folder, out) as run:
        run.wait(LONG)
    assert run.digest == run_serial(Plain, hits(120)).digest


def test_late_rows_a_shadow_and_a_next_version(bucket: str, folder: Path) -> None:
    """What adds epochs of other kinds, and what has a place of its own."""
    out, events = f"{bucket}/live", hits(60)
    early = [*events[:20], *events[30:]]
    put(folder / "0.jsonl", lines(early))
    with _runs(folder, out, once=False, late="correct", correct_every="1ms") as run:
        run.until(lambda e: e.end_seq >= 40)
        put(folder / "1.jsonl", lines(events[20:30]))
        run.until(lambda e: e.version > 0)
    with _runs(folder, out, late="correct") as run:
        run.wait(LONG)
    assert run.digest == run_serial(Plain, events).digest
    assert run.parity().same

    class Twice(tl.Program):
        n: tl.Counter[int]

        @tl.on(Hit)
        def hit(self, e: Hit) -> None:
            self.n[e.who] += 2 * e.size

    shadow = tl.Shadow(out, Twice)
    shadow.follow()
    shadow.save()
    assert shadow.progress().rows == 60
    put(folder / "2.jsonl", lines(hits(20, 60)))
    with tl.live(Twice, {Hit: folder}, out, once=True, promote="next", **FAST) as then:
        then.wait(LONG)
        assert then.get("n", 1) == 2 * sum(e.size for e in hits(80) if e.who == 1)
    assert Reading.open(out, Twice()).parity().same
    shadow.remove()
    assert not list(live_place(out).below("shadows/next").files())


def test_what_is_refused(bucket: str, folder: Path, s3: S3Server) -> None:
    s3.client.put_object(Bucket=bucket.removeprefix("s3://"), Key="other/file", Body=b"x")
    for out, code in (
        (f"{bucket}/other", "TL940"), (f"{bucket}/live#3", "TL930"), ("s3://me:secret@b/live", "TL930"), ("http://host/live", "TL930")
    ):  # fmt: skip
        with pytest.raises((RunError, StorageError)) as error:
            _runs(folder, out)
        assert (error.value.code, bool(error.value.hint)) == (code, True)
        assert "secret" not in str(error.value)
    with pytest.raises(RunError) as missing:
        Reading.open(f"{bucket}/nothing")
    assert missing.value.code == "TL940"
    with pytest.raises(StorageError) as bucketless:
        _runs(folder, "s3://no-such-bucket-here/live")
    assert bucketless.value.code == "TL937"


def test_spark_cannot_feed_it(bucket: str) -> None:
    from timelapse.streaming.sources.spark_feed import SparkFeed

    feed = SparkFeed.__new__(SparkFeed)
    with pytest.raises(SourceError) as error:
        feed.use(live_place(f"{bucket}/live"), 0.5)
    assert (error.value.code, bool(error.value.hint)) == ("TL947", True)


def test_another_run_at_the_same_url(bucket: str, folder: Path, s3: S3Server) -> None:
    """What was kept on this machine of the run before is not its successor's."""
    out = f"{bucket}/live"
    put(folder / "0.jsonl", lines(hits(50)))
    with _runs(folder, out) as run:
        run.wait(LONG)
    assert run.journal().count == 50
    place: Place = live_place(out)
    place.remove([one.name for one in list(place.files())])
    put(folder / "0.jsonl", lines(hits(30, 7)))
    with _runs(folder, out) as then:
        then.wait(LONG)
    assert then.journal().count == 30
    assert then.parity().same
    assert then.place.local != run.place.local


def test_restored_at_the_same_url(bucket: str, folder: Path) -> None:
    """The journal that this machine has of epochs that are no more is made anew, as soon as it is asked for."""
    out, aside, new = f"{bucket}/live", f"{bucket}/aside", [Hit(who=3, size=2, ts=h.ts) for h in hits(30, 50)]
    for number in range(2):
        put(folder / f"{number}.jsonl", lines(hits(50, 50 * number)))
        with _runs(folder, out) as run:
            run.wait(LONG)
    assert run.journal().count == 100
    restore(out, aside, epoch=1)
    place: Place = live_place(out)
    place.remove([one.name for one in list(place.files())])
    restore(aside, out)
    assert Reading.open(out).journal().count == 50
    (folder / "1.jsonl").unlink()
    put(folder / "2.jsonl", lines(new))
    with _runs(folder, out) as then:
        then.wait(LONG)
    assert then.place.local == run.place.local
    assert then.journal().count == 80
    assert then.digest == run_serial(Plain, hits(50) + new).digest
    assert then.parity().same
