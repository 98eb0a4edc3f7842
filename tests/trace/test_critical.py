"""The critical path: known lengths, random programs against pairs of steps, and a recording that misses nothing."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from tests.writers.sources import in_other_times, load_source, random_events, random_program
from timelapse import serial
from timelapse.analysis import analyse
from timelapse.errors import HandlerError, TimelapseError
from timelapse.ids import Phase
from timelapse.log import MemoryLog
from timelapse.model.events import Event
from timelapse.model.order import in_order
from timelapse.program.program import Program, as_program, spec_of
from timelapse.trace.accesses import Access, Accesses, accesses_of
from timelapse.trace.critical import ORDERS, Order, critical_path, longest, ordered_states


class Seen(tl.Event):
    who: int
    n: int


def seen(who: int, ts: int, n: int = 0) -> Event:
    return Seen(who=who, n=n, ts=ts)


class Out(tl.Record, key="who"):
    who: int


def lengths(program: type[Program], events: list[Event]) -> tuple[int, ...]:
    """In the orders of ORDERS."""
    found = accesses_of(as_program(program), in_order(events))
    return tuple(longest(found, order).length for order in ORDERS)


class Blind(tl.Program):
    hits: tl.Counter[int]

    @tl.on(Seen)
    def count(self, e: Any) -> None:
        self.hits[e.who] += 1


def test_adding_waits_only_where_it_does_not_commute() -> None:
    events: list[Event] = [seen(who=n % 3, ts=n) for n in range(12)]
    assert lengths(Blind, events) == (4, 1, 1)


class Told(tl.Program):
    hits: tl.Counter[int]

    @tl.on(Seen)
    def count(self, e: Any) -> None:
        self.hits[e.who] += 1
        if self.hits[e.who] > 2:
            self.emit(Out(who=e.who))


def test_a_read_waits_for_all_writes_but_the_count_does_not_wait_for_the_read() -> None:
    events: list[Event] = [seen(who=n % 3, ts=n) for n in range(12)]
    # By statements: any count, then the event that reads them all.
    assert lengths(Told, events) == (4, 4, 2)


class Last(tl.Program):
    last: tl.Value[int, int] = tl.state(default=0)

    @tl.on(Seen)
    def note(self, e: Any) -> None:
        self.last[e.who] = e.n


class Carried(tl.Program):
    """Depends on itself: no order is shorter than the key's events."""

    mean: tl.Value[int, float] = tl.state(default=0.0)

    @tl.on(Seen)
    def note(self, e: Any) -> None:
        self.mean[e.who] = 0.5 * self.mean[e.who] + e.n


def test_last_writes_compose_and_values_that_carry_on_do_not() -> None:
    events: list[Event] = [seen(who=n % 2, n=n, ts=n) for n in range(10)]
    assert lengths(Last, events) == (5, 1, 1)
    assert lengths(Carried, events) == (5, 5, 5)


class Staged(tl.Program):
    """Three stages: a set, a counter that depends on it, and a rule that depends on the counter."""

    known: tl.Set[int]
    strange: tl.Counter[int]

    @tl.on(Seen)
    def look(self, e: Any) -> None:
        if e.n == 0:
            self.known.add(e.who)
            return
        if e.who in self.known:
            self.strange[e.who % 2] += 1
        if self.strange[e.who % 2] > 0:
            self.emit(Out(who=e.who))


def test_stages_bound_the_path_by_statements() -> None:
    events = [seen(who=n % 6, n=int(n >= 6), ts=n) for n in range(46)]
    # 6 that are known, then 40, of which those of one parity count under one key.
    assert lengths(Staged, events) == (21, 21, 3)


class Crowd(tl.Program):
    members: tl.SetOf[int, int]

    @tl.on(Seen)
    def join(self, e: Any) -> None:
        if e.n < 0:
            if self.members.count(e.who) > 1:
                self.emit(Out(who=e.who))
        else:
            self.members.add(e.who, e.n)


def test_a_read_of_all_under_a_key_waits_for_its_members_alone() -> None:
    events: list[Event] = [
        seen(who=1, n=0, ts=0),
        seen(who=2, n=5, ts=1),
        seen(who=1, n=3, ts=2),
        seen(who=1, n=-1, ts=3),
    ]
    found = accesses_of(as_program(Crowd), in_order(events))
    path = longest(found, "commuting")
    assert path.length == 2
    assert path.links[-1].place == "members[1]"
    assert path.links[0].seq in (0, 2)


class Windowed(tl.Program):
    hits: tl.Counter[int]

    @tl.on(Seen)
    def count(self, e: Any) -> None:
        self.hits[e.who] += 1
        if self.hits.last(5)[e.who] > 1:
            self.emit(Out(who=e.who))


class Refusing(tl.Program):
    hits: tl.Counter[int]

    @tl.on(Seen)
    def count(self, e: Any) -> None:
        self.hits[e.who] += 1
        if e.n:
            self.reject("no")


class Dating(tl.Program):
    hits: tl.Counter[int]
    total: tl.Counter

    @tl.on(Seen)
    def count(self, e: Any) -> None:
        self.hits.add(e.who, 1, at=e.ts + 100)
        self.total += 1


def test_windows_rejections_and_dated_writes() -> None:
    events: list[Event] = [seen(who=1, ts=n) for n in range(6)]
    assert lengths(Windowed, events) == (6, 6, 2)
    refused: list[Event] = [seen(who=1, n=1, ts=n) for n in range(6)]
    assert lengths(Refusing, refused)[0] == 1
    # The dated write follows the step that issued it; in order, each also follows the one before.
    dated: list[Event] = [seen(who=1, ts=0), seen(who=1, ts=200)]
    assert lengths(Dating, dated) == (2, 2, 2)


def test_what_a_path_tells() -> None:
    events: list[Event] = [seen(who=1, ts=n) for n in range(4)]
    path = longest(accesses_of(as_program(Told), in_order(events)), "commuting")
    assert [link.seq for link in path.links] == [0, 1, 2, 3]
    assert path.keys() == [("hits[1]", 3)]
    ((wrote, used, count),) = path.lines()
    assert count == 3
    text = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert text[int(wrote.rpartition(":")[2]) - 1].strip() == "self.hits[e.who] += 1"
    assert text[int(used.rpartition(":")[2]) - 1].strip() == "if self.hits[e.who] > 2:"
    assert path.parallelism == 1.0


# --- random programs ------------------------------------------------------------------------------------


def random_accesses(seed: int) -> tuple[Accesses, list[Event]] | None:
    rng = random.Random(seed)
    text = random_program(rng, size=3)
    if seed % 3 == 0:
        text = in_other_times(rng, text)
    program = load_source(text)
    if not spec_of(program).events:
        return None
    events = list(in_order(random_events(program, rng, 20)))
    try:
        return accesses_of(as_program(program), events), events
    except HandlerError:
        return None


def _meet(found: Accesses, a: Access, b: Access) -> bool:
    """Whether two accesses are to the same thing."""
    if a.state != b.state:
        return False
    if a.place < 0 or b.place < 0 or a.place == b.place:
        return True
    groups = found.places[a.place].group, found.places[b.place].group
    return (groups[0] == b.place or groups[1] == a.place) and groups[0] == groups[1]


def by_pairs(found: Accesses, order: Order) -> int:
    """The definition, pair by pair: the longest chain of steps."""
    ordered = [True] * len(found.states) if order == "in order" else ordered_states(found)
    steps = found.steps
    needs: dict[str, frozenset[str]] = {}
    if order == "statements":
        analysis = analyse(found.program)
        for component in analysis.components:
            whole = frozenset(n for s in component for n in analysis.facts[s].depends_on)
            needs |= dict.fromkeys(component, whole)
    part = {s: c for c in analyse(found.program).components for s in c}

    # A node is a step with a component that it writes, or with what it puts out; as a whole, a step is one node.
    def nodes_of(at: int) -> list[Any]:
        if order != "statements":
            return ["whole"]
        wrote = {part[found.states[a.state]] for a in steps[at].accesses if a.writes}
        return [*wrote, "out"]

    def uses(at: int, node: Any) -> list[Access]:
        """The accesses for which a node waits."""
        chosen = []
        for a in steps[at].accesses:
            name = found.states[a.state]
            if node == "whole":
                waits = a.reads or ordered[a.state]
            elif node == "out":
                waits = a.reads
            else:
                waits = (a.reads and name in needs[node[0]]) or (
                    a.writes and name in node and ordered[a.state]
                )
            if waits:
                chosen.append(a)
        return chosen

    def writes(at: int, node: Any) -> list[Access]:
        return [
            a for a in steps[at].accesses if a.writes and (node == "whole" or found.states[a.state] in node)
        ]

    @cache
    def depth(at: int, node: Any) -> int:
        best = 1
        used = uses(at, node)
        for earlier in range(at):
            for other in nodes_of(earlier):
                if any(_meet(found, w, u) for w in writes(earlier, other) for u in used):
                    best = max(best, 1 + depth(earlier, other))
        if steps[at].phase in (Phase.DATED_WRITE, Phase.DATED_EVENT):
            before = [n for n in range(at) if steps[n].root == steps[at].root]
            if before:
                best = max(best, 1 + max(depth(before[-1], other) for other in nodes_of(before[-1])))
        if order == "statements":
            names = [n for n in nodes_of(at) if n != node and n != "out"]
            for other in names:
                if node == "out" or (_before(other, node) and _flows(at, other, node)):
                    best = max(best, depth(at, other))
        return best

    def _before(a: Any, b: Any) -> bool:
        components = list(analyse(found.program).components)
        return components.index(a) < components.index(b)

    def _flows(at: int, a: Any, b: Any) -> bool:
        """Whether the step writes to `a` what it then reads for `b`."""
        seen: list[Access] = []
        for access in steps[at].accesses:
            name = found.states[access.state]
            if (
                access.reads
                and name in needs[b[0]]
                and name in a
                and any(_meet(found, w, access) for w in seen)
            ):
                return True
            if access.writes and name in a:
                seen.append(access)
        return False

    return max((depth(at, node) for at in range(len(steps)) for node in nodes_of(at)), default=0)


def test_random_programs_have_the_length_that_pairs_give() -> None:
    tried = longer = 0
    for seed in range(36):
        made = random_accesses(seed)
        if made is None:
            continue
        tried += 1
        for order in ORDERS:
            path = longest(made[0], order)
            assert path.length == by_pairs(made[0], order), (seed, order)
            assert len(path.links) == path.length, (seed, order)
            longer += path.length > 2
    assert tried > 12
    assert longer > 12


def test_the_recording_misses_no_key_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stores are asked for is what was recorded; outputs and states are those of the loop."""
    told: list[tuple[str, Any]] = []
    for name in ("put", "drop"):
        plain = getattr(serial.DictStore, name)

        def telling(self: Any, key: Any, *rest: Any, _plain: Any = plain) -> None:
            before = self.data.get(key)
            _plain(self, key, *rest)
            if self.data.get(key) != before:
                told.append((id(self.data), key))  # type: ignore[arg-type]

        monkeypatch.setattr(serial.DictStore, name, telling)
    loops: list[serial.Loop] = []
    init = serial.Loop.__init__

    def kept(self: serial.Loop, *given: Any) -> None:
        init(self, *given)
        loops.append(self)

    monkeypatch.setattr(serial.Loop, "__init__", kept)
    seen = 0
    for seed in range(24):
        told.clear()
        loops.clear()
        made = random_accesses(seed)
        if made is None:
            continue
        found, events = made
        names = {id(data): name for name, data in loops[0].outcome.states.items()}
        written = {
            (found.states[a.state], found.places[a.place].key)
            for step in found.steps
            for a in step.accesses
            if a.writes
        }
        rejected = any(h in Path(f.file).read_text() for f in found.lines for h in ("reject(",))
        for data, key in told:
            name = names[data]  # type: ignore[index]
            whole = {k for s, k in written if s == name and getattr(k, "holds", lambda _: False)(key)}
            assert rejected or (name, key) in written or whole, (seed, name, key)
            seen += not rejected
        plain = serial.Loop(found.program)
        for event in events:
            plain.step(event)
        assert repr(plain.outcome.states) == repr(loops[0].outcome.states), seed
    assert seen > 40


# --- over logs and at the command line ------------------------------------------------------------------


def test_a_log_and_its_first_events() -> None:
    events: list[Event] = [seen(who=1, ts=n) for n in range(20)]
    log = MemoryLog(events, [Seen])
    found = critical_path(Told, _Counted(log), events=5)
    assert (found.events, found.of) == (5, 20)
    assert found.path("commuting").length == 5
    assert "the first 5 of 20 events" in found.text()[0]
    assert critical_path(Told, _Counted(log), events=0).path("in order").length == 20
    with pytest.raises(TimelapseError, match="TL730"):
        critical_path(Told, _Counted(log), events=-1)


class _Counted:
    """A log of events in memory that counts them."""

    def __init__(self, log: MemoryLog) -> None:
        self.reader = log

    def info(self) -> Any:
        class Info:
            types = [type("T", (), {"name": "Seen", "count": self.reader.count})()]

        return Info()


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text(
        "import timelapse as tl\n\n\nclass Seen(tl.Event):\n    who: int\n\n\nclass P(tl.Program):\n    hits: tl.Counter[int]\n\n"
        "    @tl.on(Seen)\n    def count(self, e):\n        self.hits[e.who] += 1\n",
        encoding="utf-8",
    )
    (tmp_path / "seen.csv").write_text(
        "ts,who\n" + "".join(f"{n},{n % 2}\n" for n in range(10)), encoding="utf-8"
    )
    program = f"{tmp_path / 'rules.py'}:P"
    log = str(tmp_path / "log")
    assert (
        cli(
            "ingest",
            str(tmp_path / "rules.py"),
            log,
            f"Seen={tmp_path / 'seen.csv'}",
            "--ts",
            "ts",
            "--unit",
            "us",
        ).code
        == 0
    )
    shown = cli("explain", program, log, "--critical-path")
    assert shown.code == 0
    assert "length 5: at most 2.0 times" in shown.out
    assert shown.err.index("events one by one: 10 events") < shown.err.index("looking for the longest chains")
    found = json.loads(cli("explain", program, log, "--critical-path", "--events", "4", "--json").out)
    assert [p["length"] for p in found["critical_path"]["paths"]] == [2, 1, 1]
    assert found["critical_path"]["of"] == 10
    refused = cli("explain", program, "--critical-path")
    assert refused.code == 2
    assert "TL730" in refused.err


def test_states_of_a_program_are_all_recorded() -> None:
    """Each state has a number, in the order of declaration."""
    found = accesses_of(as_program(Staged), [])
    assert found.states == list(spec_of(Staged).declared)
