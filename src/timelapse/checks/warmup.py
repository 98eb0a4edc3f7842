"""How much of the log before an event its outputs depend on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from timelapse.checks.findings import Finding
from timelapse.display import many, span
from timelapse.ids import HOUR
from timelapse.log import Log
from timelapse.log.part import PartLog
from timelapse.progress import Progress
from timelapse.progress.patience import looking
from timelapse.run import Run
from timelapse.tables.rowhash import both_lanes, one_array

_WINDOW = 4
"""The last quarter of the log's time is what is looked at."""
_TRIES = 5
_COMPARING = "comparing the last quarter's outputs"


def settling(log: Log, whole: Run, run: Callable[[Log], Run], progress: Progress) -> Finding:
    """Replays parts that begin later and later, and compares the outputs of the log's last quarter with the whole's.

    The time before that quarter is halved until the outputs differ. "Settled" is said of what was tried, not proved.
    """
    reader = log.reader
    first, last = reader.ts_first, reader.ts_before(2**63 - 1)
    if first is None or last is None or last - first < _WINDOW:
        return Finding("warm-up", "note", "the log is too short to tell")
    begin = last - (last - first) // _WINDOW
    with looking(progress, _COMPARING):
        wanted = _outputs(whole, begin)
    rows = sum(len(h) for h in wanted.values())
    if not rows:
        return Finding("warm-up", "note", "there are no outputs in the log's last quarter to compare")
    tried: list[dict[str, Any]] = []
    history = begin - first
    settled = None
    for _ in range(_TRIES):
        history //= 2
        if not history:
            break
        part = run(PartLog(log, reader.seq_at(begin - history), reader.seq_after(log.count)))
        with looking(progress, _COMPARING):
            mine = _outputs(part, begin)
            # a changed output is one that went and one that came
            gone = sum(len(np.setdiff1d(wanted[n], mine[n])) for n in wanted)
            new = sum(len(np.setdiff1d(mine[n], wanted[n])) for n in wanted)
        tried.append({"history": history, "differ": gone, "new": new, "share": gone / rows})
        if gone or new:
            break
        settled = history
        if history < HOUR:
            break
    details = {"outputs": rows, "from": begin, "tried": tried}
    if not tried:
        return Finding("warm-up", "note", "the log is too short to tell", "", details)
    worst = tried[-1]
    differing = (
        f"with {span(worst['history'])} of earlier events {worst['differ']:,} of {many(rows, 'output', 'outputs')} "
        f"are gone or changed, {worst['new']:,} new or changed"
    )
    if settled is None:
        return Finding(
            "warm-up", "warning", f"outputs do not settle: {differing}",
            "they depend on most of what came before: the log's beginning counts too little, unless it starts where the "
            "world did", details,
        )  # fmt: skip
    text = f"outputs settle after {span(settled)} or less"
    if worst["differ"] or worst["new"]:
        text += f" ({differing})"
    return Finding("warm-up", "ok", f"{text}: before that they are understated", "", details)


def _outputs(run: Run, begin: int) -> dict[str, Any]:
    """For each record type the hashes of its rows from a time on."""
    found = {}
    for name in run.counts:
        table = run.stored(name)
        table = table.filter(pa.array(np.asarray(table.column("ts")) >= begin))
        low, _ = both_lanes([one_array(c) for c in table.columns], table.num_rows, 0)
        found[name] = np.asarray(low)
    return found
