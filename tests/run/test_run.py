"""What a user asks a Run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import deep
from tests.engine.logs import logs
from tests.engine.programs import A, B, Cancelling, Chained, Idioms, Note, Out, Rejecting
from tests.patience import LONG
from tests.run.unsealed import unsealed
from timelapse import serial
from timelapse.errors import RunError, StorageError, TimelapseError, UsageError
from timelapse.log import Log, MemoryLog
from timelapse.run import Run, replay, run_serial

EVENTS: list[tl.Event] = [
    B(k=1, x=0.5, on=True, tags=["z"], ts=1_000_000),
    A(k=1, v=1, s="a", ts=1_000_000),
    A(k=1, v=3, s="z", ts=2_000_000),
    A(k=2, v=2, s="b", ts=2_000_000),
    B(k=2, x=-0.0, on=False, tags=["q"], ts=3_000_000),
    A(k=2, v=0, s="q", ts=4_000_000),
]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    found: Log = Log.from_events(tmp_path / "log", EVENTS, [A, B])
    return found


def test_tables_have_times_positions_and_fields(log: Log) -> None:
    """`ts` is a UTC timestamp, then seq, then the record's fields with their types, in log order."""
    run = replay(Rejecting, log, slices=3, spark=False)
    table = run.table(Out)
    assert table.column_names == ["ts", "seq", "k", "v"]
    assert table.schema.field("ts").type == pa.timestamp("us", tz="UTC")
    assert table.to_pylist() == run.table("Out").to_pylist()
    assert table.column("seq").to_pylist() == [1, 3, 5]
    assert run.table(Note).column("text").to_pylist() == ["z"]
    assert run.rejected.select(["seq", "event", "handler", "reason"]).to_pylist() == [
        {"seq": 2, "event": "A", "handler": "refuse", "reason": "Note"},
        {"seq": 4, "event": "B", "handler": "name", "reason": "off"},
    ]
    assert run.counts == {"Note": 1, "Out": 3}
    assert run.rejected_count == 2


def test_a_record_type_without_outputs_is_an_empty_table() -> None:
    """It is listed with 0 rows, by name and by class."""
    run = replay(Chained, EVENTS[:1], spark=False)
    assert run.counts == {"Out": 0}
    assert run.table("Out").num_rows == 0
    assert run.table(Out).column_names == ["ts", "seq", "k", "v"]


def test_states_are_tables_in_key_order(log: Log) -> None:
    """Scalar keys as they are, tuple keys as structs, single values without a key column."""
    run = replay(Idioms, log, slices=2, spark=False)
    assert run.state("sums").to_pylist() == [{"key": 1, "value": 14}, {"key": 2, "value": 12}]
    assert run.state("unique").to_pylist() == [{"value": 2}]
    assert run.state("seen").column_names == ["key"]
    chained = replay(Chained, log, slices=2, spark=False)
    assert chained.state("friends").to_pylist() == [{"key": {"f0": 1, "f1": 1}}]
    with pytest.raises(RunError, match="no state 'frends'") as caught:
        chained.state("frends")
    assert "friends" in str(caught.value.hint)


@settings(max_examples=deep(20))
@given(events=logs(), slices=st.sampled_from([1, 3, 7]), at=st.integers(0, 4_000_010))
def test_state_at_a_time_is_the_state_before_everything_then(
    events: list[tl.Event], slices: int, at: int
) -> None:
    """Time travel equals the serial loop stopped at that time, also inside a slice and outside the log."""
    log = MemoryLog(events, [A, B])
    run, reference = replay(Cancelling, log, slices=slices, spark=False), run_serial(Cancelling, log)
    for when in (at, *(e.ts for e in events[:2])):
        expected = serial.run(Cancelling, events, before=when).states
        for name in ("n", "total", "last", "flags"):
            table = run.state(name, at=when)
            assert table.equals(reference.state(name, at=when))
            assert table.num_rows == len(expected[name])


@given(events=logs(10))
@settings(max_examples=deep(10))
def test_verify_accepts_every_prefix(events: list[tl.Event]) -> None:
    """A prefix of any length can be verified."""
    run = replay(Chained, MemoryLog(events, [A, B]), slices=3, spark=False)
    for n in range(1, len(events) + 1):
        found = run.verify(events=n)
        assert found.ok, found.text
        assert found.events == n
    with pytest.raises(UsageError):
        run.verify(events=0)


def test_verify_finds_a_changed_output(log: Log, tmp_path: Path) -> None:
    """A run whose stored outputs were changed is shown with the first difference, both values."""
    import pyarrow.parquet as pq

    run = replay(Chained, log, out=tmp_path / "run", slices=2, spark=False)
    part = sorted((tmp_path / "run" / "outputs" / "Out").iterdir())[0]
    table = pq.read_table(part)
    values = table.column("v").to_pylist()
    values[-1] += 1
    pq.write_table(table.set_column(5, table.schema.field("v"), pa.array(values)), part)
    with pytest.raises(StorageError, match="altered"):
        run.verify()
    found = unsealed(run).verify()
    assert not found.ok
    assert found.divergence is not None
    assert found.divergence.field == "v"
    assert (found.divergence.b - found.divergence.a) == 1
    assert "first difference" in found.text


def test_verify_finds_a_changed_state(log: Log, tmp_path: Path) -> None:
    """The state at slice boundaries is compared too."""
    run = replay(Idioms, log, out=tmp_path / "run", slices=3, spark=False)
    first = sorted((tmp_path / "run" / "state" / "best").iterdir())[0]
    first.unlink()
    with pytest.raises(RunError, match="not there"):
        run.verify()
    found = unsealed(run).verify()
    assert not found.ok
    assert found.divergence is not None
    assert found.divergence.kind == "state"


OTHER_PROCESS = """
import json, sys
from timelapse.run import Run
run = Run.open(sys.argv[1])
found = run.verify()
print(json.dumps([run.digest, found.ok, run.table("Out").num_rows, run.params,
                  run.state("bad", at=2_000_000).to_pylist()]))
"""


def test_a_run_is_opened_and_verified_in_another_process(log: Log, tmp_path: Path) -> None:
    """The directory says where program and log are; both are checked to be the same."""
    root = Path(__file__).parents[2]
    run = replay(Chained(ratio=0.5), log, out=tmp_path / "run", slices=2, spark=False)
    env = {**os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": "77"}
    done = subprocess.run(
        [sys.executable, "-c", OTHER_PROCESS, str(tmp_path / "run")], cwd=root, env=env, text=True,
        capture_output=True, check=False, timeout=LONG,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    digest, ok, rows, params, state = json.loads(done.stdout)
    assert (digest, ok, rows, params) == (run.digest, True, run.table("Out").num_rows, {"ratio": 0.5})
    assert state == run.state("bad", at=2_000_000).to_pylist()


def test_opening_what_is_no_run_or_of_another_format(tmp_path: Path, log: Log) -> None:
    """Errors name the file and say what to do."""
    with pytest.raises(RunError, match=r"run\.json") as caught:
        Run.open(tmp_path)
    assert caught.value.code == "TL601"
    replay(Chained, log, out=tmp_path / "run", spark=False)
    manifest = tmp_path / "run" / "run.json"
    stored = msgspec.json.decode(manifest.read_bytes())
    manifest.write_bytes(msgspec.json.encode({**stored, "format": 99}))
    with pytest.raises(RunError, match="format 99"):
        Run.open(tmp_path / "run")
    manifest.write_bytes(b"{")
    with pytest.raises(RunError, match="damaged"):
        Run.open(tmp_path / "run")


def test_a_run_does_not_use_another_log(tmp_path: Path) -> None:
    """When the log at the run's path was written anew, asking for times is refused."""
    log = Log.from_events(tmp_path / "log", EVENTS, [A, B])
    replay(Chained, log, out=tmp_path / "run", spark=False)
    Log.from_events(tmp_path / "log", EVENTS[:3], [A, B], overwrite=True)
    with pytest.raises(RunError) as caught:
        Run.open(tmp_path / "run", program=Chained()).verify()
    assert caught.value.code == "TL605"


def test_digests_tell_results_apart(log: Log) -> None:
    """Another value, another place, one row less: another digest; another slicing: the same."""
    base = replay(Chained, log, slices=1, spark=False).digest
    assert {replay(Chained, log, slices=n, spark=False).digest for n in (2, 3, 6)} == {base}
    assert replay(Chained(ratio=5.0), log, spark=False).digest != base
    moved = [*EVENTS[:5], EVENTS[5]._at(5_000_000, -1)]
    assert replay(Chained, moved, spark=False).digest != base
    assert replay(Chained, EVENTS[:5], spark=False).digest != base


def test_no_output_at_all_is_a_run_too() -> None:
    """A log without events, a program without states."""

    class Nothing(tl.Program):
        @tl.on(A)
        def h(self, e: A) -> None:
            self.emit(Out(k=e.k, v=0))

    empty = MemoryLog([], [A, B])
    for program in (Nothing, Chained):
        run = replay(program, empty, spark=False)
        assert run.events == 0
        assert run.digest == run_serial(program, empty).digest
        assert run.verify().ok
    run = replay(Nothing, EVENTS, slices=3, spark=False)
    assert run.counts == {"Out": 4}
    assert run.verify().ok


def test_two_record_types_of_one_name_are_refused() -> None:
    """A run keeps outputs by name: the serial reference and every slicing refuse two classes of one name."""

    def twin() -> type[tl.Record]:
        class Out(tl.Record):
            other: int

        return Out

    Twin = twin()

    class Both(tl.Program):
        @tl.on(A)
        def one(self, e: A) -> None:
            self.emit(Out(k=e.k, v=e.v) if e.v < 2 else Twin(other=e.v))

    for slices in (1, 2, 4):
        with pytest.raises(TimelapseError, match="two record types are called Out") as caught:
            replay(Both, EVENTS, slices=slices, spark=False)
        assert caught.value.code == "TL509"
    with pytest.raises(TimelapseError, match="two record types"):
        run_serial(Both, EVENTS)
