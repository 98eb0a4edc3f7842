"""The journal in time slices, handed over to the open kernel: at every epoch, with the same outputs."""

from __future__ import annotations

import functools
import random
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.streaming.test_evolution import FAST, First, Hit, Second, fed, hits
from timelapse.run import replay
from timelapse.streaming import chain, recovery, sliced
from timelapse.streaming.checkpoints import newest_whole
from timelapse.streaming.declared import types_of
from timelapse.streaming.format import RUN, Epoch
from timelapse.streaming.place import LocalPlace
from timelapse.streaming.reading import Reading
from timelapse.streaming.recovery import Recovery


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    monkeypatch.setattr(sliced, "SLICED_ROWS", 1)
    monkeypatch.setattr(sliced, "replay", functools.partial(replay, slices=3))


@pytest.mark.parametrize("late", ["side", "correct"])
def test_slices_hand_over_at_every_epoch(late: Any, tmp_path: Path) -> None:
    """Up to each epoch by a replay, the rest in the open kernel: sums are compared at every epoch behind it. Timers and windows are under way,
    and rows came late."""
    out = tmp_path / "out"
    events = hits(random.Random(4), 60, 1_000)
    extra = [Hit(who=1, size=2, ts=1_003 + n * 60) for n in range(4)]
    fed(First(), out, [*events[:40], *extra, *events[40:44]], parts=5, late=late, correct_every="1ms")
    if late == "correct":
        with tl.live(First(), {Hit: tl.Push()}, out, late=late, correct_every="1ms", **FAST) as run:
            run.until(lambda e: e.version > 0)
    fed(First(), out, events[44:], parts=3, late=late, correct_every="1ms")
    place = LocalPlace(out)
    about, _ = chain.read_run(place)
    types = types_of(place, about, None)
    last = chain.read_epoch(place, chain.newest(place)).about
    told: list[str] = []
    handed = 0
    for number in range(1, last.number):
        upto: Epoch = chain.read_epoch(place, number).about
        made = Recovery(
            place, First(), types, quarantine=None, tell=told.append, folder=tmp_path, checkpoints=False, sliced=True
        )  # fmt: skip
        running, _ = made.begin(upto)
        handed += running.whole is not None
        end = last
        for n in range(
            last.number, number, -1
        ):  # a correction that cuts before its end ends what may go on from it
            found = chain.read_epoch(place, n).about.correction
            if found is not None and found.cut <= (upto.complete or 0):
                end = chain.read_epoch(place, n - 1).about
        if end.number > number:
            made.again(running, number + 1, end, None, None)
        assert (running.sums.outputs, running.sums.rejected) == (end.outputs, end.rejected)
    assert handed >= 6
    assert told[-1].endswith("in 3 slices")
    assert (last.version > 0) == (late == "correct")


def test_a_run_is_rebuilt_without_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the journal alone; then a whole checkpoint is there again, and the run goes on as before."""
    out = tmp_path / "out"
    events = hits(random.Random(8), 90, 1_000)
    fed(First(), out, events[:50])
    for old in (out / "checkpoints").iterdir():
        old.write_bytes(b"torn")
    calls: list[int] = []
    kept = sliced.replayed

    def counted(*args: Any, **options: Any) -> Any:
        found = kept(*args, **options)
        calls.append(0 if found is None else found.count)
        return found

    monkeypatch.setattr(recovery, "replayed", counted)
    fed(First(), out, events[50:70], rebuild=True)
    assert calls == [49]
    place = LocalPlace(out)
    last = chain.read_epoch(place, chain.newest(place)).about
    found = newest_whole(place, last.number, [], lambda about: True)
    assert found is not None
    fed(First(), out, events[70:])
    assert calls == [49]
    assert Reading.open(out, First()).parity().same
    assert (out / RUN).is_file()


def test_another_program_is_not_rebuilt(tmp_path: Path) -> None:
    """A rebuild compares with what was committed: an edited program is refused before it runs."""
    out = tmp_path / "out"
    fed(First(), out, hits(random.Random(8), 20, 1_000))
    with pytest.raises(tl.TimelapseError, match="another program"):
        tl.live(Second(), {Hit: tl.Push()}, out, rebuild=True, **FAST).wait()
