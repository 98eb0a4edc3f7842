"""What `timelapse live` says and does while a run goes on."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace
from typing import Any

from timelapse.cli.live_view import ending_on_sigterm


def test_sigterm_ends_the_run_and_is_given_back() -> None:
    """What a signal did before it does again, also where the run fails."""
    asked: list[str] = []
    run: Any = SimpleNamespace(end=lambda: asked.append("run"))
    before = signal.signal(signal.SIGTERM, lambda *_: asked.append("before"))
    try:
        try:
            with ending_on_sigterm(run):
                os.kill(os.getpid(), signal.SIGTERM)
                raise ValueError
        except ValueError:
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert asked == ["run", "before"]
