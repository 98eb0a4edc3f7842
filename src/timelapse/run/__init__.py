"""Replays, from a request to a `tl.Run`.

Begin with `start.py`, which puts a replay together, and `run.py`, what users get: a stored run (`results/`) that can be asked. `request.py` checks
settings, `planning.py` decides how and where, `slices.py` where to cut, `foresight.py` what will be
compiled, `explain.py` tells all that. `earlier.py` goes on from an earlier run. `verify.py` compares with
the serial meaning, `quarantine.py` is what is done about failures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from timelapse.run.run import Run

if TYPE_CHECKING:
    from timelapse.run.reference import run_serial
    from timelapse.run.start import replay
    from timelapse.run.verify import Verification

# Loaded when first used: looking into a run needs nothing of what makes one.
_LATER = {"Verification": "verify", "replay": "start", "run_serial": "reference"}

__all__ = ["Run", "Verification", "replay", "run_serial"]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'timelapse.run' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"timelapse.run.{_LATER[name]}"), name)
    globals()[name] = value
    return value
