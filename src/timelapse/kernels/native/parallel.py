"""Compiling several passes at the same time, in processes of their own: Numba compiles one function at a time in each."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from timelapse.errors import StorageError
from timelapse.kernels.native.build import is_compiled, write_source
from timelapse.kernels.native.lowering.unit import Unit
from timelapse.kernels.native.usual import are_compiled
from timelapse.store.scratch import hand_over, scratch_folder


class Compiling:
    """Passes that are being compiled into the cache. Nobody has to wait: who needs one that is not there makes it.

    The longest sources first; at most `processes` at a time. `usual`: then what nearly all passes call, if it was never
    made on this machine. Whatever goes wrong in one of them (no memory, no
    disk) is left to who needs the pass, who will meet it too.
    """

    def __init__(self, units: Sequence[Unit], processes: int, *, usual: bool = False) -> None:
        todo = {unit.source: unit for unit in units if not is_compiled(unit)}
        self._todo: list[Unit | None] = [*sorted(todo.values(), key=lambda unit: -len(unit.source))]
        if usual and not are_compiled():
            self._todo.append(None)
        self._running: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self._stopped = False
        self._folder = scratch_folder("compile") if self._todo else None
        self._threads = [
            threading.Thread(target=self._work, name="timelapse-compile", daemon=True)
            for _ in range(min(processes, len(self._todo)))
        ]
        for thread in self._threads:
            thread.start()

    def __len__(self) -> int:
        """Passes that no process works on yet."""
        return len(self._todo)

    def _work(self) -> None:
        assert self._folder is not None
        while True:
            with self._lock:
                if self._stopped or not self._todo:
                    return
                unit = self._todo.pop(0)
            try:
                paths = [] if unit is None else [write_source(unit, self._folder)]
                with self._lock:
                    if self._stopped:
                        return
                    process = _start(*paths, usual=unit is None)
                    self._running.append(process)
                process.wait()
            except OSError:
                continue

    def wait(self) -> None:
        """Until all are compiled, or could not be."""
        for thread in self._threads:
            thread.join()

    def close(self) -> None:
        """Stop what still runs: nobody needs it any more."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                if process.poll() is None:
                    process.terminate()
        self.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _start(*files: Path, folder: Path | None = None, usual: bool = False) -> subprocess.Popen[bytes]:
    """A compiler of its own. `folder`: removed by it, and then it is one that nobody waits for."""
    package = str(Path(__file__).resolve().parents[3])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    options = [*(["--usual"] if usual else []), *([] if folder is None else ["--remove", str(folder)])]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "timelapse.kernels.compile", *options, *map(str, files)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env,
        start_new_session=folder is not None,
    )  # fmt: skip


def compile_all(units: Sequence[Unit], processes: int) -> None:
    """Compile passes into the cache, so many at a time, and wait. What could not be compiled is not there then."""
    with Compiling(units, processes, usual=bool(units) and processes > 1) as compiling:
        compiling.wait()


def compile_later(units: Sequence[Unit]) -> None:
    """Have passes compiled by a process that nobody waits for, and that outlives this one if need be."""
    todo = [unit for unit in units if not is_compiled(unit)]
    if not todo:
        return
    folder: Path | None = None
    try:
        folder = scratch_folder("compile")
        process = _start(*[write_source(unit, folder) for unit in todo], folder=folder)
        hand_over(folder, process.pid)  # else it would go with this process, at another one's start
    except (OSError, StorageError):
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
