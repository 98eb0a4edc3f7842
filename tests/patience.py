"""How long tests wait for what has to come: on a busy machine it comes late, and that is no fault."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any, Protocol

LONG = 600.0
"""Seconds: what has not come by then never will. Less than pytest-timeout gives a test, so that the test says what is missing."""


class Going(Protocol):
    """A live run."""

    def wait(self, timeout: float | None = None) -> bool:
        """Whether it has ended within this time. Raises what made it fail."""


def until(
    holds: Callable[[], Any], *by: Going | subprocess.Popen[Any], what: object = "", look: float = 0.01
) -> None:
    """Wait until something holds that live runs or processes bring about. `look`: seconds between two looks.

    Raises what made a run fail, and AssertionError where one of them ends before or it does not come: nobody waits for what is not coming.
    """
    end = time.monotonic() + LONG
    while True:
        over = [_ended(one) for one in by]
        if holds():
            return
        for one in over:
            if one is not None:
                raise one
        said = what() if callable(what) else what
        assert time.monotonic() < end, f"it does not come: {said}"
        time.sleep(look)


def _ended(one: Going | subprocess.Popen[Any]) -> BaseException | None:
    """Why it is over, if it is: asked before what it brings about, which it may do last."""
    if isinstance(one, subprocess.Popen):
        code = one.poll()
        return None if code is None else AssertionError(f"the process ended with {code} before")
    try:
        return AssertionError("the live run ended before") if one.wait(0) else None
    except BaseException as error:
        return error
