"""A handful of the failures that `python -m benchmarks.kills` makes: processes are killed, disks fill up, files are torn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.patience import LONG


def test_whatever_is_killed_the_result_is_the_serial_loops() -> None:
    """In a process of its own, which forks the drivers that are killed."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "benchmarks.kills", "--runs", "4", "--seed", "3", "--events", "2000"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
    done = subprocess.run(
        command, cwd=root, env=env, capture_output=True, text=True, timeout=LONG, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    totals = json.loads(done.stdout.splitlines()[-1])
    assert totals["wrong"] == 0
    assert totals["killed"] > 0
