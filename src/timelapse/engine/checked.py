"""Files of a job's scratch that tasks read: what others wrote, on storage that may have changed it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from timelapse.engine.job import Job, Task
from timelapse.store.parts import CheckedFile, altered
from timelapse.tables.table import read_table

AGAIN = "run the same command again; if it goes on failing, check the disk"


class Checked:
    """The files that a task reads, compared with their checksums when they are opened."""

    def __init__(self, job: Job, task: Task) -> None:
        self._job, self._files = job, task.files

    def need(self, path: Path) -> None:
        """Raises StorageError (TL931), which names the file, where one is gone or not what was written."""
        try:
            name = path.relative_to(self._job.scratch).as_posix()
        except ValueError:
            return
        part = self._files.get(name)
        if part is None:
            return
        try:
            CheckedFile(path, part, AGAIN).need()
        except FileNotFoundError:
            raise altered(path, "it is gone", AGAIN) from None

    def table(self, path: Path) -> pa.Table:
        """A table, memory-mapped."""
        self.need(path)
        return read_table(path)
