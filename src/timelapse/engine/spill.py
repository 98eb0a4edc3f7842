"""A chain whose states outgrow their memory: between two slices they go to files, and the chain goes on from there.

The next slices take over from the files what they touch (tables/lookup.py), so memory grows with the keys
that are touched between two such stops, not with those of the whole log. What changed between two stops is in files
already, as each slice's effects: it becomes a level of the state (tables/levels.py), and the rest stays where it is.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from timelapse.engine.job import Job
from timelapse.program.program import spec_of
from timelapse.tables import merge
from timelapse.tables.apply import empty
from timelapse.tables.levels import Levels
from timelapse.tables.table import read_table

MERGING = 4
"""Merging takes no more than this part of the budget."""


class Spill:
    """The states in files, as of the last stop."""

    def __init__(self, job: Job, states: Sequence[str], starts: Mapping[str, pa.Table]) -> None:
        """`starts`: the states at the chain's beginning; one that is missing there is empty."""
        self._job = job
        specs = spec_of(job.program).states
        self._specs = {name: specs[name] for name in states}
        self._now = {name: Levels(spec, starts.get(name, empty(spec))) for name, spec in self._specs.items()}
        self._changes: dict[str, list[Path | pa.Table]] = {name: [] for name in states}
        self._files: dict[str, list[Path | None]] = {name: [None] for name in states}
        """By state each level's file, where it was made here."""
        self._folder = job.scratch / "spill" / uuid.uuid4().hex
        # The states are in memory until what is merged is in files.
        self._budget = None if job.memory is None else job.memory // MERGING
        self.written = 0
        """Rows that were merged, as the files have them: what stopping took."""

    def add(self, state: str, change: Path | pa.Table) -> None:
        """A slice changed a state: its const effects, memory-mapped, or their file. No file: it did not."""
        self._changes[state].append(change)

    def _changed(self, state: str) -> tuple[pa.Table, ...]:
        """What changed since the last stop."""
        known = [c for c in self._changes[state] if isinstance(c, pa.Table) or c.exists()]
        tables = [c if isinstance(c, pa.Table) else read_table(c) for c in known]
        return tuple(table for table in tables if table.num_rows)

    def now(self, state: str) -> Levels:
        """A state as of now: what changed since the last stop is a level for each file."""
        known = self._now[state]
        return known.followed_by(known.base, (*known.changes, *self._changed(state)))

    def stop(self) -> Mapping[str, Levels] | None:
        """The states now, memory-mapped; None where the disk cannot take them."""
        try:
            self._folder.parent.mkdir(exist_ok=True)
            self._folder.mkdir(exist_ok=True)
            for name in self._now:
                self._take_in(name)
        except OSError:
            if self._job.scratch.exists():
                return None
            raise  # the job was cancelled
        return self._now

    def _take_in(self, name: str) -> None:
        """What changed of a state since the last stop becomes levels of it."""
        state, files = self._now[name], self._files[name]
        changes = self._changed(name)
        now = state.followed_by(state.base, (*state.changes, *changes))
        files = [*files, *(None for _ in changes)]
        at = now.to_merge()
        if at < len(files):
            path = self._folder / f"{name}-{uuid.uuid4().hex}.arrow"
            now = self._merged(now, at, path)
            for old in files[at:]:
                if old is not None:
                    old.unlink()
            files = [*files[: len(now.changes)], path]
        self._now[name], self._files[name], self._changes[name] = now, files, []

    def _merged(self, state: Levels, at: int, path: Path) -> Levels:
        """The state with its levels from one on as one, in a file."""
        below = state.changes[: max(0, at - 1)]
        if (at > 1 or state.base.num_rows) and at:
            if merge.together_to(state.spec, state.changes[at - 1 :], path, self._budget):
                merged = read_table(path)
                self.written += merged.num_rows
                return state.followed_by(state.base, (*below, merged))
        merge.fold_to(state.spec, state.base, state.changes, path, self._budget)
        base = read_table(path)
        self.written += base.num_rows
        return state.followed_by(base, ())

    def close(self) -> None:
        """Give the disk space back. What is mapped stays readable."""
        shutil.rmtree(self._folder, ignore_errors=True)
