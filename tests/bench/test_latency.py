"""`timelapse bench live`: what its candidates find is compared, and the figures are those of the processes."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from benchmarks import latency, live_side, run
from benchmarks.suites import Settings
from tests.patience import LONG


def _settings(tmp_path: Path, *, quick: bool) -> Settings:
    (tmp_path / "data").mkdir()
    return Settings(2_000, 1, tmp_path / "data", quick=quick, say=lambda _: None)


def test_tables_and_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With processes that are given: who is slow, wrong or fails is said."""

    def ran(command: list[str], seconds: float) -> dict[str, Any]:
        if command[0] == "benchmarks.live":
            rate = int(command[command.index("--rate") + 1])
            return {"p50_ms": rate / 1000, "p99_ms": rate / 10, "rows_per_second": rate}
        if command[1] == "structured":
            return {"p50_ms": 9.0, "p99_ms": 10.0, "behind": 7.0, "flagged": 3, "right": True}
        if command[1] == "bytewax":
            return {"reason": "it failed"}
        return {"p50_ms": 1.0, "p99_ms": 2.0, "behind": 0.1, "flagged": 3, "right": False}

    monkeypatch.setattr(latency, "_run", ran)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    [(report, files)] = list(run.run(["live"], _settings(tmp_path, quick=False), None, tmp_path))
    assert {f.suffix for f in files} == {".json", ".md", ".svg"}
    assert report.values["200000 rows/s, 500ms: p99_ms"] == 20_000
    text = (tmp_path / "live.md").read_text(encoding="utf-8")
    assert "200 / 20,000 (200,000/s)" in text
    assert "does not keep up" in text
    assert "DIFFERENT" in text
    assert "it failed" in text


def test_a_candidate_is_measured(tmp_path: Path) -> None:
    """For real, a moment of it: rows are counted as the program says, and latencies are there."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.live_side",
        "timelapse",
        str(tmp_path / "one"),
        "--rate",
        "2000",
        "--seconds",
        "1",
    ]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=True, cwd=root)
    found = json.loads(done.stdout)
    assert found["right"]
    assert found["flagged"] >= 0
    assert 0 < found["p50_ms"] <= found["p99_ms"]


def test_what_is_expected_is_the_program(tmp_path: Path) -> None:
    """The count by hand, beside the serial loop."""
    from timelapse.run import run_serial

    ends = live_side.prepare(tmp_path / "one", 40_000, 0.4)
    for file in sorted((tmp_path / "one" / "aside").iterdir()):
        file.rename(tmp_path / "one" / "in" / file.name)
    rows = [r for f in sorted((tmp_path / "one" / "in").iterdir()) for r in pq.read_table(f).to_pylist()]
    events = [live_side.Mail(**row) for row in rows[:-1]]
    run_ = run_serial(live_side.Spammy, events)
    wanted = live_side.expected(tmp_path / "one", ends[-1])
    assert run_.table(live_side.Flagged)["id"].to_pylist() == wanted
    assert len(wanted) > 20
