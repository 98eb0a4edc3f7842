"""Ways of looking into a run, to be shut one by one: what the others tell must be the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from timelapse.results import travel
from timelapse.trace.few import Few
from timelapse.trace.knowledge import Uncompiled, Unfocused
from timelapse.trace.through import Through
from timelapse.trace.whole import WholePast


def without_few(patch: pytest.MonkeyPatch) -> None:
    """From here on nobody looks at the events that matter alone."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise Unfocused("a test says so")

    patch.setattr(Few, "__init__", refuse)


def by_the_loop(patch: pytest.MonkeyPatch) -> None:
    """From here on programs that reach into other times are looked into by the serial loop."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise Uncompiled("a test says so")

    without_few(patch)
    patch.setattr(WholePast, "walk", refuse)
    patch.setattr(Through, "__init__", refuse)
    patch.setattr(travel, "VIEWS", ())


def answers_of_few(patch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Counts what the events that matter have answered."""
    count, settled = 0, Few._settled

    def counting(*args: Any) -> Any:
        nonlocal count
        result = settled(*args)
        count += 1
        return result

    patch.setattr(Few, "_settled", counting)
    return lambda: count
