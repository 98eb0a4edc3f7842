"""Which event offered the value that a window over a Max or Min shows, in compiled programs.

The kernel says when that was, and the operation's place among all on the state. Where several events of that time may have
done it, the log is gone through once more, with stops around them: between which of them the operation came is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from timelapse.kernels.walk import Moment
from timelapse.trace.knowledge import Ask
from timelapse.trace.moments import Past
from timelapse.trace.steps import EventTrace, Read

_MOST = 4096
"""Events of one time among which those are looked for that may have done it, before the log is gone through for it."""

Wanted = tuple[int, str, Any]
"""The seq of an event, the name under which its window tells reads, and the key."""


def choosers(past: Past, reads: Iterable[tuple[EventTrace, Read]]) -> dict[Wanted, int]:
    """The seqs of the events that offered what these reads saw, where it was not the event itself. Raises Uncompiled."""
    found: dict[Wanted, int] = {}
    open_: dict[Wanted, tuple[str, int, Sequence[int]]] = {}
    for trace, read in reads:
        chosen = trace.shown.get((read.state, read.key))
        if chosen is None or chosen.own:
            continue
        state = trace.views[read.state].state
        seqs = _candidates(past, state, read.key, chosen.ts, trace.seq)
        wanted = (trace.seq, read.state, read.key)
        if len(seqs) == 1:
            found[wanted] = seqs[0]
        else:
            open_[wanted] = (state, chosen.place, seqs)
    return found | _counted(past, open_) if open_ else found


def _candidates(past: Past, state: str, key: Any, ts: int, before: int) -> Sequence[int]:
    """The events of a time that may have done something to a key."""
    lo, hi = past.reader.seq_at(ts), min(past.reader.seq_at(ts + 1), before)
    if 1 < hi - lo <= _MOST:
        ask = Ask((state, key), hi)
        likely = past.likely([ask], lo, hi)
        if likely is not None:
            return likely[ask][np.searchsorted(likely[ask], lo) :].tolist()  # type: ignore[no-any-return]
    return range(lo, hi)


def _counted(past: Past, open_: dict[Wanted, tuple[str, int, Sequence[int]]]) -> dict[Wanted, int]:
    """The events between whose stops the operations came."""
    states = {state for state, _, _ in open_.values()}
    counts: dict[int, dict[str, int]] = {}

    def visit(moment: Moment) -> bool:
        counts[moment.seq] = {name: moment.live(name, None)._clock.offers(name) for name in states}
        return False

    last = max(seq for _, _, seqs in open_.values() for seq in seqs)
    stops = {s for _, _, seqs in open_.values() for seq in seqs for s in (seq, seq + 1)}
    past.walk(past.slice_of(last), sorted(stops), visit)
    return {
        wanted: next(s for s in seqs if counts[s][state] <= place < counts[s + 1][state])
        for wanted, (state, place, seqs) in open_.items()
    }


__all__ = ["choosers"]
