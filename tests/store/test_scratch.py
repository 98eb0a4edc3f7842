"""Temporary folders say whose they are; those of dead processes go, and large ones are not kept in memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import pytest

import timelapse as tl
from tests.patience import LONG
from timelapse.store import scratch
from timelapse.store.scratch import (
    hand_over,
    in_memory,
    is_dead,
    owner,
    process_folder,
    scratch_folder,
    scratch_root,
    sweep,
)

CHILD = """
import sys
import timelapse as tl
from timelapse.store.scratch import scratch_folder

class E(tl.Event):
    n: int

class Rules(tl.Program):
    seen: tl.Counter[int]

    @tl.on(E)
    def go(self, e):
        self.seen[e.n] += 1

sys.modules["__main__"].__file__ = None
run = tl.replay(Rules, [E(n=1, ts=1)], spark=False)
print(run.path.parent, scratch_folder("other"), flush=True)
sys.stdin.read()
"""

WAITING = [sys.executable, "-c", "import sys; sys.stdin.read()"]
"""A process that is there until it is ended."""


def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("TIMELAPSE_SCRATCH", raising=False)
    monkeypatch.setattr(scratch, "_swept", set())
    monkeypatch.setattr(scratch, "_SHARED", tmp_path)
    monkeypatch.setattr(scratch, "_DISK", tmp_path)


def test_a_killed_process_leaves_folders_and_the_next_start_removes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        folders = [Path(text) for text in child.stdout.readline().split()]
        assert len(folders) == 2
        assert all(folder.parent == tmp_path and folder.is_dir() for folder in folders)
        here(tmp_path, monkeypatch)
        assert sweep() == 0  # it lives
        assert all(folder.is_dir() for folder in folders)
        child.kill()
        child.wait()
    (tmp_path / "timelapse-not-ours").mkdir()
    (tmp_path / f"timelapse-run-00000000-{2**22 + 1}.5-abc").mkdir()  # of another machine
    monkeypatch.setattr(scratch, "_swept", set())
    run = tl.replay(_program(), [], spark=False)
    assert not any(folder.exists() for folder in folders)
    left = sorted(p.name for p in tmp_path.iterdir() if p != run.path and p.name.startswith("timelapse-"))
    assert [name for name in left if "not-ours" in name or "00000000" in name] == sorted(
        ["timelapse-not-ours", f"timelapse-run-00000000-{2**22 + 1}.5-abc"]
    )
    assert len(left) == 3  # and this process's own


def _program() -> type[tl.Program]:
    class E(tl.Event):
        n: int

    class Rules(tl.Program):
        seen: tl.Counter[int]

        @tl.on(E)
        def go(self, e: E) -> None:
            self.seen[e.n] += 1

    return Rules


def test_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that another process has by now is told apart by the start; what is not known is not dead."""
    mine = owner()
    assert not is_dead(mine)
    host, _, rest = mine.partition("-")
    start = rest.partition(".")[2]
    assert is_dead(f"{host}-{os.getpid()}.{int(start) - 1}")
    assert is_dead(f"{host}-{2**22 + 1}.{start}")
    for other in (
        "",
        "run",
        f"11111111-{2**22 + 1}.5",
        f"{host}-x.5",
        f"{host}-{os.getpid()}",
        f"{host}-1.x",
    ):
        assert not is_dead(other)
    done = subprocess.Popen([sys.executable, "-c", ""])  # ended, and nobody has asked how
    deadline = time.monotonic() + LONG
    while (status := scratch._status(done.pid)) and status[0] != "Z" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert is_dead(f"{host}-{done.pid}.1")
    done.wait()


def test_names_of_mounts_are_read_as_they_are_written() -> None:
    told = "tmpfs /dev/shm tmpfs rw 0 0\ntmpfs /mnt/große\\040Ablage\\134x tmpfs rw 0 0\n"
    assert scratch._kinds_in(told) == {"/dev/shm": "tmpfs", "/mnt/große Ablage\\x": "tmpfs"}


def test_large_ones_are_not_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Python's temporary folder is memory, small ones go there and large ones to a disk."""
    here(tmp_path, monkeypatch)
    monkeypatch.setattr(scratch, "_mounts", lambda: {"/": "ext4", str(tmp_path.resolve()): "tmpfs"})
    monkeypatch.setattr(scratch, "_DISK", tmp_path.parent)
    assert in_memory(tmp_path / "a")
    assert not in_memory(tmp_path.parent)
    assert scratch_root() == tmp_path
    assert scratch_root(large=True) == tmp_path.parent
    small, large = scratch_folder("run"), scratch_folder("run", large=True)
    assert (small.parent, large.parent) == (tmp_path, tmp_path.parent)
    small.rmdir()
    large.rmdir()
    # A folder that is named is used, in memory too.
    monkeypatch.setenv("TIMELAPSE_SCRATCH", str(tmp_path / "mine"))
    assert scratch_root(large=True) == tmp_path / "mine"
    monkeypatch.setenv("TIMELAPSE_SCRATCH", str(tmp_path.parent / "mine"))
    assert scratch_root(large=True) == tmp_path.parent / "mine"


def test_where_there_is_no_disk_it_is_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here(tmp_path, monkeypatch)
    monkeypatch.setattr(scratch, "_mounts", lambda: {"/": "tmpfs"})
    assert scratch_root(large=True) == tmp_path


def test_a_child_does_not_remove_its_parents_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here(tmp_path, monkeypatch)
    folder = process_folder("x")
    scratch._remove(folder, os.getpid() + 1)
    assert folder.is_dir()
    scratch._remove(folder, os.getpid())
    assert not folder.exists()


HANDING = """
import sys
from pathlib import Path
from typing import cast
from timelapse.store.scratch import hand_over, scratch_folder
folder = scratch_folder("compile")
print(folder, flush=True)
print(hand_over(folder, int(sys.stdin.readline())), flush=True)
"""


def test_a_folder_that_another_process_was_given_goes_with_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    with subprocess.Popen(WAITING, stdin=subprocess.PIPE) as heir:
        with subprocess.Popen(
            [sys.executable, "-c", HANDING], env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as giver:
            out, _ = giver.communicate(str(heir.pid))
        old, new = map(Path, out.split())
        assert not old.exists()
        assert hand_over(old, heir.pid) == new  # done again by the other of the two
        here(tmp_path, monkeypatch)
        assert sweep() == 0
        assert new.is_dir()
        heir.kill()
        heir.wait()
    monkeypatch.setattr(scratch, "_swept", set())
    assert sweep() == 1
    assert not new.exists()


def test_a_compiler_that_nobody_waits_for_owns_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from timelapse.kernels.native import parallel
    from timelapse.kernels.native.lowering.unit import Unit

    here(tmp_path, monkeypatch)
    monkeypatch.setattr(parallel, "is_compiled", lambda unit: False)
    monkeypatch.setattr(parallel, "write_source", lambda unit, folder: folder / "a.py")
    started: list[subprocess.Popen[bytes]] = []

    def start(*files: Path, folder: Path) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(WAITING, stdin=subprocess.PIPE))
        return started[0]

    monkeypatch.setattr(parallel, "_start", start)
    parallel.compile_later([cast("Unit", object())])
    (folder,) = tmp_path.iterdir()
    assert owner(started[0].pid) in folder.name
    started[0].kill()
    started[0].communicate()
    monkeypatch.setattr(scratch, "_swept", set())
    assert sweep() == 1


def test_the_doctor_says_where_large_ones_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from timelapse.env.doctor import run

    here(tmp_path, monkeypatch)
    monkeypatch.setattr(scratch, "_mounts", lambda: {"/": "ext4", str(tmp_path.resolve()): "tmpfs"})
    monkeypatch.setenv("TIMELAPSE_SCRATCH", str(tmp_path.parent / "not" / "yet"))
    found = {c.name: c for c in run(tmp_path, spark=False)}
    assert f"({tmp_path}, in memory)" in found["disk for small temporary files"].value
    assert f"({tmp_path.parent / 'not' / 'yet'})" in found["disk for large temporary files"].value


BENCHMARK = """
import sys
from timelapse.store.scratch import temporary_folder
with temporary_folder("bench", large=True) as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.mark.process
@pytest.mark.parametrize("command", ["runs", "log"])
def test_every_command_begins_by_removing_what_killed_processes_left(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where temporary files were kept elsewhere at that time, as in memory."""
    from timelapse.cli.main import run

    shared, now = tmp_path / "shared", tmp_path / "now"
    shared.mkdir()
    now.mkdir()
    root = Path(__file__).parents[2]
    env = {**os.environ, "TIMELAPSE_SCRATCH": str(shared), "PYTHONPATH": f"{root / 'src'}:{root}"}
    with subprocess.Popen(
        [sys.executable, "-c", BENCHMARK], env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        left = Path(child.stdout.readline().strip())
        child.kill()
        child.wait()
    assert left.parent == shared
    here(now, monkeypatch)
    monkeypatch.setattr(scratch, "_SHARED", shared)
    monkeypatch.chdir(now)
    assert run([command, "--help"]) == 0
    assert left.is_dir()
    run([command] if command == "runs" else [command, "nowhere"])
    assert not left.exists()


def test_temporary_folders_say_whose_they_are() -> None:
    """None is made in a way that leaves a folder of a killed process there for ever."""
    root = Path(__file__).parents[2]
    named = re.compile(r"\b(TemporaryDirectory|mkdtemp)\(")
    places = [*(root / "src").rglob("*.py"), *(root / "benchmarks").rglob("*.py")]
    found = {p.relative_to(root).as_posix() for p in places if named.search(p.read_text(encoding="utf-8"))}
    assert found == {
        "src/timelapse/env/java.py",  # in the cache, renamed into its place
        "src/timelapse/env/machine.py",  # the cache itself, where there is no home
    }
