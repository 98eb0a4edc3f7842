"""The programs of the transactional benchmarks: Streaming Ledger, Grep and Sum, Toll Processing.

They are the workloads of TStream (S. Zhang, Y. Wu, F. Zhang, B. He, "Towards Concurrent Stateful Stream Processing on
Multicore Processors", 2020) and MorphStream (Y. Mao, J. Zhao, S. Zhang et al., "MorphStream: Adaptive Scheduling for
Scalable Transactional Stream Processing on Multicores", 2023), as users of Timelapse would write them. `rounds` is user
code for every event: what stands there for a model or a rule engine.
"""

from __future__ import annotations

import hashlib

import timelapse as tl

MACHINE_ROUNDS = 2_600
"""Rounds of `work` that take about 10 us in machine code (AMD EPYC, 2026: 3.8 ns each). The benchmark measures it anew."""
LIBRARY_ROUNDS = 20
"""Rounds of a key derivation that take about 10 us in OpenSSL, called from Python. Measured anew as well."""


def work(rounds: int, x: int) -> int:
    """User code that compiles: so many steps of x -> x^2 + 1 modulo a prime, each of which needs the one before."""
    for _ in range(rounds):
        x = (x * x + 1) % 2_147_483_647
    return x


class Move(tl.Event):
    """Money is to go from one account to another."""

    id: int
    source: int
    target: int
    amount: int


class Refused(tl.Record, key="move"):
    """A transfer that changed nothing."""

    move: int
    short: int


class Ledger(tl.Program):
    """Streaming Ledger: transfers between accounts, refused when the balance is too low."""

    opening: int = 500
    rounds: int = 0

    moved: tl.Counter[int]
    """What came in less what went out: everybody begins with `opening`."""

    @tl.on(Move)
    def transfer(self, e: Move) -> None:
        amount = e.amount + work(self.rounds, e.amount) % 2
        left = self.opening + self.moved[e.source] - amount
        if left < 0:
            self.reject(Refused(move=e.id, short=-left))
        self.moved[e.source] -= amount
        self.moved[e.target] += amount


class LibraryLedger(tl.Program):
    """The same with user code in a library, which does not compile."""

    opening: int = 500
    rounds: int = LIBRARY_ROUNDS

    moved: tl.Counter[int]

    @tl.on(Move)
    def transfer(self, e: Move) -> None:
        mark = hashlib.pbkdf2_hmac("sha256", b"move", e.amount.to_bytes(8, "little"), self.rounds)
        amount = e.amount + mark[0] % 2
        left = self.opening + self.moved[e.source] - amount
        if left < 0:
            self.reject(Refused(move=e.id, short=-left))
        self.moved[e.source] -= amount
        self.moved[e.target] += amount


class Update(tl.Event):
    """Some cells are to be read and another one written."""

    id: int
    reads: list[int]
    target: int
    value: int


class Total(tl.Record, key="update"):
    """What an update wrote."""

    update: int
    value: int


class GrepSum(tl.Program):
    """Grep and Sum: reads some cells, and writes their sum into another one."""

    modulus: int = 1_000_003
    rounds: int = 0

    cells: tl.Value[int, int] = tl.state(default=1)

    @tl.on(Update)
    def update(self, e: Update) -> None:
        total = e.value + work(self.rounds, e.value) % 2
        for cell in e.reads:
            total += self.cells[cell]
        total %= self.modulus
        self.cells[e.target] = total
        self.emit(Total(update=e.id, value=total))


class Car(tl.Event):
    """A vehicle tells where it is."""

    id: int
    vehicle: int
    segment: int
    speed: int


class Toll(tl.Record, key="report"):
    """What a vehicle pays that enters a segment."""

    report: int
    toll: int


class TollProcessing(tl.Program):
    """Toll Processing: by how many cars were in the segment in the last five minutes, and how slow they were."""

    free: int = 3
    fast: float = 60.0
    rounds: int = 0

    place: tl.Value[int, int | None]
    cars: tl.SetOf[int, int]
    speeds: tl.Mean[int]

    @tl.on(Car)
    def move(self, e: Car) -> None:
        entered = self.place[e.vehicle] != e.segment
        self.place[e.vehicle] = e.segment
        self.cars.add(e.segment, e.vehicle)
        self.speeds.add(e.segment, e.speed)
        if entered:
            cars = self.cars.last(5 * tl.MINUTE).count(e.segment)
            slow = self.speeds.last(5 * tl.MINUTE)[e.segment] < self.fast
            toll = 2 * (cars - self.free) ** 2 if slow and cars > self.free else 0
            self.emit(Toll(report=e.id, toll=toll + work(self.rounds, e.speed) % 2))
