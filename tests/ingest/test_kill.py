"""A log appears whole or not at all, and grows as a whole or not at all, wherever its writer is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.ingest.killed import FIRST, Hit
from tests.patience import LONG
from timelapse.log import Log
from timelapse.segments.manifest import NAME

CHILD = """
    import os, signal, sys
    from pathlib import Path
    import timelapse.log.log as log_module
    import timelapse.ingest.making as making
    import timelapse.store.disk as place
    import timelapse.segments.manifest as manifest
    from timelapse.store.parts import PartWriter
    from tests.ingest.killed import Hit, fake_ingest  # not the test: that imports pytest

    target, action, where, count = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])

    def dying(function):
        calls = 0
        def call(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls == count:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)
        return call

    making.ingest = fake_ingest
    if where == "rename" and action == "append":  # parts are moved into the log, one by one
        os.rename = dying(os.rename)
    elif where == "rename":
        place.LocalDisk.move = dying(place.LocalDisk.move)
    elif where == "replace":
        put = PartWriter._put
        last = dying(put)
        PartWriter._put = lambda file: (last if file.path.suffix == ".json" else put)(file)
    elif where == "sync":
        manifest.os.fsync = dying(os.fsync)
    elif where == "exchange":
        place._exchange = lambda a, b: False
        place.LocalDisk.move = dying(place.LocalDisk.move)
    elif where == "cleanup":
        place.shutil.rmtree = dying(place.shutil.rmtree)
    if action == "append":
        log_module.Log.open(target).append({Hit: "later"})
    else:
        log_module.Log.write(target, {Hit: "later"}, overwrite=True)
"""


def _child(target: Path, action: str, where: str, count: int) -> int:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", textwrap.dedent(CHILD), str(target), action, where, str(count)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
    return subprocess.run(command, cwd=root, env=env, check=False, timeout=LONG).returncode


def _files(folder: Path) -> set[str]:
    """Every file below, but for the lock."""
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and p.name != ".lock"}


@pytest.mark.parametrize(("where", "count"), [("replace", 1), ("rename", 1)])
def test_a_killed_write_leaves_no_log_and_the_next_cleans_up(tmp_path: Path, where: str, count: int) -> None:
    """Nothing is at the log's place; writing again gives the log, and nothing else is left beside it."""
    target = tmp_path / "log"
    assert _child(target, "write", where, count) == -signal.SIGKILL
    assert not target.exists()
    assert list(tmp_path.iterdir()), "the child died before it began"
    log = Log.from_events(target, FIRST)
    assert [e.user for e in log.events(Hit)] == list(range(40))
    assert [p.name for p in tmp_path.iterdir()] == ["log"]


@pytest.mark.parametrize(("where", "count"), [("exchange", 1), ("exchange", 2), ("cleanup", 1)])
def test_a_killed_overwrite_leaves_the_old_log_or_the_new_one(tmp_path: Path, where: str, count: int) -> None:
    """One of the two is whole, at the latest when the next writer has looked; then nothing else is left."""
    target = tmp_path / "log"
    Log.from_events(target, FIRST)
    code = _child(target, "write", where, count)
    assert code == -signal.SIGKILL
    if target.exists():
        assert len(list(Log.open(target).events(Hit))) == 40
    assert _child(target, "write", "nowhere", 0) == 0
    assert [e.user for e in Log.open(target).events(Hit)] == list(range(100, 140))
    assert [p.name for p in tmp_path.iterdir()] == ["log"]


@pytest.mark.parametrize(
    ("where", "count"), [("rename", 1), ("rename", 2), ("replace", 1), ("replace", 2), ("cleanup", 1)]
)
def test_a_killed_append_changes_nothing_or_everything(tmp_path: Path, where: str, count: int) -> None:
    """The log is readable as it was or as it became; the next append removes what no manifest names."""
    target = tmp_path / "log"
    Log.from_events(target, FIRST)
    assert _child(target, "append", where, count) == -signal.SIGKILL
    log = Log.open(target)
    users = [e.user for e in log.events(Hit)]
    assert users in (list(range(40)), [*range(40), *range(100, 140)])
    assert log.version == (1 if len(users) == 40 else 2)
    if log.version == 1:
        assert _child(target, "append", "nowhere", 0) == 0
    assert [e.user for e in Log.open(target).events(Hit)] == [*range(40), *range(100, 140)]
    whole = [*FIRST, *(Hit(n, ts=n) for n in range(100, 140))]
    assert Log.open(target).id == Log.from_events(tmp_path / "whole", whole).id
    if log.version == 1:
        named = {f"segments/{s.folder}/{f.name}" for s in Log.open(target).manifest.segments for f in s.files}
        assert _files(target) == named | {NAME, "manifests/000001.json"}


def test_a_folder_that_is_being_made_is_not_removed(tmp_path: Path) -> None:
    """Only what processes that are gone have left is removed, and only for the same name."""
    from timelapse.store.folders import partial_path, remove_abandoned

    mine, other = partial_path(tmp_path / "log"), partial_path(tmp_path / "log[1]")
    gone = tmp_path / mine.name.replace(f"-{os.getpid()}.", f"-{2**22 + 1}.")
    elsewhere = tmp_path / f".log.partial-00000000-{2**22 + 1}-abc"
    for folder in (mine, other, gone, elsewhere):
        folder.mkdir()
    remove_abandoned(tmp_path / "log")
    assert {p.name for p in tmp_path.iterdir()} == {mine.name, other.name, elsewhere.name}
