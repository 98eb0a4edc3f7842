"""What stands on a log, retention, forgetting in the quarantine and caches, verifying all versions, two writers at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from tests.patience import LONG
from tests.tuned import tune_cache
from timelapse.errors import StorageError, UsageError
from timelapse.ingest.batches import RAW_LIMIT
from timelapse.log import Log, Source
from timelapse.run import replay, run_serial
from timelapse.run.citing import entries_over, runs_over
from timelapse.segments.versions import forget
from timelapse.segments.where import Where


class Pay(tl.Event):
    user: str
    cents: int


class Sums(tl.Program):
    total: tl.Counter[str]

    @tl.on(Pay)
    def pay(self, e: Pay) -> None:
        self.total[e.user] += e.cents


def _log(path: Path, rows: int = 60, bad: str = "") -> Log:
    file = path.parent / f"{path.name}.csv"
    file.write_text("ts,user,cents\n" + "".join(f"{n * 1_000_000},u{n % 4},{n}\n" for n in range(rows)) + bad)
    return Log.write(path, {Pay: file}, max_bad=0.5)


def test_runs_and_caches_say_what_of_theirs_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_STATES", str(tmp_path / "cache"))
    tune_cache(tmp_path / "cache")
    log = _log(tmp_path / "log")
    replay(Sums, log, tmp_path / "runs" / "three", 3, spark=False)
    late = tmp_path / "late.csv"
    late.write_text("ts,user,cents\n45000000,u9,1\n99000000,u9,2\n")
    grown = log.append({Pay: late})
    with monkeypatch.context() as alone:  # it does not go on from the run before
        alone.setattr("timelapse.run.start.remembered", lambda *_: None)
        replay(Sums, grown, tmp_path / "runs" / "new", 2, spark=False)
    found = {Path(one.place).name: one for one in runs_over(grown, [tmp_path])}
    assert {n: (o.version, o.slices, o.of, o.events) for n, o in found.items()} == {
        "three": (1, 2, 3, 40), "new": (2, 2, 2, 62),
    }  # fmt: skip
    shown = cli("log", log.path, "--uses", "--below", tmp_path / "runs", "--json").json["uses"]
    kept = [one for one in shown["found"] if one["kind"] == "cache"]
    assert {(one["version"], one["slices"], one["of"]) for one in kept} == {(1, 2, 3), (2, 2, 2)}
    text = cli("log", log.path, "--uses", "--below", tmp_path / "runs").out
    assert "2 of 3 slices hold, up to event 40" in " ".join(text.split())
    grown.expire(0)
    gone = next(o for o in runs_over(grown, [tmp_path]) if o.place.endswith("three"))
    assert gone.version is None
    assert "removed" in gone.holds


def test_a_person_is_forgotten_in_the_quarantine_and_in_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMELAPSE_STATES", str(tmp_path / "cache"))
    tune_cache(tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    log = _log(tmp_path / "log", bad="70000000,u3,many\n71000000,u33,x\n72000000,u1,u3\n")
    replay(Sums, log, tmp_path / "run", 3, spark=False)
    told = cli("log", log.path, "--forget", "user == 'u3'", "--json").json
    assert (told["forgotten"], told["quarantine_hidden"], told["quarantine_searched"]) == (15, 2, True)
    assert told["caches_removed"] > 0
    assert told["runs"] == [{"run": str(tmp_path / "run"), "version": 1}]
    raws = Log.open(log.path).quarantine()["raw"].to_pylist()
    assert raws == ["forgotten", "71000000,u33,x", "forgotten"]
    assert Log.open(log.path).info().bad == 3
    from timelapse.cache.store import Store

    assert entries_over(Log.open(log.path), Store(tmp_path / "cache")) == []
    assert cli("log", log.path, "--expire", "0d").code == 0
    for file in (log.path / "quarantine").iterdir():
        assert b"many" not in file.read_bytes()
    text = cli("log", log.path, "--forget", "ts >= 50000000")
    assert "stay as they are" in text.out
    assert "remains" in text.out
    _log(tmp_path / "only", bad="70000000,zoe,many\n")
    assert cli("log", tmp_path / "only", "--forget", "user == 'zoe'", "--json").json["quarantine_hidden"] == 1
    assert cli("log", tmp_path / "only", "--forget", "user == 'nobody'").code == 2


def test_a_person_is_found_in_bad_rows_however_the_name_is_written(tmp_path: Path) -> None:
    """As JSON and CSV escape it, as bytes that are not UTF-8, cut at the end of what is kept; the new quarantine has checksums."""
    raw = tmp_path / "raw"
    raw.mkdir()
    name = 'Jü 😀"x"'
    rows = [
        json.dumps({"ts": 1, "user": name, "cents": "?"}),
        json.dumps({"ts": 2, "user": name, "cents": "?"}, ensure_ascii=False),
        json.dumps({"ts": 3, "user": "Jü", "cents": "?"}),
        json.dumps({"cents": "?", "x": "y" * (RAW_LIMIT - 47), "ts": 4, "user": name}, ensure_ascii=False),
    ]
    (raw / "a.jsonl").write_text("\n".join(rows))
    (raw / "b.csv").write_text('ts,user,cents\n5,"Jü 😀""x""",?\n6,ann,?\n')
    sources = [Source(raw / "a.jsonl"), Source(raw / "b.csv")]
    log = Log.write(tmp_path / "log", {Pay: sources}, max_bad=1.0)
    before = log.quarantine()["raw"].to_pylist()
    assert before[3].endswith("Jü...")
    done = forget(log.path, f"user == {name!r}")
    assert (done.events, done.hidden) == (0, 4)
    log = Log.open(log.path)
    hidden = [one == "forgotten" for one in log.quarantine()["raw"].to_pylist()]
    assert hidden == [True, True, False, True, True, False]
    (file,) = log.manifest.ingests[0].quarantine
    path = log.path / "quarantine" / file
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(StorageError, match="TL931"):
        log.quarantine()
    assert Where("'an' in user").values == (("an", False),)
    with pytest.raises(UsageError, match="--forget 'usr == 1'"):
        forget(log.path, "usr == 1")


def test_retention_by_age(tmp_path: Path) -> None:
    log = _log(tmp_path / "log")
    whole = [(e.ts, e.user) for e in log.events(Pay)]
    kept = log.keep(20)
    assert [(e.ts, e.user) for e in kept.events(Pay)] == [r for r in whole if r[0] >= 39_000_000]
    assert (kept.version, log.keep(20).version) == (2, 2)
    assert Log.open(log.path, 1).count == 60
    done = cli("log", log.path, "--keep", "5s", "--expire", "0d", "--json").json
    assert (done["kept_out"], done["removed"]) == (15, [1, 2])
    assert run_serial(Sums, list(Log.open(log.path).events(Pay))).events == 6
    bad = _log(tmp_path / "bad", bad="70000000,u3,many\n")
    assert "1 row of the quarantine, of any age" in cli("log", bad.path, "--keep", "5s").out
    assert cli("log", log.path, "--keep", "soon").code == 2
    assert cli("log", log.path, "--keep", "1d", "--forget", "user == 'u1'").code == 2


def test_torn_and_altered_files_of_any_version_are_named(tmp_path: Path) -> None:
    log = _log(tmp_path / "log")
    first = log.path / "segments" / log.manifest.segments[0].folder / "Pay.parquet"
    kept = log.keep(10)
    second = log.path / "segments" / kept.manifest.segments[0].folder / "Pay.parquet"
    done = cli("log", log.path, "--verify", "--json")
    assert (done.code, done.json["files"], done.json["others"]) == (0, 2, [])
    assert cli("verify", log.path, "--files", "--json").json["others"] == []
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    second.write_bytes(second.read_bytes()[:-9])
    done = cli("log", log.path, "--verify", "--json")
    assert done.code == 1
    assert {a["file"] for a in done.json["altered"]} == {str(first), str(second)}


WRITER = """
    import sys, time
    from pathlib import Path
    import timelapse as tl
    from tests.log.test_uses import Pay
    from timelapse.errors import LogError

    path, who = Path(sys.argv[1]), int(sys.argv[2])
    for n in range(6):
        file = path.parent / f"w{who}-{n}.csv"
        file.write_text("ts,user,cents\\\\n" + "".join(f"{(n * 7 + k * 13 + who) % 90 * 1_000_000},w{who},{n}\\\\n" for k in range(5)))
        while True:
            try:
                tl.Log.open(path).append({Pay: file})
                break
            except LogError as error:
                if error.code != "TL406":
                    raise
                time.sleep(0.01)
"""


def test_two_writers_cannot_corrupt_a_log(tmp_path: Path) -> None:
    """Two processes append late rows at once: one waits for the other, and every row is there once."""
    log = _log(tmp_path / "log")
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
    code = textwrap.dedent(WRITER).replace("\\\\n", "\\n")
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(log.path), str(who)], cwd=root, env=env)
        for who in range(2)
    ]
    assert [w.wait(LONG) for w in writers] == [0, 0]
    grown = Log.open(log.path)
    assert (grown.version, grown.count) == (13, 60 + 60)
    events = list(grown.events(Pay))
    assert [e.ts for e in events] == sorted(e.ts for e in events)
    for who in range(2):
        assert sorted(e.cents for e in events if e.user == f"w{who}") == [
            n for n in range(6) for _ in range(5)
        ]
    assert cli("log", log.path, "--verify").code == 0
    assert [Log.open(log.path, n).count for n in range(1, 14)] == [60 + 5 * n for n in range(13)]
