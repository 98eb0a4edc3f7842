"""What windows as long as the log take in memory: one process per kind of window, over one stored log.

    python -m benchmarks.long_windows --events 1000000 --days 30 --window 30

The log has messages of so many users, evenly over the days. Each program counts, and asks one window at every message; "none"
asks none. Printed are what was put out, CPU seconds of the replay and the most memory that its process ever
had. Handlers run as Python, slice after slice, as that is where rows wait.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import timelapse as tl
from timelapse.store.scratch import temporary_folder

WINDOW = int(os.environ.get("LONG_WINDOW", "30")) * tl.DAY


class Message(tl.Event):
    user: int
    to: int


class Found(tl.Record):
    n: int


class Windowless(tl.Program):
    """No window."""

    sent: tl.Counter[int]

    @tl.on(Message)
    def go(self, m: Message) -> None:
        self.sent[m.user] += 1
        if self.sent[m.user] % 50 == 0:
            self.emit(Found(n=self.sent[m.user]))


class Sums(tl.Program):
    """`last` of a Counter."""

    sent: tl.Counter[int]

    @tl.on(Message)
    def go(self, m: Message) -> None:
        self.sent[m.user] += 1
        n = self.sent.last(WINDOW)[m.user]
        if n % 50 == 0:
            self.emit(Found(n=n))


class Latest(tl.Program):
    """`last` of a Set of pairs."""

    met: tl.Set[tuple[int, int]]
    again: tl.Counter[int]

    @tl.on(Message)
    def go(self, m: Message) -> None:
        if (m.user, m.to) in self.met.last(WINDOW):
            self.emit(Found(n=m.to))
        self.met.add((m.user, m.to))


class Versions(tl.Program):
    """`ago` of a Value: each version that may still be asked for."""

    place: tl.Value[int, int] = tl.state(default=-1)

    @tl.on(Message)
    def go(self, m: Message) -> None:
        self.place[m.user] = m.to
        if self.place.ago(WINDOW)[m.to % 20_000] == m.user:
            self.emit(Found(n=m.to))


class Folds(tl.Program):
    """`last` of a Max: each operation in the window."""

    best: tl.Max[int, int] = tl.state(default=-1)

    @tl.on(Message)
    def go(self, m: Message) -> None:
        self.best.add(m.user, m.to)
        if m.to > 99_990 and self.best.last(WINDOW)[m.user] == m.to:
            self.emit(Found(n=m.to))


PROGRAMS = {"none": Windowless, "sums": Sums, "latest": Latest, "versions": Versions, "operations": Folds}


def _events(count: int, days: int, users: int) -> Iterator[Message]:
    step = days * tl.DAY // count
    word = 1
    for i in range(count):
        word = word * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        yield Message(user=(word >> 33) % users, to=(word >> 11) % 100_000, ts=i * step)


def _measure(kind: str, log: str) -> None:
    began = time.process_time()
    run = tl.replay(PROGRAMS[kind], tl.Log.open(log), spark=False, strategy="chain", cache=False)
    seconds = time.process_time() - began
    print(json.dumps({"out": run.counts.get("Found", 0), "seconds": seconds, "peak": _peak()}))


def _peak() -> float:
    """The most memory that this program has had, in MB: getrusage also counts what its parent had when it began."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:  # not Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--window", type=int, default=30)
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--kinds", default=",".join(PROGRAMS))
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        _measure(*given.one)
        return
    environment = {**os.environ, "TIMELAPSE_KERNEL": "python", "LONG_WINDOW": str(given.window)}
    with temporary_folder("long-windows", large=True) as folder:
        log = str(folder / "log")
        tl.Log.from_events(log, _events(given.events, given.days, given.users), [Message])
        print("| window | outputs | CPU seconds | peak MB |\n|---|---|---|---|")
        for kind in given.kinds.split(","):
            command = [sys.executable, "-m", "benchmarks.long_windows", "--one", kind, log]
            done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
            row = json.loads(done.stdout.splitlines()[-1])
            print(
                f"| {kind} | {row['out']:,} | {row['seconds']:.1f} | {row['peak']:,.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
