"""Logs and runs in an object store: all that works on a folder works there, with the same results."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from tests.s3_server import S3Server
from timelapse.engine import driver, resume
from timelapse.engine.job import Job
from timelapse.errors import LogError, ReplayError, RunError, StorageError
from timelapse.log.files import check_files as log_files
from timelapse.log.log import Log
from timelapse.model.versions import load_named
from timelapse.progress import Silent
from timelapse.run import Run
from timelapse.run.files import check_files as run_files
from timelapse.store import commits, folders, remote
from timelapse.store.disk import DISK, Disk
from timelapse.store.objects import ObjectPlace, place_at
from timelapse.store.remote import RemotePath


class Seen(tl.Event):
    user: int
    address: str


class Often(tl.Record, key="user"):
    user: int
    times: int


class Counting(tl.Program):
    limit: int = 3
    times: tl.Counter[int]
    last: tl.Value[str] = tl.state(default="")

    @tl.on(Seen)
    def count(self, e: Seen) -> None:
        self.times[e.user] += 1
        if self.times[e.user] >= self.limit:
            self.emit(Often(user=e.user, times=self.times[e.user]))
        if e.address == "bad":
            self.reject("bad")
        self.last = e.address  # type: ignore[assignment]


PROGRAM = """
import timelapse as tl


class Seen(tl.Event):
    user: int
    address: str


class Often(tl.Record, key="user"):
    user: int
    times: int


class Counting(tl.Program):
    limit: int = 3
    times: tl.Counter[int]

    @tl.on(Seen)
    def count(self, e):
        self.times[e.user] += 1
        if self.times[e.user] >= self.limit:
            self.emit(Often(user=e.user, times=self.times[e.user]))
"""


def some(first: int, end: int) -> list[Seen]:
    return [
        Seen(user=n * 7 % 13, address=f"a{n % 5}" if n % 50 else "bad", ts=n * 1000)
        for n in range(first, end)
    ]


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIMELAPSE_SCRATCH", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def _shown(run: Run) -> dict[str, Any]:
    return {
        "often": run.table(Often).to_pylist(), "times": run.state("times").to_pylist(), "digest": run.digest,
        "rejected": run.rejected.to_pylist(), "early": run.state("times", at=50_000).to_pylist(),
    }  # fmt: skip


def test_a_log_and_its_runs(bucket: str, tmp_path: Path, scratch: Path) -> None:
    """What a log and a run in an object store give is what they give in folders, also after it was opened again with no copies here."""
    there, here = f"{bucket}/some/log", tmp_path / "log"
    logs = [Log.from_events(place, some(0, 200), block=64) for place in (there, here)]
    assert logs[0].id == logs[1].id
    assert str(logs[0].path) == there
    outs: list[str | Path] = [f"{bucket}/run", tmp_path / "run"]
    runs = [tl.replay(Counting, log, out, slices=3, spark=False) for log, out in zip(logs, outs, strict=True)]
    assert runs[0].manifest.log == there
    assert str(runs[0].path) == f"{bucket}/run"
    copies = Path(os.environ["TIMELAPSE_OBJECTS"])
    for path in sorted(copies.glob("??/*")):
        path.unlink()
    again = Run.open(f"{bucket}/run", program=Counting())
    assert _shown(runs[0]) == _shown(runs[1]) == _shown(again)
    assert again.verify().ok
    assert run_files(again).ok
    assert again.why("Often:1").text == runs[1].why("Often:1").text
    assert tl.diff(again, tmp_path / "run").same
    assert not [p for p in scratch.rglob("*") if p.is_file()]


def test_a_log_that_is_appended_to(bucket: str, tmp_path: Path, scratch: Path) -> None:
    """Who has opened an earlier version goes on reading that; a run knows which it was over; expired versions are gone."""
    place = f"{bucket}/log"
    first = Log.from_events(place, some(0, 200), block=64)
    run = tl.replay(Counting, first, f"{bucket}/run", spark=False)
    later = pa.table(
        {
            "ts": [n * 1000 for n in range(150, 260)],
            "user": [n % 3 for n in range(150, 260)],
            "address": ["x"] * 110,
        }
    )
    second = first.append({Seen: later}, ts="ts", unit="us")
    assert (second.version, second.count) == (2, 310)
    assert [v.number for v in second.versions()] == [1, 2]
    assert sum(1 for _ in first.events(Seen)) == 200
    assert Log.open(place).id == second.id
    assert Log.open(place, version=1).id == first.id
    assert Run.open(f"{bucket}/run", program=Counting()).verify().ok
    same = tl.Log.from_events(tmp_path / "log", some(0, 200), block=64).append(
        {Seen: later}, ts="ts", unit="us"
    )
    assert same.id == second.id
    assert tl.replay(Counting, second, spark=False).digest == tl.replay(Counting, same, spark=False).digest
    third = second.forget("user == 2")
    assert third.count < second.count
    with pytest.raises(LogError, match="holds for no event"):
        third.forget("user == 2")
    assert third.expire(3600) == []
    assert third.expire(0) == [1, 2]
    assert [v.number for v in third.versions()] == [3]
    assert len(list(place_at(place).names("commits"))) == 1
    listed = {e.key for e in commits.read(place_at(place), commits.newest(place_at(place))).files.values()}
    assert {f.name for f in place_at(place).files("parts")} == listed
    with pytest.raises(RunError, match="another one"):
        Run.open(run.path or "", program=Counting()).verify()
    assert log_files(Log.open(place)).ok


def test_two_appends_at_once(bucket: str, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one is told so, and the log has the first one's events."""
    log = Log.from_events(f"{bucket}/log", some(0, 10))
    rows = [pa.table({"ts": [n], "user": [n], "address": ["x"]}) for n in (10**6, 2 * 10**6)]
    real = commits.publish

    def slowly(*args: Any, **named: Any) -> commits.Commit:
        monkeypatch.setattr(commits, "publish", real)
        log.append({Seen: rows[0]}, ts="ts", unit="us")
        return real(*args, **named)

    monkeypatch.setattr(commits, "publish", slowly)
    with pytest.raises(StorageError) as error:
        log.append({Seen: rows[1]}, ts="ts", unit="us")
    assert error.value.code == "TL933"
    assert [e.user for e in Log.open(log.path).events(Seen)][-1] == 10**6


def test_a_place_that_is_taken(bucket: str, s3: S3Server, scratch: Path) -> None:
    """Nothing is replaced that was not meant; what is replaced stays readable for who has it open."""
    log = Log.from_events(f"{bucket}/log", some(0, 100))
    first = tl.replay(Counting, log, f"{bucket}/run", spark=False)
    s3.client.put_object(Bucket=bucket.removeprefix("s3://"), Key="other/file", Body=b"x")
    for place, kind, code in (
        ("run", ReplayError, "TL508"),
        ("log", ReplayError, "TL508"),
        ("other", ReplayError, "TL508"),
    ):
        with pytest.raises(kind) as error:
            tl.replay(Counting, log, f"{bucket}/{place}", spark=False)
        assert error.value.code == code
    for place in ("run", "log", "other"):
        with pytest.raises(LogError) as refused:
            Log.from_events(f"{bucket}/{place}", some(0, 5), overwrite=place != "log")
        assert refused.value.code == "TL401"
    second = tl.replay(Counting(limit=5), log, f"{bucket}/run", spark=False, overwrite=True)
    assert second.digest != first.digest
    assert first.table(Often).num_rows > second.table(Often).num_rows
    assert Run.open(f"{bucket}/run").digest == second.digest
    assert Run.open(f"{bucket}/run#1").digest == first.digest
    tl.replay(Counting, log, f"{bucket}/run", spark=False, overwrite=True)
    remote._commit.cache_clear()
    with pytest.raises(StorageError) as gone:
        Run.open(f"{bucket}/run#1")
    assert gone.value.code == "TL939"


def test_two_replays_into_one_place(bucket: str, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From two machines, which do not see each other's folders: one is there, whole, and the other is told."""
    log = Log.from_events(f"{bucket}/log", some(0, 100))
    real = commits.publish

    def slowly(*args: Any, **named: Any) -> commits.Commit:
        monkeypatch.setattr(commits, "publish", real)
        monkeypatch.setenv("TIMELAPSE_SCRATCH", str(scratch / "another machine"))
        tl.replay(Counting(limit=5), log, f"{bucket}/run", spark=False)
        return real(*args, **named)

    monkeypatch.setattr(commits, "publish", slowly)
    with pytest.raises(StorageError) as error:
        tl.replay(Counting, log, f"{bucket}/run", spark=False)
    assert error.value.code == "TL933"
    assert Run.open(f"{bucket}/run").params == {"limit": 5}
    assert run_files(Run.open(f"{bucket}/run")).ok
    assert len({k.key.split("/")[1] for k in commits.read(place_at(f"{bucket}/run"), 1).files.values()}) == 1
    assert len({f.name.split("/")[1] for f in place_at(f"{bucket}/run").files("parts")}) == 1


# --- damage ------------------------------------------------------------------------------------------------


def test_what_was_altered_is_named(
    bucket: str, s3: S3Server, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every object of a run, with a byte changed, cut short, or gone."""
    log = Log.from_events(f"{bucket}/log", some(0, 100))
    tl.replay(Counting, log, f"{bucket}/run", spark=False)
    name = bucket.removeprefix("s3://")
    keys = [k for k in s3.keys(name, "run/parts") if not k.endswith(("verified.json",))]
    assert len(keys) >= 4
    for number, key in enumerate(keys):
        whole = s3.client.get_object(Bucket=name, Key=key)["Body"].read()
        torn = bytearray(whole) or bytearray(b"x")
        torn[len(torn) // 2] ^= 4
        for data in (bytes(torn), whole + b"x", whole[:-1] or None, None):
            monkeypatch.setenv(
                "TIMELAPSE_OBJECTS", str(tmp_path / f"copies-{number}-{0 if data is None else len(data)}")
            )
            if data is None:
                s3.client.delete_object(Bucket=name, Key=key)
            else:
                s3.client.put_object(Bucket=name, Key=key, Body=data)
            if not key.endswith("run.json"):
                found = run_files(Run.open(f"{bucket}/run", program=Counting()))
                assert [key in str(e) for e in found.errors] == [True]
            with pytest.raises(StorageError) as error:
                run = Run.open(f"{bucket}/run")
                _ = (
                    run.table(Often),
                    run.rejected,
                    run.state("times"),
                    run.state("last"),
                    (run.path or Path()).joinpath("program"),
                )
                if "/program/" in key:
                    _ = [p.read_bytes() for p in (run.path or Path()).rglob("*.py")]
            assert error.value.code == "TL931"
            assert key in str(error.value)
        s3.client.put_object(Bucket=name, Key=key, Body=whole)
    assert run_files(Run.open(f"{bucket}/run")).ok


class _Told(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


# --- a store that is away ------------------------------------------------------------------------------------


def test_a_store_that_is_away(tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked again, and what was going on goes on; where it stays away, that is said."""
    server = S3Server()
    server.start()
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TIMELAPSE_PATIENCE", "20")
    place = ObjectPlace("s3://away", "x")
    server.client.create_bucket(Bucket="away")
    server.stop()

    def back() -> None:
        time.sleep(1.0)
        server.start()
        server.client.create_bucket(Bucket="away")

    thread = threading.Thread(target=back)
    thread.start()
    try:
        place.create("a", b"1")
        assert place.read("a") == b"1"
    finally:
        thread.join()
        server.stop()
    monkeypatch.setenv("TIMELAPSE_PATIENCE", "0.3")
    with pytest.raises(StorageError) as error:
        place.read("a")
    assert error.value.code == "TL935"
    assert "s3://away/x/a" in str(error.value)
    assert "testing-" not in str(error.value)


def test_a_finished_run_waits_for_its_store(
    bucket: str, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that goes away before the run is put there: the same replay again puts it there, without running."""
    log = Log.from_events(f"{bucket}/log", some(0, 100))
    real = ObjectPlace.upload

    def away(self: ObjectPlace, name: str, path: Path) -> None:
        raise StorageError("the store does not answer", code="TL935")

    monkeypatch.setattr(ObjectPlace, "upload", away)
    told = _Told()
    with pytest.raises(StorageError) as error:
        tl.replay(Counting, log, f"{bucket}/run", spark=False, progress=told)
    assert error.value.code == "TL935"
    assert "the same command goes on with it" in told.notes[-1]
    with pytest.raises(RunError):
        Run.open(f"{bucket}/run")
    monkeypatch.setattr(ObjectPlace, "upload", real)
    monkeypatch.setattr("timelapse.run.start.run_plan", lambda *_, **__: pytest.fail("it runs again"))
    run = tl.replay(Counting, log, f"{bucket}/run", spark=False)
    assert run.digest == tl.run_serial(Counting, log).digest
    assert run_files(run).ok
    assert not [p for p in scratch.rglob("*") if p.is_file()]


# --- kills ---------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
import timelapse as tl
from timelapse.store import commits
from timelapse.store.objects import ObjectPlace
from rules import Counting

at, count = sys.argv[3], int(sys.argv[4])
left = [count]

def dying(method):
    def call(*args, **named):
        before = at.startswith("before")
        left[0] -= 1
        if before and left[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        found = method(*args, **named)
        if left[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return found
    return call

name = at.split()[1]
setattr(ObjectPlace, name, dying(getattr(ObjectPlace, name)))
tl.replay(Counting, sys.argv[1], sys.argv[2], slices=4, spark=False)
"""


def _again(log: str, out: str) -> tuple[Run, str]:
    """The same replay again; the run, and what was told."""
    told = _Told()
    return tl.replay(
        load_named("rules.py:Counting")(), log, out, slices=4, spark=False, progress=told
    ), "; ".join(told.notes)


@pytest.mark.parametrize(
    ("at", "count", "there"),
    [("after upload", 3, False), ("before create", 1, False), ("after create", 1, True)],
)
def test_killed_while_it_is_put(
    bucket: str, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch, at: str, count: int, there: bool
) -> None:  # fmt: skip
    """Before the commit nothing is seen, after it all; the same command again puts the finished run there, and nothing is left."""
    (tmp_path / "rules.py").write_text(PROGRAM)
    (tmp_path / "killed.py").write_text(KILLED)
    Log.from_events(f"{bucket}/log", some(0, 300), block=64)
    run = subprocess.run(
        [sys.executable, "killed.py", f"{bucket}/log", f"{bucket}/run", at, str(count)], cwd=tmp_path, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == -signal.SIGKILL, run.stderr
    place = place_at(f"{bucket}/run")
    assert commits.newest(place) == (1 if there else 0)
    if there:
        assert run_files(Run.open(f"{bucket}/run")).ok
        return
    with pytest.raises(RunError):
        Run.open(f"{bucket}/run")
    monkeypatch.chdir(tmp_path)
    done, told = _again(f"{bucket}/log", f"{bucket}/run")
    assert "was finished before" in told
    assert run_files(done).ok
    assert done.verify().ok
    assert not [p for p in scratch.rglob("*") if p.is_file()]


MIDDLE = """
import os, signal, sys
import timelapse as tl
from timelapse.engine import resume
from rules import Counting

real, left = resume.mark, [3]

def mark(*args, **named):
    real(*args, **named)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)

resume.mark = mark
tl.replay(Counting, sys.argv[1], sys.argv[2], slices=4, spark=False)
"""


def test_killed_in_the_middle_and_resumed(
    bucket: str, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was done is taken over from this machine's disk."""
    (tmp_path / "rules.py").write_text(PROGRAM)
    (tmp_path / "killed.py").write_text(MIDDLE)
    log = Log.from_events(f"{bucket}/log", some(0, 300), block=64)
    monkeypatch.chdir(tmp_path)
    digest = tl.replay(load_named("rules.py:Counting")(), log, spark=False).digest
    run = subprocess.run(
        [sys.executable, "killed.py", f"{bucket}/log", f"{bucket}/run"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )  # fmt: skip
    assert run.returncode == -signal.SIGKILL, run.stderr
    found: list[resume.Finished] = []

    class Noted(resume.Finished):
        def __init__(self, job: Job, disk: Disk = DISK) -> None:
            super().__init__(job, disk)
            found.append(self)

    monkeypatch.setattr(driver, "Finished", Noted)
    done, told = _again(f"{bucket}/log", f"{bucket}/run")
    assert "going on with a replay that was killed" in told
    assert done.digest == digest
    assert found[-1].slices + found[-1].passes >= 3
    assert not [p for p in scratch.rglob("*") if p.is_file()]


# --- promises ---------------------------------------------------------------------------------------------


def test_nothing_is_renamed_and_no_keys_are_stored(
    bucket: str, s3: S3Server, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store without copy and rename will do. Keys are in no object, and in nothing that is kept on this machine."""
    import obstore

    for name in ("rename", "copy"):
        monkeypatch.setattr(obstore, name, lambda *_, **__: pytest.fail("renamed"))
    monkeypatch.setattr(folders.NewFolder, "publish", lambda self: pytest.fail("renamed"))
    log = Log.from_events(f"{bucket}/log", some(0, 100))
    run = tl.replay(Counting, log, f"{bucket}/run", slices=2, spark=False)
    name = bucket.removeprefix("s3://")
    for key in [k for k in s3.keys(name) if "/program/" not in k]:
        assert b"testing-" not in s3.client.get_object(Bucket=name, Key=key)["Body"].read()
    assert "testing-" not in repr(log.reader) + repr(run.manifest)
    assert isinstance(run.path, RemotePath)


def test_the_command_line(
    bucket: str, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ingest, append, replay, verify, diff, why, state, report, log."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.py").write_text(PROGRAM)
    (tmp_path / "a.csv").write_text("time,user,address\n" + "".join(f"{n},{n % 5},x\n" for n in range(60)))
    (tmp_path / "b.csv").write_text(
        "time,user,address\n" + "".join(f"{n},{n % 5},x\n" for n in range(60, 90)) + "nonsense,1,x\n"
    )
    log, run = f"{bucket}/log", f"{bucket}/run"
    ingest = ["ingest", "rules.py", log]
    for command, said in (
        ([*ingest, "Seen=a.csv", "--ts", "time", "--unit", "ms"], f"timelapse replay rules.py:Counting {log}"),
        ([*ingest, "Seen=b.csv", "--ts", "time", "--unit", "ms", "--append", "--max-bad", "10%"], "version 2"),
        (["log", log], "90"),
        (["log", log, "--bad", "5"], "nonsense"),
        (["log", log, "--versions"], "+30"),
        (["explain", "rules.py:Counting", log], "times"),
        (["replay", "rules.py:Counting", log, "--out", run, "--local"], run),
        (["replay", "rules.py:Counting", log, "--out", f"{run}-5", "--local", "--set", "limit=5"], f"{run}-5"),
        (["verify", run], "equal to the serial reference"),
        (["verify", "--files", run], "are those that were written"),
        (["state", run, "times"], "18"),
        (["why", run, "Often:1"], "emit Often"),
        (["report", run, "--out", "report.html"], "report.html"),
    ):  # fmt: skip
        result = cli(*command)
        assert result.code == 0, (command, result.out + result.err)
        assert said in result.out + result.err, (command, result.out, result.err)
    result = cli("diff", run, f"{run}-5")
    assert result.code == 1, result.err
    assert "gone" in result.out
