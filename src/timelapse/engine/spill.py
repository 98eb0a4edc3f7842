"""A chain whose states outgrow their memory: between two slices they go to files, and the chain goes on from there.

The next slices take over from the files what they touch (tables/lookup.py), so memory grows with the keys
that are touched between two such stops, not with those of the whole log.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from timelapse.engine.job import Job
from timelapse.model.program import spec_of
from timelapse.tables import merge
from timelapse.tables.apply import empty
from timelapse.tables.table import read_table


class Spill:
    """The states in files, as of the last stop."""

    def __init__(self, job: Job, states: Sequence[str], starts: Mapping[str, pa.Table]) -> None:
        """`starts`: the states at the chain's beginning; one that is missing there is empty."""
        self._job = job
        specs = spec_of(job.program).states
        self._specs = {name: specs[name] for name in states}
        self._now = {name: starts.get(name, empty(spec)) for name, spec in self._specs.items()}
        self._changes: dict[str, list[Path]] = {name: [] for name in states}
        self._folder: Path | None = None

    def add(self, state: str, change: Path) -> None:
        """A slice changed a state: the file with its const effects. No file: it did not."""
        self._changes[state].append(change)

    def stop(self) -> dict[str, pa.Table] | None:
        """The states now, memory-mapped; None where the disk cannot take them."""
        folder = self._job.scratch / "spill" / uuid.uuid4().hex
        try:
            folder.parent.mkdir(exist_ok=True)
            folder.mkdir()
            for name, spec in self._specs.items():
                changes = [read_table(path) for path in self._changes[name] if path.exists()]
                merge.fold_to(spec, self._now[name], changes, folder / f"{name}.arrow")
        except OSError:
            if self._job.scratch.exists():
                shutil.rmtree(folder, ignore_errors=True)
                return None
            raise  # the job was cancelled
        self._now = {name: read_table(folder / f"{name}.arrow") for name in self._specs}
        self._changes = {name: [] for name in self._specs}
        self.close()
        self._folder = folder
        return self._now

    def close(self) -> None:
        """Give the disk space back. What is mapped stays readable."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
