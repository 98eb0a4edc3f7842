"""A live run for many minutes: rates change, the state grows. Do latency and memory stay level?

    python -m benchmarks.soak --minutes 20

Each minute has the same rates, one after the other (`--rates`), so that minutes compare. Rows are of a set of users that grows by `--growth` a second;
the program counts each user's rows, looks back a minute on that, and calls a handler ten seconds later. Told for each minute: rows, latency from the moment at
which rows are durable to the commit of the epoch that has processed them, the memory of the process (the generator is a thread of it), keys, and bytes on disk.

Level means: the median of the 99th percentiles of the last half is at most 1.5 times that of the first half; and in the last half memory grows
by at most 1.5 times as many bytes a new user as in the first half, or by less than 16 MB in all. The first minute does not count. In the end the journal is replayed (parity).
Exit code 1 where something is not level, or differs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

import timelapse as tl
from timelapse.store.scratch import process_folder

_PAUSE = 0.02
_MOST = 1.5
_SMALL = 16 << 20


class Act(tl.Event):
    user: int
    size: int


class Busy(tl.Record):
    user: int
    recent: int


class Tally(tl.Program):
    most: int = 60
    total: tl.Counter[int]
    calls: tl.Counter[int]

    @tl.on(Act)
    def act(self, e: Act) -> None:
        self.total[e.user] += e.size
        if self.total.last(tl.MINUTE)[e.user] > self.most:
            self.emit(Busy(user=e.user, recent=self.total.last(tl.MINUTE)[e.user]))

    @tl.on(Act, after=10 * tl.SECOND)
    def later(self, e: Act) -> None:
        self.calls[e.user % 1000] += 1


class Generator(threading.Thread):
    """Sends rows at the rates of the plan, and notes when each batch was durable and its last time."""

    def __init__(self, push: tl.Push, rates: list[int], minutes: float, users: int, growth: int) -> None:
        super().__init__(name="generator", daemon=True)
        self._push, self._rates, self._minutes, self._users, self._growth = (
            push,
            rates,
            minutes,
            users,
            growth,
        )
        self.sent: deque[tuple[int, float, int]] = deque()
        self.rows = self.users = 0
        self.busy = 0.0
        self.late = 0.0
        """Seconds by which it was behind its plan at most: then the rates are lower than they are said to be."""

    def run(self) -> None:
        rng = np.random.default_rng(1)
        begin = time.perf_counter()
        ts = time.time_ns() // 1000
        step = 0
        while (now := step * _PAUSE) < 60 * self._minutes:
            left = begin + now - time.perf_counter()
            if left > 0:
                time.sleep(left)
            self.late = max(self.late, -left)
            mine = time.thread_time()
            rate = self._rates[int(now % 60 / 60 * len(self._rates))]
            count = max(1, int(rate * _PAUSE))
            self.users = self._users + int(self._growth * now)
            end = max(time.time_ns() // 1000, ts + count)
            stamps = np.linspace(ts + 1, end, count).astype(np.int64)
            ts = end
            rows = {
                "ts": stamps,
                "user": rng.integers(0, self.users, count),
                "size": rng.integers(1, 10, count),
            }
            self._push.send(pa.table(rows))
            self.sent.append((end, time.perf_counter(), count))
            self.rows += count
            self.busy += time.thread_time() - mine
            step += 1
        self._push.close()


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run it, and tell of each minute as it ends."""
    push = tl.Push()
    generator = Generator(push, args.rates, args.minutes, args.users, args.growth)
    latencies: list[tuple[float, int]] = []
    run = tl.live(
        Tally, {Act: push}, folder / "out", trigger=args.trigger, idle=None, checkpoint=args.checkpoint
    )

    def follow(epoch: Any, sections: Any) -> None:
        now = time.perf_counter()
        while generator.sent and epoch.complete is not None and generator.sent[0][0] <= epoch.complete:
            _, moment, count = generator.sent.popleft()
            latencies.append((now - moment, count))

    run.follow(follow)
    generator.start()
    process = psutil.Process()
    minutes = []
    print(
        "| minute | rows/s | p50 ms | p99 ms | memory MB | users | checkpoints MB | journal MB |\n|---:|---:|---:|---:|---:|---:|---:|---:|",
        flush=True,
    )
    before = 0
    for number in range(1, int(args.minutes) + 1):
        generator.join(60)
        taken, latencies[:] = latencies[:], []
        p50, p99 = _percentiles(taken, (0.5, 0.99))
        row = {
            "minute": number, "rows": (generator.rows - before) / 60, "p50": 1000 * p50, "p99": 1000 * p99, "memory": process.memory_info().rss,
            "users": generator.users, "checkpoints": _bytes(folder / "out" / "checkpoints"), "journal": _bytes(folder / "out" / "epochs"),
        }  # fmt: skip
        before = generator.rows
        minutes.append(row)
        print(
            f"| {number} | {row['rows']:,.0f} | {row['p50']:.0f} | {row['p99']:.0f} | {row['memory'] / 1e6:,.0f} | {row['users']:,} | "
            f"{row['checkpoints'] / 1e6:,.0f} | {row['journal'] / 1e6:,.0f} |",
            flush=True,
        )
    run.wait()
    compiled = run.compiled
    parity = run.parity()
    return {
        "minutes": minutes, "compiled": compiled, "rows": generator.rows, "generator_share": generator.busy / (60 * args.minutes),
        "generator_late": generator.late, "parity": parity.text, **judged(minutes), "same": parity.same,
    }  # fmt: skip


def judged(minutes: list[dict[str, Any]]) -> dict[str, Any]:
    """Whether latency and memory are level, with the figures."""
    counted = minutes[1:]
    if len(counted) < 4:
        return {"level": None, "why": "it takes five minutes to judge"}
    half = len(counted) // 2
    first, last = counted[:half], counted[-half:]
    p99 = [statistics.median(m["p99"] for m in part) for part in (first, last)]
    grown = [part[-1]["memory"] - part[0]["memory"] for part in (first, last)]
    new = [max(1, part[-1]["users"] - part[0]["users"]) for part in (first, last)]
    each = [g / n for g, n in zip(grown, new, strict=True)]
    latency = p99[1] <= _MOST * p99[0]
    memory = each[1] <= _MOST * max(each[0], 0) or grown[1] < _SMALL
    return {
        "level": latency and memory, "p99_ms_of_halves": p99, "bytes_for_a_new_user_of_halves": each, "memory_grown_of_halves": grown,
        "latency_level": latency, "memory_level": memory,
    }  # fmt: skip


def _percentiles(taken: list[tuple[float, int]], at: tuple[float, ...]) -> list[float]:
    if not taken:
        return [float("nan")] * len(at)
    values, weights = (np.array(part) for part in zip(*taken, strict=True))
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    return [float(values[order[int(np.searchsorted(share, q))]]) for q in at]


def _bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*") if folder.is_dir() else ():
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # collected just now
            continue
    return total


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument(
        "--rates", type=lambda text: [int(r) for r in text.split(",")], default=[5_000, 20_000, 60_000, 2_000]
    )
    parser.add_argument("--users", type=int, default=200_000, help="users in the beginning")
    parser.add_argument("--growth", type=int, default=1_000, help="new users a second")
    parser.add_argument("--trigger", default="500ms")
    parser.add_argument("--checkpoint", default="10s")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    folder = process_folder("soak", large=True)
    try:
        found = measure(args, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(found if args.json else {k: v for k, v in found.items() if k != "minutes"}, indent=1))
    sys.exit(0 if found["same"] and found["level"] is not False else 1)


if __name__ == "__main__":
    main()
