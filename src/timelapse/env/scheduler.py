"""How the operating system shares out cores between threads that work for long and threads that answer."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import threading

_LONG = 100_000_000
"""Nanoseconds at a time that a thread asks for that works for long: the most there is."""
_SHORT = 100_000
"""Nanoseconds at a time that a thread asks for that answers: the least there is."""
_SETATTR = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
"""The number of the system call sched_setattr, which no C library had a function for before 2025."""


class _Attributes(ctypes.Structure):
    """What sched_setattr takes."""

    _fields_ = (
        ("size", ctypes.c_uint32), ("policy", ctypes.c_uint32), ("flags", ctypes.c_uint64), ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32), ("runtime", ctypes.c_uint64), ("deadline", ctypes.c_uint64), ("period", ctypes.c_uint64),
    )  # fmt: skip


def give_way() -> None:
    """Have this thread, and the threads and processes that it begins from now on, let others run as soon as these wake up.

    It has its share of the cores as before, in longer turns. Else a thread that has just begun its turn keeps it until Linux looks again, at the next tick of its
    clock (4 ms at 250 Hz), whoever wakes up meanwhile. From Linux 6.12 on, who asks for longer turns than another mostly gives way to it at once: beside three busy
    threads on two cores 1.0 instead of 1.7 to 2.3 wake-ups in a hundred waited for more than 0.2 ms. Less priority (nice) would cost the share, and who
    waits for what such a thread holds would wait several times as long beside other work.
    Where a system has none of this, or somebody has set another policy, all stays as it is.
    """
    if sys.platform == "linux":
        _ask(os.SCHED_BATCH, _LONG)


def come_soon() -> None:
    """Have this thread, and the threads and processes that it begins from now on, run soon after they wake up, for short turns.

    For those who answer and work for less than a millisecond. It has its share of the cores as before. From Linux 6.12 on, who asks for shorter turns runs before
    others that wait, and at once in the place of one that asks for longer turns, unless that has had less than its share.
    Where a system has none of this, or somebody has set another policy, all stays as it is.
    """
    if sys.platform == "linux":
        _ask(os.SCHED_OTHER, _SHORT)


def _ask(policy: int, nanoseconds: int) -> None:
    number = _SETATTR.get(platform.machine())
    if number is None or sys.maxsize < 1 << 32 or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    nice = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    wanted = _Attributes(ctypes.sizeof(_Attributes), policy, 0, nice, 0, nanoseconds, 0, 0)
    ctypes.CDLL(None).syscall(number, 0, ctypes.byref(wanted), 0)  # refused: nothing has changed
