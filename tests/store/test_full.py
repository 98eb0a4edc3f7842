"""Where there is no room, what could not be written is named, and nothing half-written is left."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from tests.patience import LONG
from timelapse.cache.store import Store
from timelapse.cli.writes import check_file
from timelapse.engine.publish import PartialRun
from timelapse.errors import NoSpace, SetupError, StorageError, UsageError
from timelapse.run.start import _storage_error
from timelapse.store.failures import writing
from timelapse.store.parts import PartWriter

LIMITED = """
import resource, sys
import timelapse as tl
from timelapse.cli.main import run

class E(tl.Event):
    n: int

resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
sys.exit(run(sys.argv[2:]))
"""

RULES = """
import timelapse as tl

class E(tl.Event):
    n: int

class Odd(tl.Record, key="n"):
    n: int
    square: int

class Rules(tl.Program):
    seen: tl.Counter[int]

    @tl.on(E)
    def go(self, e):
        self.seen[e.n * 7919] += 1
        self.emit(Odd(n=e.n, square=e.n * e.n * 7919 % 1000003))
"""


class E(tl.Event):
    n: int


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("full")
    (folder / "rules.py").write_text(RULES)
    tl.Log.from_events(folder / "log", [E(n=n, ts=n) for n in range(12_000)])
    rows = "".join(f"{n},{n * 7919 % 1000003}\n" for n in range(12_000))
    (folder / "raw.csv").write_text("ts,n\n" + rows)
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path) -> Path:
    """A program, a log and a file of rows."""
    return shutil.copytree(made, tmp_path, dirs_exist_ok=True)


def limited(here: Path, most: int, *command: str) -> subprocess.CompletedProcess[str]:
    """A command in a process whose files may not be larger."""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    return subprocess.run(
        [sys.executable, "-c", LIMITED, str(most), *command], cwd=here, env=env, text=True, capture_output=True,
        check=False, timeout=LONG,
    )  # fmt: skip


@pytest.mark.parametrize("slices", ["1", "3"])
def test_a_run_that_does_not_fit_names_the_file(here: Path, slices: str) -> None:
    done = limited(
        here, 20_000, "replay", "rules.py:Rules", "log", "--out", "run", "--local", "--slices", slices, "--no-cache"
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "TL932" in done.stderr
    assert "larger than is allowed" in done.stderr
    assert str(here) in done.stderr
    assert "--out" in done.stderr
    assert sorted(p.name for p in here.iterdir() if p.name != "__pycache__") == ["log", "raw.csv", "rules.py"]


def test_a_log_that_does_not_fit_names_the_file(here: Path) -> None:
    done = limited(here, 1_000, "ingest", "rules.py", "new", "E=raw.csv", "--ts", "ts", "--unit", "us")
    assert (done.returncode, "TL932" in done.stderr, "E.parquet" in done.stderr) == (2, True, True), (
        done.stderr
    )
    assert sorted(p.name for p in here.iterdir() if p.name != "__pycache__") == ["log", "raw.csv", "rules.py"]


def full(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("timelapse.store.parts.os.write", write)


def test_a_log_whose_blocks_another_thread_writes_names_the_file_too(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever piece it is that does not fit: of the first block, of a later one, what is left at the end."""
    monkeypatch.setattr("timelapse.segments.segment.BLOCK_EVENTS", 4_000)
    monkeypatch.setattr("timelapse.segments.segment._HANDED_OVER", 6_000)
    monkeypatch.setattr("timelapse.ingest.in_process.cores", lambda: 2)
    whole = tl.Log.write(here / "whole", {E: here / "raw.csv"})
    pieces: list[int] = []
    most = [1_000]
    write = os.write

    def counted(file: int, data: Any) -> int:
        pieces.append(len(data))
        if len(pieces) > most[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data)

    monkeypatch.setattr("timelapse.store.parts.os.write", counted)
    assert tl.Log.write(here / "again", {E: here / "raw.csv"}).id == whole.id
    for most[0] in (0, 1, len(pieces) // 2, len(pieces) - 2):
        pieces.clear()
        with pytest.raises(StorageError, match="no space is left on the device") as error:
            tl.Log.write(here / "new", {E: here / "raw.csv"})
        assert error.value.code == "TL932"
        assert not (here / "new").exists()
        gc.collect()  # the writer of the file that was given up ends in silence


def test_a_full_disk_names_the_file(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.store.test_places import Rules

    log = tl.Log.open(here / "log")
    with monkeypatch.context() as patched:
        full(patched)
        with pytest.raises(StorageError, match="no space is left on the device") as error:
            tl.replay(Rules, log, here / "run", slices=2, spark=False)
    assert error.value.code == "TL932"
    assert error.value.place.file is not None
    assert error.value.place.file.startswith(str(here))
    assert not (here / "run").exists()


def test_a_cache_that_is_full_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said why, and the replay goes on."""
    (tmp_path / "file").write_bytes(b"x")
    store = Store(tmp_path / "cache", 10**9)

    def link(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("timelapse.cache.store.take", link)
    why = store.publish("key", "states", {"file": tmp_path / "file"}, {}, {})
    assert why is not None
    assert "cannot be written" in why


def test_what_is_caught_as_an_oserror_still_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever can do without a file goes on catching OSError; across processes the error keeps what it says."""
    full(monkeypatch)
    with pytest.raises(OSError, match="no space") as error, PartWriter(tmp_path / "file") as file:
        file.write(b"x")
    assert list(tmp_path.iterdir()) == []
    again = pickle.loads(pickle.dumps(error.value))
    assert isinstance(again, NoSpace)
    assert str(again) == str(error.value)
    assert "TL932" in str(again)
    with pytest.raises(PermissionError) as other, writing(tmp_path / "x"):
        raise PermissionError(errno.EACCES, "no")
    assert other.value.filename == str(tmp_path / "x")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")
@pytest.mark.parametrize("buffered", [True, False])
def test_where_an_answer_does_not_fit_that_is_said(here: Path, buffered: bool) -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    env |= {} if buffered else {"PYTHONUNBUFFERED": "1"}
    for more in ([], ["--json"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "timelapse", "log", str(here / "log"), *more], check=False, stdout=full, stderr=subprocess.PIPE, text=True, env=env
            )  # fmt: skip
        assert done.returncode == 2
        said = done.stderr.replace('"', "")
        assert "standard output" in said
        assert "it cannot be written: no space is left on the device" in said


def test_a_file_where_a_folder_would_be_is_said_in_one_way(here: Path) -> None:
    said = f"{here / 'log' / 'manifest.json'} is a file, where a folder would be"
    below = here / "log" / "manifest.json" / "x"
    with pytest.raises(UsageError, match=re.escape(said)):
        check_file("--page", below / "page.html", makes_folder=True)
    with pytest.raises(SetupError, match=re.escape(said)):
        PartialRun(below)


def test_what_a_run_cannot_write_is_not_called_the_standard_output(tmp_path: Path) -> None:
    """An error of a write does not always name its file: then the run's folder is named."""
    for named, where in ((None, tmp_path), (str(tmp_path / "x"), tmp_path / "x")):
        found = _storage_error(OSError(errno.ENOSPC, "No space left on device", named), tmp_path)
        assert isinstance(found, NoSpace)
        assert str(found.place) == str(where)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")
def test_a_picture_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text(
        "import timelapse as tl\n\n\nclass Hit(tl.Event):\n    n: int\n\n\nclass Hits(tl.Program):\n    n: tl.Counter\n\n"
        "    @tl.on(Hit)\n    def hit(self, e):\n        self.n += 1\n"
    )
    picture = tmp_path / "plan.svg"
    picture.symlink_to("/dev/full")
    shown = cli("explain", f"{tmp_path / 'rules.py'}:Hits", "--svg", picture)
    assert shown.code == 2
    assert str(picture) in shown.err
    assert "standard output" not in shown.err
