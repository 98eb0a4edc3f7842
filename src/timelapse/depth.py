"""Room for deeply nested code: a sum of a thousand terms, a long `elif` chain, calls within calls.

A syntax tree is as deep as its code is nested, and `a + b + c + ...` is nested as often as it has terms. What walks trees is
written with recursion, one or more calls per level, and Python ends that after a thousand calls. Python itself loads code of
about three thousand levels.
"""

from __future__ import annotations

import contextvars
import functools
import sys
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_STACK = 512 << 20
"""Bytes of address space for the stack; memory is taken for what is used of it only."""
_CALLS = 60_000
"""Calls within calls there: each has some 8 KiB of the stack, of which CPython takes one at most."""

_here = threading.local()
_lock = threading.Lock()
_open = 0
_usual = 0


def roomy(function: Callable[P, T]) -> Callable[P, T]:
    """Have the function called again, with a large stack, where it comes to the end of the usual one.

    It must be such that a call that was left by an exception may be made again. For what looks at code only: user's
    code never gets a larger stack than Python gives it, so that endless recursion ends as ever.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except RecursionError:
            if getattr(_here, "roomy", False):
                raise
        return _with_room(functools.partial(function, *args, **kwargs))

    return call


def _with_room(call: Callable[[], T]) -> T:
    """What a call gives on a thread of its own with a large stack."""
    result: list[T] = []
    failure: list[BaseException] = []
    context = contextvars.copy_context()

    def run() -> None:
        _here.roomy = True
        _raise_limit()
        try:
            result.append(context.run(call))
        except BaseException as error:
            failure.append(error)
        finally:
            _lower_limit()

    with _lock:
        before = threading.stack_size(_STACK)
        try:
            thread = threading.Thread(target=run, name="timelapse-deep", daemon=True)
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    if failure:
        raise failure[0]
    return result[0]


def _raise_limit() -> None:
    """The limit holds for all threads: it is raised while some thread needs it, and what it was is restored."""
    global _open, _usual
    with _lock:
        if _open == 0:
            _usual = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_usual, _CALLS))
        _open += 1


def _lower_limit() -> None:
    global _open
    with _lock:
        _open -= 1
        if _open == 0:
            sys.setrecursionlimit(_usual)
