"""An event at which a handler raises counts as if it had not been in the log: everywhere, to the last bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import deep
from timelapse.errors import HandlerError
from timelapse.kernels.choose import SWITCH
from timelapse.run import Run
from timelapse.testing import check_replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Move(tl.Event):
    who: int
    amount: int
    note: str


class Seen(tl.Record, key="who"):
    who: int
    total: int


class Brittle(tl.Program):
    """Raises before writes, between them, in a later handler, in a helper, in a state's own check."""

    total: tl.Counter[int]
    last: tl.Value[int, str] = tl.state(default="")
    known: tl.Set[int]
    peak: tl.Max[int, int] = tl.state(default=0)

    @tl.on(Move)
    def count(self, m: Move) -> None:
        self.known.add(m.who)
        if m.note == "x":
            raise ValueError(f"no {m.note} for {m.who}")
        self.total[m.who] += m.amount
        self.emit(Seen(who=m.who, total=self.total[m.who]))

    @tl.on(Move)
    def share(self, m: Move) -> None:
        self.last[m.who] = m.note
        self.peak.add(m.who, 12 // m.amount)
        self.emit(Seen(who=-m.who, total=self.total[m.who]))

    @tl.on(Move)
    def limit(self, m: Move) -> None:
        if self.total[m.who] > 6:
            self.reject("too much")
        if self.total[m.who] == 5 and self.last[m.who] == "five":
            raise KeyError(m.note)


class Counting(tl.Program):
    """Additions that compose, and a failure that only the final pass sees."""

    n: tl.Counter[int]
    sums: tl.Counter

    @tl.on(Move)
    def add(self, m: Move) -> None:
        self.n[m.who] += 1
        self.sums += m.amount

    @tl.on(Move)
    def flag(self, m: Move) -> None:
        self.emit(Seen(who=m.who, total=self.n[m.who] // m.amount))


class Fragile(tl.Program):
    """A chain, whose failures depend on what was taken out before."""

    level: tl.Value[int, int] = tl.state(default=3)

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.level[m.who] = self.level[m.who] - m.amount
        if self.level[m.who] < 0:
            raise ArithmeticError("below zero")
        self.emit(Seen(who=m.who, total=self.level[m.who]))


def moves(rows: list[tuple[int, int, str]]) -> list[tl.Event]:
    return [Move(who=w, amount=a, note=n)._at(5 + i // 2, -1) for i, (w, a, n) in enumerate(rows)]


ROWS = st.lists(
    st.tuples(
        st.integers(0, 2), st.sampled_from([1, 1, 2, 3, 0, -1, 2**63 - 1]), st.sampled_from(["", "five", "x"])
    ),
    max_size=14,
)
PROGRAMS = [Brittle, Counting, Fragile]


def one_by_one(program: type[tl.Program], events: list[tl.Event]) -> tuple[Run, list[int]]:
    """The meaning spelt out: whenever the run fails, it is run again without that event."""
    placed = [event._at(event.ts, i) for i, event in enumerate(events)]
    gone: list[int] = []
    while True:
        try:
            return tl.run_serial(program, [e for e in placed if e.seq not in gone]), gone
        except HandlerError as failure:
            gone.append(failure.seq)


@pytest.mark.parametrize("program", PROGRAMS)
@given(rows=ROWS)
@settings(max_examples=deep(8))
def test_the_serial_meaning_is_that_of_the_log_without_the_event(
    program: type[tl.Program], rows: list[tuple[int, int, str]]
) -> None:
    events = moves(rows)
    expected, gone = one_by_one(program, events)
    run = tl.run_serial(program, events, quarantine=True)
    assert run.quarantined["seq"].to_pylist() == gone
    assert (run.digest, run.state_digest) == (expected.digest, expected.state_digest)
    assert run.quarantined_count == len(gone)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("kernel", ["python", "native"])
@given(rows=ROWS)
@settings(max_examples=deep(3))
def test_replay_takes_out_what_the_serial_loop_does(
    kernel: str, program: type[tl.Program], rows: list[tuple[int, int, str]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, kernel)
        check_replay(program, moves(rows), slices=(1, 3), strategies=("staged", "chain"), quarantine=True)


MANY = moves([(i % 7, (i * 5) % 9 - 1, ["", "five", "", "x"][i % 4]) for i in range(400)])


@pytest.fixture(scope="module")
def reference() -> Run:
    return tl.run_serial(Counting, MANY, quarantine=True)


@pytest.fixture(scope="module", params=["python", "native"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, request.param)
        patch.setattr("timelapse.run.planning.usable_cores", lambda: 2)
        out = tmp_path_factory.mktemp("run") / "run"
        yield tl.replay(Counting, MANY, out, slices=4, strategy="staged", spark=False, quarantine=True)


def test_a_wrong_prediction_is_no_bug_and_the_result_is_exact(run: Run, reference: Run) -> None:
    assert reference.quarantined_count > 30
    assert run.quarantined == reference.quarantined
    assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest)
    assert run.verify().ok
    fallback = run.certificate["fallback"]
    # Compiled slices are run two by one task here: both of the first task stand.
    begin = 1 if run.certificate["predicted_slices"] == 3 else 2
    assert begin == (2 if run.manifest.executor.endswith("tasks in the driver") else 1)
    assert fallback == {"from_slice": begin, "reason": "events were taken out of the log", "is_bug": False}


def test_the_list_says_what_was_raised_and_where(run: Run) -> None:
    first = run.quarantined.slice(0, 1).to_pylist()[0]
    index = next(i for i, e in enumerate(MANY) if e.amount == 0)  # type: ignore[attr-defined]
    assert (first["seq"], first["event"], first["handler"]) == (index, "Move", "flag")
    assert first["error"].startswith("ZeroDivisionError: ")
    line = Path(__file__).read_text().splitlines()[first["line"] - 1]
    assert first["file"] == __file__
    assert "// m.amount" in line


def test_it_is_stored_and_reached_at_any_time(run: Run, reference: Run) -> None:
    assert run.path is not None
    opened = Run.open(run.path, program=Counting())
    assert opened.quarantined == reference.quarantined
    when = MANY[137].ts
    assert run.state("n", at=when) == reference.state("n", at=when)
    assert tl.Run.open(run.path).manifest.quarantined == reference.quarantined_count


def test_verify_notices_an_event_that_should_have_stayed(run: Run) -> None:
    class Other(Run):
        def stored_quarantined(self) -> Any:
            return super().stored_quarantined().slice(1)

    other = Other(run.manifest, run._data, run.path, run._context)
    found = other.verify()
    assert found.divergence is not None
    assert "taken out" in found.text


def test_without_quarantine_the_first_failure_fails_the_run(reference: Run) -> None:
    with pytest.raises(HandlerError) as caught:
        tl.replay(Counting, MANY, slices=3, spark=False)
    assert caught.value.seq == reference.quarantined["seq"][0].as_py()
    assert caught.value.cause == reference.quarantined["error"][0].as_py()
    clean = tl.replay(Counting, [e for e in MANY if e.amount], spark=False)  # type: ignore[attr-defined]
    assert (clean.quarantined_count, clean.quarantined.num_rows) == (0, 0)


class Deep(tl.Program):
    n: tl.Counter[int]

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.n[m.who] += 1
        raise (MemoryError if m.amount else RecursionError)("the machine's, not the event's")


@pytest.mark.parametrize("amount", [0, 1])
def test_what_the_machine_ran_out_of_is_not_the_events_fault(amount: int) -> None:
    events = moves([(0, amount, "")])
    with pytest.raises(HandlerError):
        tl.run_serial(Deep, events, quarantine=True)
    with pytest.raises(HandlerError):
        tl.replay(Deep, events, spark=False, quarantine=True)


def test_spark_takes_out_the_same(spark: SparkSession, reference: Run) -> None:
    run = tl.replay(Counting, MANY, slices=3, spark=spark, quarantine=True)
    assert run.quarantined == reference.quarantined
    assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest)


class Budget(tl.Program):
    """Everything under one key: refuses, raises after writes, adds floats."""

    spent: tl.Value[int, float] = tl.state(default=0.0)
    times: tl.Counter[int]
    notes: tl.Value[tuple[int, str], int] = tl.state(default=0)

    @tl.on(Move)
    def spend(self, m: Move) -> None:
        self.spent[m.who] = self.spent[m.who] + m.amount * 0.1
        self.times[m.who] += 1
        self.notes[m.who, m.note] = self.times[m.who]
        if self.spent[m.who] > 0.75:
            self.reject(Seen(who=m.who, total=self.times[m.who]))
        self.emit(Seen(who=m.who, total=100 // (self.times[m.who] - 2)))

    @tl.on(Move)
    def late(self, m: Move) -> None:
        self.notes[m.who, ""] = self.notes[m.who, ""] + 1 // m.amount
        self.emit(Seen(who=m.who, total=self.notes[m.who, ""]))


@pytest.mark.parametrize("kernel", ["python", "native"])
@pytest.mark.parametrize("quarantine", [True, False])
@given(rows=ROWS)
@settings(max_examples=deep(3))
def test_by_key_too(kernel: str, quarantine: bool, rows: list[tuple[int, int, str]]) -> None:
    """Workers that share out the events by key take out, and reject, the same."""
    events = moves(rows if quarantine else [(w, a, n) for w, a, n in rows if a])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, kernel)
        try:
            check_replay(Budget, events, slices=(1, 3), strategies=("by key",), quarantine=quarantine)
        except HandlerError:
            assert not quarantine  # compared by check_replay: the same event


class Wrong(tl.Program):
    """Calls what handlers are given with the wrong arguments."""

    @tl.on(Move)
    def note(self, m: Move) -> None:
        call: Any = (self.emit, self.send, self.cancel, self.reject)[m.who]
        call(*range(m.amount))


@pytest.mark.parametrize("kernel", ["interpreted", "python"])
def test_what_python_says_of_a_wrong_call_does_not_name_who_runs_handlers(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, kernel)
    events = [Move(who=who, amount=3 if who > 2 else 0, note="", ts=who) for who in range(4)]
    found = check_replay(Wrong, events, slices=(2,), strategies=("chain",), quarantine=True).quarantined
    for name, said in zip(("emit", "send", "cancel", "reject"), found["error"].to_pylist(), strict=True):
        assert said.startswith(f"TypeError: Program.{name}() ")
