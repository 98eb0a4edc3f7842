"""What several replays over one log share beyond the cache, for as long as they take."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from timelapse.cache.group import Group
from timelapse.program.program import Program
from timelapse.run.request import Several
from timelapse.run.tuning import USUAL, Tuning
from timelapse.store.scratch import scratch_folder

_DECODING = 3
"""So many replays that share their states keep decoded what they read."""


@contextmanager
def sharing(
    programs: Sequence[Program], out: Path | None = None, times: int | None = None, tuning: Tuning = USUAL
) -> Iterator[Several]:
    """For replays of these programs, one after the other (`replay_one_of`), of which all that differ in their last rules only
    find the same states. `out`: a folder on the file system where their runs go. `times`: so many replays there are with others, whose
    passes are about the same (None: no others). `tuning`: the thresholds of all."""
    times = len(programs) if times is None else times
    if len(programs) < 2:
        yield Several(times=max(1, times), tuning=tuning)
        return
    if out is None:
        place = scratch_folder("shared", large=True)
    else:
        place = out / f".decoded-{uuid.uuid4().hex}"
    try:
        yield Several(
            place if len(programs) >= _DECODING else None,
            Group(programs, place / "beside"),
            times,
            tuning=tuning,
        )
    finally:
        shutil.rmtree(place, ignore_errors=True)
