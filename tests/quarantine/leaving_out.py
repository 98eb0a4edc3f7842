"""What tests of events that are left out before their own steps share: programs are compared with the reference, over logs of
test_together.py."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.quarantine.test_rewinding import Mark, Move, Unheard, told
from tests.quarantine.test_together import log_of
from tests.tuned import tuned
from timelapse.errors import TooManyQuarantined
from timelapse.kernels.choose import SWITCH
from timelapse.kernels.native import foresight, together
from timelapse.run.reference import run_serial
from timelapse.run.tuning import USUAL, Tuning


def counting(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Have all run compiled. How many events are left out, of how many batches, and how often events that fail are sought in passes of their own."""
    monkeypatch.setenv(SWITCH, "native")
    counts = {"left out": 0, "passes": 0, "batches": 0}
    look, find = foresight.Foresight._try, together.Together.find

    def looking(self: Any, how: Any) -> None:
        before = self.count
        look(self, how)
        counts["left out"] += self.count - before
        counts["batches"] += 1

    def finding(self: Any, *args: Any, **named: Any) -> Any:
        counts["passes"] += 1
        return find(self, *args, **named)

    monkeypatch.setattr(foresight.Foresight, "_try", looking)
    monkeypatch.setattr(together.Together, "find", finding)
    return counts


def compare(
    program: type[tl.Program],
    events: list[tl.Event],
    seed: int,
    folder: Path,
    *,
    slices: int,
    tuning: Tuning = USUAL,
) -> int:
    """A replay and the reference, over events as they are, with the first and last taken out, or up to a time, by `seed`. How many events fail late."""
    ending = ("heard", "unheard", "until")[seed % 3]
    if ending == "heard":  # events that are taken out begin and end the log
        events = [e._at(e.ts, seq) for seq, e in enumerate(events[1:-1])]
    until = events[-1].ts + 5 if ending == "until" else None
    given: dict[str, Any] = {"quarantine": True, "max_quarantined": 300, "until": until}
    reference = run_serial(program, events, **given)
    log = tl.Log.from_events(folder / f"log-{seed}", events, [Move, Mark, Unheard], block=slices * 20)
    run = tuned(tuning)(program, log, slices=slices, spark=False, **given)
    assert told(run) == told(reference), (seed, slices)
    assert run.stored_quarantined() == reference.stored_quarantined(), (seed, slices)
    assert run.pending == reference.pending, (seed, slices)
    rows, at = reference.stored_quarantined(), {e.seq: e.ts for e in events}
    return sum(at[s] != t for s, t in zip(rows["seq"].to_pylist(), rows["ts"].to_pylist(), strict=True))


def no_more_than(most: int, program: type[tl.Program]) -> None:
    """Where more events fail than may, a replay says what the reference says."""
    events = log_of(random.Random(4), 300, 12, "abécd")
    with pytest.raises(TooManyQuarantined) as expected:
        run_serial(program, events, quarantine=True, max_quarantined=most)
    with pytest.raises(TooManyQuarantined) as raised:
        tl.replay(program, events, slices=1, spark=False, quarantine=True, max_quarantined=most)
    assert raised.value.message == expected.value.message
