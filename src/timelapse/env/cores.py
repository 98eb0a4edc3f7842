"""The processor cores that this process may use."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """The cores of this machine that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1
