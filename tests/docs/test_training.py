"""The path from a program to a model, as docs/training.md has it, runs from its first block to its last."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

from tests.patience import LONG

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")


def test_the_page_is_a_script_that_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) >= 6
    (tmp_path / "path.py").write_text("\n\n".join(blocks), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "path.py"], cwd=tmp_path, check=False, capture_output=True, text=True, timeout=LONG
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "4000 ['ts', 'seq', 'login', 'tries', 'failures', 'addresses']"
    assert lines[1] == "['login', 'label', 'tries', 'failures', 'addresses'] 0"
    assert "'user': 6, 'tries': " in lines[2]
    assert float(lines[3].removeprefix("right ")) > 0.95
    alarms = int(lines[4].split()[0])
    assert 300 < alarms < 1000
    assert pq.read_table(tmp_path / "training.parquet").num_rows == 1167
