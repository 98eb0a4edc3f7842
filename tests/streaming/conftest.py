"""Live runs in the tests."""

from __future__ import annotations

import pytest

from tests.patience import LONG
from timelapse.streaming.live import Live
from timelapse.streaming.sources.push import Push


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who says no other time waits as long as tests do."""
    monkeypatch.setattr(Live.until, "__defaults__", (LONG,))
    for method in (Live.keep_out, Live.filter, Push.send):
        monkeypatch.setattr(method, "__kwdefaults__", {**(method.__kwdefaults__ or {}), "timeout": LONG})
