"""The budget holds for all that a replay keeps in memory: states, effects, outputs, Python's own.

Measured is what the process has that no file backs (`RssAnon`), in a process of its own, beside what the same process
needed for a short log: modules, machine code.
"""

from __future__ import annotations

import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import timelapse as tl
from tests.depth import DEPTH, FULL, some
from timelapse.engine import tasks
from timelapse.kernels.choose import SliceKernel
from timelapse.log import Log, Source

KEYS = 600_000
FEW = 90_000
FEWER = 40_000
PROGRAM = '''
"""A key per event, two states, a record per event."""
import json, sys, threading
import timelapse as tl

class Seen(tl.Event):
    user: int
    amount: int
    name: str

class Row(tl.Record):
    user: int
    n: int
    last: int | None

class Grows(tl.Program):
    n: tl.Counter[int]
    last: tl.Value[int, int | None]

    @tl.on(Seen)
    def see(self, e):
        self.n[e.user] += 1
        self.emit(Row(user=e.user, n=self.n[e.user], last=self.last[e.user]))
        self.last[e.user] = e.amount

class Looks(tl.Program):
    """Nothing that windows look at leaves memory by a spill; all rows stay in the longest one."""
    n: tl.Counter[tuple[int, int]]
    seen: tl.Set[int]
    low: tl.Min[str, int | None]

    @tl.on(Seen)
    def see(self, e):
        self.n[e.user, e.amount] += 1
        new = e.user not in self.seen.last(tl.DAY)
        self.seen.add(e.user)
        self.low.add(e.name, e.amount)
        self.emit(Row(user=self.n.last(tl.DAY)[e.user, e.amount], n=int(new), last=self.low.last(tl.DAY)[e.name]))

class Recalls(tl.Program):
    """What each key held, and its operations: nothing leaves a window before the log ends."""
    held: tl.Value[int, int | None]
    low: tl.Min[int, int | None]
    n: tl.Counter[int]

    @tl.on(Seen)
    def see(self, e):
        was = self.held.ago(tl.HOUR)[e.user]
        self.held[e.user] = e.amount
        self.low.add(e.user, e.amount)
        self.n[e.user % 1000] += 1
        self.emit(Row(user=self.n.ago(tl.MINUTE)[e.user % 1000], n=self.low.last(tl.HOUR)[e.user], last=was))

def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) << 10

def main(logs, program, strategy, slices):
    peak, done = 0, threading.Event()

    def watch():
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, anonymous())

    found = []
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    for log in logs:
        peak = anonymous()
        run = tl.replay(globals()[program], log, spark=False, cache=False, strategy=strategy or None, slices=int(slices) or None)
        found.append((peak, run.slices, run.digest, run.state_digest))
    done.set()
    watcher.join()
    print(json.dumps(found))

if __name__ == "__main__":
    main(sys.argv[4:], *sys.argv[1:4])
'''


def run(
    folder: Path, logs: list[Path], strategy: str, asked: int = 0, program: str = "Grows", **settings: str
) -> list[list[object]]:
    """Peak, slices and digests of replays one after the other in one process."""
    import json

    found = subprocess.run(
        [sys.executable, str(folder / "program.py"), program, strategy, str(asked), *map(str, logs)],
        env={**os.environ, **settings}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    made: list[list[object]] = json.loads(found.stdout.splitlines()[-1])
    return made


class Seen(tl.Event):
    user: int
    amount: int
    name: str


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, and logs in which no user comes twice."""
    made = tmp_path_factory.mktemp("memory")
    (made / "program.py").write_text(PROGRAM)
    users = np.random.default_rng(1).permutation(KEYS).astype(np.int64) * 7919
    for events in (3000, FEWER, FEW, KEYS):
        raw = made / f"raw-{events}.parquet"
        table = {
            "ts": np.arange(events) * 1000, "user": users[:events], "amount": np.arange(events) % 1000,
            "name": pa.array([f"{user:x}" for user in users[:events]]),
        }  # fmt: skip
        pq.write_table(pa.table(table), raw)
        Log.write(made / f"log-{events}", {Seen: Source(str(raw))})
    return made


@pytest.fixture(scope="module")
def without_budget(folder: Path) -> Callable[[str, int, str], list[object]]:
    """What a run with all the memory there is needs and gives: each strategy has a run of its own in a deep run."""
    found: dict[tuple[str, int, str], list[object]] = {}

    def needs(kernel: str, events: int, strategy: str) -> list[object]:
        asked = (kernel, events, strategy if DEPTH >= FULL else "")
        if asked not in found:
            (found[asked],) = run(folder, [folder / f"log-{events}"], asked[2], TIMELAPSE_KERNEL=kernel)
        return found[asked]

    return needs


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux to measure")
@pytest.mark.parametrize(
    ("kernel", "events", "megabytes", "strategy", "asked"),
    some(
        [
            ("native", KEYS, 30, "", 0),
            ("native", KEYS, 30, "chain", 0),
            ("native", KEYS, 30, "chain", 1),
            ("python", FEW, 10, "", 0),
            ("python", FEW, 10, "chain", 1),
            ("interpreted", FEW, 10, "", 0),
        ],
        4,
    ),
)
def test_the_budget_holds(
    folder: Path, without_budget: Callable[[str, int, str], list[object]], kernel: str, events: int, megabytes: int,
    strategy: str, asked: int,
) -> None:  # fmt: skip
    """1.3 times the budget and no more than some megabytes for blocks of events in flight; the result is the same. Also where
    a single slice was asked for."""
    logs = [folder / "log-3000", folder / f"log-{events}"]
    budget = {"TIMELAPSE_KERNEL": kernel, "TIMELAPSE_MEMORY": f"{megabytes}M"}
    (before, *_), (peak, slices, *result) = run(folder, logs, strategy, asked, **budget)
    assert isinstance(before, int)
    assert isinstance(peak, int)
    assert isinstance(slices, int)
    assert slices > 5 if not asked else slices == asked
    assert peak - before < (1.3 * megabytes + 40) * 2**20
    large, one, *expected = without_budget(kernel, events, strategy)
    assert one == 1
    assert result == expected
    assert isinstance(large, int)
    if kernel == "native":  # a test that would see it
        assert large - before > 3 * megabytes * 2**20


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux to measure")
@pytest.mark.parametrize(
    ("kernel", "program", "events", "megabytes", "seen"),
    [("native", "Looks", KEYS, 30, 3), ("interpreted", "Recalls", FEWER, 4, 10)],
)
def test_the_budget_holds_for_windows(
    folder: Path, kernel: str, program: str, events: int, megabytes: int, seen: int
) -> None:
    """Compiled, sums, latest operations and queues, with keys of integers, tuples and texts: tables and logs go to files. As Python, what windows
    have by key goes to a file with the states, rows to others; handlers go on from there."""
    logs = [folder / "log-3000", folder / f"log-{events}"]
    budget, as_asked = {"TIMELAPSE_MEMORY": f"{megabytes}M"}, {"TIMELAPSE_KERNEL": kernel}
    (before, *_), (peak, slices, *result) = run(folder, logs, "", 0, program, **as_asked, **budget)
    ((large, one, *expected),) = run(folder, logs[1:], "", 0, program, **as_asked)
    assert result == expected
    assert isinstance(before, int)
    assert isinstance(peak, int)
    assert isinstance(large, int)
    assert slices != one
    assert peak - before < (1.3 * megabytes + 40) * 2**20
    assert large - before > seen * megabytes * 2**20  # a test that would see it


class Count(tl.Program):
    n: tl.Counter[int]

    @tl.on(Seen)
    def see(self, e: Seen) -> None:
        self.n[e.user] += e.amount


@pytest.mark.parametrize("kernel", ["python", "interpreted"])
def test_a_kernel_whose_states_are_in_files_is_gone(monkeypatch: pytest.MonkeyPatch, kernel: str) -> None:
    """It is in a cycle, and garbage is looked for rarely: its states would stay beside those of the next ones."""
    made: list[weakref.ref[object]] = []
    alive: list[int] = []
    plain = SliceKernel

    def begun(*args: Any, **named: Any) -> object:
        alive.append(sum(one() is not None for one in made))
        kernel = plain(*args, **named)
        made.extend(map(weakref.ref, (part for part in kernel.parts if part is not None)))
        return kernel

    monkeypatch.setenv("TIMELAPSE_KERNEL", kernel)
    monkeypatch.setenv("TIMELAPSE_MEMORY", "1M")
    monkeypatch.setattr(tasks, "SliceKernel", begun)
    events = [Seen(user=n, amount=1, name="", ts=n) for n in range(20_000)]
    tl.replay(Count, events, spark=False, cache=False)
    assert len(alive) > 4
    assert max(alive) == 0, alive
