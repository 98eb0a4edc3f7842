"""A ledger in money: amounts are decimals with two digits, exact to the cent, and never rounded silently.

    timelapse explain examples/money.py:Ledger
    timelapse replay examples/money.py:Ledger LOG --set daily=250.00

A log for it: `tl.Log.from_events("logs/money", some_transfers(100_000))`, or one ingested from CSV, JSON lines or Parquet,
where amounts are text or decimals (`timelapse ingest examples/money.py logs/money 'Transfer=transfers-*.csv' --ts time`).
"""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Annotated

import timelapse as tl

Money = Annotated[Decimal, tl.scale(2)]


class Transfer(tl.Event):
    source: int
    target: int
    amount: Money


class Suspicious(tl.Record, key="account"):
    """An account that sends more within a day than it may."""

    account: int
    sent: Money
    balance: Money


class Ledger(tl.Program):
    """Balances, fees, and accounts that send more than `daily` within a day."""

    daily: Decimal = Decimal("1000.00")
    fee: Decimal = Decimal("0.25")

    sent: tl.Sum[int, Money]
    balance: tl.Value[int, Money] = tl.state(default=Decimal("0.00"))
    largest: tl.Max[int, Money | None]
    fees: tl.Sum[Money]

    @tl.on(Transfer)
    def transfer(self, e: Transfer) -> None:
        self.sent[e.source] += e.amount
        self.balance[e.source] -= e.amount + self.fee
        self.balance[e.target] += e.amount
        self.largest.add(e.source, e.amount)
        self.fees += self.fee
        sent = self.sent.last(tl.DAY)[e.source]
        if sent > self.daily:
            self.emit(Suspicious(account=e.source, sent=sent, balance=self.balance[e.source]))


def some_transfers(count: int, accounts: int = 100, seed: int = 7) -> list[Transfer]:
    """Made-up transfers, five minutes apart."""
    chance = random.Random(seed)
    return [
        Transfer(
            source=chance.randrange(accounts), target=chance.randrange(accounts),
            amount=Decimal(chance.randrange(1, 50_000)) / 100, ts=i * 5 * tl.MINUTE,
        )
        for i in range(count)
    ]  # fmt: skip


if __name__ == "__main__":
    run = tl.replay(Ledger, some_transfers(5_000))
    print(len(run.table(Suspicious)), "alarms,", run.state("fees").to_pylist()[0]["value"], "in fees")
    print(run.verify().ok)
