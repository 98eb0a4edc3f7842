"""Decimals into logs and out of them: exactly, or to the quarantine."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import timelapse as tl
from timelapse.errors import IngestError
from timelapse.ingest.canonical import canonical_bytes
from timelapse.ingest.convert import convert, wire_type
from timelapse.ingest.times import Times
from timelapse.model.types import DecimalType
from timelapse.trace.steps import brief

Money = Annotated[Decimal, tl.scale(2)]
MONEY = DecimalType.of(2)


class Paid(tl.Event):
    account: int
    amount: Money
    tip: Money | None
    parts: list[Money]


class Tipped(tl.Event):
    account: int
    amount: Money
    tip: Money | None


class Sum(tl.Record):
    account: int
    total: Money


class Adding(tl.Program):
    total: tl.Sum[int, Money]

    @tl.on(Paid)
    def paid(self, e: Paid) -> None:
        self.total[e.account] += e.amount + sum(e.parts)
        self.emit(Sum(account=e.account, total=self.total[e.account]))


ROWS = [
    ("1", "12.34", "", "[1.10, 2]"),
    ("1", "-0", "0.5", "[]"),
    ("2", "1e2", "", '["0.01"]'),
    ("1", "1.005", "", "[]"),
    ("1", "99999999999999999.99", "", "[]"),
    ("1", "nan", "", "[]"),
    ("1", "1", "", "[0.001]"),
]
GOOD = [
    (Decimal("12.34"), None, (Decimal("1.10"), Decimal("2.00"))),
    (Decimal("0.00"), Decimal("0.50"), ()),
    (Decimal("100.00"), None, (Decimal("0.01"),)),
]


def _check(log: tl.Log) -> None:
    found = [(e.amount, e.tip, e.parts) for e in log.events(Paid)]
    assert str(found) == str(GOOD)  # texts: a Decimal equals others of other digits
    assert len(log.quarantine()) == 4
    run = tl.replay(Adding, log)
    assert run.table(Sum)["total"].to_pylist() == [Decimal("15.44"), Decimal("15.44"), Decimal("100.01")]
    assert run.verify().ok


def test_from_csv(tmp_path: Path) -> None:
    lines = ["ts;account;amount;tip;parts", *(f"{i};" + ";".join(row) for i, row in enumerate(ROWS))]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    _check(tl.Log.write(tmp_path / "log", {Paid: tl.Source(str(tmp_path / "a.csv"), sep=";")}, max_bad=1.0))


@pytest.mark.parametrize("quoted", [False, True])
def test_from_json_numbers_by_their_text(tmp_path: Path, quoted: bool) -> None:
    q = '"' if quoted else ""
    lines = [
        f'{{"ts": {i}, "account": {a}, "amount": {q if b != "nan" else chr(34)}{b}{q if b != "nan" else chr(34)}, "tip": {t or "null"}, "parts": {p}}}'
        for i, (a, b, t, p) in enumerate(ROWS)
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    _check(tl.Log.write(tmp_path / "log", {Paid: tl.Source(str(tmp_path / "a.jsonl"))}, max_bad=1.0))


def test_from_parquet_of_another_precision(tmp_path: Path) -> None:
    amounts = [Decimal("12.3400"), Decimal("0"), Decimal("100"), Decimal("1.0050")]
    table = pa.table({
        "ts": [0, 1, 2, 3], "account": [1, 1, 2, 1], "amount": pa.array(amounts, pa.decimal256(40, 4)),
        "tip": pa.array([None, 1, None, None], pa.int64()),
        "parts": pa.array([[Decimal("3.1")], [], [], []], pa.list_(pa.decimal128(5, 1))),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "a.parquet")
    log = tl.Log.write(tmp_path / "log", {Paid: tl.Source(str(tmp_path / "a.parquet"))}, max_bad=1.0)
    assert [str(e.amount) for e in log.events(Paid)] == ["12.34", "0.00", "100.00"]
    assert [e.tip for e in log.events(Paid)] == [None, Decimal("1.00"), None]
    assert "1.0050" in str(log.quarantine().to_pylist())


def test_a_column_of_floats_is_refused() -> None:
    with pytest.raises(IngestError, match="float is hardly ever") as refused:
        convert("amount", pa.array([1.1]), MONEY, Times(), texts=False)
    assert refused.value.code == "TL413"


@pytest.mark.parametrize(
    "texts", [["1.5", "-2", "0.01"], ["1.5", "-2", " 0.01"], ["1.50", "+2", "1e1"], ["007.5", "-0.00", "5."]]
)
def test_whole_columns_and_single_values_are_read_by_the_same_rules(texts: list[str]) -> None:
    whole, reasons = convert("x", pa.array(texts), MONEY, Times(), texts=True)
    assert not reasons
    assert whole.type == wire_type(MONEY)
    one = [convert("x", pa.array([t, "1e0"]), MONEY, Times(), texts=True)[0][0].as_py() for t in texts]
    assert list(map(str, whole.to_pylist())) == list(map(str, one))


def test_canonical_bytes_are_in_order() -> None:
    units: list[Any] = [
        Decimal("-5.00"),
        Decimal("-0.01"),
        Decimal("0.00"),
        Decimal("0.01"),
        Decimal("12345678.90"),
    ]
    found = canonical_bytes([pa.array(units, MONEY.arrow)], [MONEY], len(units)).to_pylist()
    assert found == sorted(found)
    assert len(set(found)) == len(found)


def test_outputs_as_events_and_what_people_see(tmp_path: Path) -> None:
    events = [
        Paid(account=1, amount=Decimal("1.10"), tip=None, parts=[], ts=tl.HOUR * i) for i in range(1, 4)
    ]
    run = tl.replay(Adding, tl.Log.from_events(tmp_path / "log", events), out=tmp_path / "run")
    stored = pq.read_table(next((tmp_path / "run" / "outputs" / "Sum").glob("*.parquet")))
    assert stored.schema.field("total").type == pa.decimal128(19, 2)

    class Summed(tl.Event):
        account: int
        total: Money

    derived = tl.Log.from_run(run, {Sum: Summed}, tmp_path / "derived")
    assert [str(e.total) for e in derived.events(Summed)] == ["1.10", "2.20", "3.30"]
    assert brief(Decimal("2.20")) == "2.20"
    assert "total[1] = 2.20" in str(run.why("Sum:total=2.20"))
    assert "2.20 -> 3.30" in str(run.history("total", 1))


def test_the_example_adds_up_to_the_cent() -> None:
    from examples.money import Ledger, some_transfers

    events = some_transfers(600, accounts=5)
    run = tl.replay(Ledger, events, slices=3, spark=False)
    assert run.verify().ok
    assert len(run.table("Suspicious")) > 0
    balances = sum(run.state("balance")["value"].to_pylist())
    assert balances == -run.state("fees")["value"].to_pylist()[0] == -Decimal("0.25") * len(events)


def test_the_hint_for_floats_fits_the_table(tmp_path: Path) -> None:
    """What it names is done, and the table is then taken."""
    import pandas as pd
    import polars as pl
    import pyarrow.compute as pc

    rows = {"ts": [0, 1], "account": [1, 2], "amount": [1.1, 2.25], "tip": [None, 0.5]}
    tables = {"df": [pd.DataFrame(rows), pl.DataFrame(rows)], "table": [pa.table(rows)]}
    for name, kinds in tables.items():
        for n, given in enumerate(kinds):
            table: Any = given
            if name == "df" and n == 0:
                table["tip"] = table["tip"].astype(float)
            for column in ("amount", "tip"):
                with pytest.raises(IngestError, match="float is hardly ever") as refused:
                    tl.Log.write(tmp_path / "no", {Tipped: table})
                assert refused.value.code == "TL413"
                hint = refused.value.hint or ""
                assert column in hint
                _, _, way = hint.partition("yourself: ")
                scope = {name: table, "pl": pl, "pa": pa, "pc": pc}
                if table.__class__.__module__.startswith("pandas"):
                    exec(way, scope)
                    table = scope[name]
                else:
                    table = eval(way, scope)
            log = tl.Log.write(tmp_path / f"{name}{n}", {Tipped: table})
            assert [(str(e.amount), str(e.tip)) for e in log.events(Tipped)] == [("1.10", "None"), ("2.25", "0.50")]  # fmt: skip
