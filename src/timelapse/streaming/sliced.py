"""The journal in time slices: a replay of it, on all cores or executors, from whose end the open kernel goes on.

It is used where a program has to begin with the journal's first row and there are many rows. A replay and the open kernel do the same to the last bit, so
it does not matter at which epoch one hands over to the other.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import cast

from timelapse.errors import ReplayError
from timelapse.program.program import Program
from timelapse.program.times import has_own_times
from timelapse.run import replay
from timelapse.store.scratch import scratch_folder
from timelapse.streaming.format import Epoch
from timelapse.streaming.handover import Origin
from timelapse.streaming.journal import as_live, journal
from timelapse.streaming.place import LivePlace, RunPlace

SLICED_ROWS = 200_000
"""With fewer rows the open kernel goes through the journal by itself."""


def replayed(
    place: RunPlace, program: Program, last: Epoch, start: Path | None, *, quarantine: bool, folder: Path | None, tell: Callable[[str], None]
) -> Origin | None:  # fmt: skip
    """The program at the end of an epoch, by a replay of the journal in slices. None where that is not worth it, or not possible.

    `start`: the run that live goes on from; `folder`: for the run's files. Raises as `replay` does.
    """
    if not hasattr(place, "local") or last.begin is None or last.end_seq < SLICED_ROWS:
        return None
    if last.quarantined and has_own_times(program):
        return None
    log, upto = journal(cast(LivePlace, place), last.number)
    if upto is None or upto.number != last.number:
        return None
    aside = (
        scratch_folder("rebuilt", large=True) if folder is None else folder
    ) / f"rebuilt-{uuid.uuid4().hex}"
    run = replay(program, log, aside, resumable=True, **as_live(log, last, start, takes_out=quarantine))
    try:
        found = Origin(run, program)
    except ReplayError as error:
        tell(f"the journal runs again row by row: {error.message}")
        return None
    if found.count != last.end_seq:
        return None  # epochs were committed meanwhile, and are in the log
    tell(f"the journal's {found.count:,} rows were replayed in {run.slices:,} slices")
    return found
