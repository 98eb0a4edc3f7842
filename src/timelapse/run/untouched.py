"""What of a run still holds where its log has changed since: events were put between those it was over, or taken out.

The events before the first that changed are the same ones at the same places, so slices that end before it did, to the last
bit, what they would do in the newest version; the run has their outputs and what they changed of the states.
"""

from __future__ import annotations

from dataclasses import dataclass

from timelapse.log import Log
from timelapse.results.manifest import RunManifest
from timelapse.segments.changed import first_changed
from timelapse.segments.joined import version_with
from timelapse.segments.without import base_of


@dataclass(frozen=True)
class Untouched:
    """`version`: the log's that the run was over. `first`: the first seq from which this version of the log has other events than the
    run was over; None: it has all of those, and perhaps more behind them. `slices`: so many of the run's, from its first on, end
    before that; `end`: where the last of these ends (a seq)."""

    version: int
    first: int | None
    slices: int
    end: int


def untouched(manifest: RunManifest, log: Log) -> Untouched | None:
    """What of a run holds for this version of its log; None where the run was over another log."""
    if manifest.log_id is None or manifest.logs:
        return None
    found = version_with(log.path, base_of(manifest.log_id))
    if found is None or found.version > log.version:
        return None
    end = manifest.cuts[-1]
    changed = first_changed(found, log.manifest)
    places = [] if changed is None else [changed]
    own = {seq for seq in log.left_out if seq < end}
    places += sorted(own ^ set(manifest.without))[:1]
    first = min((p for p in places if p < end), default=None)
    slices = len(manifest.cuts) - 1
    if first is not None:
        slices = max(n for n, cut in enumerate(manifest.cuts) if cut <= first)
    return Untouched(found.version, first, slices, manifest.cuts[slices])
