"""Temporary files of the tests lie in memory where there is room: on a disk, removing a folder takes milliseconds, and there are a hundred thousand.

Nothing that is tested depends on it: what must be durable is synced all the same, and kills are those of processes. A folder that TMPDIR
names is used as it is.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from atexit import register as _at_exit
from contextlib import suppress
from pathlib import Path

MEMORY = Path("/dev/shm")
_PREFIX = "timelapse-tests-"
FREE = 8 << 30
"""Bytes that must be free there, and twice as many in memory as a whole."""


def use(environment: os._Environ[str] = os.environ, memory: Path = MEMORY) -> Path | None:
    """Have temporary files made in memory, by this process and those that it starts. Gives the folder; None where there is no room."""
    if "TMPDIR" in environment or not _has_room(memory):
        return None
    _sweep(memory)
    folder = memory / f"{_PREFIX}{os.getpid()}"
    folder.mkdir(mode=0o711, exist_ok=True)  # servers run as other users
    environment["TMPDIR"] = environment["TIMELAPSE_SCRATCH"] = str(folder)
    tempfile.tempdir = None
    _at_exit(_remove, folder, os.getpid())
    return folder


def _has_room(memory: Path) -> bool:
    try:
        available = next(
            int(line.split()[1]) * 1024
            for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("MemAvailable:")
        )
        return os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= FREE and available >= 2 * FREE
    except (OSError, StopIteration):
        return False


def _sweep(memory: Path) -> None:
    """Remove folders of processes that are dead."""
    for left in memory.glob(f"{_PREFIX}*"):
        with suppress(ValueError):
            if not Path(f"/proc/{int(left.name.removeprefix(_PREFIX))}").exists():
                shutil.rmtree(left, ignore_errors=True)


def _remove(folder: Path, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)
