"""Resolved reads: an output part that runs without states gives what the whole program gives."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.cache.programs import PROGRAM, events, written
from tests.cache.test_states import same
from tests.depth import DEPTH, FULL, deep, some
from tests.tuned import tune_cache
from timelapse.analysis import analyse, final_pass
from timelapse.analysis.outputs import output_part
from timelapse.engine import portions
from timelapse.env import machine
from timelapse.errors import HandlerError
from timelapse.kernels.choose import choice
from timelapse.run import Run

ALL = "states and what is read of them"
SLICES = deep(3, 2)


@pytest.fixture(autouse=True)
def _cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_STATES", str(tmp_path / "cache"))
    tune_cache(tmp_path / "cache")


def what(run: Run) -> str:
    kept = run.certificate["cache"]
    return "" if kept is None else kept["what"]


def three(cls: Any, log: tl.Log, params: Sequence[dict[str, Any]], slices: int = 3) -> list[str]:
    """Replay for each set of parameters with the cache, compare with the serial loop, and the last of several (in a deep run each) also
    with a replay without the cache; what came from the cache."""
    found = []
    for given in params:
        plain = tl.run_serial(cls(**given), log)
        kept = tl.replay(cls(**given), log, slices=slices, spark=False)
        assert (kept.digest, kept.state_digest, kept.counts) == (
            plain.digest,
            plain.state_digest,
            plain.counts,
        )
        found.append(what(kept))
        if DEPTH >= FULL or (given is params[-1] and len(params) > 1):
            same(kept, tl.replay(cls(**given), log, slices=slices, spark=False, cache=False))
    return found


HEAD = """
import timelapse as tl
from typing import NamedTuple
from cachetest_events import Join, Say
from cachetest_helpers import pair, weight

class Loud(tl.Record):
    id: int
    score: int

class Odd(tl.Record):
    n: int | None
    x: float | None
    on: bool
    s: str | None

class P(NamedTuple):
    a: int
    b: int

SMALL = 3
NAN = float("nan")

class Talk(tl.Program):
    limit: int = 3
    n: tl.Counter[int]
    total: tl.Counter
    pairs: tl.Set[tuple[int, int]]
    last: tl.Value[int, str | None]
    level: tl.Value[str, float] = tl.state(default=-0.0)
    peak: tl.Max[int, int] = tl.state(default=7)
    first: tl.First[int, tl.Time | None]
    spot: tl.Value[int, P] = tl.state(default=P(1, 2))

    @tl.on(Join)
    def join(self, e):
        self.pairs.add(pair(e.a, e.b))
        self.level[str(e.a)] = e.b / 3 if e.b else NAN
        self.spot[e.a] = P(e.a, e.b)

    @tl.on(Say)
    def say(self, e):
        self.n[e.who] += 1
        self.total += len(e.text)
        self.last[e.to] = e.text if e.id % 3 else None
        self.peak.add(e.who, e.id % 11)
        self.first.add(e.to, e.ts)
        REST
"""
SAY = "    @tl.on(Say)\n    def flag(self, e):\n"
HOISTED = {
    "every kind of read": SAY + """
        if self.n[e.who] > self.limit or pair(e.who, e.to) not in self.pairs or e.to in self.last:
            self.emit(Odd(n=self.peak[e.who], x=self.level[str(e.to)], on=e.who in self.n, s=self.last.get(e.to)))
            self.emit(Odd(n=self.first[e.to], x=self.level.get(e.text), on=e.who in self.peak, s=e.text))
            self.emit(Odd(n=self.peak.get(e.id, None), x=None, on=True, s=None))
""",
    "two event types": """
    @tl.on(Say, Join)
    def flag(self, e):
        self.emit(Loud(id=self.total, score=e.ts + self.limit))
""",
    "a local key": SAY + """
        k = e.who + SMALL
        other = k - SMALL
        r = self.n[other] * self.limit
        while r > 10:
            r //= 2
        self.emit(Loud(id=r, score=self.now))
""",
    "a method that is given the event": """
    @tl.on(Say)
    def flag(self, e):
        if self.much(e):
            self.emit(Loud(id=e.id, score=self.limit))

    def much(self, event):
        return self.n[event.who] > self.limit and self.peak[event.to] > 2
""",
    "a key that needs another state": SAY + """
        self.emit(Loud(id=self.n[self.peak[e.who]], score=self.limit))
""",
    "a condition of the core": """
        if self.n[e.who] > 5:
            self.total += 1
            self.emit(Loud(id=e.id, score=self.limit))
""",
    "after the writes of its handler": """
        if self.n[e.who] > self.limit:
            self.emit(Loud(id=e.id, score=self.n[e.who]))
""",
    "before the writes of its handler": SAY + """
        seen = self.n[e.to]
        if seen > self.limit:
            self.emit(Loud(id=e.id, score=seen))
        self.total += e.id

    @tl.on(Say)
    def more(self, e):
        self.n[e.to] += 1
""",
    "early returns and exceptions": SAY + """
        try:
            if e.who == 2:
                return
            x = 10 // (self.n[e.who] - self.limit)
        except ZeroDivisionError:
            x = -1
        for n in range(2):
            if x > n:
                self.emit(Loud(id=e.id, score=x + n))
""",
    "no reads at all": SAY + """
        if len(e.text) > self.limit:
            self.emit(Loud(id=e.id, score=len(e.text)))
""",
}  # fmt: skip
NOT_HOISTED = {
    "between two writes": ("between writes", """
        x = self.peak[e.to]
        self.peak.add(e.to, e.id % 7)
        y = self.peak[e.to]
        self.peak.add(e.to, e.id % 13)
        self.emit(Loud(id=x, score=y + self.limit))
"""),
    "all keys": ("all keys", SAY + "        self.emit(Loud(id=len(self.n.items()), score=self.limit))\n"),
    "a key from a loop": ("the local k", SAY + """
        for k in (e.who, e.to):
            self.emit(Loud(id=self.n[k], score=self.limit))
"""),
    "a key from a comprehension": ("the local k", SAY + """
        self.emit(Loud(id=sum([self.n[k] for k in (e.who, e.to)]), score=self.limit))
"""),
    "a local that is set twice": ("the local k", SAY + """
        k = e.who
        if e.id % 2:
            k = e.to
        self.emit(Loud(id=self.n[k], score=self.limit))
"""),
    "a value that is no column": ("spot holds", SAY + """
        self.emit(Loud(id=self.spot[e.who].a, score=self.limit))
"""),
    "the event itself": ("other than by its fields", SAY + """
        self.emit(Odd(n=self.n[e.who], x=None, on=True, s=str(e)))
"""),
    "a method that is given a field": ("simply given the event", """
    @tl.on(Say)
    def flag(self, e):
        if self.much(e.who):
            self.emit(Loud(id=e.id, score=self.limit))

    def much(self, k):
        return self.n[k] > self.limit
"""),
    "what a write gives": ("value of a write", SAY + """
        self.emit(Odd(n=None, x=None, on=True, s=self.last.pop(e.who)))
"""),
    "a rejection": ("rejects", SAY + """
        if self.n[e.who] > self.limit:
            self.reject("much")
"""),
}  # fmt: skip


NATIVE = """
import timelapse as tl
from cachetest_events import Join, Say

class Loud(tl.Record):
    id: int
    score: int

class Talk(tl.Program):
    limit: int = 3
    n: tl.Counter[int]
    big: tl.Counter[int]
    seen: tl.Set[int]

    @tl.on(Say)
    def say(self, e):
        self.n[e.who] += e.id - 100
        self.big[e.to] += e.id * 3000000000

    @tl.on(Join)
    def join(self, e):
        self.seen.add(e.a)

    @tl.on(Say)
    def flag(self, e):
        if self.n[e.who] > self.limit and self.big[e.to] > 7 or e.who in self.seen:
            self.emit(Loud(id=self.big[e.who], score=self.n[e.to]))
"""


@pytest.mark.parametrize("name", HOISTED)
def test_an_output_part_runs_without_states(name: str, tmp_path: Path) -> None:
    """A first run, a recording one, and one on what was recorded, each equal to one without the cache."""
    with written(tmp_path / "p", program=HEAD.replace("        REST\n", HOISTED[name])) as module:
        assert output_part(analyse(module.Talk)).reason == ""
        log = tl.Log.from_events(tmp_path / "log", events(module, 100), [module.Join, module.Say], block=16)
        found = three(module.Talk, log, [{}, {"limit": 1}, {"limit": 2}], SLICES)
    assert found[-1] == ALL


@pytest.mark.parametrize("name", NOT_HOISTED)
def test_where_it_needs_them_the_reason_is_given(name: str, tmp_path: Path) -> None:
    """Then the states alone come from the cache, and the result is the same."""
    why, text = NOT_HOISTED[name]
    with written(tmp_path / "p", program=HEAD.replace("        REST\n", text)) as module:
        assert why in output_part(analyse(module.Talk)).reason
        log = tl.Log.from_events(tmp_path / "log", events(module, 120), [module.Join, module.Say], block=32)
        found = three(module.Talk, log, [{}, {"limit": 1}], SLICES)
    assert ALL not in found


def test_a_key_that_cannot_be_computed_for_every_event(tmp_path: Path) -> None:
    """A guarded key that raises elsewhere: nothing is recorded, and the run is what it was."""
    text = (
        SAY
        + """
        if e.who and self.n[e.id // e.who] > self.limit:
            self.emit(Loud(id=e.id, score=1))
"""
    )
    with written(tmp_path / "p", program=HEAD.replace("        REST\n", text)) as module:
        log = tl.Log.from_events(tmp_path / "log", events(module, 120), [module.Join, module.Say])
        assert ALL not in three(module.Talk, log, [{}, {"limit": 1}, {"limit": 2}])


def test_an_error_after_the_edit_is_that_of_the_whole_program(tmp_path: Path) -> None:
    """Same event, handler and message; the columns stay good."""
    text = PROGRAM.replace(
        "if self.other", "assert self.other[e.who] < self.limit * 20\n        if self.other"
    )
    with written(tmp_path / "p", program=text) as module:
        log = tl.Log.from_events(tmp_path / "log", events(module), [module.Join, module.Say])
        assert three(module.Talk, log, [{"limit": 90}, {"limit": 91}, {"limit": 92}])[-1] == ALL
        errors = []
        for cache in (True, False):
            with pytest.raises(HandlerError) as caught:
                tl.replay(module.Talk(limit=1), log, slices=3, spark=False, cache=cache)
            errors.append((caught.value.message, caught.value.seq, caught.value.handler, caught.value.event))
        assert errors[0] == errors[1]
        assert three(module.Talk, log, [{"limit": 93}]) == [ALL]


def test_edits_add_reads_one_by_one(tmp_path: Path) -> None:
    """A new read is recorded by the next run; those that were there are used again; the core is the same."""
    edits = [
        PROGRAM, PROGRAM.replace("> self.limit", ">= self.limit"),
        PROGRAM.replace("e.who != e.to", "self.known[e.to] > 2"), PROGRAM.replace("e.who != e.to", "self.known[e.to] > 3"),
        PROGRAM.replace("e.who != e.to", "self.known[weight(e.text)] > 3"),
        PROGRAM.replace("e.who != e.to", "self.known[weight(e.text)] > 4"),
        PROGRAM.replace("- self.last[e.who]", ""),
    ]  # fmt: skip
    found = []
    for number, text in enumerate(edits):
        with written(tmp_path / str(number), program=text) as module:
            if not number:
                tl.Log.from_events(tmp_path / "log", events(module), [module.Join, module.Say])
            found += three(module.Talk, tl.Log.open(tmp_path / "log"), [{}])
    assert [f == ALL for f in found] == [False, False, False, True, False, True, True]


def test_damaged_columns_are_recorded_again(tmp_path: Path) -> None:
    """The run goes on with the states, and the next one has the columns again."""
    with written(tmp_path / "p") as module:
        log = tl.Log.from_events(tmp_path / "log", events(module), [module.Join, module.Say])
        three(module.Talk, log, [{}, {"limit": 2}])
        columns = [
            p for p in (tmp_path / "cache" / "entries").rglob("*.arrow") if p.parent.parent.name == "entries"
        ]
        assert columns
        columns[0].write_bytes(columns[0].read_bytes()[:-1])
        assert three(module.Talk, log, [{"limit": 1}, {"limit": 2}]) == ["states", ALL]


@pytest.mark.parametrize("rows", [-1, 1])
def test_columns_of_another_length_are_refused(rows: int, tmp_path: Path) -> None:
    """Should the wrong column ever be in an entry: an error, not a wrong result."""
    import pyarrow as pa

    from timelapse.cache.store import open_store
    from timelapse.errors import LogError
    from timelapse.tables.table import read_table, write_table

    with written(tmp_path / "p") as module:
        log = tl.Log.from_events(tmp_path / "log", events(module), [module.Join, module.Say])
        three(module.Talk, log, [{}, {"limit": 2}])
        store = open_store()
        assert store is not None
        head = next(e.head for e in store.entries() if e.head.kind == "reads")
        folder = tmp_path / "cache" / "entries" / head.key
        files = {}
        for path in sorted(folder.glob("*.arrow")):
            values = read_table(path).column("v").to_pylist()
            changed = tmp_path / "changed" / path.name
            write_table(pa.table({"v": values[:rows] if rows < 0 else values + values[:1]}), changed)
            files[path.name] = changed
        store.remove(head.key)
        assert store.publish(head.key, "reads", files, {}, {}) is None
        with pytest.raises(LogError):
            tl.replay(module.Talk(limit=7), log, slices=3, spark=False)


@pytest.mark.parametrize("slices", [1, 3])
def test_compiled_passes_record_and_read(
    slices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first compiled run records; negative, large and missing values come back as they were. A single slice is read
    in parts, which begin anywhere."""
    if slices == 1:
        monkeypatch.setattr("timelapse.run.planning.usable_cores", lambda: 3)
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    with written(tmp_path / "p", program=NATIVE) as module:
        log = tl.Log.from_events(tmp_path / "log", events(module), [module.Join, module.Say], block=64)
        assert three(module.Talk, log, [{}, {"limit": -4000}, {"limit": 10}], slices) == ["", ALL, ALL]


@pytest.mark.parametrize(("kernel", "slices"), some(product(["native", "python"], [1, 3])))
def test_slices_in_portions_record(
    slices: int, kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read is no output where memory is short either, and is kept whole; columns get wider from portion to portion."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", kernel)
    monkeypatch.setenv(machine.MEMORY, "1")
    monkeypatch.setattr(portions, "LEAST", 7)
    with written(tmp_path / "p", program=NATIVE) as module:
        log = tl.Log.from_events(tmp_path / "log", events(module, 100), [module.Join, module.Say], block=64)
        assert three(module.Talk, log, [{}, {"limit": -4000}, {"limit": 10}], slices)[-1] == ALL
        run = tl.replay(module.Talk(limit=11), log, slices=slices, spark=False)
        assert list(run.counts) == ["Loud"]


@pytest.mark.parametrize("every", some([29, 3, 400], 2))
def test_events_that_compiled_passes_leave_to_python(
    every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Single events, or all from some event on: what they read stands in its place among the others."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    step = "        self.n[e.who] += e.id - 100\n"
    more = f"        self.n[e.to] += 1 if e.id % {every} else e.id * 4611686018427387904 % 5\n"
    program = NATIVE.replace(step, step + more)
    with written(tmp_path / "p", program=program) as module:
        log = tl.Log.from_events(tmp_path / "log", events(module), [module.Join, module.Say], block=64)
        assert choice(module.Talk(), final_pass(analyse(module.Talk)), final=True).reason == ""
        assert three(module.Talk, log, [{}, {"limit": 1}, {"limit": 10}])[-1] == ALL


OPTIONAL = """
import timelapse as tl
from cachetest_events import Join, Say

class Loud(tl.Record):
    id: int
    before: int | None
    share: float | None

class Talk(tl.Program):
    limit: int = 3
    n: tl.Counter[int]
    last: tl.Value[int, int | None]
    half: tl.Value[int, float | None]

    @tl.on(Say)
    def say(self, e):
        before = self.last[e.to]
        share = self.half[e.to]
        self.n[e.who] += e.id - 100
        self.last[e.who] = e.id * 7
        self.half[e.who] = e.id / 2
        if e.id > self.limit:
            self.emit(Loud(id=e.id, before=before, share=share))
"""


@pytest.mark.parametrize("every", [0, 29])
def test_missing_values_that_compiled_passes_record(
    every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read of optional values, with events that are left to Python among them, and beside others of a sweep."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    step = "        self.n[e.who] += e.id - 100\n"
    more = (
        f"        self.n[e.to] += 1 if e.id % {every} else e.id * 4611686018427387904 % 5\n" if every else ""
    )
    with written(tmp_path / "p", program=OPTIONAL.replace(step, step + more)) as module:
        log = tl.Log.from_events(tmp_path / "log", events(module), [module.Join, module.Say], block=64)
        assert choice(module.Talk(), final_pass(analyse(module.Talk)), final=True).reason == ""
        assert three(module.Talk, log, [{}, {"limit": 40}, {"limit": 10}], 1)[-1] == ALL
        found = tl.sweep(module.Talk, log, {"limit": [1, 50, 90]}, spark=False)
        for point in found.points:
            assert point.run.digest == tl.run_serial(module.Talk(**point.values), log).digest


@pytest.mark.spark
def test_on_spark(tmp_path: Path, spark: Any) -> None:
    """Workers get classes that exist in no module, and find the columns in the job's folder."""
    with written(tmp_path / "p") as module:
        log = tl.Log.from_events(tmp_path / "log", events(module), [module.Join, module.Say], block=64)
        made = [tl.replay(module.Talk(limit=n), log, slices=3, spark=spark) for n in (5, 4, 1)]
        assert what(made[-1]) == ALL
        same(made[-1], tl.replay(module.Talk(limit=1), log, slices=3, spark=False, cache=False))
