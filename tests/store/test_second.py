"""Two processes that write to one place at the same moment: one succeeds, the other is told so."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import timelapse as tl
from tests.patience import LONG
from timelapse.engine.publish import PartialRun
from timelapse.errors import StorageError
from timelapse.run import Run
from timelapse.store.folders import NewFolder, partial_path

RULES = """
import time
import timelapse as tl

class E(tl.Event):
    n: int

class Slow(tl.Program):
    base: int = 0  # from 100 on it is not slow
    seen: tl.Counter[int]

    @tl.on(E)
    def go(self, e):
        self.seen[e.n + self.base] += 1
        for _ in range(3000 if self.base < 100 else 0):
            pass
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "rules.py").write_text(RULES)

    class E(tl.Event):
        n: int

    tl.Log.from_events(tmp_path / "log", [E(n=n % 5, ts=n) for n in range(20_000)])
    return tmp_path


def start(place: Path, base: int) -> subprocess.Popen[str]:
    command = [
        sys.executable, "-m", "timelapse", "replay", "rules.py:Slow", "log", "--out", "run", "--overwrite", "--local",
        "--no-cache", "--set", f"base={base}",
    ]  # fmt: skip
    src = Path(__file__).parents[2] / "src"
    env = {**os.environ, "PYTHONPATH": str(src)}
    return subprocess.Popen(
        command, cwd=place, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """A process's exit code and what it said on stderr."""
    said = process.communicate(timeout=LONG)[1]
    return process.returncode, said


def test_the_second_replay_into_a_place_is_told_so(place: Path) -> None:
    """Also where both replace a run that is there. What is there afterwards is all of the one that succeeded."""
    assert ended(start(place, 100))[0] == 0
    both = [start(place, base) for base in (1, 2)]
    codes, said = zip(*(ended(process) for process in both), strict=True)
    assert sorted(codes) in ([0, 2], [0, 0]), said
    run = Run.open(place / "run")
    if sorted(codes) == [0, 0]:  # one began when the other had ended
        pytest.skip("they did not meet")
    good = codes.index(0)
    assert "TL933" in said[1 - good]
    assert "is writing here" in said[1 - good]
    assert run.params == {"base": good + 1}
    assert run.verify().ok
    assert sorted(p.name for p in place.iterdir() if p.name != "__pycache__") == ["log", "rules.py", "run"]


def test_a_place_is_free_again_when_its_writer_is_killed(place: Path) -> None:
    process = start(place, 1)
    lock = place / ".run.lock"
    deadline = time.monotonic() + LONG
    while not lock.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert ended(start(place, 100))[0] == 0
    assert Run.open(place / "run").params == {"base": 100}
    assert sorted(p.name for p in place.iterdir() if p.name != "__pycache__") == ["log", "rules.py", "run"]


def test_the_second_is_told_at_once_and_nothing_is_touched(tmp_path: Path) -> None:
    first = PartialRun(tmp_path / "run")
    with pytest.raises(StorageError, match=f"process {os.getpid()} is writing here") as error:
        PartialRun(tmp_path / "run")
    assert error.value.code == "TL933"
    (first.path / "run.json").write_text("{}")
    first.settle({})
    first.commit()
    assert (tmp_path / "run" / "run.json").exists()
    PartialRun(tmp_path / "run", overwrite=True).discard()
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_without_locks_it_shows_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then both make theirs, and who ends second is told so; what is there stays."""
    monkeypatch.setattr("timelapse.store.folders._lock", lambda *_: None)

    def made(text: str) -> NewFolder:
        folder = NewFolder(tmp_path / "run", lambda: None, RuntimeError)
        (folder.path / "who").write_text(text)
        return folder

    made("before").publish()
    first, second = made("first"), made("second")
    second.publish()
    with pytest.raises(StorageError, match="meanwhile") as error:
        first.publish()
    assert error.value.code == "TL933"
    assert first.discard()
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
    assert (tmp_path / "run" / "who").read_text() == "second"


def test_a_name_says_whose_it_is(tmp_path: Path) -> None:
    assert str(os.getpid()) in partial_path(tmp_path / "run").name
