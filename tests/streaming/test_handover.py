"""A live run that goes on where a replay ended gives what one replay over everything gives."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.depth import deep, some
from tests.patience import LONG
from tests.programs.catalogue import CATALOGUE, Entry
from tests.programs.data import make
from tests.streaming.test_live import FAST, Hit, Mark, Plain, Watch, hits, lines, marks, put
from tests.writers.anything import any_program
from tests.writers.sources import load_source, random_events
from timelapse.analysis import analyse
from timelapse.errors import HandlerError, ReplayError, RunError
from timelapse.program.program import spec_of
from timelapse.run import replay, run_serial
from timelapse.streaming.serve.status import status


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")


def go_on(
    program: tl.Program,
    events: list[tl.Event],
    classes: list[type[tl.Event]],
    at: int,
    slices: int,
    tmp_path: Path,
    rng: random.Random,
) -> tl.Live:
    """Replay up to about `at`, then live, stopped and begun again in the middle; streams still have rows of the log."""
    while at < len(events) and events[at].ts == events[at - 1].ts:
        at += 1
    log = tl.Log.from_events(tmp_path / "log", events[:at], classes)
    first = replay(program, log, tmp_path / "run", slices, spark=False, resumable=True)
    sent = events[max(0, at - 5) :]
    halves = [sent[: len(sent) // 2], sent[len(sent) // 2 :]]
    for number, half in enumerate(halves):
        pushes = {cls: tl.Push() for cls in classes}
        start: Any = first if not number else rng.choice([None, first, first.path])
        with tl.live(
            program, pushes, tmp_path / "out", start_from=start, idle=None, checkpoint="1ms", **FAST
        ) as run:
            for lo in range(0, len(half), 7):
                for cls, push in pushes.items():
                    rows = [e for e in half[lo : lo + 7] if type(e) is cls]
                    if rows:
                        push.send(rows)
            if number:
                for push in pushes.values():
                    push.close()
                run.wait(LONG)
            else:
                sizes = len(half)
                run.until(lambda e, n=sizes: sum(p.rows + p.skipped for p in e.partitions) == n)  # type: ignore[misc]
    return run


@pytest.mark.parametrize("entry", some(CATALOGUE, first=1), ids=lambda e: e.name)
def test_programs(entry: Entry, tmp_path: Path) -> None:
    program, mix = entry.program(), entry.mix(5)
    classes = [entry.classes()[name] for name in mix.fields]
    events = make(mix, 160, seed=5).events(entry.classes())
    run = go_on(program, events, classes, 90, 3, tmp_path, random.Random(1))
    assert run.digest == run_serial(program, events).digest
    assert run.parity().same
    last = run.last
    assert last is not None
    assert sum(p.skipped for p in last.partitions) >= 5
    assert last.end_seq == 160


@pytest.mark.parametrize("seed", range(deep(15)))
def test_random_programs(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    cls = load_source(any_program(rng))
    if analyse(cls).serial_only is not None:
        return
    events = random_events(cls, random.Random(seed), 40)
    classes = list(dict.fromkeys(type(e) for e in events))
    classes += [e for e in spec_of(cls).events if e not in classes and e not in spec_of(cls).sent]
    number = {kind: n for n, kind in enumerate(classes)}
    events = sorted(events, key=lambda e: (e.ts, number[type(e)]))
    events = [e._at(e.ts, n) for n, e in enumerate(events)]
    try:
        expected = run_serial(cls, events).digest
    except HandlerError:
        return
    run = go_on(cls(), events, classes, rng.randint(5, 30), rng.randint(1, 3), tmp_path, rng)
    assert run.digest == expected


def test_what_cannot_be_gone_on_from(tmp_path: Path) -> None:
    log = tl.Log.from_events(tmp_path / "log", hits(50), [Mark, Hit])
    first = replay(Watch, log, tmp_path / "run", spark=False)
    other = replay(Plain, log, tmp_path / "other", spark=False)
    (tmp_path / "in").mkdir()
    put(tmp_path / "in" / "a.jsonl", lines(hits(60)))
    (tmp_path / "marks").mkdir()
    put(tmp_path / "marks" / "a.jsonl", lines(marks(8)))
    streams = {Mark: tmp_path / "marks", Hit: tmp_path / "in"}
    for wrong in (other, replay(Watch, hits(50), spark=False)):
        with pytest.raises(ReplayError) as refused:
            tl.live(Watch, streams, tmp_path / "out", start_from=wrong, once=True, **FAST)
        assert refused.value.code == "TL515"
    assert not (tmp_path / "out").exists()
    with tl.live(Watch, streams, tmp_path / "out", start_from=first, once=True, **FAST) as run:
        run.wait(LONG)
    assert run.last is not None
    assert status(run)["rows"] == run.health.rows == run.last.end_seq - first.manifest.cuts[-1] > 0
    assert sum(p.skipped for p in run.last.partitions) == 50 + len(
        [m for m in marks(8) if m.ts <= hits(50)[-1].ts]
    )
    assert run.parity().same
    again = replay(Watch, log, tmp_path / "again", spark=False)
    with pytest.raises(RunError):
        tl.live(Watch, streams, tmp_path / "out", start_from=again, once=True, **FAST)
