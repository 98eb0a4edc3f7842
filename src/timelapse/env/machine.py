"""What this machine has: cores and memory, as far as this process may use them; cache folders."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from pathlib import Path

from timelapse.errors import UsageError
from timelapse.store.places import local_path

GIB = 1 << 30
MEMORY = "TIMELAPSE_MEMORY"
"""Environment variable: how much memory one task should take at most, beside what a process needs for itself."""


def cores() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def memory_bytes() -> int:
    """Memory that this process may use: the machine's, or the container's limit where that is lower."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        total = 4 * GIB
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(limit).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit() and 0 < int(text) < total:
            total = int(text)
    return total


def state_memory() -> int:
    """Memory that one task may take here (its budget): its core's share of half of the machine's."""
    return memory_bytes() // (2 * cores())


def memory_alone() -> int:
    """The budget of a task that runs alone: as the user sets it, else those of all cores."""
    return memory_setting() or state_memory() * cores()


def carried(budget: int) -> int:
    """The part of a task's budget that states take from one slice to the next. A table that doubles needs three times what
    it took; the rest is for what a slice puts out and does to states."""
    return budget // 4


def carried_if_set(budget: int | None) -> int | None:
    """The same where the user has set the budget, else None."""
    return None if budget is None or memory_setting() is None else carried(budget)


def memory_setting() -> int | None:
    """The bytes in the environment variable TIMELAPSE_MEMORY (`500M`, `4G`); None where it is not set."""
    text = os.environ.get(MEMORY)
    if not text:
        return None
    found = re.fullmatch(r"(\d+) ?([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if found is None:
        raise UsageError(f"{MEMORY} is {text!r}", hint="set it to a number of bytes, such as 500M or 4G")
    return int(found[1]) << (10 * " KMGT".index(found[2].upper() or " "))


def cache_dir() -> Path:
    """A folder of this user's for things that can be made again. Created when missing.

    `TIMELAPSE_CACHE`, else the platform's cache folder, else (no writable home) the temporary folder.
    """
    given = os.environ.get("TIMELAPSE_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    places = [local_path(given, "cache")] if given else []
    places.append((Path(base) if base else Path.home() / ".cache") / "timelapse")
    for place in places:
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(place, os.W_OK):
            return place
    fallback = Path(tempfile.gettempdir()) / f"timelapse-cache-{os.getuid()}"
    fallback.mkdir(mode=0o700, exist_ok=True)
    if fallback.stat().st_uid != os.getuid():  # someone else's: what is in it could be run as this user
        return Path(tempfile.mkdtemp(prefix="timelapse-cache-"))
    return fallback


def own_folder(name: str) -> Path | None:
    """A folder within `cache_dir`, made if missing. None where there is no safe place.

    What is in it is run as this user (machine code, Java's classes), so a folder that someone else owns or may write to is not used.
    """
    try:
        place = cache_dir() / name
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.stat()
    except OSError:
        return None
    mine = found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return place if mine and stat.S_ISDIR(found.st_mode) else None
