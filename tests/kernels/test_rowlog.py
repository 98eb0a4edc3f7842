"""The contract of logs of rows (kernels/rowlog.py), over those of passes as Python and of compiled ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import timelapse as tl
from tests.depth import deep
from tests.native.gradual import switches
from timelapse.analysis import analyse, final_pass
from timelapse.kernels.native.looking import Views
from timelapse.kernels.native.memory.effectlog import LogImage, NativeLog
from timelapse.kernels.native.memory.growth import Growth, make_ready_beside
from timelapse.kernels.native.memory.hashtable import HashTable
from timelapse.kernels.native.memory.keeping import Kept
from timelapse.kernels.native.memory.layout import Layout, layout_of
from timelapse.kernels.native.memory.strings import Interned
from timelapse.kernels.native.memory.table import NativeTable
from timelapse.kernels.native.windows import members_spec, sliding_of
from timelapse.kernels.python.rowlog import PythonLog
from timelapse.kernels.python.stores import TrackedStore
from timelapse.kernels.python.windows import Windows
from timelapse.kernels.rowlog import Earlier, RowLog
from timelapse.kernels.tuning import TABLES, TableTuning
from timelapse.kinds.effects import Journal, undo
from timelapse.model.types import INT
from timelapse.program.program import spec_of

WIDTHS = (7, 20)


class Put(tl.Event):
    k: int


class Looked(tl.Program):
    """Three forms of rows: what is added up, whether a key is there, and operations; and members that are counted."""

    n: tl.Counter[int]
    s: tl.Set[int]
    g: tl.SetOf[int, int]
    m: tl.Max[int, int] = tl.state(default=-1)

    @tl.on(Put)
    def put(self, e: Put) -> None:
        self.n[e.k] += self.n.last(7)[e.k] + self.n.last(20)[e.k]
        if self.g.last(7).count(e.k) < self.g.last(20).count(e.k):
            self.g.add(e.k, e.k)
        if e.k in self.s.last(7) and e.k in self.s.last(20):
            self.s.add(e.k)
        if self.m.last(7)[e.k] == self.m.last(20)[e.k]:
            self.m.add(e.k, e.k)


WORK = final_pass(analyse(Looked()))
SPECS = spec_of(Looked).states


def told(log: RowLog) -> pa.Table | None:
    """The slice's rows, as the slices of either kind of pass give them."""
    if isinstance(log, NativeLog):
        image = log.image()
        return None if image is None else image.told()
    assert isinstance(log, PythonLog)
    return log.table_of_rows()


class Made(NamedTuple):
    """A log, the state whose rows it has, the journal of both, and what tells them the time."""

    log: RowLog
    state: Any
    journal: Journal
    begin: Callable[[int], None]


def as_python(name: str) -> Made:
    journal: Journal = []
    live = {"now": 0}
    windows = Windows(Looked(), WORK, journal, final=True)
    windows.use(live)
    state = windows.state(name, TrackedStore({}, journal))
    state._clock = windows
    (log,) = (log for (n, _), log in windows.logs.items() if n == name)

    def begin(now: int) -> None:
        live["now"] = now
        log.advance(now)

    return Made(log, state, journal, begin)


def compiled(name: str, tuning: TableTuning = TABLES) -> Made:
    journal: Journal = []
    sliding = sliding_of(Looked())[name]
    layout = layout_of(SPECS[name], WORK, final=True, extra=sliding.extra)
    interned = Interned(["", b""])
    table = NativeTable(SPECS[name], layout, interned, HashTable([layout], tuning=tuning))
    counted = Layout(1, INT, "exact", tracked=False)
    hidden = {
        lag: NativeTable(
            members_spec(SPECS[name], lag), counted, interned, HashTable([counted], tuning=tuning)
        )
        for lag in WIDTHS
        if name == "g"
    }
    log = NativeLog(table, sliding, hidden, kept=True)
    views = Views({name: table}, {name: log})
    return Made(log, views.live(name, journal), journal, views.begin)


BOTH = pytest.mark.parametrize("make", [as_python, compiled], ids=["python", "compiled"])
Rows = list[tuple[int, int, int]]
"""What the contract says is there: when, under which key, what."""


def write(made: Made, name: str, now: int, k: int, chance: random.Random, rows: Rows) -> None:
    """Write something that has a row."""
    v = chance.choice([1, 2, 5, -3])
    if name == "n":
        made.state[k] += v
    elif name == "m":
        made.state.add(k, v)
    elif v > 0:
        made.state.add(k)
    else:
        made.state.discard(k)
    rows.append((now, k, v))


def check(made: Made, name: str, now: int, rows: Rows) -> None:
    """Cursors and views are where the rows say."""
    for width in WIDTHS:
        seen = [row for row in rows if row[0] > now - width]
        assert made.log.count - made.log.place(width) == len(seen)
        view = made.state.last(width)
        for k in range(4):
            own = [v for _, key, v in seen if key == k]
            if name == "n":
                assert view[k] == sum(own)
            elif name == "m":
                assert view[k] == max(own, default=-1)
            else:
                assert (k in view) is (bool(own) and own[-1] > 0)


def went(made: Made, name: str, rows: Rows, *, seed: int, start: int, events: int, keys: int = 4) -> int:
    """Events, some of which are undone; gives the time of the last."""
    chance, now, before = random.Random(seed), start, made.log.count - len(rows)
    for _ in range(events):
        now += chance.randrange(4)
        made.journal.clear()
        made.begin(now)
        check(made, name, now, rows)
        kept = len(rows)
        for _ in range(chance.randrange(4)):
            write(made, name, now, chance.randrange(keys), chance, rows)
            check(made, name, now, rows)
        if chance.random() < 0.3:
            undo(made.journal)
            del rows[kept:]
            check(made, name, now, rows)
        assert made.log.count - before == len(rows)
    return now


@BOTH
@pytest.mark.parametrize("name", ["n", "s", "m"])
def test_numbers_cursors_and_views(make: Callable[[str], Made], name: str) -> None:
    """As the contract says, from event to event, also where what one did is taken back."""
    made = make(name)
    rows: Rows = []
    went(made, name, rows, seed=1, start=0, events=120)
    assert len(rows) > 60


@BOTH
@pytest.mark.parametrize("name", ["n", "s", "m"])
def test_an_event_is_undone_whose_writes_had_rows_forgotten(make: Callable[[str], Made], name: str) -> None:
    """Those that all cursors have passed, where there was no room for more."""
    made = make(name)
    rows: Rows = []
    chance = random.Random(2)
    for now in range(0, 1000, 5):
        made.log.begin()
        made.journal.clear()
        made.begin(now)
        check(made, name, now, rows)
        kept = len(rows)
        for _ in range(7):
            write(made, name, now, chance.randrange(4), chance, rows)
        if now % 2:
            undo(made.journal)
            del rows[kept:]
        check(made, name, now, rows)


@pytest.mark.parametrize("name", ["n", "s"])
def test_a_slice_is_told_after_the_next_ones(name: str) -> None:
    """Rows of the log were forgotten since, and the table has grown, again and again; before and after somebody has let go of the image."""
    chance = random.Random(6)
    made = compiled(name, TableTuning(first_rows=4))
    log: Any = made.log
    rows: Rows = []
    images, now, begun = list[tuple[LogImage, pa.Table]](), 0, 0
    for seed in range(24):
        log.begin()
        now = went(made, name, rows, seed=seed, start=now, events=chance.choice([3, 60]), keys=5 + 40 * seed)
        image, table = log.image(), told(log)
        assert table is not None
        assert table.num_rows == len(rows) - begun
        begun = len(rows)
        images.append((image, table))
        if chance.random() < 0.4:
            assert all(image.told() == table for image, table in images)
            images.clear()
    assert log.table.rows > 200
    assert len(log.rows) < begun


class Model:
    """What the contract says, of many keys. `latest`: of each key, or pair of key and member, when it was written last, and what; `total`: of each key."""

    def __init__(self, name: str) -> None:
        self.name, self.rows, self.total = name, list[tuple[int, Any, int]](), dict[Any, int]()

    def check(self, made: Made, now: int, keys: list[int]) -> None:
        for width in WIDTHS:
            seen = [row for row in self.rows if row[0] > now - width]
            latest = {key: v for _, key, v in seen}
            view = made.state.last(width)
            for k in keys:
                if self.name == "n":
                    assert view[k] == sum(v for _, key, v in seen if key == k)
                    assert made.state[k] == self.total.get(k, 0)
                elif self.name == "s":
                    assert (k in view) is (latest.get(k, -1) > 0)
                else:
                    assert view.count(k) == sum(v > 0 for (key, _), v in latest.items() if key == k)


@pytest.mark.parametrize("name", ["n", "s", "g"])
@pytest.mark.parametrize("seed", range(deep(12, 3)))
def test_a_log_goes_along_where_its_table_grows_part_by_part(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where that of counts of its members does. Events are undone, slices begin, and those before are told later; now and then there is so
    much at once that a table is full before all is moved."""
    chance = random.Random(seed)
    tuning, sizes = switches(monkeypatch, chance)
    made, model = compiled(name, tuning), Model(name)
    log: Any = made.log
    tables = [log.table.hash, *(counter.hash for counter in log.hidden.values())]
    kept, growth, now, begun = Kept(tables, 1, tuning), [Growth(0, 0) for _ in tables], 0, 0
    kept.settle()
    log.prepare()
    images = list[tuple[LogImage, list[tuple[int, Any, int]]]]()
    log.begin()
    for step in range(300):
        writes = 60 if chance.random() < 0.02 else chance.randrange(5)
        make_ready_beside(kept, growth, [(1, 0)] * len(tables), writes, 0, nullcontext(), gradually=True)
        made.journal.clear()
        now += chance.choice([0, 1, 1, 9])
        made.begin(now)
        before, total = len(model.rows), dict(model.total)
        for _ in range(writes):
            k, member, v = chance.randrange(4 + step), chance.randrange(6), chance.choice([1, 2, 5, -3])
            key: Any = (k, member) if name == "g" else k
            if name == "n":
                made.state[k] += v
                model.total[k] = model.total.get(k, 0) + v
            else:
                (made.state.add if v > 0 else made.state.discard)(*(key if name == "g" else (k,)))
            model.rows.append((now, key, v))
        if chance.random() < 0.2:
            undo(made.journal)
            del model.rows[before:]
            model.total = total
        log.keep()
        model.check(made, now, [chance.randrange(4 + step) for _ in range(6)])
        if chance.random() < 0.3:
            kept.settle()
        if chance.random() < 0.05:
            images.append((log.image(), model.rows[begun:]))
            begun = len(model.rows)
            tables[0].turn()
            for table in tables:
                table.begin()
            log.begin()
        if chance.random() < 0.05:
            for image, rows in images:
                told = image.told()
                keys = told.column("k0").to_pylist()
                keys = list(zip(keys, told.column("k1").to_pylist(), strict=True)) if name == "g" else keys
                said = told.column("n" if name == "n" else "present").to_pylist()
                wanted = [(ts, k, v if name == "n" else v > 0) for ts, k, v in rows]
                assert list(zip(told.column("ts").to_pylist(), keys, said, strict=True)) == wanted
            images.clear()
    assert len(sizes) > 1
    assert max(sizes) > 60


def test_sums_that_come_near_the_end_of_int64() -> None:
    """It is known how far they go at most. Where that is too far they are looked at: what was added may have been taken away again."""
    made = compiled("n")
    half, now = 2**60, 0
    for _ in range(5):
        made.log.begin()
        made.begin(now := now + 1)
        made.state[1] += half
        made.state[1] -= half
        table = told(made.log)
        assert table is not None
        assert table.column("n").to_pylist() == [half, -half]
    made.log.begin()
    made.begin(now + 1)
    made.state[1] += 2**61
    made.state[1] += 1
    assert told(made.log) is not None
    made.state[2] -= 2**61
    assert told(made.log) is None


@BOTH
@pytest.mark.parametrize("name", ["n", "s"])
def test_rows_of_a_slice_and_of_earlier_ones(make: Callable[[str], Made], name: str) -> None:
    """A slice gives its own rows. A log that takes those of earlier slices goes on as the one that wrote them."""
    made = make(name)
    rows: Rows = []
    tables = []
    now = 0
    for seed in (2, 3):
        made.log.begin()
        begun = len(rows)
        now = went(made, name, rows, seed=seed, start=now, events=40)
        table = told(made.log)
        assert table is not None
        said = table.column("n" if name == "n" else "present").to_pylist()
        wanted = [(ts, k, v if name == "n" else v > 0) for ts, k, v in rows[begun:]]
        assert (
            list(zip(table.column("ts").to_pylist(), table.column("k0").to_pylist(), said, strict=True))
            == wanted
        )
        tables.append(table)
    again = make(name)
    again.log.recall(Earlier(tables, end=now))
    again.log.begin()
    assert [again.log.count - again.log.place(w) for w in WIDTHS] == [
        sum(ts > now - w for ts, _, _ in rows) for w in WIDTHS
    ]
    if name == "n":  # whether a key is there is no part of the rows: whoever recalls them has loaded it
        went(again, name, rows, seed=4, start=now, events=40)
        own = told(again.log)
        assert own is not None
        assert own.num_rows == len(rows) - sum(t.num_rows for t in tables)
