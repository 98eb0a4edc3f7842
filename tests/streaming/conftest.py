"""Live runs in the tests."""

from __future__ import annotations

import pytest

from tests.patience import LONG
from timelapse.streaming import loop
from timelapse.streaming.live import Live
from timelapse.streaming.serve import asking
from timelapse.streaming.sinks import base
from timelapse.streaming.sources.push import Push


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who says no other time waits as long as tests do."""
    monkeypatch.setattr(Live.until, "__defaults__", (LONG,))
    for method in (Live.keep_out, Live.filter, Push.send):
        monkeypatch.setattr(method, "__kwdefaults__", {**(method.__kwdefaults__ or {}), "timeout": LONG})


@pytest.fixture(autouse=True)
def _soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails is tried again after pauses that are as many, and shorter."""
    monkeypatch.setattr(base, "_PAUSES", (0.01, 0.05, 0.1, 0.2))
    monkeypatch.setattr(loop, "_AGAIN", 0.05)
    monkeypatch.setattr(asking, "_LOOK", 0.05)
