"""A newer version of the program over the end of the journal: what it puts out there takes the place of what was put out.

It begins where the version before stood at a time, and goes through the rows since, as a correction does; the journal stays as it is.
The epoch that changes the program then has the difference: rows that are retracted, and rows that are added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from timelapse.kernels.base import Abandoned
from timelapse.moments import time_text
from timelapse.program.program import Program
from timelapse.streaming import chain
from timelapse.streaming.arrivals import Taken
from timelapse.streaming.correction import replaced
from timelapse.streaming.declared import put_out, unsafe
from timelapse.streaming.format import Correction, Epoch
from timelapse.streaming.journal import first_reaching
from timelapse.streaming.place import RunPlace
from timelapse.streaming.recovery import PutOut, Recovery, taken_out
from timelapse.streaming.running import Running
from timelapse.streaming.stand import Stand
from timelapse.streaming.versions import Shift, corrections


@dataclass(frozen=True)
class Start:
    """Where the newer version begins: at a time, in the epoch `reaching`; `behind` is the last one before with a row."""

    ts: int
    reaching: int
    behind: Epoch | None


@dataclass(frozen=True)
class Reprocessed:
    """Where the newer version stands at the end of the newest epoch, and what its epoch has."""

    stand: Stand
    correction: Correction
    sections: Mapping[str, pa.Table]
    done: str
    """For people."""


def start_at(place: RunPlace, new: Program, last: Epoch, since: int) -> Start | None:
    """Where to begin, so that all from `since` on is processed again: earlier where a later correction has put rows before that into
    epochs. None: nothing has happened since. Raises RunError (TL847) where another version ran then."""
    if last.complete is None or last.complete < since:
        return None
    number = first_reaching(place, since, last.number)
    found = [
        (p.about.correction.cut, p.about.number) for p in corrections(place, last, 0) if p.about.correction
    ]
    for cut, corrected in sorted(found)[::-1]:
        if corrected >= number and cut < since:
            since, number = cut, first_reaching(place, cut, last.number)
    if number <= last.last_change:
        at = chain.read_about(place, last.last_change).complete
        raise unsafe(
            new, f"it cannot process again what came before epoch {last.last_change:,}, where the program changed ({'' if at is None else time_text(at)})",
            "give a later time; or run a shadow, which goes through all of the journal, and promote it",
        )  # fmt: skip
    before = chain.read_about(place, number - 1) if number > 1 else None
    begun = before is not None and before.complete is not None and before.begin is not None
    return Start(since, number, before if begun else None)


def reprocessed(
    place: RunPlace, old: Recovery, new: Recovery, migrate: Callable[[Stand], Stand], start: Start, last: Epoch, *,
    compiled: bool = True,
) -> Reprocessed:  # fmt: skip
    """Run the newer version from `start` to the end of `last`. `old` runs the version before up to there, and `migrate` tells where the
    newer one begins then. Raises as `Recovery.again` does."""
    rows, _ = old.around(start.behind, start.reaching, last, start.ts)
    # Where live goes on from a run, ticks and timers may come before the first row.
    begun = start.behind is not None or rows.rows > 0 or (old.floor is not None and old.floor < start.ts - 1)
    stand = migrate(old.stand(start.behind, (rows, start.ts - 1) if begun else None))
    found = PutOut()
    try:
        running, first = _run(place, new, stand, start, last, found, begun=begun, compiled=compiled)
        changes = running.kernel.changes()
    except Abandoned:
        if not compiled:
            raise
        return reprocessed(place, old, new, migrate, start, last, compiled=False)
    assert last.complete is not None
    sections = replaced(place, start.reaching, last, start.ts, Shift.none(), found)
    about = Correction(
        last.version + 1, start.ts, start.reaching - 1, first, last.last_correction, last.number
    )
    gone, added = (
        sum(t.num_rows for n, t in sections.items() if n.startswith(kind)) for kind in ("retracted/", "out/")
    )
    done = (
        f"what came from {time_text(start.ts)} on is processed again: {running.rerun:,} rows; {gone:,} outputs are retracted, "
        f"{added:,} are added"
    )
    end = stand.then(new.program, changes, last.complete).trimmed(new.program)
    return Reprocessed(end, about, sections, done)


def _run(
    place: RunPlace, new: Recovery, stand: Stand, start: Start, last: Epoch, found: PutOut, *, begun: bool, compiled: bool
) -> tuple[Running, int]:  # fmt: skip
    """The newer version at the end of `last`, and the seq from which it ran."""
    before, rest = new.around(start.behind, start.reaching, last, start.ts)
    first = (0 if start.behind is None else start.behind.end_seq) + before.rows
    out = {seq for seq in taken_out(chain.epochs(place, start.reaching, last.number)) if seq < first}
    running = new.at(stand, start.behind, compiled=compiled, then=before if begun else None, gone=out)
    running.earlier = put_out(place, last)
    number = start.reaching
    if begun:
        _go_on(running, place, rest, number, found)
        number += 1
    if number <= last.number:
        new.again(running, number, last, None, found, compare=False)
    return running, first


def _go_on(running: Running, place: RunPlace, rest: Taken, number: int, found: PutOut) -> None:
    """The rest of an epoch."""
    complete = chain.read_about(place, number).complete
    assert complete is not None
    running.rerun += rest.rows
    found.add(running.put(rest, complete))
