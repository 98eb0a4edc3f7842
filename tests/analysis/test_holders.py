"""Which fields of records are taken for keys, by what a program's text says."""

from __future__ import annotations

import timelapse as tl
from timelapse.analysis import analyse
from timelapse.analysis.holders import is_id, key_fields
from timelapse.reporting.fields import Keys


class Paid(tl.Event):
    id: int
    payer: int
    cents: int
    shop: str


class Seen(tl.Record):
    txn: int
    account: int
    cents: int
    often: int
    place: str


class Placed(tl.Record):
    txn: int
    account: int
    cents: int


class Named(tl.Program):
    spent: tl.Counter[int]
    shops: tl.Counter[tuple[str, int]]

    @tl.on(Paid)
    def judge(self, e: Paid) -> None:
        who = e.payer
        self.spent[e.payer] += e.cents
        self.shops[(e.shop.lower(), e.ts // tl.DAY)] += 1
        self.emit(Seen(txn=e.id, account=e.payer, cents=e.cents, often=self.spent[who], place=e.shop))
        self.emit(Placed(e.id, e.payer, e.cents))


FIELDS = {"Seen": ("txn", "account", "cents", "often", "place"), "Placed": ("txn", "account", "cents")}


def test_keys_are_found_under_other_names() -> None:
    """By name, by position, inside a tuple; not what is counted, nor times, functions and what is computed."""
    names, held = key_fields(analyse(Named()), FIELDS)
    assert {"payer", "who", "shop"} <= names
    assert not names & {"cents", "ts", "lower", "spent"}
    assert held == {"Seen": {"txn", "account", "place"}, "Placed": {"txn", "account"}}


def test_what_is_called_an_id() -> None:
    """And no word that only ends alike."""
    assert [n for n in ("id", "user_id", "userId", "ID", "paid", "grid", "valid", "idle") if is_id(n)] == [
        "id",
        "user_id",
        "userId",
        "ID",
    ]


def test_a_report_knows_them_from_the_run() -> None:
    """By the program where it is there; by the log's and the records' own names where it is not."""
    run = tl.replay(Named, [Paid(id=1, payer=2, cents=3, shop="A", ts=1)], spark=False)
    keys = Keys.of(run)
    assert [f for f in FIELDS["Seen"] if keys.hold("Seen", f)] == ["txn", "account", "place"]
    assert [f for f in FIELDS["Placed"] if keys.hold("Placed", f)] == ["txn", "account"]
    assert not keys.hold("Other", "account")
