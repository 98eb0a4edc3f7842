"""A replay in a process of its own that watches what it keeps in memory. As a script: PROGRAM SHORT_LOG LOG FOLDER.

What no file backs is counted (`RssAnon`): what is mapped from files the system takes back when it needs to.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Self

_SECONDS = 0.005


def anonymous() -> int:
    """Bytes of this process that no file backs. 0 where the system does not say (only Linux does)."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) << 10
    except (OSError, StopIteration):
        return 0


class Peak:
    """The most that was seen of `anonymous` within the block."""

    def __enter__(self) -> Self:
        self.bytes, self._end = anonymous(), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(_SECONDS):
            self.bytes = max(self.bytes, anonymous())


def main(program: str, short: str, log: str, folder: str) -> None:
    """Print what the replay of a log takes beside that of a short one."""
    import timelapse as tl
    from timelapse.program.load import load_program

    chosen = load_program(program)
    with Peak() as usual:
        tl.replay(chosen, tl.Log.open(short), spark=False, cache=False)
    wall, cpu = time.perf_counter(), time.process_time()
    with Peak() as peak:
        run = tl.replay(chosen, tl.Log.open(log), spark=False, cache=False, out=Path(folder, "run"))
    found = {
        "peak": max(0, peak.bytes - usual.bytes), "wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu,
        "slices": run.slices, "result": f"{run.digest} {run.state_digest}",
    }  # fmt: skip
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
