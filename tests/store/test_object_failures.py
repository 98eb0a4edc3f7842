"""Object stores that are damaged, away, or refuse, and processes that are killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

import timelapse as tl
from tests.patience import LONG
from tests.s3_server import KEYS, Gate, S3Server
from tests.store.object_programs import PROGRAM, Counting, Often, some
from timelapse.engine import driver, resume
from timelapse.engine.job import Job
from timelapse.errors import RunError, StorageError
from timelapse.log.log import Log
from timelapse.program.versions import load_named
from timelapse.progress import Silent
from timelapse.run import Run
from timelapse.run.files import check_files as run_files
from timelapse.store import commits, waiting
from timelapse.store.disk import DISK, Disk
from timelapse.store.objects import ObjectPlace, place_at


@pytest.fixture(autouse=True)
def _soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that does not answer is asked again after shorter pauses, each still twice the one before."""
    monkeypatch.setattr(waiting, "_FIRST", 0.01)


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


def test_a_store_that_is_away(
    s3: S3Server, bucket: str, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes away while a log is put there, a replay reads it and puts a run there: it is asked again, and all goes on."""
    gate = Gate(s3.port)
    monkeypatch.setenv("AWS_ENDPOINT_URL", gate.url)
    monkeypatch.setenv("TIMELAPSE_PATIENCE", "30")
    log = Log.from_events(f"{bucket}/log", some(0, 300), block=64)
    monkeypatch.setenv("TIMELAPSE_OBJECTS", str(tmp_path / "others"))  # so it is read anew
    real, times = ObjectPlace._key, [0]

    def away_for_a_while(self: ObjectPlace, name: str) -> str:
        times[0] += 1
        if times[0] in (3, 12, 20):
            gate.shut()
            threading.Timer(0.3, gate.open).start()
        return real(self, name)

    monkeypatch.setattr(ObjectPlace, "_key", away_for_a_while)
    run = tl.replay(Counting, Log.open(f"{bucket}/log"), f"{bucket}/run", slices=2, spark=False)
    assert times[0] > 20
    assert run_files(run).ok
    monkeypatch.undo()
    monkeypatch.setenv("TIMELAPSE_SCRATCH", str(scratch))
    monkeypatch.setenv("TIMELAPSE_OBJECTS", str(tmp_path / "third"))
    assert run.digest == tl.replay(Counting, log, spark=False).digest
    gate.shut()


def test_a_store_that_stays_away(s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while there is an error, with its code and what to do; nothing of the keys is in it."""
    gate = Gate(s3.port)
    gate.shut()
    monkeypatch.setenv("AWS_ENDPOINT_URL", gate.url)
    monkeypatch.setenv("TIMELAPSE_PATIENCE", "0.1")
    place = ObjectPlace(bucket, "away")
    for ask in (
        lambda: place.read("a"), lambda: place.create("a", b"x"), lambda: list(place.names("")), lambda: place.exists("a"),
        lambda: list(place.pieces("a")), lambda: list(place.files()), lambda: place.remove(["a"]),
    ):  # fmt: skip
        with pytest.raises(StorageError) as error:
            ask()
        assert error.value.code == "TL935"
        assert f"{bucket}/away" in str(error.value)
        assert "testing-" not in str(error.value)


class _Answers(BaseHTTPRequestHandler):
    """A store that gives one answer after the other, the last one again and again."""

    answers: ClassVar[list[int]] = []
    asked = 0

    def _answer(self) -> None:
        _Answers.asked += 1
        status = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.send_header("ETag", '"x"')
        self.send_header("Last-Modified", "Wed, 25 Nov 2026 00:00:00 GMT")
        self.end_headers()

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _answer

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    ("answers", "code"),
    [([403], "TL936"), ([401], "TL936"), ([400], "TL938"), ([503, 500, 429, 200], None), ([500], "TL935")],
)
def test_what_a_store_answers(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, answers: list[int], code: str | None
) -> None:
    """Refusals are told at once; what may pass is asked again."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setattr(_Answers, "answers", list(answers))
    monkeypatch.setattr(_Answers, "asked", 0)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("TIMELAPSE_PATIENCE", "0.2" if code == "TL935" else "30")
    place = ObjectPlace("s3://bucket", "x")
    try:
        if code is None:
            place.create("a", b"x")
        else:
            with pytest.raises(StorageError) as error:
                place.create("a", b"x")
            assert error.value.code == code
            assert error.value.hint
        refused = code in ("TL936", "TL938")
        assert _Answers.asked == 1 if refused else _Answers.asked > 1
    finally:
        server.shutdown()
        server.server_close()


def test_no_keys(s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TIMELAPSE_PATIENCE", "0")
    with pytest.raises(StorageError) as error:
        ObjectPlace(bucket, "x").read("a")
    assert error.value.code == "TL936"
    with pytest.raises(StorageError, match="keys come from the environment"):
        Log.open("s3://name:secret@bucket/log")


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
from timelapse.store import commits, waiting
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
        timeout=LONG, check=False,
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
        [sys.executable, "killed.py", f"{bucket}/log", f"{bucket}/run"], cwd=tmp_path, capture_output=True, text=True, timeout=LONG, check=False
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
