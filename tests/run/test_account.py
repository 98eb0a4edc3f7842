"""Where the seconds went, what ran compiled, and what explain says of it beforehand."""

from __future__ import annotations

from pathlib import Path

import pytest

import timelapse as tl
from examples.antispam import Antispam, Friendship, Message
from tests.depth import DEPTH, FULL, some
from tests.engine.programs import A, B, Chained, Selfish
from tests.tuned import tuned
from timelapse.analysis import analyse, final_pass
from timelapse.engine.account import PHASES, Account
from timelapse.kernels import choose
from timelapse.kernels.native import build
from timelapse.kernels.native.build import is_compiled, loaded
from timelapse.kernels.native.kernel import NativeKernel
from timelapse.kernels.native.lowering.lower import Lowering
from timelapse.kernels.native.machine import jit
from timelapse.kernels.native.parallel import compile_all
from timelapse.kernels.tuning import USUAL, KernelTuning
from timelapse.log import MemoryLog
from timelapse.plan import make_plan
from timelapse.run import replay, run_serial
from timelapse.run.explain import explain_as
from timelapse.run.tuning import Tuning
from timelapse.testing import random_log


def test_phases_add_up_to_the_time_of_all_cores() -> None:
    account = Account()
    account.task({"read": 1.0, "kernel": 2.0, "total": 3.5}, waited=4.0)
    account.add("publish", 0.5)
    found = account.close(wall=6.0, cores=2)
    assert found == {
        "read": 1.0, "kernel": 2.0, "write": 0.5, "spark": 0.5, "publish": 0.5, "idle": 7.5
    }  # fmt: skip
    assert list(found) == [p for p in PHASES if p in found]


def test_threads_that_wait_for_each_other_share_the_time_that_there_was() -> None:
    account = Account()
    account.task({"read": 3.0, "kernel": 6.0, "total": 6.0}, waited=6.0)
    account.add("publish", 1.0)
    found = account.close(wall=2.5, cores=2)
    assert found == pytest.approx({"read": 1.5, "kernel": 3.0, "publish": 0.5})
    assert "idle" not in found


@pytest.mark.parametrize(
    ("kernel", "shown"), [("native", "compiled"), ("python", "TIMELAPSE_KERNEL is python")]
)
def test_a_run_says_where_its_time_went_and_what_ran_compiled(
    kernel: str, shown: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", kernel)
    log = tl.Log.from_events(
        tmp_path / "log", random_log([Message, Friendship], seed=1, count=300), [Message, Friendship]
    )
    run = replay(Antispam, log, slices=3, spark=False, strategy="staged")
    whole = sum(run.account.values())
    assert whole / run.seconds == pytest.approx(round(whole / run.seconds), rel=0.02)
    assert whole >= 0.98 * run.seconds
    assert set(run.account) >= {"kernel", "exchange", "write", "publish"}
    assert ("read" in run.account) == ("decode" in run.account) == (kernel == "native")
    assert set(run.passes) == {
        "final",
        *(s.name for s in make_plan(analyse(Antispam()), force="staged").stages),
    }
    for how in run.passes.values():
        assert shown in how
    assert tl.Run.open(run.path or "").account == run.account


@pytest.mark.parametrize("strategy", ["staged", "chain"])
def test_the_antispam_example_runs_compiled_in_every_pass_and_no_event_leaves(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the rule for large logs; `explain` says before what the run says after."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "auto")
    tuning = Tuning(KernelTuning(warm_events=0, cold_events=0))
    left: list[int] = []
    real = NativeKernel._as_python
    monkeypatch.setattr(NativeKernel, "_as_python", lambda *a: left.append(1) or real(*a))  # type: ignore[func-returns-value]
    ran: list[int] = []
    call = NativeKernel._call
    monkeypatch.setattr(NativeKernel, "_call", lambda *a: ran.append(1) or call(*a))  # type: ignore[func-returns-value]
    log = MemoryLog(random_log([Message, Friendship], seed=2, count=400), [Message, Friendship])
    told = explain_as(Antispam, log, 3, None, strategy, tuning)
    run = tuned(tuning)(Antispam, log, slices=3, spark=False, strategy=strategy)
    assert run.digest == tl.run_serial(Antispam, log).digest
    assert len(told.passes) == 3
    assert len(run.passes) == (3 if strategy == "staged" else 1)
    assert {p.kernel for p in told.passes} == set(run.passes.values()) == {"compiled"}
    assert ran
    assert not left


def test_small_runs_say_that_they_are_small() -> None:
    run = replay(Chained, MemoryLog(random_log([A, B], seed=1), [A, B]), spark=False)
    assert run.passes == {"final": f"Python: {USUAL.too_few}"}


@pytest.mark.parametrize("strategy", ["staged", "chain"])
def test_slices_that_are_small_alone_run_compiled_where_there_are_many(
    strategy: str,
) -> None:
    """Whether machine code is worth having is asked of all that a process does of a pass, not of a single task."""
    log = MemoryLog(random_log([Message, Friendship], seed=1, count=300), [Message, Friendship])
    replayed = tuned(Tuning(KernelTuning(warm_events=100, cold_events=200)))
    run = replayed(Antispam, log, slices=4, spark=False, strategy=strategy)
    assert set(run.passes.values()) == {"compiled"}
    assert choose.share_of(300, 4, cores=2) == choose.share_of(300, 2, cores=8) == 150
    assert choose.share_of(300, 1, cores=2) == 300
    assert choose.share_of(300, 1, cores=8, parts=3) == 100


def test_a_compiler_that_fails_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is the same; the run says that its passes were to run compiled, and why they did not."""

    def fails(unit: object) -> None:
        raise build.NotCompiled("TypingError: no such thing")

    events = random_log([Message, Friendship], seed=1, count=300)
    expected = run_serial(Antispam, events).digest
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    monkeypatch.setattr(build, "compiled", fails)
    run = replay(Antispam, MemoryLog(events, [Message, Friendship]), slices=1, spark=False)
    assert run.passes == {
        "final": "Python: the compiler failed, please report it: TypingError: no such thing"
    }
    assert run.digest == expected


def test_explain_names_what_is_compiled_and_what_is_not_with_line_and_reason() -> None:
    found = tl.explain(Antispam, {"Message": 9_000_000, "Friendship": 1_000_000}, cores=2)
    assert [p.kernel for p in found.passes] == ["compiled"] * 3
    assert "compiled 3/3 passes" in str(found)
    assert found.seconds is not None
    assert 0 < found.seconds < 60
    assert set(found.phases) == {"read and decode", "kernel", "write"}
    text = str(tl.explain(Selfish, {"A": 5_000_000, "B": 5_000_000}, cores=2))
    assert "as Python" in text
    assert "smooth" in text
    assert "programs.py:" in text


def test_a_compiled_pass_is_foretold_to_be_faster_and_to_read_ahead() -> None:
    counts = {"Message": 9_000_000, "Friendship": 1_000_000}
    slow = make_plan(Antispam, counts=counts, cores=2, threads=2)
    fast = make_plan(Antispam, counts=counts, cores=2, threads=2, compiled=lambda work, final: True)
    assert fast.law.serial_seconds * 5 < slow.law.serial_seconds
    assert 0.2 < fast.law.beside < 0.8
    assert fast.mode == "chain"
    many = make_plan(Antispam, counts=counts, cores=16, threads=2, compiled=lambda work, final: True)
    assert many.mode == "staged"


def test_a_log_that_is_too_small_to_wait_for_the_compiler_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timelapse.kernels.native.build.is_compiled", lambda unit: False)
    work = final_pass(analyse(Antispam()))
    found = choose.foresee(Antispam(), work, USUAL.warm_events, final=True)
    assert not found.compiled
    assert "nobody waits for the compiler" in found.reason
    now, later = choose.uncompiled(
        Antispam(), [(work, USUAL.warm_events, True), (work, USUAL.cold_events, True)]
    )
    assert (len(now), len(later)) == (1, 1)


def test_passes_are_compiled_by_other_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Into the cache that this process sees, each once."""
    monkeypatch.setenv("TIMELAPSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("timelapse.kernels.native.build._LOADED", {})  # another test may have loaded them
    program = Antispam(ratio=0.123) if DEPTH >= FULL else Chained(ratio=0.123)
    analysis = analyse(program)
    stages = make_plan(analysis, force="staged").stages
    works = [(s.work, False) for s in some(stages, 2)] + [(final_pass(analysis), True)]
    units = [Lowering(program, work, final=final).run() for work, final in works]
    compile_all(units, 2)
    assert all(is_compiled(unit) for unit in units)
    jit.COUNTS.clear()
    assert all(loaded(unit) is not None for unit in units)
    assert jit.COUNTS["damaged"] == jit.COUNTS["compiled"] == 0
    assert jit.COUNTS["loaded"] >= len(units)
