"""Where states decide which events fail after their own time, what decides is run ahead, and those events are left out before their own steps."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import timelapse as tl
from tests.depth import deep
from tests.native.fuzz.emulate import emulated
from tests.quarantine.leaving_out import compare, counting, no_more_than
from tests.quarantine.test_rewinding import Mark, Move, Out, Spelt, Unheard, told
from tests.quarantine.test_together import Pairs, log_of
from tests.tuned import finding
from tests.writers.deciding import deciding_program
from tests.writers.sources import load_source
from timelapse.kernels.native import build, decider, together
from timelapse.kernels.native.kernel import NativeKernel
from timelapse.kernels.native.status import Back
from timelapse.kernels.tuning import FindingTuning, KernelTuning, NativeTuning, TableTuning
from timelapse.run.reference import run_serial
from timelapse.run.tuning import Tuning

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Counted(tl.Program):
    """What a call has counted decides, of two types and with texts; an own step fails, and rejects; windows and ticks have no part in it."""

    limit: int = 7

    total: tl.Counter[int]
    late: tl.Counter[int]
    named: tl.Value[str, int] = tl.state(default=0)

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.total[m.who] += m.amount
        if m.amount == 3 and m.who % 4 == 1:
            raise ValueError(f"at once {m.who}")
        if self.total.last(9)[m.who] > 4:
            self.reject("many")
        self.emit(Out(who=m.who, total=self.total.last(9)[m.who]))

    @tl.on(Mark)
    def mark(self, m: Mark) -> None:
        self.total[m.who] -= 1

    @tl.on(Move, after=3)
    def soon(self, m: Move) -> None:
        self.total[m.who] += 2
        if m.who % 9 == 4:
            raise KeyError(f"soon {m.amount}")

    @tl.on(Move, Mark, after=5)
    def called(self, e: Move | Mark) -> None:
        self.late[e.who] += 1
        if (self.late[e.who] + e.who) % self.limit == 3:
            raise KeyError(f"late {self.late[e.who]}")
        self.emit(Out(who=e.who, total=self.late[e.who] * 2))

    @tl.on(Mark, after=8)
    def last(self, m: Mark) -> None:
        self.total[m.who] -= 4
        self.emit(Out(who=m.who, total=self.total[m.who]))

    @tl.every(5)
    def tick(self) -> None:
        self.total[1] += 1


class Texts(tl.Program):
    """Nothing happens in an event's own step. Texts are keys, and a product may leave int64."""

    named: tl.Counter[str]
    seen: tl.Set[tuple[str, int]]

    @tl.on(Mark, after=6)
    def called(self, m: Mark) -> None:
        self.named[m.name] += m.who
        if (m.name, m.who) in self.seen and self.named[m.name] * m.who % 5 == 2:
            raise ValueError(f"{m.name} {self.named[m.name]}")
        self.seen.add((m.name, m.who))
        self.emit(Out(who=10 // (self.named[m.name] % 7 + 1 - (m.who == 5)), total=self.named[m.name]))


class Broken(tl.Program):
    """Some of what fails runs as Python, and that is seen late."""

    total: tl.Counter[int]

    @tl.on(Move, after=4)
    def late(self, m: Move) -> None:
        self.total[m.who] += m.amount
        if self.total[m.who] % 5 == 3:
            raise KeyError(f"late {self.total[m.who]}")
        if m.seq % 83 == 82:
            raise Spelt


class Early(tl.Program):
    """Events' own steps write what decides."""

    total: tl.Counter[int]

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.total[m.who] += m.amount

    @tl.on(Move, after=4)
    def late(self, m: Move) -> None:
        if self.total[m.who] % 5 == 3:
            raise KeyError(f"late {self.total[m.who]}")


class Followed(Early):
    """A key depends on what a state holds that decides nothing: of the whole program it is not known which events can have to do with each other."""

    next: tl.Value[int, int] = tl.state(default=0)
    steps: tl.Counter[int]

    @tl.on(Move)
    def follow(self, m: Move) -> None:
        self.steps[self.next[m.who]] += 1
        self.next[m.who] = m.amount
        self.emit(Out(who=m.who, total=self.steps[m.amount]))


class Uneven(Early):
    """Some of what decides runs as Python."""

    @tl.on(Move, after=2)
    def soon(self, m: Move) -> None:
        self.total[m.who] += 1
        if m.seq % 83 == 82:
            raise Spelt


class Keyed(tl.Program):
    """Many keys of an event's own step; a few decide."""

    seen: tl.Set[tuple[int, int]]
    late: tl.Counter[int]

    @tl.on(Mark)
    def go(self, m: Mark) -> None:
        self.seen.add((m.who, m.seq))

    @tl.on(Mark, after=4)
    def called(self, m: Mark) -> None:
        self.late[m.who % 50] += 1
        if (self.late[m.who % 50] + m.who) % 9 == 4:
            raise ValueError(f"late {m.who}")


class Named(tl.Program):
    """The same, and texts are keys of what decides."""

    seen: tl.Set[tuple[int, int]]
    late: tl.Counter[str]

    @tl.on(Mark)
    def go(self, m: Mark) -> None:
        self.seen.add((m.who, m.seq))

    @tl.on(Mark, after=4)
    def called(self, m: Mark) -> None:
        self.late[m.name] += 1
        if (self.late[m.name] + m.who) % 9 == 4:
            raise ValueError(f"late {m.who}")


OFTEN = finding(most_again=1_000)
"""It goes back as often as it takes."""
ALONE: dict[str, Any] = {"most_again": 1_000, "step_seconds": 0.0, "again_each": 0, "again_more": -1}
"""Nothing runs ahead, and no other way is quicker."""


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    return counting(monkeypatch)


def compared(
    program: type[tl.Program], seed: int, folder: Path, *, slices: int = 1, tuning: Tuning = OFTEN
) -> int:
    """A replay and the reference, over a random log. How many events fail late."""
    rng = random.Random(seed)
    events = log_of(rng, 300, rng.choice((4, 12, 60)), "abécd")
    return compare(program, events, seed, folder, slices=slices, tuning=tuning)


@pytest.mark.parametrize("program", [Counted, Texts, Broken, Early])
def test_the_same_as_the_reference(program: type[tl.Program], noted: dict[str, int], tmp_path: Path) -> None:
    late = sum(compared(program, seed, tmp_path, slices=(3, 1)[seed % 2]) for seed in range(deep(6)))
    assert late > 5
    assert noted["left out"] > 0
    if program is Broken:
        assert noted["passes"] > 0
    else:
        assert noted["left out"] >= late
        assert noted["passes"] == 0


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[bool, int]:
    """How many events passes of what decides alone have found, and those of the whole program."""
    counts, find = {False: 0, True: 0}, together.Together.find

    def finding(self: Any, *args: Any, **named: Any) -> Any:
        rows, is_all = find(self, *args, **named)
        counts[self._work.decides] += len(rows)
        return rows, is_all

    monkeypatch.setattr(together.Together, "find", finding)
    return counts


@pytest.mark.parametrize("program", [Early, Followed, Uneven])
def test_passes_of_what_decides_alone_find_them(
    program: type[tl.Program], noted: dict[str, int], found: dict[bool, int], tmp_path: Path
) -> None:
    late = sum(
        compared(program, seed, tmp_path, slices=(3, 1)[seed % 2], tuning=finding(**ALONE))
        for seed in range(deep(6))
    )
    alone = program is not Uneven
    assert found[alone] > late // 2 > 5  # or the log begins or ends at another time without them
    assert found[not alone] == 0


def test_where_a_sum_may_leave_int64_passes_of_the_whole_program_find_them(
    noted: dict[str, int], found: dict[bool, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert compared(Early, 3, tmp_path, tuning=finding(**ALONE, most_added=20.0)) > 5
    assert found[False] > found[True] == 0


def test_random_programs_whose_own_steps_write_what_decides(
    noted: dict[str, int], found: dict[bool, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    tuning = replace(finding(**ALONE), begun_again=1)
    late = 0
    for seed in range(deep(30)):
        program = load_source(deciding_program(random.Random(seed), early=True))
        (tmp_path / str(seed)).mkdir()
        late += compared(program, seed, tmp_path / str(seed), slices=(1, 1, 3)[seed % 3], tuning=tuning)
    assert late > 20
    assert found[True] > 20


@pytest.mark.parametrize(("early", "lag"), [(False, 6), (True, 6), (True, 40)])
def test_random_programs(
    early: bool, lag: int, noted: dict[str, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`early`: own steps write what decides. Few steps are gone through at a time, so what is gone back over spans several times; tables grow meanwhile."""
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    late = 0
    for seed in range(deep(30)):
        program = load_source(deciding_program(random.Random(seed), early=early, lag=lag))
        (tmp_path / str(seed)).mkdir()
        native = NativeTuning(
            tables=TableTuning(first_rows=(4, 1024, 4, 4)[seed % 4]),
            finding=FindingTuning(
                most_again=1_000, piece_steps=(16, 7, 1 << 14)[seed % 3], again_steps=(5, 1 << 13)[seed % 2]
            ),
        )
        tuning = Tuning(KernelTuning(native=native))
        late += compared(program, seed, tmp_path / str(seed), slices=(1, 1, 3)[seed % 3], tuning=tuning)
    assert late > 20
    assert noted["left out"] > 20


class Tied(tl.Program):
    """What `late` and `soon` ask depends on each other's events."""

    total: tl.Counter[int]

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.total[1] += m.amount
        self.total[2] += m.who

    @tl.on(Mark)
    def look(self, m: Mark) -> None:
        if self.total[1] > 100:
            self.total[3] += 1

    @tl.on(Mark, after=10)
    def soon(self, m: Mark) -> None:
        if self.total[2] == 0 and m.who == 7:
            raise KeyError("soon")

    @tl.on(Move, after=30)
    def late(self, m: Move) -> None:
        if self.total[1] == 7:
            raise KeyError("late")


def _over(
    program: type[tl.Program], events: Sequence[tuple[int, tl.Event]], folder: Path, tuning: Tuning = OFTEN
) -> list[int]:
    """The seqs of the events that are taken out, as the reference has them too. `events`: with their times; others come before and after."""
    given: list[tuple[int, tl.Event]] = [(0, Unheard(x=1)), *events, (events[-1][0] + 100, Unheard(x=2))]
    log = [event._at(ts, seq) for seq, (ts, event) in enumerate(given)]
    compare(program, log, 1, folder, slices=1, tuning=tuning)
    rows = run_serial(program, log, quarantine=True, max_quarantined=300).stored_quarantined()
    return [int(seq) for seq in rows["seq"].to_pylist()]


def test_an_event_fails_without_another_one_while_steps_are_done_again(
    noted: dict[str, int], tmp_path: Path
) -> None:
    """The second event then fails, and its own step has looked at a row that later steps have still to be done again for."""
    moves = [(0, Move(who=1, amount=5)), (15, Move(who=0, amount=2))]
    marks = [(1, Mark(who=7, name="")), (2, Mark(who=1, name=""))]
    assert _over(Tied, sorted([*moves, *marks], key=lambda pair: pair[0]), tmp_path) == [1, 2]
    assert noted["left out"] == 2


class Beside(Early):
    """Events of another type decide nothing."""

    @tl.on(Mark)
    def mark(self, m: Mark) -> None:
        self.emit(Out(who=m.who, total=1))


def test_many_events_that_decide_nothing_may_come_between(
    noted: dict[str, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    moves = [(n, Move(who=n % 2, amount=1)) for n in range(12)]
    between: list[tuple[int, tl.Event]] = [(20 + n, Mark(who=n, name="")) for n in range(100)]
    later = [(200 + ts, move) for ts, move in moves]
    often = finding(most_again=1_000, piece_steps=4)
    assert _over(Beside, [*moves, *between, *later], tmp_path, often)
    assert noted["passes"] == 0


def test_only_those_steps_are_done_again_that_used_what_is_undone(
    noted: dict[str, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of some four hundred steps that come between, it is those with the same key."""
    rng, again = random.Random(3), 0
    some_more = decider.Decider._some_more

    def counted(self: Any, *args: Any) -> int:
        nonlocal again
        at = some_more(self, *args)
        again += int(self._back[Back.DONE])
        return at

    monkeypatch.setattr(decider.Decider, "_some_more", counted)
    moves = [(n // 50, Move(who=rng.randrange(100), amount=rng.randrange(20))) for n in range(600)]
    assert len(_over(Early, moves, tmp_path)) == noted["left out"] > 50
    assert 0 < again < 30 * noted["left out"]


def _too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decider, "memory_alone", lambda: 0)


def _after_some(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, calls = decider.Decider.go_on, 0

    def at_last(self: Any, batch: Any, begins: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 5:
            self.most = 0
        return go_on(self, batch, begins)

    monkeypatch.setattr(decider.Decider, "go_on", at_last)


@pytest.mark.parametrize("how", [_too_large, _after_some])
def test_what_cannot_be_run_ahead_any_more_has_it_begin_again(
    how: Callable[[pytest.MonkeyPatch], None], noted: dict[str, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    how(monkeypatch)
    assert compared(Counted, 7, tmp_path) > 5
    assert (noted["left out"] > 0) == (how is _after_some)
    assert noted["passes"] > 0


@pytest.mark.parametrize("program", [Keyed, Named])
def test_it_goes_on_beside_kernels_that_follow_one_another(
    program: type[tl.Program], noted: dict[str, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """States that are too large for the memory begin anew in another kernel. It knows other words for texts."""
    monkeypatch.setenv("TIMELAPSE_MEMORY", "1M")
    monkeypatch.setattr(decider, "memory_alone", lambda: 64 << 20)
    kernels: list[Any] = []
    begin = NativeKernel.__init__

    def noting(self: Any, *args: Any, **named: Any) -> None:
        kernels.append(self)
        begin(self, *args, **named)

    monkeypatch.setattr(NativeKernel, "__init__", noting)
    rng = random.Random(5)
    events: list[tl.Event] = [Unheard(x=1)._at(0, 0)]
    for n in range(1, 6000):
        events.append(Mark(who=rng.randrange(3000), name=str(rng.randrange(40)))._at(n // 3, n))
    events.append(Unheard(x=1)._at(3000, 6000))
    given: dict[str, Any] = {"quarantine": True, "max_quarantined": 3000}
    log = tl.Log.from_events(tmp_path / "log", events, [Mark, Unheard], block=500)
    run = tl.replay(program, log, slices=1, spark=False, cache=False, **given)
    reference = run_serial(program, events, **given)
    assert told(run) == told(reference)
    assert run.stored_quarantined() == reference.stored_quarantined()
    assert len(kernels) > 3
    assert noted["left out"] > 20
    assert (noted["left out"] == run.stored_quarantined().num_rows) == (program is Keyed)


@pytest.mark.spark
@pytest.mark.parametrize("program", [Counted, Early])
def test_on_spark(
    program: type[tl.Program],
    noted: dict[str, int],
    found: dict[bool, int],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    """Time slices on workers, which begin again without the events that compiled passes have found."""
    events = log_of(random.Random(8), 300, 12, "abécd")
    log = tl.Log.from_events(tmp_path / "log", events, [Move, Mark, Unheard], block=20)
    given: dict[str, Any] = {"quarantine": True, "max_quarantined": 300}
    run = tl.replay(program, log, slices=3, strategy="staged", spark=spark, **given)
    reference = run_serial(program, events, **given)
    assert told(run) == told(reference)
    assert run.stored_quarantined() == reference.stored_quarantined()
    assert found[True] > 5


@pytest.mark.parametrize("most", [3, 20])
def test_no_more_than_may_be_are_left_out(most: int, noted: dict[str, int]) -> None:
    no_more_than(most, Counted)


@pytest.mark.parametrize(
    ("program", "way"),
    [
        (Counted, "before their own steps: what decides"),
        (Texts, "before their own steps: what decides"),
        (Early, "before their own steps: what decides"),
        (Followed, "before their own steps: what decides"),
        (Pairs, "many at a time"),
    ],
)
def test_it_is_said_how_they_are_found(program: type[tl.Program], way: str) -> None:
    assert (tl.explain(program).late or "").startswith(f"compiled, {way}")
