"""Looking into programs that reach into other times: every step by name, windows with the writes that count."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from timelapse import trace
from timelapse.errors import RunError, UsageError
from timelapse.ids import Phase
from timelapse.kinds.base import ABSENT
from timelapse.log import MemoryLog
from timelapse.run import Run, replay
from timelapse.trace import timed
from timelapse.trace.explanation import Cause, Explanation


class Hit(tl.Event):
    k: int
    v: int


class Ring(tl.Event):
    k: int


class Seen(tl.Record):
    k: int
    what: str


class Clock(tl.Program):
    """Windows, looks back, ticks, after=, dated events and writes, derived events, rejections."""

    width: int = 5

    n: tl.Counter[int]
    best: tl.Max[int, int] = tl.state(default=-1)
    rung: tl.Set[int]

    @tl.on(Hit)
    def count(self, e: Hit) -> None:
        self.n[e.k] += e.v
        self.best.add(e.k, e.v)
        if self.n.last(self.width)[e.k] > 3:
            self.emit(Seen(k=e.k, what="busy"))
        if e.v == 2:
            self.send(Ring(k=e.k), after=4)
        if e.v == 3:
            self.n.add(e.k, 1, at=self.now + 2)
        if e.v == 0 and e.k == 1:
            self.reject("nothing")

    @tl.on(Ring)
    def ring(self, r: Ring) -> None:
        self.rung.add(r.k)
        if self.n[r.k] > 6 and self.best.last(6)[r.k] >= 2:
            self.emit(Seen(k=r.k, what="rung"))

    @tl.every(10)
    def tick(self) -> None:
        if self.n[1] > 2 and 1 in self.rung:
            self.emit(Seen(k=self.n.last(10)[1], what="tick"))

    @tl.on(Hit, after=3)
    def later(self, e: Hit) -> None:
        if self.n.ago(3)[e.k] < self.n[e.k]:
            self.emit(Seen(k=e.k, what="later"))


def hits(count: int, seed: int) -> list[tl.Event]:
    rng = random.Random(seed)
    made, ts = list[tl.Event](), 0
    for _ in range(count):
        ts += rng.choice([0, 1, 1, 2])
        made.append(Hit(k=rng.randrange(3), v=rng.randrange(4), ts=ts))
    return made


@pytest.fixture(scope="module")
def run() -> Run:
    return replay(Clock, MemoryLog(hits(120, 4), [Hit, Ring]), slices=3, spark=False)


def told(cause: Cause) -> int:
    """Check what a step is said to have read against the writes that are said to count. Gives how many were checked."""
    checked = 0
    for seen in cause.seen:
        read = seen.read
        if read.state.startswith("n.last(") and not seen.here:
            assert sum(_number(s.after) - _number(s.before) for s in seen.sources) == read.value, seen
            checked += 1
        elif (read.state == "n" or read.state.startswith("n.ago(")) and not seen.here:
            assert (_number(seen.sources[0].after) if seen.sources else 0) == read.value, seen
            checked += 1
    return checked


def _number(side: object) -> int:
    return side if isinstance(side, int) else 0


def writes(run: Run, place: tuple[str, int]) -> list[timed.Written]:
    """Every write of a key, by the serial loop, oldest first."""
    ask = timed.Ask(place)
    return timed.All(run).newest([ask], None, 1000)[0][ask]


def test_every_output_is_explained_by_its_time(run: Run) -> None:
    """Log events, ticks, dated events and after= calls; the reads are the sums of the writes that are named."""
    rows = run.stored("Seen").to_pylist()
    checked, phases, counts = 0, set[int](), dict[int, int]()
    for row in rows:
        place = counts[row["ts"]] = counts.get(row["ts"], 0) + 1
        if len(rows) > 30 and row["ordinal"] + row["seq"] % 3 and row["phase"] != Phase.TICK:
            continue  # every third is enough
        found: Explanation = run.why(f"Seen@{row['ts']}#{place}", last=1000)
        assert found.trace.ts == row["ts"]
        assert found.trace.phase == row["phase"]
        assert Seen(k=row["k"], what=row["what"]) in found.trace.outputs
        assert f"emit Seen(k={row['k']}, what='{row['what']}')" in found.text
        checked += told(found.cause)
        phases.add(row["phase"])
    assert phases == {Phase.TICK, Phase.DATED_EVENT, Phase.LOG_EVENT}
    assert checked > 20


def test_the_writes_are_those_between_which_the_state_changed(run: Run) -> None:
    """A key's history ends, before any time, in what the state holds then; each write begins where the last one ended."""
    steps = 0
    for key in (0, 1, 2):
        rows = writes(run, ("n", key))
        for before, after in itertools.pairwise(rows):
            assert before.after == after.before
            assert before.step.number < after.step.number
            assert before.step.ts <= after.step.ts
        steps += len(rows)
        assert {r.step.phase for r in rows} == {Phase.DATED_WRITE, Phase.LOG_EVENT}
        for at in (None, 0, 7, 50, 51, 10**9):
            held = {r["key"]: r["value"] for r in run.state("n", at).to_pylist()}
            history = run.history("n", key, at=at, last=3)
            assert history.value == held.get(key, history.value)
            assert (key in held) == bool(history.to_json()["present"])
            assert len(history.entries) <= 3
        assert rows[0].before is ABSENT
    assert steps > 50


def test_steps_are_named_by_type_or_handler_and_time(run: Run) -> None:
    """Which put nothing out; a second one by its number; and what there is not says what there is."""
    quiet = next(
        r.step for r in writes(run, ("rung", 0)) if r.step.phase == Phase.DATED_EVENT
    )  # fmt: skip
    found = run.why_not(f"Ring@{quiet.ts}")
    assert found.trace.phase == Phase.DATED_EVENT
    assert found.text.splitlines()[0].split("   ")[1].startswith("Ring dated by event ")
    assert run.why_not("tick@10").text.splitlines()[0].endswith("   tick")
    busy = next(e.ts for e, f in itertools.pairwise(hits(120, 4)) if e.ts == f.ts)
    one, two = run.why_not(f"Hit@{busy}"), run.why_not(f"Hit@{busy}#2")
    assert two.trace.seq == one.trace.seq + 1
    assert run.why_not(f"later@{busy + 3}").trace.handlers[0].name == "later"
    with pytest.raises(RunError, match="there is no Ring number 9"):
        run.why_not("Ring@10#9")
    with pytest.raises(RunError, match="no Seen number 99"):
        run.why("Seen@10#99")
    with pytest.raises(UsageError, match="is no time"):
        run.why("Seen@noon")
    with pytest.raises(RunError, match="no event with seq 4000"):
        run.why_not(4000)


def test_depth_goes_through_dated_events(run: Run) -> None:
    """A set that a dated event wrote is explained by it."""
    row = next(r for r in run.stored("Seen").to_pylist() if r["what"] == "tick")
    deep = run.why(f"Seen@{row['ts']}", depth=2)
    source = next(s for s in deep.cause.seen if s.read.state == "rung").sources[0]
    assert source.phase == Phase.DATED_EVENT
    assert source.trace is not None
    assert "Ring dated by event" in deep.text
    assert "writes rung[1]: nothing -> True" in deep.text


def test_the_same_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a log on disk, where the program's own event type is none of the log's."""
    monkeypatch.chdir(tmp_path)
    body = Path(__file__).read_text()
    text = body[body.index("class Hit(") : body.index("def hits(")]
    Path("clock.py").write_text(f"import timelapse as tl\n\n\n{text}")
    tl.Log.from_events("log", hits(60, 4), [Hit])
    assert cli("replay", "clock.py:Clock", "log", "--out", "run", "--local").code == 0
    shown = cli("why-not", "run", "tick@10")
    assert shown.code in (0, 1), shown.err
    assert "   tick" in shown.out
    assert cli("state", "run", "n", "--key", "1", "--at", "20").out.startswith("n[1] = ")
    late = cli("state", "run", "n", "--key", "1", "--at", "9" * 30)
    assert late.err.startswith("TL841")
    assert cli("why-not", "run", "nix@10").err.startswith("TL606")
    seen = cli("why-not", "run", "Hit@3", "--json").json
    assert seen["event"]["phase"] == Phase.LOG_EVENT


class Waits(tl.Program):
    """Nothing happens when a Hit comes, but later."""

    n: tl.Counter[int]

    @tl.on(Hit, after=3)
    def late(self, e: Hit) -> None:
        self.n[e.k] += e.v


def test_an_event_that_only_later_handlers_hear() -> None:
    """No handler begins at its own time: nothing is told of it."""
    run = replay(Waits, MemoryLog([Hit(k=1, v=2, ts=0), Hit(k=1, v=3, ts=9)], [Hit]), spark=False)
    assert trace.event(run, 0).handlers == ()
