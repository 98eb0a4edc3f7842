"""Small tables that grow part by part, as large ones of live runs do."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from timelapse.kernels.native.memory import hashtable
from timelapse.kernels.native.memory.hashtable import Growing


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


def switches(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> list[int]:
    """Have tables that are small, and whose memory is there at once, grow part by part. Gets the sizes of those that did."""
    found: list[int] = []
    larger = Growing.larger

    def noted(growing: Growing) -> hashtable.Larger:
        made = larger(growing)
        found.append(len(made.slots))
        return made

    for name, value in (
        ("_FIRST", 4),
        ("_GRADUAL", 4),
        ("_EARLY", 4),
        ("_PART", rng.randint(1, 5)),
        ("_EACH", 0),
    ):
        monkeypatch.setattr(hashtable, name, value)
    monkeypatch.setattr(hashtable, "threading", SimpleNamespace(Thread=AtOnce))
    monkeypatch.setattr(Growing, "larger", noted)
    return found
