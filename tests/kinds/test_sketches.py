"""Distinct, Quantiles, Frequent: what they estimate, what does not depend on order, replay in slices."""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import deep
from timelapse import serial
from timelapse.errors import DefinitionError, IntRange, NotANumber, TypeMismatch, UsageError
from timelapse.kinds.base import ABSENT, StateOptions, StateSpec
from timelapse.kinds.distinct import DistinctDelta
from timelapse.kinds.effects import Journal, undo
from timelapse.kinds.quantiles import bits_of, bucket_of, middle_of
from timelapse.plan import make_plan
from timelapse.run import replay
from timelapse.serial import DictStore
from timelapse.tables.apply import apply, changes_table, empty
from timelapse.tables.table import effect_table, state_table, to_dict
from timelapse.testing import assert_same, check_replay


def declare(kind: Any, *args: Any, **options: Any) -> StateSpec:
    spec: StateSpec = kind.declare("s", args, StateOptions(**options), None)
    return spec


def state_of(spec: StateSpec, journal: Journal | None = None) -> Any:
    return spec.kind(spec, DictStore(journal if journal is not None else []))


# --- what does not depend on order ----------------------------------------------------------------


SMALL = declare(tl.Distinct, int, int, size=32)


@given(
    members=st.lists(st.integers(0, 300), max_size=150),
    cuts=st.lists(st.integers(0, 120), max_size=3),
    chance=st.randoms(use_true_random=False),
)
@settings(max_examples=deep(30))
def test_a_sketch_has_the_same_bytes_in_any_order_and_any_grouping(
    members: list[int], cuts: list[int], chance: random.Random
) -> None:
    """One after the other; shuffled, with some twice; cut into slices whose sketches are joined, from either side."""

    def sketch(some: list[int]) -> bytes:
        delta = DistinctDelta(SMALL, None)
        for m in some:
            delta._e_sketch(1, m)
        found: list[bytes] = delta.columns()[1]["v"]
        return found[0] if found else b""

    wanted = sketch(members)
    again = [*members, *members[:10]]
    chance.shuffle(again)
    assert sketch(again) == wanted
    edges = [0, *sorted(min(c, len(again)) for c in cuts), len(again)]
    parts = [sketch(again[a:b]) for a, b in itertools.pairwise(edges)]
    joined = b""
    for part in parts:
        joined = tl.Distinct.join(SMALL, joined, part)
    assert joined == wanted
    backwards = b""
    for part in reversed(parts):
        backwards = tl.Distinct.join(SMALL, part, backwards) if part else backwards
    assert backwards == wanted


Slices = list[list[tuple[str, tuple[Any, ...], bool]]]
KEYS = st.just(1) | st.integers(0, 1)
OPERATIONS: dict[str, tuple[StateSpec, st.SearchStrategy[Any], dict[str, str]]] = {
    "distinct": (
        SMALL,
        st.tuples(st.just("add"), st.tuples(KEYS, st.integers(0, 90)), st.booleans())
        | st.tuples(st.just("__delitem__"), st.tuples(KEYS), st.booleans()),
        {"add": "_e_sketch", "__delitem__": "_e_del"},
    ),
    "quantiles": (
        declare(tl.Quantiles, int, error=0.3),
        st.tuples(
            st.sampled_from(["add", "remove"]),
            st.tuples(KEYS, st.sampled_from([0, -0.0, 1, 1.5, -3.0, 1e300, math.inf, -math.inf, 5e-324])),
            st.booleans(),
        ),
        {"add": "_e_more", "remove": "_e_less"},
    ),
}


@pytest.mark.parametrize("name", OPERATIONS)
@given(data=st.data())
@settings(max_examples=deep(15))
def test_deltas_and_composition(name: str, data: st.DataObject) -> None:
    """Slices' deltas, applied one after the other, are the state; undone events leave no trace; hashes agree."""
    spec, operation, effects = OPERATIONS[name]
    slices: Slices = data.draw(st.lists(st.lists(operation, max_size=60), max_size=3))
    journal: Journal = []
    state, table = state_of(spec, journal), empty(spec)
    stored: dict[Any, Any] = state._items.__self__.data
    for ops in slices:
        pending: Journal = []
        delta = spec.kind.delta(spec, pending)
        before = dict(stored)
        for method, args, rejected in ops:
            journal.clear()
            pending.clear()
            getattr(state, method)(*args)
            getattr(delta, effects[method])(*args)
            if rejected:
                undo(journal)
                undo(pending)
        table, change = apply(spec, table, effect_table(delta))
        assert to_dict(spec, table) == stored
        assert table.equals(state_table(spec, stored.items()))
        touched = {k: before.get(k, ABSENT) for k in {**before, **stored}}
        assert changes_table(spec, touched, stored, ABSENT)[1] == change


# --- what they estimate ---------------------------------------------------------------------------


def test_a_distinct_count_is_exact_up_to_its_size_and_near_beyond() -> None:
    state = state_of(declare(tl.Distinct, str, tuple[int, str]))
    for i in range(2_000):
        state.add("few", (i % 1_000, ""))
        state.add("many", (i, "a"))
    assert state["few"] == 1_000.0
    assert state.bounds("few") == (1_000.0, 1_000.0)
    low, high = state.bounds("many")
    assert low < 2_000 < high
    assert abs(state["many"] / 2_000 - 1) < 3 / math.sqrt(1022)
    assert (state["none"], state.bounds("none"), "none" in state) == (0.0, (0.0, 0.0), False)
    assert [k for k, _ in state.items()] == ["few", "many"]
    assert len(state._get("many", b"")) <= 8 * 1024 + 24
    del state["few"]
    assert (state["few"], "few" in state) == (0.0, False)


@pytest.mark.parametrize(
    ("kind", "members"),
    [
        (int, [0, 1, -1, 2**63 - 1, -(2**63)]),
        (bool, [False, True]),
        (str, ["", "0", "s", "é", "\U0001f600", "a\0"]),
        (bytes, [b"", b"\0", b"\0\0", b"\xff", b"\xc3\xbf"]),
        (
            tuple[str, str],
            [("", ""), ("a", ""), ("", "a"), ("1:s", "s"), ("1", ":ss"), ("ab", "c"), ("a", "bc")],
        ),
        (tuple[int, bytes], [(1, b"2"), (12, b""), (1, b"")]),
    ],
)
def test_different_members_count_as_different(kind: Any, members: list[Any]) -> None:
    state = state_of(declare(tl.Distinct, kind))
    for member in members:
        state.add(member)
        state.add(member)
    assert state.get() == len(members)


@given(
    st.lists(st.floats(allow_nan=False), min_size=1, max_size=40), st.sampled_from([0.5, 0.1, 0.01, 0.0001])
)
@example([0.0, -0.0, 5e-324, 1.0], 0.01)
@settings(max_examples=deep(30))
def test_quantiles_are_off_by_no_more_than_the_error(values: list[float], error: float) -> None:
    """Of values as large as floats that are not denormal, at every place, and in order."""
    state = state_of(declare(tl.Quantiles, int, error=error))
    for value in values:
        state.add(7, value)
    assert state.count(7) == len(values)
    found = [
        state.quantile(7, i / max(1, len(values) - 1) + 1e-12 * (i + 1 < len(values)))
        for i in range(len(values))
    ]
    assert found == sorted(found)
    for mine, true in zip(found, sorted(values), strict=True):
        if math.isinf(true):
            assert mine == true
        elif abs(true) >= sys.float_info.min:
            assert abs(mine - true) <= error * abs(true) * (1 + 1e-9)
        else:
            assert abs(mine) <= sys.float_info.min
    for value in values:
        state.remove(7, value)
    assert state._items() == [] or not list(state._items())
    assert state.quantile(7, 0.5) is None


@given(st.floats(allow_nan=False), st.floats(allow_nan=False), st.integers(0, 20))
def test_buckets_are_in_the_order_of_their_values(a: float, b: float, bits: int) -> None:
    if a <= b:
        assert bucket_of(a, bits) <= bucket_of(b, bits)
    assert bucket_of(middle_of(bucket_of(a, bits), bits), bits) in (bucket_of(a, bits), 0)


def test_the_bits_of_an_error() -> None:
    assert [bits_of(e) for e in (0.5, 0.25, 0.01, 1e-6)] == [0, 1, 6, 19]


def test_frequent_members_are_those_that_are_frequent() -> None:
    """Counts are never too low, and too high by no more than the total / size; in small sketches, and where all are alike."""
    dice = random.Random(3)
    for size, members in (
        (64, [int(dice.paretovariate(0.8)) for _ in range(2_000)]), (3, [dice.randrange(9) for _ in range(200)]),
        (4, [i % 5 for i in range(100)]), (1, [1, 1, 2, 2, 2, 3]),
    ):  # fmt: skip
        exact = Counter(members)
        state = state_of(declare(tl.Frequent, str, int, size=size))
        for member in members:
            state.add("all", member)
        error = len(members) / size
        assert state.total("all") == len(members)
        found = dict(state.top("all", 100))
        assert len(found) == min(size, len(exact))
        assert all(exact[m] <= n <= exact[m] + error for m, n in found.items())
        assert {m for m, n in exact.items() if n > error} <= set(found)
        assert state.top("all", 3) == sorted(found.items(), key=lambda row: (-row[1], row[0]))[:3]
        first = state.top("all", 1)[0][0]
        assert state.count("all", first) == found[first]
        assert (state.count("all", -5), state.count("none", 1), state.top("none", 3)) == (0, 0, [])
        assert state.items() == [("all", len(members))]


def test_frequent_members_of_every_type_come_back() -> None:
    for kind, members in (
        (str, ["", "a", "é"]),
        (bytes, [b"", b"\xff\0"]),
        (int, [-(2**63), 0]),
        (tl.Time, [5]),
    ):
        state = state_of(declare(tl.Frequent, kind))
        for n, member in enumerate(members):
            state.add(member, n + 1)
        assert state.top(9) == [(m, n + 1) for n, m in reversed(list(enumerate(members)))]


# --- replay ---------------------------------------------------------------------------------------


class Visit(tl.Event):
    page: int
    user: int
    seconds: float
    odd: bool


class Seen(tl.Record):
    users: float
    low: float
    high: float
    median: float | None
    values: int
    everybody: float


class Pages(tl.Program):
    """Everything of it scans."""

    users: tl.Distinct[int, int] = tl.state(size=32)
    everybody: tl.Distinct[tuple[int, str]]
    seconds: tl.Quantiles[int] = tl.state(error=0.05)

    @tl.on(Visit)
    def visit(self, e: Visit) -> None:
        self.users.add(e.page, e.user * 7 + e.page)
        self.everybody.add((e.user, "x"))
        self.seconds.add(e.page, e.seconds)
        if e.odd and e.user == 3:
            self.reject("three")
        if e.user == 5:
            del self.users[e.page]
        page = (e.page + 1) % 3
        low, high = self.users.bounds(page)
        self.emit(Seen(
            users=self.users[page], low=low, high=high, median=self.seconds.quantile(e.page, 0.5),
            values=self.seconds.count(page), everybody=self.everybody.get(),
        ))  # fmt: skip


class Top(tl.Record):
    user: int
    often: int
    other: int


class Tops(tl.Program):
    """The frequent ones of each page: by key; of all: slice after slice."""

    often: tl.Frequent[int, int] = tl.state(size=8)

    @tl.on(Visit)
    def visit(self, e: Visit) -> None:
        self.often.add(e.page, e.user, 1 + e.user % 3)
        if e.odd and e.user == 3:
            self.reject("three")
        for user, count in self.often.top(e.page, 2):
            self.emit(Top(user=user, often=count, other=self.often.count(e.page, 1)))


class TopsOfAll(tl.Program):
    often: tl.Frequent[str] = tl.state(size=8)

    @tl.on(Visit)
    def visit(self, e: Visit) -> None:
        self.often.add(str(e.user))
        for user, count in self.often.top(2):
            self.emit(Top(user=int(user), often=count, other=self.often.total()))


class Lately(tl.Record):
    median: float | None
    users: float
    before: int
    most: float | None
    often: int


class Windows(tl.Program):
    """The quantiles of a window are sums over it; its members are sketched and counted anew."""

    seconds: tl.Quantiles[int] = tl.state(error=0.05, default=-1.0)
    users: tl.Distinct[int, int] = tl.state(size=32)
    often: tl.Frequent[int, str] = tl.state(size=3)

    @tl.on(Visit)
    def visit(self, e: Visit) -> None:
        self.seconds.add(e.page, e.seconds)
        self.users.add(e.page, e.user)
        self.often.add(e.page, str(e.user % 5), 2)
        page = (e.page + 1) % 3
        self.emit(Lately(
            median=self.seconds.last(3 * tl.SECOND).quantile(page, 0.5), users=self.users.last(3 * tl.SECOND)[page],
            before=self.seconds.ago(3 * tl.SECOND).count(page), most=self.seconds.ago(3 * tl.SECOND).quantile(page, 1),
            often=self.often.last(3 * tl.SECOND).total(page),
        ))  # fmt: skip


@pytest.fixture(scope="module")
def visits() -> list[Visit]:
    dice = random.Random(4)
    return [
        Visit(
            page=dice.randrange(3), user=int(dice.paretovariate(0.3)) % 1000, seconds=dice.lognormvariate(2, 2),
            odd=dice.random() < 0.5, ts=i // 5 * tl.SECOND,
        )
        for i in range(300)
    ]  # fmt: skip


def test_replays_equal_the_serial_meaning(visits: list[Visit]) -> None:
    """In every slicing; the last two in slices that are run by key, or one after the other."""
    check_replay(Pages, visits[:24], slices=(3,))
    for program in (Pages, Tops, TopsOfAll):
        wanted = serial.run(program, visits[:150])
        for strategy in (None, "staged"):
            assert_same(wanted, replay(program, visits[:150], slices=3, strategy=strategy, spark=False))


def test_strategies() -> None:
    """Sketches that do not depend on order scan; the others run by key, or slice after slice."""
    found = {
        name: stage.strategy.value
        for program in (Pages, Tops, TopsOfAll)
        for stage in make_plan(program, cores=4).stages
        for name in [f"{program.__name__}.{state}" for state in stage.states]
    }
    assert found == {
        "Pages.users": "scan", "Pages.everybody": "scan", "Pages.seconds": "scan", "Tops.often": "by key",
        "TopsOfAll.often": "chain",
    }  # fmt: skip


def test_what_they_say_is_what_was_there(visits: list[Visit]) -> None:
    """Against sets and lists: exact for few members, medians within the error."""
    users: dict[int, set[int]] = {}
    everybody: set[int] = set()
    seconds: dict[int, list[float]] = {}
    outputs = iter(serial.run(Pages, visits).outputs)
    exact = 0
    for e in visits:
        if e.odd and e.user == 3:
            continue
        users.setdefault(e.page, set()).add(e.user)
        everybody.add(e.user)
        seconds.setdefault(e.page, []).append(e.seconds)
        if e.user == 5:
            users[e.page] = set()
        other = (e.page + 1) % 3
        found: Any = next(outputs).record
        if len(users.get(other, ())) <= 32:
            exact += 1
            assert found.users == found.low == found.high == len(users.get(other, ()))
        else:
            assert found.low <= found.users <= found.high
        assert (found.everybody, found.values) == (len(everybody), len(seconds.get(other, ())))
        mine = sorted(seconds[e.page])
        assert found.median == pytest.approx(mine[(len(mine) - 1) // 2], rel=0.05)
    assert next(outputs, None) is None
    assert 10 < exact < len(visits)


def test_windows_over_sketches(visits: list[Visit]) -> None:
    """Like those of the values and members that are in the window."""
    wanted = serial.run(Windows, visits)
    for e, output in zip(visits, wanted.outputs, strict=True):
        page = (e.page + 1) % 3
        place = visits.index(e)
        inside = [x for x in visits[: place + 1] if x.page == page and x.ts > e.ts - 3 * tl.SECOND]
        found: Any = output.record
        assert found.users == len({x.user for x in inside})
        assert found.often == 2 * len(inside)
        earlier = [x.seconds for x in visits[:place] if x.page == page and x.ts <= e.ts - 3 * tl.SECOND]
        assert found.before == len(earlier)
        assert found.most == (pytest.approx(max(earlier), rel=0.05) if earlier else -1.0)
        middle = sorted(x.seconds for x in inside)
        assert found.median == (pytest.approx(middle[(len(middle) - 1) // 2], rel=0.05) if middle else -1.0)
    assert_same(wanted, replay(Windows, visits, slices=3, spark=False))


def test_states_are_shown_and_published(visits: list[Visit], tmp_path: Path) -> None:
    replay(Pages, visits, out=tmp_path / "pages", slices=2, spark=False)
    run = tl.Run.open(tmp_path / "pages")
    run._context.program = None  # what follows comes from what is stored
    users = run.state("users").to_pylist()
    assert [row["key"] for row in users] == [0, 1, 2]
    assert all(1 < row["value"] < 300 for row in users)
    seconds = run.state("seconds")
    assert seconds.column_names == ["key", "value", "count"]
    taken = [v for v in visits if not (v.odd and v.user == 3)]
    assert sum(seconds["count"].to_pylist()) == len(taken)
    assert sorted(seconds["value"].to_pylist())[0] == pytest.approx(min(v.seconds for v in taken), rel=0.05)
    tops = replay(Tops, visits, slices=2, spark=False).state("often").to_pylist()
    assert {row["key"]: row["value"] for row in tops} == {
        p: sum(1 + v.user % 3 for v in taken if v.page == p) for p in range(3)
    }


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "args", "options", "words"),
    [
        (tl.Distinct, (int, float), {}, "float"),
        (tl.Distinct, (), {}, r"Distinct\[Key, Value\]"),
        (tl.Distinct, (int, int), {"size": 100}, "power of two"),
        (tl.Distinct, (int, int), {"size": 16}, "power of two"),
        (tl.Distinct, (int, int), {"default": 0.0}, "takes no default"),
        (tl.Distinct, (int, int), {"error": 0.1}, "takes no error="),
        (tl.Frequent, (int, tuple[int, int]), {}, "cannot count"),
        (tl.Frequent, (int, bool), {}, "cannot count"),
        (tl.Frequent, (int, int), {"size": 0}, "size="),
        (tl.Frequent, (int, int), {"default": 1}, "takes no default"),
        (tl.Quantiles, (int, int), {}, r"Quantiles\[Key\]"),
        (tl.Quantiles, (int,), {"error": 0.6}, "error="),
        (tl.Quantiles, (int,), {"error": 1}, "error="),
        (tl.Quantiles, (int,), {"size": 16}, "takes no size="),
        (tl.Counter, (int,), {"size": 16}, "takes no size="),
    ],
)
def test_wrong_declarations_are_refused(kind: Any, args: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        declare(kind, *args, **options)


def test_wrong_uses_are_refused() -> None:
    quantiles, frequent = state_of(declare(tl.Quantiles, int)), state_of(declare(tl.Frequent, int, str))
    with pytest.raises(NotANumber, match="NaN"):
        quantiles.add(1, math.nan)
    with pytest.raises(TypeMismatch, match="float"):
        quantiles.add(1, "a")
    for share in (-0.1, 1.1, math.nan, "a"):
        with pytest.raises(UsageError, match="quantile") as failed:
            quantiles.quantile(1, share)
        assert failed.value.code == "TL896"
    with pytest.raises(TypeMismatch, match="str"):
        frequent.add(1, 5)
    with pytest.raises(UsageError, match="0 was added") as failed:
        frequent.add(1, "a", 0)
    assert failed.value.code == "TL895"
    frequent.add(1, "a", 2**62)
    with pytest.raises(IntRange, match="total"):
        frequent.add(1, "b", 2**62)
    assert frequent.total(1) == 2**62
    with pytest.raises(TypeMismatch, match="int"):
        state_of(declare(tl.Distinct, int, int)).add(1, "a")
