"""Logs and runs in an object store: all that works on a folder works there, with the same results."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from tests.s3_server import S3Server
from tests.store.object_programs import PROGRAM, Counting, Often, Seen, some
from timelapse.errors import LogError, ReplayError, RunError, StorageError
from timelapse.log.files import check_files as log_files
from timelapse.log.log import Log
from timelapse.run import Run
from timelapse.run.files import check_files as run_files
from timelapse.store import commits, folders, remote
from timelapse.store.objects import place_at
from timelapse.store.remote import RemotePath


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
    with pytest.raises(RunError, match="it was removed"):
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
