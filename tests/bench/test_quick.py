"""A quick run keeps to its time, and Ctrl-C ends what it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import run as running
from benchmarks.candidates import OURS, PYTHON, Candidate
from benchmarks.command import _show as show
from benchmarks.command import bench as benched
from benchmarks.data import Dataset, make
from benchmarks.measure import OK, SKIPPED, Bench, Measured, Pool, measure
from benchmarks.process import end_at
from benchmarks.report import NONE, Report, Table, comparison
from benchmarks.rivals.replay_spark import Replay
from benchmarks.suites import Settings
from benchmarks.workloads import IntAntispam
from tests.cli.run_cli import command
from tests.patience import LONG
from timelapse.errors import UsageError

SLEEPING = """
import subprocess, sys, time


def candidate(*_, **__):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3000)"])
    time.sleep(3000)
"""


def _alive(folder: Path) -> list[int]:
    """Processes that run with this folder in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if (
                    str(folder).encode() in (entry / "environ").read_bytes()
                    and (entry / "cmdline").read_bytes()
                ):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def _left(folder: Path) -> list[int]:
    """Processes with this folder in their environment that do not end.

    A process that was killed is seen in /proc until the kernel has taken it down: only a parent can wait for that.
    """
    end = time.monotonic() + LONG
    while (found := _alive(folder)) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def test_suites_share_the_time_and_what_is_left_out_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    budgets: list[float] = []
    now = [time.monotonic()]

    def slow(settings: Settings) -> Report:
        budgets.append(settings.budget)
        now[0] += 1.0
        return Report("slow", "slow", {}, [], [Table("slow", ("", "s"), [("it", "1")])])

    monkeypatch.setattr(running, "SUITES", {"one": (slow, 1), "two": (slow, 1), "three": (slow, 1)})
    monkeypatch.setattr(running, "QUICK_MINUTES", 2.4 / 60)
    monkeypatch.setattr(running, "time", SimpleNamespace(monotonic=lambda: now[0]))
    settings = Settings(1000, 1, tmp_path, quick=True, say=said.append)
    assert len(list(running.run([], settings, None, tmp_path))) == 2
    assert budgets == pytest.approx([0.8, 0.7])
    assert "three: left out, the time was spent" in said
    assert said[0].startswith("quick: ")
    assert said[-1].startswith("not measured, for want of time: three; `timelapse bench three --quick`")


def test_what_is_measured_in_this_process_is_stopped_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And whoever had the alarm before has it again."""
    said: list[str] = []

    def endless(settings: Settings) -> Report:
        while True:
            sum(range(1000))

    monkeypatch.setattr(running, "SUITES", {"endless": (endless, 1)})
    monkeypatch.setattr(running, "QUICK_MINUTES", 1.0 / 60)
    before = signal.getsignal(signal.SIGALRM)
    assert (
        list(running.run([], Settings(1000, 1, tmp_path, quick=True, say=said.append), None, tmp_path)) == []
    )
    assert "endless: stopped, its time was spent" in said
    assert said[-1].startswith("not measured, for want of time: endless")
    assert signal.getsignal(signal.SIGALRM) is before


def test_a_candidate_that_hangs_is_stopped_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "hang.py").write_text(SLEEPING)
    made = make(Dataset(500), tmp_path / "data", lambda _: None)
    hanging = Candidate("hang", "Hangs", str(tmp_path / "hang.py"))
    end_at(time.monotonic() + 3)
    try:
        (found,) = measure([(hanging, made)], Bench(1, say=lambda _: None, env={"BENCH_MARK": str(tmp_path)}))
    finally:
        end_at(float("inf"))
    assert (found.state, found.reason) == (SKIPPED, "the time was spent")
    assert found.state != OK
    assert not _left(tmp_path)


def test_a_table_has_its_main_rows_however_little_time_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What tells most runs first, in processes that later benchmarks use too; what did not run is named with the reason."""
    said: list[str] = []
    made = make(Dataset(500), tmp_path / "data", lambda _: None)
    main = replace(PYTHON, rank=0)
    other = replace(PYTHON, name="other", title="Another", rank=2)
    with Pool(tmp_path / "caches") as pool:
        for _ in range(2):
            bench = Bench(1, until=0.0, say=said.append, pool=pool)
            late, one = measure([(other, made), (main, made)], bench)
            assert (one.state, len(one.warm), one.cold) == (OK, 1, None)
            assert (late.state, late.reason) == (SKIPPED, "the time budget was spent")
        assert len(pool._processes) == 1
    show(Report("r", "R", {}, [late, one], [comparison("R", [late, one], {}, {})]))
    told = capsys.readouterr().out
    assert "Another: not run: the time budget was spent" in told
    assert NONE not in told  # neither rows nor columns of nothing


def test_a_benchmark_that_measured_nothing_shows_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a command that measured nothing at all is an error."""
    said: list[str] = []

    def nothing(settings: Settings) -> Report:
        return Report("nothing", "nothing", {}, [Measured("a", "A", 5, SKIPPED, "the time was spent")], [])

    monkeypatch.setattr(running, "SUITES", {"nothing": (nothing, 1)})
    quick = Settings(1000, 1, tmp_path, quick=True, say=said.append)
    assert list(running.run([], quick, None, tmp_path)) == []
    assert "nothing: nothing was measured in its time" in said
    with pytest.raises(UsageError, match="nothing was measured"):
        benched([], 1000, 1, True, None, 1, [], False, tmp_path / "out", tmp_path / "data", False)


def test_what_runs_on_spark_compiles_in_process_first(tmp_path: Path) -> None:
    """The engine is that of the measured replays: the ones that compile for them have no session."""
    made = make(Dataset(500), tmp_path / "data", lambda _: None)
    replay = Replay(made.path / "log", IntAntispam, None, {**OURS.options, "cache": False})
    before = os.environ.get("TIMELAPSE_KERNEL")
    os.environ["TIMELAPSE_KERNEL"] = "auto"
    try:
        replay._compile()
    finally:
        if before is None:
            del os.environ["TIMELAPSE_KERNEL"]
        else:
            os.environ["TIMELAPSE_KERNEL"] = before


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes in /proc")
def test_ctrl_c_ends_it_with_its_processes(tmp_path: Path) -> None:
    started = subprocess.Popen(
        command("bench", "rivals", "--quick", "--data", tmp_path / "data", "--out", tmp_path / "out"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env={**os.environ, "BENCH_MARK": str(tmp_path), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )  # fmt: skip
    try:
        end = time.monotonic() + LONG
        while len(_alive(tmp_path)) < 2 and started.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(1)
        started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=LONG)
    finally:
        started.kill()
    assert started.returncode == 130, out + err
    assert "cancelled" in err
    assert not _left(tmp_path)
