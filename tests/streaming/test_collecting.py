"""Checkpoints that nothing needs are removed, and those that something needs are there."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import timelapse as tl
from tests.patience import until
from tests.streaming.test_asking import Adding, Put
from tests.streaming.test_live import FAST
from timelapse.program.program import as_program
from timelapse.progress import Silent
from timelapse.streaming import saving
from timelapse.streaming.collecting import _spread, collect
from timelapse.streaming.format import CHECKPOINTS, Checkpoint
from timelapse.streaming.health import Health
from timelapse.streaming.pack import header
from timelapse.streaming.place import LocalPlace
from timelapse.streaming.reading import Reading
from timelapse.streaming.saving import Saver


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")


def written(out: Path, epoch: int) -> bool:
    """Whether there is a checkpoint of an epoch or a later one, and none are being put together."""
    names = LocalPlace(out).names(CHECKPOINTS)
    there = any(int(name.partition("-")[0]) >= epoch for name in names)
    return there and not any(thread.name == "timelapse-compact" for thread in threading.enumerate())


def ran(out: Path, first: int, count: int, **options: Any) -> Reading:
    """A live run with a checkpoint after each few rows."""
    push = tl.Push()
    with tl.live(
        Adding, {Put: push}, out, idle=None, checkpoint="1ms", **{**FAST, "trigger": "1ms", **options}
    ) as run:
        for n in range(first, first + count):
            push.send([Put(who=n % 3, size=n % 5, ts=1000 + 10 * n)])
            epoch = run.until(lambda e, ts=1000 + 10 * n - 1: e.complete is not None and e.complete >= ts)  # type: ignore[misc]
            if epoch.begin is None:
                continue  # nothing was processed
            until(lambda at=epoch.number: written(out, at), run, look=0.001)  # type: ignore[misc]
        push.close()
        run.wait()
    return Reading.open(out)


@pytest.mark.parametrize("horizon", [None, 300])
def test_what_is_kept_lies_further_and_further_apart(horizon: int | None) -> None:
    """However often it is collected: few are kept, and for each age one that is not much older."""
    rng = random.Random(1)
    kept: list[int] = []
    now = 0
    for _ in range(3_000):
        now += rng.randrange(1, 5)
        kept = [*kept, now]
        names = _spread([(str(at), now - at) for at in reversed(kept)], horizon)
        kept = sorted(int(name) for name in names)
        assert len(kept) <= 3 + 2 * now.bit_length()
        for age in (1, 7, 50, 299, 2_000):
            if age < now - 4 and (horizon is None or age < horizon):
                older = min(now - at for at in kept if now - at >= age)
                assert older <= 2 * age + 8, (now, age, kept)
        if horizon is not None:
            assert sum(now - at >= horizon for at in kept) <= 1


def test_a_run_keeps_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of many checkpoints keeps two whole ones and what came since; it goes on from them, also where the newest is damaged."""
    monkeypatch.setattr(saving, "_WHOLE_AFTER", 2)
    out = tmp_path / "out"
    ran(out, 0, 60)
    collect(LocalPlace(out), corrected=False)
    files = sorted((out / CHECKPOINTS).iterdir())
    about = [header(str(f), iter([f.read_bytes()]), Checkpoint, "") for f in files]
    whole = sorted(one.epoch for one in about if one.whole)
    assert len(whole) >= 2
    assert (
        min(one.epoch for one in about) == whole[-2]
    )  # how many follow depends on how soon they were put together
    assert len(files) < 60
    newest = files[-1]
    newest.write_bytes(newest.read_bytes()[:-3])
    reading = ran(out, 60, 5)
    assert reading.parity().same
    last = reading.last
    assert last is not None
    assert last.end_seq == 65


def test_corrections_find_one_from_before_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Late rows of long ago are put into their places from a checkpoint of about then; those beyond the horizon need none."""
    monkeypatch.setattr(saving, "_WHOLE_AFTER", 1)
    out, late = tmp_path / "out", {"late": "correct", "correct_every": "1ms", "correct_within": None}
    ran(out, 0, 80, **late)
    collect(LocalPlace(out), corrected=True)
    # how many stay depends on how soon they were put together
    assert len(list((out / CHECKPOINTS).iterdir())) < 80
    push = tl.Push()
    with tl.live(Adding, {Put: push}, out, idle=None, **{**FAST, **late}) as run:
        push.send([Put(who=7, size=1, ts=1595)])
        last = run.until(lambda e: e.correction is not None)
        push.close()
        run.wait()
    assert last.correction is not None
    assert last.correction.start > 0, "it was replayed from the journal's first row"
    assert Reading.open(out).parity().same


def test_the_one_that_is_being_written_keeps_what_it_stands_on(tmp_path: Path) -> None:
    """Whatever has become of the program meanwhile; once it is written, what the program stands on now is kept."""
    written = Saver(LocalPlace(tmp_path), as_program(Adding), 1.0, Health(), Silent(), lambda: False)
    head: Any = SimpleNamespace(on=SimpleNamespace(checkpoint="new"))
    assert written._needed(head) == "new"
    written._saving = SimpleNamespace(parent="old")  # type: ignore[assignment]
    assert written._needed(head) == "new"
    written._writing = threading.current_thread()
    assert written._needed(head) == "old"


def test_nothing_is_removed_where_there_is_nothing_to_go_on_from(tmp_path: Path) -> None:
    assert collect(LocalPlace(tmp_path), corrected=False) == []
    out = tmp_path / "out"
    ran(out, 0, 3)
    before = sorted((out / CHECKPOINTS).iterdir())
    collect(LocalPlace(out), corrected=False)
    assert sorted((out / CHECKPOINTS).iterdir()) == before
