"""Streaming Ledger and Grep and Sum, as in the evaluations of TStream and MorphStream (S. Zhang, Y. Mao et al.).

timelapse explain examples/ledger.py:Ledger
"""

import timelapse as tl


class Deposit(tl.Event):
    account: int
    amount: int


class Transfer(tl.Event):
    source: int
    target: int
    amount: int


class Update(tl.Event):
    reads: list[int]
    target: int
    value: int


class Refused(tl.Record, key=("source", "target")):
    source: int
    target: int
    short: int


class Sum(tl.Record):
    target: int
    value: int


class Ledger(tl.Program):
    """Deposits, and transfers that are refused when the balance is too low; a refused transfer changes nothing."""

    opening: int = 100

    moved: tl.Counter[int]
    """What came in less what went out: everybody begins with `opening`."""

    @tl.on(Deposit)
    def deposit(self, e: Deposit) -> None:
        self.moved[e.account] += e.amount

    @tl.on(Transfer)
    def transfer(self, e: Transfer) -> None:
        self.moved[e.source] -= e.amount
        self.moved[e.target] += e.amount
        left = self.opening + self.moved[e.source]
        if left < 0:
            self.reject(Refused(source=e.source, target=e.target, short=-left))


class GrepSum(tl.Program):
    """Reads some cells, and writes their sum into another one."""

    modulus: int = 1_000_003

    cells: tl.Value[int, int] = tl.state(default=1)

    @tl.on(Update)
    def update(self, e: Update) -> None:
        total = e.value
        for cell in e.reads:
            total += self.cells[cell]
        self.cells[e.target] = total % self.modulus
        self.emit(Sum(target=e.target, value=total))
