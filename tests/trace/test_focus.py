"""A few keys from the events that matter: what the serial loop says, for programs as they come."""

from __future__ import annotations

import ast
import random
import subprocess
import sys
from typing import Any

import pytest

import timelapse as tl
from tests.depth import deep
from tests.patience import LONG
from tests.trace.programs import Antispam, Friendship, Message, pair
from tests.trace.test_event import messages
from tests.trace.test_why import Derived, all_writes
from tests.writers.sources import load_source, random_events, random_program
from timelapse.analysis.origins import Origins, origins
from timelapse.kinds.base import ABSENT
from timelapse.log import MemoryLog
from timelapse.program.load import load_program
from timelapse.program.program import spec_of
from timelapse.run import Run, replay
from timelapse.trace import focus as focus_module
from timelapse.trace import matter as matter_module
from timelapse.trace.event import events
from timelapse.trace.focus import Focus
from timelapse.trace.knowledge import Unfocused
from timelapse.trace.moments import Past
from timelapse.trace.steps import MISSING


class Chained(tl.Program):
    """Two writes of a state per event; a key that another state holds; a helper that hides where a key comes from."""

    degree: tl.Counter[int]
    leader: tl.Value[int, int] = tl.state(default=0)
    score: tl.Value[int, float] = tl.state(default=0.0)
    hits: tl.Counter[tuple[int, int]]

    @tl.on(Friendship)
    def meet(self, e: Friendship) -> None:
        self.degree[e.a] += 1
        self.degree[e.b] += 1
        if self.degree[e.a] > 3:
            self.leader[e.b] = e.a

    @tl.on(Message)
    def rate(self, m: Message) -> None:
        boss = self.leader[m.sender]
        self.score[m.sender] = self.score[m.sender] * 0.5 + self.degree[boss]
        self.hits[pair(m.sender, m.recipient)] += 1
        if self.score[boss] > 100.0:
            self.reject("too much")


def check(program: type[tl.Program], run: Run, events: list[tl.Event], ends: list[int]) -> tuple[int, int]:
    """Every key that was ever written, before some events: all its changes and its value. Tells (found, unfocused)."""
    past = Past(run)
    counts = [0, 0]
    for end in ends:
        changes = all_writes(program, [e for e in events if e.seq < end or e.seq is None][:end])
        slice_id = past.slice_of(end - 1)
        lo = past.cuts[slice_id]
        for place, wanted in changes.items():
            try:
                wrote, last = past.focus(slice_id, end).writes([place])
            except Unfocused:
                counts[1] += 1
                continue
            mine = [
                (w.seq, w.before, w.after)
                for w in wrote[place][::-1]
                if (w.before is ABSENT) != (w.after is ABSENT) or w.before != w.after
            ]
            sides = [(w.seq, *(ABSENT if x is MISSING else x for x in (w.before, w.after))) for w in wanted]
            assert mine == [s for s in sides if s[0] >= lo], (place, end)
            assert last[place] == sides[0][2], (place, end)
            counts[0] += 1
    return counts[0], counts[1]


@pytest.mark.parametrize("program", [Antispam, Derived, Chained])
@pytest.mark.parametrize("slices", [1, 3])
def test_a_few_keys_are_what_the_serial_loop_says(program: type[tl.Program], slices: int) -> None:
    """Keys of fields, of pairs in either order, computed ones, and those that another state holds."""
    events = messages(90, seed=7)
    run = replay(program, MemoryLog(events, [Message, Friendship]), slices=slices, spark=False)
    numbered = [e._at(e.ts, i) for i, e in enumerate(events)]
    found, unfocused = check(program, run, numbered, [90, 61, 30])
    assert found > 30
    assert unfocused == 0


def test_random_programs() -> None:
    """Of programs that are written at random: what can be told is right, and it can be told of many."""
    found = unfocused = 0
    for seed in range(deep(12)):
        rng = random.Random(seed)
        program = load_source(random_program(rng, size=4))
        events = random_events(program, rng, 60)
        try:
            run = replay(program, MemoryLog(events), slices=2, spark=False)
        except tl.TimelapseError:
            continue  # a handler fails: there is no run
        numbered = [e._at(e.ts, i) for i, e in enumerate(events)]
        some, none = check(program, run, numbered, [len(events), len(events) // 2])
        found, unfocused = found + some, unfocused + none
    assert found > deep(60)
    assert found > unfocused


def test_many_events_take_as_many_rounds_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What all of them read that is not known yet is asked for together; each is told as it is alone."""
    messages_ = messages(90, seed=7)
    run = replay(Chained, MemoryLog(messages_, [Message, Friendship]), slices=1, spark=False)
    seqs = [n for n, e in enumerate(messages_) if type(e) is Message]
    alone = [repr(events(run, [seq])[seq]) for seq in seqs]

    def walk(*_: Any) -> None:
        raise AssertionError("the slice was gone through")

    monkeypatch.setattr(Past, "walk", walk)
    monkeypatch.setattr(matter_module, "_ROUNDS", 12)
    assert len(seqs) > 30
    assert [repr(found) for found in events(run, seqs).values()] == alone


def test_the_slice_is_gone_through_where_too_many_events_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same answers; and it is not gone through where few do."""
    events = messages(90, seed=5)
    run = replay(Antispam, MemoryLog(events, [Message, Friendship]), slices=2, spark=False)
    asked = [t["seq"] for t in run.table("Spam").to_pylist()][-3:]
    assert asked
    walks: list[int] = []
    walk = Past.walk

    def watched(self: Past, slice_id: int, stops: Any, visit: Any, **given: Any) -> None:
        walks.append(slice_id)
        walk(self, slice_id, stops, visit, **given)

    monkeypatch.setattr(Past, "walk", watched)
    quick = [run.why(seq, depth=2).text for seq in asked]
    histories = [run.history("to_others", 1), run.history("total"), run.history("sent", "::1", at=20, last=2)]
    assert walks == []
    monkeypatch.setattr(focus_module, "MOST", -1)
    assert [run.why(seq, depth=2).text for seq in asked] == quick
    again = [run.history("to_others", 1), run.history("total"), run.history("sent", "::1", at=20, last=2)]
    assert [h.text for h in again] == [h.text for h in histories]
    assert walks


def test_a_question_that_was_too_much_spoils_no_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy key is asked about together with others, then each alone: the others get what the serial loop says."""
    events = messages(90, seed=5)
    past = Past(replay(Antispam, MemoryLog(events, [Message, Friendship]), spark=False))
    changes = all_writes(Antispam, events[:80])
    few = [p for p in changes if p[0] == "friends"]
    monkeypatch.setattr(focus_module, "MOST", 40)
    for places in ([("total", ()), *few], [("total", ())]):
        with pytest.raises(Unfocused):
            past.focus(0, 80).writes(places)
    for place in few:
        wrote, _ = past.focus(0, 80).writes([place])
        mine = [w.seq for w in wrote[place] if w.before is ABSENT or w.before != w.after]
        assert mine == [w.seq for w in reversed(changes[place])], place
    assert len(few) > 3


LIMIT = 3


def other(a: int, b: int) -> int:
    """Either of them, by way of locals and tests."""
    c = a
    if a > LIMIT:
        c, d = b, a
    elif b:
        d = c
    else:
        return max(a, b)
    return d


@pytest.mark.parametrize(
    ("key", "width", "wanted"),
    [
        ("e.a", None, [{"a"}]),
        ("pair(e.a, e.b)", 2, [{"a", "b"}, {"a", "b"}]),
        ("(e.a, self.limit)", 2, [{"a"}, {5}]),
        ("(other(e.a, e.b), e.c)", 2, [{"a", "b"}, {"c"}]),
        ("min(e.a, 7)", None, [{"a", 7}]),
        ("tuple(sorted((e.a, e.b)))", 2, [{"a", "b"}, {"a", "b"}]),
        ("(e.a, e.b)[1]", None, [{"b"}]),
        ("e.a if e.c else e.b", None, [{"a", "b"}]),
        ("e.a + 1", None, [None]),
        ("(e.ts // 60, e.a)", 2, [None, {"a"}]),
        ("abs(e.a)", None, [None]),
        ("random.choice((e.a, e.b))", None, [None]),
    ],
)
def test_from_which_fields_a_key_can_come(key: str, width: int | None, wanted: list[set[Any] | None]) -> None:
    """Through helpers, choices and tuples; anything else can be anything."""
    tree = ast.parse(key, mode="eval").body
    found = origins(tree, width, {"limit": 5}, globals())
    assert [None if p is None else p.fields | set(p.constants) for p in found] == wanted
    assert found[0] is None or isinstance(found[0], Origins)


COMMANDS = {
    "--help": {"numpy", "pyarrow", "timelapse.model", "timelapse.cli.run_commands.nothing"},
    "why": {
        "numba",
        "pandas",
        "pyspark",
        "timelapse.engine.driver",
        "timelapse.plan",
        "timelapse.cli.diff_command",
    },
    "state": {
        "numba",
        "pandas",
        "pyspark",
        "timelapse.engine.driver",
        "timelapse.plan",
        "timelapse.cli.diff_command",
    },
}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_short_commands_import(command: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Looking something up needs no compiler, no planner and no data frames; help needs no tables."""
    folder = tmp_path_factory.mktemp("short")
    asked = {"why": ["why", "run", "Seen:3"], "state": ["state", "run", "n", "--key", "1", "--at", "5"]}
    (folder / "p.py").write_text(PROGRAM)
    code = (
        "import atexit, sys\n"
        f"sys.argv = ['timelapse', *{asked.get(command, [command])!r}]\n"
        "from timelapse.cli.main import main\n"
        "atexit.register(lambda: print('MODULES', *sys.modules))\n"
        "main()\n"
    )
    if command in asked:
        program = load_program(f"{folder / 'p.py'}:Count")
        hit: Any = spec_of(program).events[0]
        log = tl.Log.from_events(folder / "log", [hit(k=i % 5, ts=i) for i in range(40)])
        replay(program, log, out=folder / "run", spark=False)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True, timeout=LONG
    )
    loaded = set(done.stdout.split("MODULES")[1].split())
    assert {m for m in COMMANDS[command] if m in loaded} == set(), done.stdout


PROGRAM = """
import timelapse as tl

class Hit(tl.Event):
    k: int

class Seen(tl.Record, key="k"):
    k: int

class Count(tl.Program):
    n: tl.Counter[int]

    @tl.on(Hit)
    def count(self, e):
        self.n[e.k] += 1
        if self.n[e.k] == 2:
            self.emit(Seen(k=e.k))
"""


class Moved(tl.Event):
    source: int
    target: int


class Chain(tl.Program):
    """What is written depends on what stands under a key that another state tells."""

    at: tl.Value[int, int] = tl.state(default=0)
    sums: tl.Value[int, int] = tl.state(default=1)

    @tl.on(Moved)
    def move(self, e: Moved) -> None:
        self.sums[e.target] = self.sums[self.at[e.source]] + 1
        self.at[e.source] = e.target


def test_of_a_long_stretch_it_is_soon_given_up_to_find_reads_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And not begun again for the same states: the slice is gone through, with the same answers."""
    rng = random.Random(5)
    moves = [Moved(source=rng.randrange(30), target=rng.randrange(30), ts=n) for n in range(300)]
    run = replay(Chain, MemoryLog(moves, [Moved]), slices=1, spark=False)
    asked = [run.history("sums", key, last=5).text for key in range(6)]
    monkeypatch.setattr(matter_module, "_LONG", 100)
    attempts = 0
    attempt = Focus._run

    def counting(self: Focus, *args: Any) -> Any:
        nonlocal attempts
        attempts += 1
        return attempt(self, *args)

    monkeypatch.setattr(Focus, "_run", counting)
    past = Past(run)
    for key in range(6):
        places = [("sums", key)]
        with pytest.raises(Unfocused, match="too deeply"):
            past.focus(0, 300).writes(places)
        assert "sums" in past.deep
    assert attempts == 6 + 5
    assert [run.history("sums", key, last=5).text for key in range(6)] == asked


class Suspicion(tl.Event):
    id: int
    sender: int


class Suspecting(tl.Program):
    """What is sent has its fields from an event that its handler calls `m`."""

    suspicions: tl.Counter[int]

    @tl.on(Message)
    def judge(self, m: Message) -> None:
        if m.id % 3:
            self.send(Suspicion(id=m.id, sender=m.sender))

    @tl.on(Suspicion)
    def suspect(self, s: Suspicion) -> None:
        self.suspicions[s.sender] += s.id


@pytest.mark.parametrize("slices", [1, 3])
def test_a_key_that_an_event_sends_is_of_that_event(slices: int) -> None:
    """By the events that matter, which analysis tells by the sender's fields."""
    given = messages(90, seed=7)
    run = replay(Suspecting, MemoryLog(given, [Message, Friendship]), slices=slices, spark=False)
    (pattern,) = (p for p in Past(run).knowledge.writers_of("suspicions") if p.type == "Message")
    assert pattern.parts == (Origins(frozenset({"sender"})),)
    numbered = [e._at(e.ts, i) for i, e in enumerate(given)]
    found, unfocused = check(Suspecting, run, numbered, [90, 61, 30])
    assert found > 10
    assert unfocused == 0


class Paired(tl.Program):
    """Things under declared keys, asked for one by one."""

    met: tl.SetOf[int, int]
    seen: tl.MapOf[int, int, int] = tl.state(default=0)
    again: tl.Counter[int]

    @tl.on(Message)
    def meet(self, m: Message) -> None:
        if (m.recipient, m.sender) in self.met:
            self.again[m.sender] += 1
            self.met.discard(m.recipient, m.sender)
        self.met.add(m.sender, m.recipient)
        self.seen[m.sender, m.recipient] += self.again[m.recipient]


@pytest.mark.parametrize("slices", [1, 3])
def test_what_stands_under_keys_is_told_one_by_one(slices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the events that matter: no slice is gone through for pairs that are put in, taken out and looked up."""
    given = messages(90, seed=7)
    run = replay(Paired, MemoryLog(given, [Message, Friendship]), slices=slices, spark=False)
    numbered = [e._at(e.ts, i) for i, e in enumerate(given)]
    found, unfocused = check(Paired, run, numbered, [90, 61, 30])
    assert found > 30
    assert unfocused == 0
    asked = [n for n, e in enumerate(given) if type(e) is Message][-8:]

    def answers() -> list[str]:
        return [run.why_not(seq, depth=2).text for seq in asked]

    with monkeypatch.context() as patch:
        patch.setattr(focus_module, "MOST", -1)
        wanted = answers()

    def walk(*_: Any, **__: Any) -> None:
        raise AssertionError("the slice was gone through")

    monkeypatch.setattr(Past, "walk", walk)
    assert answers() == wanted
