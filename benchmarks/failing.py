"""What events cost that fail and are taken out of the log (`--quarantine`): compiled, with windows, with timers, and
long after their time.

python -m benchmarks.failing --events 1000000
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import timelapse as tl
from timelapse.store.scratch import temporary_folder

SHARES = (0, 10_000, 100)
"""One event in so many fails; 0: none."""


class Pay(tl.Event):
    who: int
    to: int
    amount: int


class Due(tl.Event):
    who: int


class Big(tl.Record):
    who: int
    total: int


class Failing(tl.Program):
    """A counter and a set; one event in `bad` fails after its writes."""

    bad: int = 100
    total: tl.Counter[int]
    seen: tl.Set[tuple[int, int]]

    @tl.on(Pay)
    def pay(self, p: Pay) -> None:
        self.total[p.who] += p.amount
        self.seen.add((p.who, p.to))
        if self.bad and p.amount % self.bad == 7:
            raise ValueError(f"bad {p.amount}")
        if self.total[p.who] > 100_000 and (p.to, p.who) in self.seen:
            self.emit(Big(who=p.who, total=self.total[p.who]))


class FailingWindows(Failing):
    @tl.on(Pay)
    def lately(self, p: Pay) -> None:
        if self.total.last(tl.HOUR)[p.who] > 60_000:
            self.emit(Big(who=p.who, total=self.total.last(tl.HOUR)[p.who]))


class FailingTimers(Failing):
    late: tl.Counter[int]

    @tl.on(Pay)
    def arm(self, p: Pay) -> None:
        self.send(Due(who=p.who), after=10 * tl.MINUTE, key=p.who)

    @tl.on(Due)
    def due(self, d: Due) -> None:
        self.late[d.who] += 1


class Called(tl.Event):
    who: int
    amount: int


class Later(Failing):
    """An event's own step does not fail."""

    late: tl.Counter[int]

    @tl.on(Pay)
    def pay(self, p: Pay) -> None:
        self.total[p.who] += p.amount
        self.seen.add((p.who, p.to))
        if self.total[p.who] > 100_000 and (p.to, p.who) in self.seen:
            self.emit(Big(who=p.who, total=self.total[p.who]))


class FailingLate(Later):
    """What fails does so ten minutes after its event: some 30,000 others lie between."""

    @tl.on(Pay)
    def call(self, p: Pay) -> None:
        self.send(Called(who=p.who, amount=p.amount), after=10 * tl.MINUTE)

    @tl.on(Called)
    def called(self, c: Called) -> None:
        self.late[c.who] += 1
        if self.bad and c.amount % self.bad == 7:
            raise ValueError(f"bad {c.amount}")


class FailingCalls(Later):
    """What fails does so in a call `lag` after its event. This compiles."""

    lag: int = tl.SECOND

    @tl.on(Pay, after="lag")
    def called(self, p: Pay) -> None:
        self.late[p.who] += 1
        if self.bad and p.amount % self.bad == 7:
            raise ValueError(f"bad {p.amount}")


class FailingByState(FailingCalls):
    """As many fail, and a state decides which, to which only such calls write."""

    @tl.on(Pay, after="lag")
    def called(self, p: Pay) -> None:
        self.late[p.who] += 1
        if self.bad and (p.amount + self.late[p.who]) % self.bad == 7:
            raise ValueError(f"bad {p.amount}")


class FailingByTotal(FailingCalls):
    """As many fail, and a state decides which, to which events' own steps write."""

    @tl.on(Pay, after="lag")
    def called(self, p: Pay) -> None:
        self.late[p.who] += 1
        if self.bad and (p.amount + self.total[p.who]) % self.bad == 7:
            raise ValueError(f"bad {p.amount}")


def log_of(folder: Path, events: int) -> tl.Log:
    """Payments among a fiftieth as many people, fifty a second."""
    rng = np.random.default_rng(1)
    people = max(2, events // 50)
    table = pa.table(
        {
            "ts": np.sort(rng.integers(0, events * 20_000, events)) + 1_759_276_800_000_000,
            "who": rng.integers(0, people, events),
            "to": rng.integers(0, people, events),
            "amount": rng.integers(0, 10_000, events),
        }
    )
    return tl.Log.write(folder / "log", {Pay: table}, ts="ts", unit="us")


PROGRAMS = (
    Failing, FailingWindows, FailingTimers, FailingLate, FailingCalls, FailingByState, FailingByTotal,
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument(
        "--rounds", type=int, default=2, help="medians of all but the first, which compiles, are shown"
    )
    parser.add_argument("--only", nargs="*", help="programs")
    parser.add_argument("--lag", type=float, default=1, help="seconds, of FailingCalls and those after it")
    given = parser.parse_args()
    os.environ["TIMELAPSE_KERNEL"] = "native"  # waits for the compiler
    named = ["no bad event" if n == 0 else f"1 in {n:,}" for n in SHARES]
    print("| program | without quarantine, s | " + " | ".join(named) + " |")
    print("|---|---:|---:|---:|---:|")
    with temporary_folder("failing", large=True) as folder:
        log = log_of(folder, given.events)
        for cls in PROGRAMS:
            if given.only and cls.__name__ not in given.only:
                continue
            lag = {"lag": int(given.lag * tl.SECOND)} if issubclass(cls, FailingCalls) else {}
            rounds = [
                [_replayed(cls(bad=0, **lag), log, quarantine=False)]
                + [_replayed(cls(bad=n, **lag), log) for n in SHARES]
                for _ in range(given.rounds)
            ]
            plain, *took = map(statistics.median, zip(*(rounds[1:] or rounds), strict=True))
            print(
                f"| {cls.__name__} | {plain:.2f} | " + " | ".join(f"{t / plain:.2f}" for t in took) + " |",
                flush=True,
            )


def _replayed(program: tl.Program, log: tl.Log, *, quarantine: bool = True) -> float:
    began = time.process_time()
    most = log.count if quarantine else None
    tl.replay(program, log, spark=False, quarantine=quarantine, cache=False, max_quarantined=most)
    return time.process_time() - began


if __name__ == "__main__":
    main()
