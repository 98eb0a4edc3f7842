"""`timelapse bench` finds the benchmarks of its checkout, and says where they are to be had elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import timelapse


def _bench(package_folder: Path, here: Path) -> subprocess.CompletedProcess[str]:
    """The command in a process that finds the package in that folder, started in another one."""
    return subprocess.run(
        [sys.executable, "-m", "timelapse.cli.main", "bench", "--targets", "--out", str(here)],
        cwd=here, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(package_folder)},
    )  # fmt: skip


def test_it_finds_the_benchmarks_beside_src(tmp_path: Path) -> None:
    """From any folder, and another package called benchmarks there is not taken for them."""
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").write_text("raise RuntimeError('not these')")
    done = _bench(Path(timelapse.__file__).parents[1], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Targets (10 million events, 2 cores)" in done.stdout


def test_without_a_checkout_it_says_where_they_are(tmp_path: Path) -> None:
    """The package alone, as a wheel installs it, ends with TL720."""
    source = Path(timelapse.__file__).parent
    shutil.copytree(source, tmp_path / "site" / "timelapse", ignore=shutil.ignore_patterns("__pycache__"))
    done = _bench(tmp_path / "site", tmp_path)
    assert done.returncode == 2
    assert "TL720" in done.stderr
    assert "git clone" in done.stderr
