"""Asking for memory before it is needed: the processor goes on meanwhile.

In a table larger than the processor's caches most look-ups wait for memory, a hundred times longer than
they compute. A pass therefore asks for the rows that an event soon to come will look up.
"""

from __future__ import annotations

import numpy as np

from timelapse.kernels.native.machine.jit import primitive
from timelapse.kernels.native.memory.arithmetic import fold, mix
from timelapse.kernels.native.memory.intrinsics import prefetch


@primitive()
def fetch1(slots, mask, a):  # type: ignore[no-untyped-def]
    """Ask for the row where `find1` will begin to look."""
    prefetch(slots, np.int64(mix(a) & mask))


@primitive()
def fetch2(slots, mask, a, b):  # type: ignore[no-untyped-def]
    prefetch(slots, np.int64(mix(fold(a, b)) & mask))


@primitive()
def fetch3(slots, mask, a, b, c):  # type: ignore[no-untyped-def]
    prefetch(slots, np.int64(mix(fold(fold(a, b), c)) & mask))
