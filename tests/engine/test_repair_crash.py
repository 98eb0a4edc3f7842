"""Iterate, and what happens to it: killed in the middle and run again; a task that is given up and done once more."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.engine.repair_programs import Bank
from tests.engine.test_repair import moves, repairs
from tests.patience import LONG
from timelapse.divergence import assert_same
from timelapse.engine import tasks
from timelapse.engine.job import Job, Task, TaskResult
from timelapse.engine.tasks import Report
from timelapse.run import Run, replay, run_serial

CHILD = """
    import sys
    import timelapse.kernels.iterate.recording as recording
    from tests.engine.dying import dying
    from tests.engine.repair_programs import Bank
    from tests.engine.test_repair import moves
    from timelapse.kernels.iterate.repair import RepairKernel
    from timelapse.run import replay

    out, where, count = sys.argv[1], sys.argv[2], int(sys.argv[3])

    if where == "recording":
        recording.write_table = dying(recording.write_table, count)
    elif where == "repair":
        RepairKernel.run = dying(RepairKernel.run, count)
    replay(Bank, moves(60), out=out, slices=4, spark=False, strategy="iterate", overwrite=True)
"""


@pytest.mark.parametrize(("where", "count"), [("recording", 4), ("repair", 2)])
def test_a_replay_that_is_killed_can_be_repeated(tmp_path: Path, where: str, count: int) -> None:
    """With half a recording written, and with some slices repaired: no run is there, and the next gives the serial result."""
    out = tmp_path / "run"
    command = [sys.executable, "-c", textwrap.dedent(CHILD), str(out), where, str(count)]
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    assert subprocess.run(command, cwd=root, env=env, check=False, timeout=LONG).returncode == 9
    assert not out.exists()
    assert list(tmp_path.iterdir()), "the child died before it began"
    run = replay(Bank, moves(60), out=out, slices=4, spark=False, strategy="iterate")
    assert_same(run_serial(Bank, moves(60)), run)
    assert repairs(run)["again"] > 0
    assert Run.open(out).digest == run.digest
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_task_that_is_done_again_finds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Spark does where it loses a worker: guesses whose recording is there already, and a repair that had begun."""
    guess, repaired = tasks._guess, tasks._repair
    done: list[str] = []

    def twice(job: Job, task: Task, report: Report) -> TaskResult:
        first = guess(job, task, report)
        assert job.recording_path(first.reports[0].attempt).is_dir()
        again = guess(job, task, report)
        done.append("guess")
        assert (first.failure, again.failure) == (None, None)
        return again

    def interrupted(job: Job, task: Task, report: Report) -> TaskResult:
        keep, calls = tasks._keep_effects, 0

        class LostError(Exception):
            pass

        def dying(job: Job, task: Task) -> object:
            write = keep(job, task)

            def call(*arguments: object) -> None:
                nonlocal calls
                calls += 1
                write(*arguments)  # type: ignore[arg-type]
                if calls == 2:
                    raise LostError

            return call

        with monkeypatch.context() as patch, pytest.raises(LostError):
            patch.setattr(tasks, "_keep_effects", dying)
            repaired(job, task, report)
        done.append("repair")
        return repaired(job, task, report)

    monkeypatch.setattr(tasks, "_guess", twice)
    monkeypatch.setattr(tasks, "_repair", interrupted)
    run = replay(Bank, moves(60), out=tmp_path / "run", slices=5, spark=False, strategy="iterate")
    assert_same(run_serial(Bank, moves(60)), run)
    assert set(done) == {"guess", "repair"}
    assert run.certificate["fallback"] is None
    assert repairs(run)["again"] > 0
