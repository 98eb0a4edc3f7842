"""Runs as they were stored before there were checksums: what is changed in them is found by comparing contents."""

from __future__ import annotations

from pathlib import Path

import msgspec

from timelapse.run import Run


def unsealed(run: Run | Path) -> Run:
    """The run, or the one in a folder, its manifest without checksums."""
    folder = run.path if isinstance(run, Run) else run
    assert folder is not None
    path = folder / "run.json"
    stored = msgspec.json.decode(path.read_bytes())
    del stored["files"], stored["seal"]
    path.write_bytes(msgspec.json.encode(stored))
    return Run.open(folder)
