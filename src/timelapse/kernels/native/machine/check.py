"""The line of `timelapse doctor` on compiled passes."""

from __future__ import annotations

import uuid
from importlib.metadata import PackageNotFoundError, version

from timelapse.env.doctor import Check
from timelapse.errors import UsageError
from timelapse.kernels.native.machine import store

_NAME = "compiled passes"


def kernel_cache() -> Check:
    """Whether Numba is there, and compiled passes can be kept on disk; how many there are. Compiles nothing."""
    try:
        numba = f"Numba {version('numba')}"
    except PackageNotFoundError:
        return Check(
            _NAME, "warn", "Numba is not installed", "pip install numba: without it all runs as Python"
        )
    try:
        most = store.limit()
    except UsageError as error:
        return Check(_NAME, "warn", error.message, error.hint)
    place = store.folder()
    trial = f"trial-{uuid.uuid4().hex[:12]}"
    kept = place is not None and store.write(trial, b"trial") and store.read(trial) == b"trial"
    store.remove(trial)
    if not kept:
        hint = "set TIMELAPSE_CACHE to a folder that only you can write to; until then every process compiles anew"
        return Check(_NAME, "warn", f"{numba}; they cannot be kept on disk", hint)
    found = store.entries()
    size = sum(e.bytes for e in found)
    value = f"{numba}; {len(found)} on disk, {size / 1e6:.1f} of at most {most / 1e6:.0f} MB ({place})"
    return Check(_NAME, "ok", value)
