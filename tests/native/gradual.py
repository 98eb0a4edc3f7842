"""Small tables that grow part by part, as large ones of live runs do."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from timelapse.kernels.native.memory import hashtable
from timelapse.kernels.native.memory.hashtable import Growing
from timelapse.kernels.tuning import TableTuning


class AtOnce:
    """A thread that has ended once it is started."""

    def __init__(self, target: Callable[[], None], **_: Any) -> None:
        self._target = target

    def start(self) -> None:
        self._target()
        del self._target

    def is_alive(self) -> bool:
        return False

    def join(self) -> None:
        pass


def switches(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> tuple[TableTuning, list[int]]:
    """Thresholds with which small tables grow part by part, whose memory is there at once from now on, and the sizes of those that did."""
    found: list[int] = []
    larger = Growing.larger

    def noted(growing: Growing) -> hashtable.Larger:
        made = larger(growing)
        found.append(len(made.slots))
        return made

    tuning = TableTuning(
        first_rows=4, gradual_rows=4, gradual_part=4, moved_rows=rng.randint(1, 5), moved_each=0
    )
    monkeypatch.setattr(hashtable, "threading", SimpleNamespace(Thread=AtOnce))
    monkeypatch.setattr(Growing, "larger", noted)
    return tuning, found
