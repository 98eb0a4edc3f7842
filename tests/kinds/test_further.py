"""Mean, SetOf, MapOf, ListOf, Smoothed, Decayed: meaning, deltas, replay, what users see."""

from __future__ import annotations

import random
from collections import Counter, deque
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.analysis.test_passes import check_interference, check_passes
from tests.depth import deep
from tests.writers.sources import load_source, random_events, random_program
from timelapse import serial
from timelapse.errors import DefinitionError, IntRange, PlanError, TypeMismatch
from timelapse.kernels.python.stores import NullStore, PlainStore, TrackedStore
from timelapse.kinds.base import StateOptions, StateSpec
from timelapse.kinds.effects import Journal, undo
from timelapse.plan import make_plan
from timelapse.program.program import spec_of
from timelapse.run import replay
from timelapse.serial import DictStore
from timelapse.tables.apply import apply, changes_table, empty
from timelapse.tables.lookup import LazyDict, MappedTable
from timelapse.tables.table import effect_table, state_table, to_dict
from timelapse.testing import Harness, assert_same, check_replay, random_log

Op = tuple[str, tuple[Any, ...]]
KEYS = st.integers(0, 2)
INTS = st.integers(-3, 3)
ANY = StateOptions()


def declare(kind: Any, *args: Any, **options: Any) -> StateSpec:
    spec: StateSpec = kind.declare("s", args, StateOptions(**options), None)
    return spec


# Per kind: the declaration, and its operations as (method, effect, arguments -> arguments of the effect).
PAIR = st.tuples(KEYS, st.sampled_from(["", "a", "é"]))
KINDS: dict[str, tuple[StateSpec, dict[str, tuple[str, Any, Any]]]] = {
    "mean": (declare(tl.Mean, int), {
        "add": ("_e_more", st.tuples(KEYS, INTS), None),
        "remove": ("_e_less", st.tuples(KEYS, INTS), None),
        "__delitem__": ("_e_del", st.tuples(KEYS), None),
    }),
    "setof": (declare(tl.SetOf, int, tuple[int, str]), {
        "add": ("_e_set", st.tuples(KEYS, PAIR), lambda k, m: ((k, m),)),
        "discard": ("_e_del", st.tuples(KEYS, PAIR), lambda k, m: ((k, m),)),
    }),
    "mapof": (declare(tl.MapOf, tuple[int, str], bool, int, default=2), {
        "__setitem__": ("_e_set", st.tuples(st.tuples(PAIR, st.booleans()), INTS), None),
        "__delitem__": ("_e_del", st.tuples(st.tuples(PAIR, st.booleans())), None),
        "setdefault": ("_e_first", st.tuples(st.tuples(PAIR, st.booleans()), INTS), None),
    }),
    "listof": (declare(tl.ListOf, int, int | None, last=3), {
        "append": ("_e_append", st.tuples(KEYS, INTS | st.none()), None),
        "__delitem__": ("_e_del", st.tuples(KEYS), None),
    }),
    "times": (declare(tl.ListOf, tl.Time), {
        "append": ("_e_append", st.tuples(st.integers(0, 2**40)), lambda v: ((), v)),
    }),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=deep(30))
@given(data=st.data())
def test_deltas_and_composition(name: str, data: st.DataObject) -> None:
    """Slices' deltas, applied one after the other, are the state; undone events leave no trace; hashes agree."""
    spec, methods = KINDS[name]
    one = st.sampled_from(sorted(methods)).flatmap(lambda m: st.tuples(st.just(m), methods[m][1]))
    slices = data.draw(st.lists(st.lists(st.tuples(one, st.booleans()), max_size=8), max_size=4))
    journal: Journal = []
    store = DictStore(journal)
    state: Any = spec.kind(spec, store)
    table = empty(spec)
    for ops in slices:
        pending: Journal = []
        delta: Any = spec.kind.delta(spec, pending)
        before = dict(store.data)
        for (method, args), rejected in ops:
            journal.clear()
            pending.clear()
            effect, _, convert = methods[method]
            getattr(state, method)(*args)
            getattr(delta, effect)(*(args if convert is None else convert(*args)))
            if rejected:
                undo(journal)
                undo(pending)
        table, change = apply(spec, table, effect_table(delta))
        assert to_dict(spec, table) == store.data
        assert table.equals(state_table(spec, store.data.items()))
        touched = {k: before.get(k, tl.kinds.base.ABSENT) for k in {**before, **store.data}}
        assert changes_table(spec, touched, store.data, tl.kinds.base.ABSENT)[1] == change


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "discard", "clear", "read", "all"]), KEYS, KEYS, st.booleans()),
        max_size=25,
    )
)
@settings(max_examples=deep(40))
def test_the_index_of_members_follows_every_write_and_every_undo(
    ops: list[tuple[str, int, int, bool]],
) -> None:
    spec = declare(tl.SetOf, int, int)
    journal: Journal = []
    state: Any = tl.SetOf(spec, DictStore(journal))
    expected: dict[int, set[int]] = {}
    for op, k, m, rejected in ops:
        journal.clear()
        saved = {key: set(members) for key, members in expected.items()}
        if op == "add":
            state.add(k, m)
            expected.setdefault(k, set()).add(m)
        elif op == "discard":
            state.discard(k, m)
            expected.get(k, set()).discard(m)
        elif op == "clear":
            del state[k]
            expected.pop(k, None)
        elif op == "read":
            assert state[k] == tuple(sorted(expected.get(k, ())))
        else:
            assert state.items() == sorted((a, b) for a, members in expected.items() for b in members)
        if rejected:
            undo(journal)
            expected = saved
        assert ((k, m) in state) == (m in expected.get(k, ()))
    assert [state.count(k) for k in range(3)] == [len(expected.get(k, ())) for k in range(3)]


def test_members_of_a_state_that_lies_in_a_file_are_all_found() -> None:
    spec = declare(tl.SetOf, str, int)
    data = {("a", 1): True, ("a", 2): True, ("b", 1): True}
    store = TrackedStore(LazyDict(MappedTable(spec, state_table(spec, data.items()))), [])
    state: Any = tl.SetOf(spec, store)
    state.discard("a", 2)
    assert (("a", 1) in state, ("a", 2) in state, state["a"], state.count("b")) == (True, False, (1,), 1)
    assert store.before == {("a", 2): True}
    plain: Any = tl.SetOf(spec, PlainStore(dict(data)))
    assert plain["a"] == (1, 2)
    del plain["a"]
    assert plain.items() == [("b", 1)]
    nothing: Any = tl.SetOf(spec, NullStore())
    nothing.add("a", 1)
    assert nothing["a"] == ()


# --- the meaning, against plain Python ------------------------------------------------------------


class Tick(tl.Event):
    k: int
    v: int
    f: float
    on: bool


class Seen(tl.Record):
    mean: float | None
    smoothed: float | None
    by_time: float
    decayed: float
    last: list[int]
    top: int
    members: list[int]
    fields: int
    oldest: int | None
    waiting: int


class Everything(tl.Program):
    mean: tl.Mean[int]
    smoothed: tl.Smoothed[int] = tl.state(alpha=0.25)
    by_time: tl.Smoothed[int] = tl.state(half_life=tl.SECOND, default=-1.0)
    decayed: tl.Decayed[int] = tl.state(half_life=3 * tl.SECOND)
    last: tl.ListOf[int, int] = tl.state(last=2)
    queue: tl.ListOf[int]
    members: tl.SetOf[int, int]
    fields: tl.MapOf[int, bool, int] = tl.state(default=0)

    @tl.on(Tick)
    def note(self, e: Tick) -> None:
        self.mean.add(e.k, e.v)
        self.smoothed.add(e.k, e.f)
        self.by_time.add(e.k, e.f)
        self.decayed.add(e.k, e.v)
        self.last.append(e.k, e.v)
        self.queue.append(e.v)
        if e.on:
            self.members.add(e.k, e.v)
        else:
            self.members.discard(e.k, e.v)
        self.fields[e.k, e.on] += e.v
        oldest = self.queue.pop() if e.on else None
        if e.v == 3:
            self.fields.clear(e.k)
        if e.v == 2 and e.on:
            self.reject("two")
        other = (e.k + 1) % 4
        self.emit(Seen(
            mean=self.mean[other], smoothed=self.smoothed[other], by_time=self.by_time[other],
            decayed=self.decayed[other], last=list(self.last[e.k]), top=self.decayed.top(1)[0][0],
            members=list(self.members[e.k]), fields=sum(v for _, v in self.fields.fields(e.k)), oldest=oldest,
            waiting=self.queue.count(),
        ))  # fmt: skip


def oracle(events: list[Tick]) -> list[Seen]:
    """The same in dicts, from the definitions."""
    seen: list[Tick] = []
    queue: deque[int] = deque()
    smoothed: dict[int, float] = {}
    weighed: dict[int, tuple[float, float, int]] = {}
    counts: dict[int, tuple[float, int]] = {}
    members: dict[int, set[int]] = {}
    fields: dict[int, Counter[bool]] = {}
    out = []
    for e in events:
        if e.v == 2 and e.on:
            continue
        seen.append(e)
        smoothed[e.k] = smoothed[e.k] + 0.25 * (e.f - smoothed[e.k]) if e.k in smoothed else e.f
        s, w, t = weighed.get(e.k, (0.0, 0.0, e.ts))
        d = 2.0 ** -((e.ts - t) / tl.SECOND)
        weighed[e.k] = (s * d + e.f, w * d + 1.0, e.ts)
        c, t = counts.get(e.k, (0.0, e.ts))
        counts[e.k] = (c * 2.0 ** -((e.ts - t) / (3 * tl.SECOND)) + e.v, e.ts)
        queue.append(e.v)
        oldest = queue.popleft() if e.on else None
        mine = members.setdefault(e.k, set())
        (mine.add if e.on else mine.discard)(e.v)
        fields.setdefault(e.k, Counter())[e.on] += e.v
        if e.v == 3:
            fields[e.k] = Counter()
        o = (e.k + 1) % 4
        values = [x.v for x in seen if x.k == o]
        left = {k: c * 2.0 ** -((e.ts - t) / (3 * tl.SECOND)) for k, (c, t) in counts.items()}
        out.append(Seen(
            mean=sum(values) / len(values) if values else None, smoothed=smoothed.get(o),
            by_time=weighed[o][0] / weighed[o][1] if o in weighed else -1.0, decayed=left.get(o, 0.0),
            last=[x.v for x in seen if x.k == e.k][-2:], top=min(left, key=lambda k: (-left[k], k)),
            members=sorted(mine), fields=sum(fields[e.k].values()), oldest=oldest, waiting=len(queue),
        ))  # fmt: skip
    return out


@pytest.fixture(scope="module")
def ticks() -> list[Tick]:
    made = random_log([Tick], seed=7, count=34, values={"f": [0.1, 2.0, -1.5, 1e9]})
    return [e for e in made if isinstance(e, Tick)]


@pytest.fixture(scope="module")
def reference(ticks: list[Tick]) -> tl.Run:
    return check_replay(Everything, ticks, slices=(1, 3))


def test_the_kinds_mean_what_they_say(ticks: list[Tick], reference: tl.Run) -> None:
    found = serial.run(Everything, ticks)
    assert [o.record for o in found.outputs] == oracle(ticks)
    assert found.refused
    assert reference.counts == {"Seen": len(found.outputs)}


def test_states_are_shown_by_key(reference: tl.Run) -> None:
    def columns(name: str) -> list[str]:
        return reference.state(name).column_names  # type: ignore[no-any-return]

    assert columns("members") == ["key", "member"]
    assert columns("fields") == ["key", "field", "value"]
    assert columns("mean") == ["key", "value", "sum", "count"]
    assert columns("by_time") == columns("decayed") == ["key", "value", "at"]
    assert columns("smoothed") == columns("last") == ["key", "value"]
    for row in reference.state("mean").to_pylist():
        assert row["value"] == row["sum"] / row["count"]
    assert all(len(row["value"]) <= 2 for row in reference.state("last").to_pylist())


def test_a_published_run_shows_them_without_the_program(
    ticks: list[Tick], reference: tl.Run, tmp_path: Path
) -> None:
    replay(Everything, ticks, out=tmp_path / "run", slices=2, spark=False)
    again = tl.Run.open(tmp_path / "run")
    for name in ("mean", "smoothed", "by_time", "decayed", "last", "queue", "members", "fields"):
        assert again._manifest.states  # what follows must not come from a live program
        again._context.program = None
        assert again.state(name).equals(reference.state(name)), name


def test_a_harness_shows_what_is_stored() -> None:
    h = Harness(Everything)
    h.feed(Tick(k=1, v=5, f=0.5, on=False))
    assert h.state("last")[1] == (5,)
    assert h.outputs[0].last == (5,)  # type: ignore[attr-defined]


class Small(tl.Program):
    total: tl.Mean[int]

    @tl.on(Tick)
    def note(self, e: Tick) -> None:
        self.total.add(e.k, 2**62)


def test_a_sum_outside_int64_fails_at_the_event() -> None:
    with pytest.raises(tl.TimelapseError) as failed:
        serial.run(Small, [Tick(k=1, v=0, f=0.0, on=True)] * 2)
    assert isinstance(failed.value.__cause__, IntRange)


@pytest.mark.parametrize(
    ("kind", "args", "options", "words"),
    [
        (tl.Mean, (), {}, "Mean\\[Key\\]"),
        (tl.SetOf, (int,), {}, "SetOf\\[Key, Member\\]"),
        (tl.SetOf, (int, float), {}, "float"),
        (tl.SetOf, (int, int), {"default": 1}, "takes no default"),
        (tl.MapOf, (int, int), {}, "MapOf\\[Key, Field, Value\\]"),
        (tl.MapOf, (int, int, int), {}, "default"),
        (tl.ListOf, (int, tuple[int, int]), {}, "list cannot hold"),
        (tl.ListOf, (int, int), {"last": 0}, "last="),
        (tl.ListOf, (int, int), {"alpha": 0.1}, "takes no alpha="),
        (tl.Smoothed, (int,), {}, "how fast it forgets"),
        (tl.Smoothed, (int,), {"alpha": 0.1, "half_life": 3}, "how fast it forgets"),
        (tl.Smoothed, (int,), {"alpha": 1.5}, "alpha="),
        (tl.Decayed, (int,), {"half_life": 0.5}, "half_life="),
        (tl.Decayed, (int,), {"half_life": 5, "default": 0.0}, "takes no default"),
        (tl.Counter, (int,), {"last": 5}, "takes no last="),
    ],
)
def test_wrong_declarations_are_refused(kind: Any, args: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        declare(kind, *args, **options)


def test_a_key_without_its_member_is_refused() -> None:
    state: Any = tl.SetOf(declare(tl.SetOf, int, int), DictStore([]))
    with pytest.raises(TypeMismatch, match="asked with a pair"):
        assert 5 in state
    for write in (state.add, state.discard):
        with pytest.raises(TypeMismatch, match="nothing that stands under a key") as caught:
            write((5, 6))
        assert "two arguments, as in self." in str(caught.value.hint)


# --- windows --------------------------------------------------------------------------------------


class Window(tl.Record):
    mean: float | None
    members: list[int]
    there: bool
    fields: int
    field: int
    kept: list[int]


class Windows(tl.Program):
    mean: tl.Mean[int]
    members: tl.SetOf[int, int]
    fields: tl.MapOf[int, int, int] = tl.state(default=0)
    kept: tl.ListOf[int, int]

    @tl.on(Tick)
    def note(self, e: Tick) -> None:
        self.mean.add(e.k, e.v)
        if e.on:
            self.members.add(member=e.v, key=e.k)
            self.fields[e.k, e.v] = e.v + 1
        else:
            self.members.discard(e.k, e.v)
            self.fields.pop((e.k, e.v))
        self.kept.append(e.k, e.v)
        if e.v == 3:
            self.reject("three")
        k = (e.k + 1) % 4
        members, fields = self.members.last(2 * tl.SECOND), self.fields.last(2 * tl.SECOND)
        self.emit(Window(
            mean=self.mean.last(2 * tl.SECOND)[k], members=list(members[e.k]), there=(k, 1) in members,
            fields=fields.count(e.k), field=fields[k, 2], kept=list(self.kept.last(2 * tl.SECOND)[k]),
        ))  # fmt: skip


def test_windows_over_what_stands_under_a_key() -> None:
    made = random_log([Tick], seed=3, count=80)
    events = [e for e in made if isinstance(e, Tick)]
    wanted, seen = [], []
    for e in events:
        if e.v == 3:
            continue
        seen.append(e)
        recent = [x for x in seen if e.ts - 2 * tl.SECOND < x.ts]
        other = [x.v for x in recent if x.k == (e.k + 1) % 4]
        state = {(x.k, x.v): x.on for x in recent}  # the last operation on each decides
        mine = sorted(v for (k, v), there in state.items() if k == e.k and there)
        there = {v for (k, v), on in state.items() if k == (e.k + 1) % 4 and on}
        wanted.append(Window(
            mean=sum(other) / len(other) if other else None, members=mine, there=1 in there, fields=len(mine),
            field=3 if 2 in there else 0, kept=other,
        ))  # fmt: skip
    assert [o.record for o in serial.run(Windows, events).outputs] == wanted
    assert_same(serial.run(Windows, events), replay(Windows, events, slices=3, spark=False))


# --- by key ---------------------------------------------------------------------------------------


class Forget(tl.Event):
    k: int
    j: int


class Grouping(tl.Program):
    """Each state depends on itself, through operations on all that is under one key."""

    members: tl.SetOf[int, int]
    pairs: tl.SetOf[tuple[int, int], int]
    fields: tl.MapOf[int, int, int] = tl.state(default=0)
    means: tl.Mean[tuple[int, int]]

    @tl.on(Tick)
    def note(self, e: Tick) -> None:
        if self.members.count(e.k) < 3:
            self.members.add(e.k, e.v)
        self.pairs.add((e.k, e.v), e.v % 2)
        if self.fields.get((e.k, e.v)) < 2:
            self.fields[e.k, e.v] += 1
        if (self.means[e.k, e.v] or 0.0) < 2.0:
            self.means.add((e.k, e.v), e.v)

    @tl.on(Forget)
    def forget(self, e: Forget) -> None:
        if self.pairs.count((e.k, e.j)) > 1:
            del self.pairs[e.k, e.j]
        if self.fields.count(e.k) > 2:
            self.fields.clear(e.k)
        if self.means.count((e.k, e.j)) > 2:
            del self.means[e.k, e.j]


def test_what_stands_under_one_key_goes_to_one_worker() -> None:
    events = random_log([Tick, Forget], seed=2, count=80)
    names = {s.state: s.strategy for s in tl.explain(Grouping).states}
    assert names == dict.fromkeys(["members", "pairs", "fields", "means"], "by key")
    expected = serial.run(Grouping, events)
    for slices in (2, 3):
        run = replay(Grouping, events, slices=slices, spark=False, strategy="by key")
        assert run.certificate["fallback"] is None
        assert_same(expected, run)


# --- random programs ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(deep(12)))
def test_random_programs_with_these_kinds(seed: int) -> None:
    """Passes by deltas and exactly, false reads where nothing depends on them, replays in slices."""
    text = random_program(random.Random(seed), 1 + seed % 4, further=True)
    check_passes(text, seed)
    if seed % 3 == 0:
        check_interference(text, seed)
    elif seed % 3 == 1:
        program = load_source(text)
        events = random_events(program, random.Random(seed + 1), 30)
        expected = serial.run(program, events)
        forced = [{name: "by key"} for name in spec_of(program).states if can_be_shared_out(program, name)]
        strategies: list[Any] = ["staged", "chain", *forced]
        for strategy in strategies:
            run = replay(program, events, slices=3, spark=False, strategy=strategy)
            assert run.certificate["fallback"] is None
            assert_same(expected, run)


def can_be_shared_out(program: type[tl.Program], state: str) -> bool:
    try:
        return bool(make_plan(program, force={state: "by key"}))
    except PlanError:
        return False
