"""For child processes that die in the middle of what they do."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


def dying(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """The function, of which call number `count` ends the process with 9, nothing tidied up."""
    calls = 0

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count:
            os._exit(9)
        return function(*args, **kwargs)

    return call
