"""Temporary folders that say whose they are, so that those of dead processes can be removed.

A name holds the machine, the process and when that started: `timelapse-run-1f2e3d4c-811.93412-ab12cd34`. Process
numbers are used again; together with the start they are not.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import socket
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from timelapse.store.failures import writing

SCRATCH = "TIMELAPSE_SCRATCH"
"""Environment variable: the folder for large temporary files."""
_PREFIX = "timelapse-"
_MEMORY = ("tmpfs", "ramfs")
_DISK = Path("/var/tmp")  # noqa: S108  # folders with names of their own, private to the user, are made in it
_SHARED = Path("/dev/shm")  # noqa: S108  # only looked through for what dead processes of this user left
_swept: set[tuple[int, Path]] = set()


# --- owners -------------------------------------------------------------------------------------------------


def owner(pid: int | None = None) -> str:
    """This machine, a process (this one) and its start, without a space: `1f2e3d4c-811.93412`."""
    pid = os.getpid() if pid is None else pid
    return f"{_host()}-{pid}.{_started(pid) or 0}"


def is_dead(named: str) -> bool:
    """Whether an owner, as `owner` names it, is a process of this machine that is gone. False where that is unknown."""
    host, _, rest = named.partition("-")
    pid, _, start = rest.partition(".")
    if host != _host() or not pid.isdecimal() or (start and not start.isdecimal()):
        return False
    if not is_running(int(pid)):
        return True
    now = _started(int(pid))
    return bool(start) and int(start) != 0 and now is not None and now != int(start)


def _host() -> str:
    """This machine; in a container its own processes only, for those are all that can be seen."""
    try:
        space = str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        space = ""
    return hashlib.sha256(f"{socket.gethostname()} {space}".encode()).hexdigest()[:8]


def _status(pid: int) -> list[str] | None:
    """What the system says of a process, from its state on; None where it says nothing."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()  # a program's name may hold spaces and brackets


def _started(pid: int) -> int | None:
    """When a process started, in ticks since the machine did."""
    status = _status(pid)
    return int(status[19]) if status is not None and len(status) > 19 else None


def is_running(pid: int) -> bool:
    """Whether a process of this machine is there, whoever's it is."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    status = _status(pid)
    return status is None or status[0] not in "ZX"  # a dead one that nobody has taken note of writes nothing


# --- temporary folders --------------------------------------------------------------------------------------


def scratch_folder(what: str, *, large: bool = False) -> Path:
    """A new temporary folder of this process; whoever asks for it removes it.

    `large`: it may hold much, so it is not made where temporary files are kept in memory. What dead processes have
    left beside it is removed first. Raises StorageError (TL932) where there is no room.
    """
    root = scratch_root(large=large)
    sweep()
    folder = root / f"{_PREFIX}{what}-{owner()}-{uuid.uuid4().hex[:8]}"
    with writing(folder):
        root.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
    return folder


def hand_over(folder: Path, pid: int) -> Path:
    """Make a temporary folder another process's, which goes on after this one. Returns where it is then.

    Both may do so, in either order: who comes second finds it done.
    """
    what, unique = "-".join(folder.name.split("-")[:-3]), folder.name.rpartition("-")[2]
    target = folder.with_name(f"{what}-{owner(pid)}-{unique}")
    with suppress(FileNotFoundError):
        folder.rename(target)
    return target


def process_folder(what: str, *, large: bool = False) -> Path:
    """The same; it is removed when this process ends."""
    folder = scratch_folder(what, large=large)
    atexit.register(_remove, folder, os.getpid())
    return folder


@contextmanager
def temporary_folder(what: str, *, large: bool = False) -> Iterator[Path]:
    """The same; it is removed when the block ends, or when a command starts after this process was killed."""
    folder = scratch_folder(what, large=large)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove(folder: Path, pid: int) -> None:
    if os.getpid() == pid:  # not by a child that was forked
        shutil.rmtree(folder, ignore_errors=True)


def scratch_root(*, large: bool = False) -> Path:
    """Where temporary folders are made: Python's, or for large ones the first of its like that is on a disk."""
    usual = Path(tempfile.gettempdir())
    if not large:
        return usual
    given = os.environ.get(SCRATCH)
    if given:  # whoever names a folder wants that one
        from timelapse.store.places import absolute_path

        return absolute_path(given, "folder for temporary files")
    return next((place for place in _large_places() if not in_memory(place)), usual)


def _large_places() -> list[Path]:
    own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "timelapse" / "scratch"
    shared = [p for p in (Path(tempfile.gettempdir()), _DISK) if os.access(p, os.W_OK | os.X_OK)]
    return [*shared, own]


def in_memory(place: Path) -> bool:
    """Whether what is written at a place is kept in memory: a file system of that kind is mounted there."""
    where = Path(os.path.realpath(place))
    kinds = _mounts()
    kind = next((kinds[str(p)] for p in (where, *where.parents) if str(p) in kinds), "")
    return kind in _MEMORY


@cache
def _mounts() -> dict[str, str]:
    """The kinds of the file systems by where they are mounted."""
    try:
        text = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return {}
    return _kinds_in(text)


def _kinds_in(mounts: str) -> dict[str, str]:
    """What /proc/self/mounts tells, where white space in a name is three octal digits behind a backslash (proc(5))."""
    fields = [line.split(" ") for line in mounts.split("\n")]
    names = {f[1]: f[2] for f in fields if len(f) > 2}
    return {
        re.sub(r"\\([0-7]{3})", lambda digits: chr(int(digits[1], 8)), n): kind for n, kind in names.items()
    }


def sweep() -> int:
    """Remove the temporary folders of dead processes, once for each process. Returns how many there were.

    Every command begins with it. Where temporary files are kept is a setting, so all usual places are looked through.
    """
    gone = 0
    for root in {scratch_root(), scratch_root(large=True), _DISK, _SHARED}:
        if (os.getpid(), root) in _swept:
            continue
        _swept.add((os.getpid(), root))
        try:
            found = [Path(e.path) for e in os.scandir(root) if e.name.startswith(_PREFIX)]
        except OSError:
            continue
        for left in found:
            named = "-".join(left.name.split("-")[-3:-1])
            if is_dead(named) and _is_own(left):
                shutil.rmtree(left, ignore_errors=True)
                gone += 1
    return gone


def _is_own(path: Path) -> bool:
    try:
        return path.lstat().st_uid == os.getuid()
    except OSError:
        return False
