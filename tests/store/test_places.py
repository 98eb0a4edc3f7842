"""What is no place is refused everywhere, and nothing called `s3:` is made. Object stores have logs and runs, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from timelapse.errors import StorageError
from timelapse.run import Run
from timelapse.store.places import absolute_path, local_path

RULES = """
import timelapse as tl

class E(tl.Event):
    n: int

class Odd(tl.Record, key="n"):
    n: int

class Rules(tl.Program):
    least: int = 0
    seen: tl.Counter[int]

    @tl.on(E)
    def go(self, e):
        self.seen[e.n] += 1
        if e.n % 2 and e.n >= self.least:
            self.emit(Odd(n=e.n))
"""


class E(tl.Event):
    n: int


class Odd(tl.Record, key="n"):
    n: int


class Rules(tl.Program):
    least: int = 0
    seen: tl.Counter[int]

    @tl.on(E)
    def go(self, e: E) -> None:
        self.seen[e.n] += 1
        if e.n % 2:
            self.emit(Odd(n=e.n))


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("runs/a", "runs/a"),
        ("/a/b", "/a/b"),
        ("./s3", "s3"),
        ("./s3:a", "s3:a"),
        ("file:/a/b", "/a/b"),
        ("file:///a/b%20c", "/a/b c"),
        ("file://localhost/a", "/a"),
        ("FILE:///a", "/a"),
        ("file:a/b", "a/b"),
        ("a:b", "a:b"),
        ("rules.py:Class", "rules.py:Class"),
        ("c:/x", "c:/x"),
        ("12:30/x", "12:30/x"),
        (Path("file:/a"), "/a"),
    ],
)
def test_a_path_of_this_machine(given: str | Path, path: str) -> None:
    assert local_path(given) == Path(path)
    assert absolute_path(given).is_absolute()


@pytest.mark.parametrize(
    "given",
    [
        "s3://bucket/run", "S3://bucket/run", "s3a://b", "hdfs://host:9000/x", "gs://b/x", "abfss://c@h/x", "http://h/x",
        "dbfs:/x", "file://host/x", "file://", "s3:bucket/run", "GS:bucket", Path("s3://bucket/run"), "weird+x.y-z://a",
    ],
)  # fmt: skip
def test_another_scheme_is_refused(given: str | Path) -> None:
    with pytest.raises(StorageError) as error:
        local_path(given, "run")
    assert error.value.code == "TL930"
    assert str(given).split(":", maxsplit=1)[0].lower() in error.value.message.lower()


def test_both_slashes_are_told() -> None:
    with pytest.raises(StorageError, match=r"a report cannot be at s3://bucket/x\.html: of what"):
        local_path(Path("s3://bucket/x.html"), "report")
    with pytest.raises(StorageError, match="a run cannot be at ftp://bucket/run: ftp: is not understood"):
        local_path(Path("ftp://bucket/run"), "run")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    log = tl.Log.from_events(tmp_path / "log", [E(n=n, ts=n) for n in range(20)])
    tl.replay(Rules, log, tmp_path / "run", spark=False)
    (tmp_path / "rules.py").write_text(RULES)
    (tmp_path / "raw.csv").write_text("ts,n\n1,2\n2,3\n")
    return tmp_path


REMOTE = "s3://bucket/x"
"""Where logs and runs may lie, and nothing else."""
OTHER = "http://bucket/x"
IN_PYTHON: list[Callable[[Path], object]] = [
    lambda here: tl.replay(Rules, tl.Log.open(here / "log"), OTHER, spark=False),
    lambda here: tl.replay(Rules, tl.Log.open(here / "log"), Path("dbfs:/x"), spark=False),
    lambda here: tl.replay(Rules, OTHER, spark=False),
    lambda here: tl.Log.open(OTHER),
    lambda here: tl.Log.from_events(OTHER, [E(n=1, ts=1)]),
    lambda here: tl.Log.write(OTHER, {E: "raw.csv"}),
    lambda here: tl.Log.write(here / "new", {E: "foo://bucket/raw.csv"}),
    lambda here: tl.Log.open(here / "log").without(OTHER),
    lambda here: tl.Log.from_run(Run.open(here / "run"), {Odd: E}, OTHER),
    lambda here: Run.open(OTHER),
    lambda here: tl.sweep(Rules, here / "log", {"least": [1, 2]}, out=REMOTE),
    lambda here: tl.diff(here / "run", here / "run").judge(REMOTE),
    lambda here: tl.features(Rules, here / "log").write("s3://bucket/x.csv"),
    lambda here: tl.report(Run.open(here / "run")).save(REMOTE),
    lambda here: tl.resource(REMOTE, str),
]


@pytest.mark.parametrize("number", range(len(IN_PYTHON)))
def test_everything_in_python_refuses_it(here: Path, number: int) -> None:
    before = sorted(p.name for p in here.iterdir())
    with pytest.raises(StorageError) as error:
        IN_PYTHON[number](here)
    assert error.value.code == "TL930"
    assert sorted(p.name for p in here.iterdir()) == before


COMMANDS = [
    "replay rules.py:Rules log --out http://bucket/x",
    "replay rules.py:Rules http://bucket/log",
    "replay s3://bucket/rules.py:Rules log",
    "replay rules.py:Rules log --without http://bucket/run",
    "explain rules.py:Rules http://bucket/log",
    "explain rules.py:Rules log --svg s3://bucket/x.svg",
    "ingest rules.py http://host/log E=raw.csv --ts ts --unit us",
    "ingest rules.py new E=foo://bucket/raw.csv --ts ts --unit us",
    "synth --out http://bucket/log --events 1000",
    "verify http://bucket/run",
    "verify --files http://bucket/run",
    "diff run http://bucket/run",
    "diff rules.py:Rules http://bucket/log --set-b least=3",
    "diff run run --report s3://bucket/x.html",
    "diff run run --labels s3://bucket/labels.csv",
    "sweep rules.py:Rules log least=1..3 --out s3://bucket/x",
    "features rules.py:Rules log --out s3://bucket/x.csv",
    "features rules.py:Rules log --at s3://bucket/x.csv",
    "derive run http://bucket/log rules.py Odd=E",
    "report run --out s3://bucket/x.html",
    "why http://bucket/run Odd:3",
    "state http://bucket/run seen",
    "log http://bucket/log",
    "log log --uses --below http://bucket/runs",
    "demo --out s3://bucket/x --events 1000",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses_it(here: Path, command: str) -> None:
    before = sorted(p.name for p in here.iterdir())
    shown = cli(*command.split())
    assert (shown.code, "TL930" in shown.err) == (2, True), shown.err
    assert sorted(p.name for p in here.iterdir() if p.name != "__pycache__") == before


@pytest.mark.parametrize("name", ["TIMELAPSE_STATES", "TIMELAPSE_CACHE"])
def test_cache_folders_too(here: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    from timelapse.cache.store import open_store
    from timelapse.env.machine import cache_dir

    monkeypatch.setenv(name, REMOTE)
    with pytest.raises(StorageError):
        open_store() if name == "TIMELAPSE_STATES" else cache_dir()
    assert "s3:" not in os.listdir(here)


def test_file_urls_are_paths(here: Path) -> None:
    """On the command line and in Python, for what is read and what is written."""
    at = f"file://{here}"
    (here / "a b").mkdir()
    assert (
        cli("ingest", "rules.py", f"{at}/a%20b/log", f"E={at}/raw.csv", "--ts", "ts", "--unit", "us").code
        == 0
    )
    assert tl.Log.open(here / "a b" / "log").count == 2
    assert cli("replay", f"{at}/rules.py:Rules", f"{at}/log", "--out", f"{at}/other", "--local").code == 0
    assert Run.open(f"{at}/other").digest == Run.open(here / "run").digest
    assert cli("diff", f"{at}/run", f"{at}/other", "--report", f"{at}/x.html").code == 0
    assert (here / "x.html").is_file()
    assert "file:" not in os.listdir(here)
