"""Each executor of a local cluster on a core of its own, with the Python workers that it starts: what `taskset -a -p` does."""

from __future__ import annotations

import os
import time
from pathlib import Path

_EXECUTOR = b"CoarseGrainedExecutorBackend"
_SECONDS = 30.0


def pin_executors(executors: int) -> list[int]:
    """Pin the executors that this process has started, each to one of the cores it may use. Returns their cores.

    Raises RuntimeError where there are not so many, or fewer cores.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < executors:
        raise RuntimeError(f"{executors} executors cannot have a core each: there are {len(cores)}")
    end = time.monotonic() + _SECONDS
    while len(found := _executors()) < executors:
        if time.monotonic() > end:
            raise RuntimeError(f"{len(found)} executors are there, not {executors}")
        time.sleep(0.2)
    for pid, core in zip(found, cores, strict=False):
        for one in (pid, *_below(pid)):
            for thread in Path(f"/proc/{one}/task").iterdir():
                try:
                    os.sched_setaffinity(int(thread.name), {core})
                except ProcessLookupError:  # it has ended
                    continue
    return cores[:executors]


def _executors() -> list[int]:
    """Executors below this process, by number. `local-cluster` has them start one after the other."""
    return sorted(pid for pid in _below(os.getpid()) if _EXECUTOR in _command(pid))


def _below(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        mine = parents.get(todo.pop(), [])
        found += mine
        todo += mine
    return found


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
