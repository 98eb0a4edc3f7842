"""Compiled slices side by side in threads of this process."""

from __future__ import annotations

import decimal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import deep
from tests.engine.logs import logs
from tests.engine.programs import ALL, A, B, Chained
from tests.engine.test_equivalence import Failing, assert_equal, memory
from tests.native.fuzz.emulate import emulated
from tests.tuned import tuned
from timelapse.engine import results, thread_executor
from timelapse.engine.job import SliceReport
from timelapse.engine.portions import Portions
from timelapse.engine.tasks import execute
from timelapse.errors import Cancelled, HandlerError
from timelapse.kernels.choose import SWITCH
from timelapse.kernels.native import build, kernel
from timelapse.kernels.native.memory import gathering
from timelapse.kernels.tuning import KernelTuning, NativeTuning
from timelapse.progress import Silent
from timelapse.run import planning, replay, run_serial
from timelapse.run.request import Settings
from timelapse.run.start import replay_as
from timelapse.run.tuning import Tuning

EVENTS = [A(k=i % 7, v=i % 3, s="xy"[i % 2], ts=i) for i in range(600)]


@pytest.fixture(autouse=True)
def in_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two cores, and the source that would be compiled as Python; no thread is left when a test is over."""
    monkeypatch.setenv(SWITCH, "native")
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    monkeypatch.setattr(planning, "usable_cores", lambda: 2)
    yield
    assert tasks() == []


def tasks() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("timelapse-task")]


def test_it_runs_there() -> None:
    run = replay(Chained, memory(EVENTS), slices=4, spark=False, strategy="staged")
    assert run.manifest.executor == "in process, tasks in the driver"
    assert run.slices == 4
    assert run.certificate["validated_slices"] == run.certificate["predicted_slices"]
    assert (
        run.certificate["predicted_slices"] + run.certificate["leading_slices"] == 2
    )  # two tasks took two each
    assert set(run.passes.values()) == {"compiled"}
    assert_equal(run, run_serial(Chained, memory(EVENTS)))


@pytest.mark.parametrize("program", ALL, ids=lambda p: p.__name__)
@settings(max_examples=deep(8))
@given(events=logs(), slices=st.sampled_from([2, 3, 7, 1000]), cores=st.sampled_from([2, 3]))
def test_it_equals_the_serial_meaning(
    program: type[tl.Program], events: list[tl.Event], slices: int, cores: int
) -> None:
    log = memory(events)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "usable_cores", lambda: cores)
        run = replay(program, log, slices=slices, spark=False, strategy="staged")
    assert_equal(run, run_serial(program, log))


@settings(max_examples=deep(20))
@given(events=logs(), slices=st.sampled_from([2, 3, 7]))
def test_a_failing_handler_is_reported_as_the_serial_meaning_reports_it(
    events: list[tl.Event], slices: int
) -> None:
    try:
        reference = run_serial(Failing, memory(events))
    except HandlerError as error:
        with pytest.raises(HandlerError) as found:
            replay(Failing, memory(events), slices=slices, spark=False, strategy="staged")
        assert (found.value.ts, found.value.seq, found.value.message) == (error.ts, error.seq, error.message)
    else:
        run = replay(Failing, memory(events), slices=slices, spark=False, strategy="staged")
        assert run.state_digest == reference.state_digest


class Numbers(tl.Program):
    """Reads no text: it is known what an event takes."""

    last: tl.Value[int, int] = tl.state(default=0)
    seen: tl.Counter[int]

    @tl.on(A)
    def take(self, e: A) -> None:
        self.seen[e.k] += self.last[e.v] + 1
        self.last[e.v] = self.seen[e.k]
        if self.seen[e.k] > 9:
            self.seen[e.k] = 0


@pytest.mark.parametrize("slices", [2, 3, 5])
def test_what_a_slice_did_is_found_when_the_next_one_has_run(
    slices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One task goes on from slice to slice, and the thread beside it comes late: the next slice has written by then."""
    turn, finished, late = threading.Condition(), list[int](), list[bool]()
    real_finish, real_collect = kernel.NativeKernel.finish, gathering.collect

    def finish(self: Any, result: Any, later: int = 0) -> None:
        with turn:
            finished.append(later)
            turn.notify_all()
        real_finish(self, result, later)

    def collect(tables: Any, result: Any, threads: int, images: Any = None, logs: Any = None) -> None:
        if images:
            # The slice after the one whose turn it is has finished: its count, as an event that is cleared may be missed.
            next_one = len(late) + 2
            with turn:
                late.append(turn.wait_for(lambda: len(finished) >= next_one, 60))
        real_collect(tables, result, threads, images or {}, logs or {})

    monkeypatch.setattr(kernel.NativeKernel, "finish", finish)
    monkeypatch.setattr(gathering, "collect", collect)
    events = [A(k=i % 7 * (1 + i // 200), v=i % 3, s="x", ts=i) for i in range(1000)]
    settings = Settings(slices=slices, strategy="staged", cache=False, lead=slices - 1)
    run = replay_as(Numbers(), memory(events), None, False, settings)
    assert late == [True] * (slices - 1)
    assert run.certificate["leading_slices"] == slices - 1
    assert_equal(run, run_serial(Numbers, memory(events)))
    assert run.verify().ok


def test_a_failure_leaves_the_slices_before_it_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they did is still found when the slice after them fails."""
    taken: list[str] = []
    real = SliceReport.put_changes

    def put(self: Any, changes: Any) -> None:
        taken.append(self.attempt)
        real(self, changes)

    monkeypatch.setattr(SliceReport, "put_changes", put)
    events = [A(k=i % 7, v=0 if i == 700 else 1, s="x", ts=i) for i in range(1000)]
    settings = Settings(slices=3, strategy="staged", cache=False, lead=2)
    with pytest.raises(HandlerError, match="ZeroDivisionError"):
        replay_as(Dividing(), memory(events), None, False, settings)
    assert len(taken) == 2


def test_portions_begin_from_what_the_slice_before_has_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are written beside: they were not waited for."""
    real = results._write

    def slow(*args: Any) -> None:
        time.sleep(0.3)
        real(*args)

    def size(self: Any, left: int) -> int:
        return left if left == 500 else 100

    monkeypatch.setattr(results, "_write", slow)
    monkeypatch.setattr(Portions, "size", size)
    events = [A(k=i % 7, v=i % 3, s="x", ts=i) for i in range(1001)]
    settings = Settings(slices=2, strategy="staged", cache=False, lead=1)
    run = replay_as(Numbers(), memory(events), None, False, settings)
    assert_equal(run, run_serial(Numbers, memory(events)))
    assert run.verify().ok


class Dividing(tl.Program):
    parts: tl.Counter[int]

    @tl.on(A)
    def take(self, e: A) -> None:
        self.parts[e.k] += 12 // e.v


class Watched(Silent):
    """Tells how far stages are; presses Ctrl-C once one has begun to move."""

    def __init__(self, *, press: bool) -> None:
        self.press, self.told = press, dict[str, int]()

    def advance(self, name: str, done: int, total: int) -> None:
        self.told[name] = done
        if self.press and done:
            raise KeyboardInterrupt


def test_ctrl_c_stops_all_tasks_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks look after each piece; what is left of their slices is not done."""
    replay = tuned(Tuning(KernelTuning(native=NativeTuning(piece_events=10))))
    done: list[int] = []
    real = kernel.NativeKernel._call

    def slow(self: Any, batch: Any, lo: int, hi: int, position: Any) -> int:
        time.sleep(0.01)
        done.append(hi - lo)
        return real(self, batch, lo, hi, position)

    monkeypatch.setattr(kernel.NativeKernel, "_call", slow)
    events = [A(k=i % 7, v=i % 3, s="x", ts=i) for i in range(20_000)]
    with pytest.raises(Cancelled, match="nothing was published"):
        replay(
            Chained, memory(events), tmp_path / "run", slices=4, spark=False, strategy="staged",
            progress=Watched(press=True),
        )  # fmt: skip
    assert 0 < sum(done) < 20_000
    assert tasks() == []
    assert list(tmp_path.iterdir()) == []


def test_progress_is_told_of_every_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    replay = tuned(Tuning(KernelTuning(native=NativeTuning(piece_events=10))))
    real = kernel.NativeKernel._call

    def slow(self: Any, *args: Any) -> int:
        time.sleep(0.002)
        return real(self, *args)

    monkeypatch.setattr(kernel.NativeKernel, "_call", slow)
    watched = Watched(press=False)
    replay(Chained, memory(EVENTS), slices=4, spark=False, strategy="staged", progress=watched)
    assert "final" in watched.told
    assert all(0 < n <= len(EVENTS) for n in watched.told.values())


def test_what_goes_wrong_with_the_machinery_ends_all_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No space on the disk, say."""

    def failing(job: Any, task: Any, report: Any) -> Any:
        if task.kind == "pass":
            raise OSError(28, "No space left on device")
        return execute(job, task, report)

    monkeypatch.setattr(thread_executor, "execute", failing)
    with pytest.raises(OSError, match=r"TL932 .*no space"):
        replay(Chained, memory(EVENTS), tmp_path / "run", slices=4, spark=False, strategy="staged")
    assert list(tmp_path.iterdir()) == []


class Precise(tl.Program):
    """A reading that is judged in decimals, which only Python can do: a context says where it is rounded."""

    seen: tl.Counter[int]

    @tl.on(A)
    def count(self, e: A) -> None:
        if e.v == 2 and e.k == 3:
            third = decimal.Decimal(1) / decimal.Decimal(3)
            raise ValueError(str(third))
        self.seen[e.k] += 1

    @tl.on(B)
    def listen(self, e: B) -> None:
        self.seen[e.k] += 1


def test_handlers_see_pythons_default_context_whoever_asks_for_the_replay() -> None:
    """A context of the caller's would not travel to other processes: the result would depend on where it was made."""
    with decimal.localcontext() as context:
        context.prec = 5
        for slices in (1, 3):
            with pytest.raises(HandlerError, match=r"ValueError: 0\.3{28} at"):
                replay(Precise, memory(EVENTS), slices=slices, spark=False, strategy="staged")
        with pytest.raises(HandlerError, match=r"ValueError: 0\.3{28} at"):
            run_serial(Precise, EVENTS)
