"""Thresholds of the cache. They lie in its folder, beside its limit, so all processes that use the folder have the same."""

from __future__ import annotations

import msgspec


class CacheTuning(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When it is worth while to look something up, or to keep it. No result depends on it."""

    least_events: int = 50_000
    """Shorter logs are replayed as fast as anything could be looked up."""
    most_beside: int = 32
    """Output parts beside one pass. Beyond about so many two cores would wait for them: better to go through the log again."""
    most_slices: int = 1_000
    """From a run in more slices no plain replay goes on: each adds some, and what all of them changed is read again."""
    long_seconds: float = 1.0
    """Seconds that a replay is foretold to take where it is cut for late rows of which nothing is known: a cut costs a tenth of a pass."""


USUAL = CacheTuning()
"""What holds where nobody has set anything."""
