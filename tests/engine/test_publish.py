"""A run's directory appears whole or not at all, whatever happens and wherever it is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.engine.programs import FEW, A, B, Chained
from tests.patience import LONG
from timelapse.engine.publish import PartialRun
from timelapse.errors import Cancelled, HandlerError, ReplayError, SetupError
from timelapse.log import MemoryLog
from timelapse.run import Run, replay

CHILD = """
    import importlib, os, sys
    from pathlib import Path
    import timelapse.store.disk as disk
    import timelapse.engine.results as results
    import timelapse.engine.tasks as tasks
    replay_module = importlib.import_module("timelapse.run.start")
    from tests.engine.dying import dying
    from tests.engine.programs import FEW, A, B, Chained  # not the test: that imports pytest
    from timelapse.run import replay

    out, where, count = sys.argv[1], sys.argv[2], int(sys.argv[3])

    if where == "rename":
        disk._exchange = lambda a, b: False
        whole, dies = disk.os.replace, dying(disk.os.replace, count)
        disk.os.replace = lambda old, new: (dies if Path(out) in (Path(old), Path(new)) else whole)(old, new)
    elif where == "write":
        tasks.write_table = results.write_table = dying(tasks.write_table, count)
    elif where == "parquet":
        results._write_parquet = dying(results._write_parquet, count)
    elif where == "manifest":
        replay_module.write_manifest = dying(replay_module.write_manifest, count)
    elif where == "cleanup":
        # Beside the run only: folders that other processes left elsewhere are removed before it begins.
        gone, ends = disk.shutil.rmtree, dying(disk.shutil.rmtree, count)
        beside = Path(out).parent
        disk.shutil.rmtree = lambda path, **how: (ends if beside in Path(path).parents else gone)(path, **how)
    from timelapse.log import MemoryLog
    replay(Chained, MemoryLog(FEW, [A, B]), out=out, slices=3, spark=False,
           strategy="staged", overwrite=True)
"""


def _log() -> MemoryLog:
    return MemoryLog(FEW, [A, B])


def _child(out: Path, where: str, count: int) -> int:
    command = [sys.executable, "-c", textwrap.dedent(CHILD), str(out), where, str(count)]
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
    return subprocess.run(command, cwd=root, env=env, check=False, timeout=LONG).returncode


@pytest.mark.parametrize(
    ("where", "count"),
    [("write", 1), ("write", 5), ("parquet", 2), ("manifest", 1), ("cleanup", 1), ("rename", 1)],
)
def test_a_killed_replay_leaves_nothing_and_can_be_repeated(tmp_path: Path, where: str, count: int) -> None:
    """Killed while making a new run: no run is there; the next one cleans up and gives the same result."""
    out = tmp_path / "run"
    assert _child(out, where, count) == 9
    assert not out.exists()
    left = list(tmp_path.iterdir())
    assert left, "the child died before it began"
    run = replay(Chained, _log(), out=out, slices=2, spark=False)
    assert Run.open(out).digest == run.digest
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("count", [1, 2])
def test_a_killed_overwrite_leaves_the_old_run_or_the_new_one(tmp_path: Path, count: int) -> None:
    """Killed between the renames of an overwrite: the old run is put back by the next attempt."""
    out = tmp_path / "run"
    old = replay(Chained, _log(), out=out, slices=2, spark=False)
    assert _child(out, "rename", count) == 9
    if not out.exists():
        PartialRun(out, overwrite=True).discard()
    assert Run.open(out).digest == old.digest


def test_an_existing_place_is_refused(tmp_path: Path) -> None:
    """Something else at `out` is never touched; a run is replaced only when that is asked for."""
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(ReplayError, match="already something"):
        replay(Chained, _log(), out=tmp_path, spark=False, overwrite=True)
    assert (tmp_path / "mine.txt").read_text() == "precious"
    out = tmp_path / "run"
    replay(Chained, _log(), out=out, spark=False)
    with pytest.raises(ReplayError, match="--overwrite"):
        replay(Chained, _log(), out=out, spark=False)
    replay(Chained(ratio=5.0), _log(), out=out, spark=False, overwrite=True)
    assert Run.open(out).params == {"ratio": 5.0}


def test_a_failed_replay_leaves_nothing(tmp_path: Path) -> None:
    """After a handler's exception there is no directory, hidden or not."""

    class Bad(Chained):
        @property
        def broken(self) -> int:
            return 1 // 0

        def known(self, a: int, b: int) -> bool:
            return bool(self.broken)

    with pytest.raises(HandlerError):
        replay(Bad, _log(), out=tmp_path / "run", spark=False)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_anywhere_cancels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where nobody waits for results: while the driver plans its next task, say."""

    def pressed(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("timelapse.engine.driver.Driver._task", pressed)
    with pytest.raises(Cancelled, match="nothing was published"):
        replay(Chained, MemoryLog([A(k=1, v=1, s="", ts=1)], [A, B]), tmp_path / "run", spark=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", ["file/run", "file/a/b/run"])
def test_a_file_where_a_folder_would_be_is_named(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SetupError) as raised:
        PartialRun(tmp_path / below)
    assert (
        str(raised.value).splitlines()[0].endswith(f"{tmp_path / 'file'} is a file, where a folder would be")
    )
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
