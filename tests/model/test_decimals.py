"""Decimals: types, checks, one form, and what handlers compute in."""

from __future__ import annotations

import decimal
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pytest

import timelapse as tl
from timelapse.cli.sweep_command import grid_of
from timelapse.errors import (
    DefinitionError,
    HandlerError,
    ImpureProgram,
    InexactDecimal,
    IntRange,
    TypeMismatch,
)
from timelapse.model import decimals
from timelapse.model.types import DecimalType, parse_field, parse_key, parse_value, scalar_named
from timelapse.testing import Harness, check_replay, random_log

Money = Annotated[Decimal, tl.scale(2)]
Rate = Annotated[Decimal, tl.scale(4)]


class Pay(tl.Event):
    user: int
    to: int
    amount: Money
    rate: Rate | None
    parts: list[Money]


class Seen(tl.Record):
    user: int
    amount: Money
    rate: Rate | None
    mean: float | None


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (Decimal("5"), "5.00"), (Decimal("1.50"), "1.50"), (Decimal("1.5000"), "1.50"), (Decimal("-0"), "0.00"),
        (Decimal("-0.00"), "0.00"), (Decimal("1E+3"), "1000.00"), (7, "7.00"), (Decimal("-92233720368547758.08"), "-92233720368547758.08"),
    ],
)  # fmt: skip
def test_what_is_stored_has_one_form(given: Any, kept: str) -> None:
    assert str(DecimalType.of(2).checker("it")(given)) == kept


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (Decimal("1.005"), InexactDecimal), (Decimal("1E-400"), InexactDecimal), (Decimal("92233720368547758.08"), IntRange),
        (Decimal("1E+400"), IntRange), (10**18, IntRange), (Decimal("NaN"), TypeMismatch), (Decimal("sNaN"), TypeMismatch),
        (Decimal("-Infinity"), TypeMismatch), (1.5, TypeMismatch), (True, TypeMismatch), ("1.50", TypeMismatch), (None, TypeMismatch),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(given: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        DecimalType.of(2).checker("it")(given)


def test_refusals_say_what_to_do() -> None:
    with pytest.raises(InexactDecimal) as inexact:
        DecimalType.of(2).checker("Pay.amount")(Decimal("1.005"))
    assert "quantize(Decimal('0.01'))" in str(inexact.value)
    with pytest.raises(DefinitionError, match="needs a scale") as bare:
        parse_field(Decimal)
    assert "tl.scale(2)" in str(bare.value)
    with pytest.raises(TypeMismatch):
        tl.scale(19)


def test_types_are_told_apart_and_found_again() -> None:
    assert parse_field(Money) == DecimalType.of(2) == scalar_named("Decimal[2]") != DecimalType.of(4)
    assert parse_value(Money | None).text == "Decimal[2] | None"
    assert parse_key(tuple[int, Money]).text == "tuple[int, Decimal[2]]"
    assert scalar_named("Decimal[x]") is None


def test_columns_hold_whole_numbers() -> None:
    kind = decimals.column_type(3)
    words = np.array([0, 1, -1, 2**63 - 1, -(2**63), 12345], np.int64)
    column = decimals.to_column(words, kind)
    column.validate(full=True)
    assert decimals.to_words(column).tolist() == words.tolist()
    assert decimals.to_list(column, 3) == column.to_pylist() == [Decimal(int(n)).scaleb(-3) for n in words]
    assert decimals.to_words(column[2:4]).tolist() == words[2:4].tolist()
    masked = decimals.to_column(words, kind, words == 1)
    assert masked.null_count == 1
    assert decimals.to_list(masked, 3)[1] is None
    assert pa.types.is_decimal128(kind)


class Ledger(tl.Program):
    limit: Decimal = Decimal("1.00")
    total: tl.Sum[int, Money]
    everything: tl.Sum[Money]
    last: tl.Value[int, Money] = tl.state(default=Decimal("0.00"))
    balance: tl.Value[int, Money] = tl.state(default=Decimal("0.00"))
    most: tl.Value[int, Money] = tl.state(default=Decimal("0.00"))
    high: tl.Max[int, Money | None]
    low: tl.Min[int, Money] = tl.state(default=Decimal("5"))
    first: tl.First[int, Rate | None]
    seen: tl.Set[tuple[int, Money]]
    lists: tl.ListOf[int, Money] = tl.state(last=3)
    rates: tl.MapOf[int, Money, Rate] = tl.state(default=Decimal(0))
    mean: tl.Mean[int, Money]
    members: tl.SetOf[int, Money]

    @tl.on(Pay)
    def pay(self, e: Pay) -> None:
        self.total[e.user] += e.amount
        self.total[e.to] = self.total[e.to] - e.amount
        self.everything += e.amount
        self.balance[e.user] += e.amount
        self.last[e.to] = e.amount * 2
        if e.amount > self.most[e.user]:
            self.most[e.user] = e.amount
        self.high.add(e.user, e.amount)
        self.low.add(e.user, e.amount)
        if e.rate is not None:
            self.first.add(e.user, e.rate)
            self.rates[e.user, e.amount] = e.rate
        self.seen.add((e.to, e.amount))
        self.members.add(e.to, e.amount)
        self.mean.add(e.user, e.amount)
        for part in e.parts:
            self.lists.append(e.user, part)
        recent = self.total.last(3 * tl.SECOND)[e.user] + self.total.ago(tl.SECOND)[e.to]
        if e.amount > self.limit and self.last[e.user] + e.amount >= recent:
            self.emit(
                Seen(
                    user=e.user,
                    amount=self.total[e.user] - self.balance[e.user],
                    rate=e.rate,
                    mean=self.mean[e.user],
                )
            )


@pytest.mark.parametrize("seed", [1])
def test_replays_are_the_serial_meaning(seed: int) -> None:
    events = random_log([Pay], seed=seed)
    run = check_replay(Ledger, events, slices=(1, 3))
    assert run.table(Seen).schema.field("amount").type == pa.decimal128(19, 2)
    assert run.state("total").schema.field("value").type == pa.decimal128(19, 2)
    total = sum(e.amount for e in events if isinstance(e, Pay))
    assert run.state("everything").to_pylist() == [{"value": total}]
    assert set(run.state("mean").column_names) == {"key", "value", "sum", "count"}


def test_sums_scan_and_the_idioms_are_known() -> None:
    told = str(tl.explain(Ledger))
    assert "does not compose" not in told
    assert "running extremum" in told
    assert "addition written out" in told


class Dated(tl.Program):
    total: tl.Sum[int, Money]
    kept: tl.Value[int, Money] = tl.state(default=Decimal("0.00"))

    @tl.on(Pay)
    def pay(self, e: Pay) -> None:
        self.total.add(e.user, e.amount, at=e.ts + tl.SECOND)
        self.kept.set(e.user, e.amount, at=e.ts + 2)
        if self.total[e.user] > self.kept[e.user]:
            self.emit(Seen(user=e.user, amount=self.total[e.user], rate=None, mean=None))


def test_writes_of_decimals_can_be_dated() -> None:
    check_replay(Dated, random_log([Pay], seed=2))


class Rounded(tl.Program):
    share: tl.Value[int, Money | None]

    @tl.on(Pay)
    def pay(self, e: Pay) -> None:
        self.share[e.user] = (e.amount / 3).quantize(Decimal("0.01"))
        self.emit(Seen(user=e.user, amount=self.share[e.user] or 0, rate=None, mean=float(e.amount / 7)))  # type: ignore[arg-type]


class Watched(Rounded):
    @tl.every(tl.DAY)
    def day(self) -> None:
        for user, share in self.share.items():
            if share is not None:
                self.emit(Seen(user=user, amount=(share / 7).quantize(Decimal("0.01")), rate=None, mean=0.0))


def test_handlers_compute_in_the_usual_context_whatever_the_threads_is() -> None:
    events = random_log([Pay], seed=1)
    usual = tl.run_serial(Rounded, events)
    with decimal.localcontext(decimal.Context(prec=3, rounding=decimal.ROUND_UP)):
        assert tl.run_serial(Rounded, events).digest == usual.digest
        assert tl.replay(Rounded, events, slices=3, spark=False).digest == usual.digest
        h = Harness(Rounded)
        h.feed(Pay(user=1, to=2, amount=Decimal("100.01"), rate=None, parts=[]))
        assert h.state("share")[1] == Decimal("33.34")
        assert decimal.getcontext().prec == 3


@pytest.mark.parametrize("windows", [False, True])
def test_looking_into_a_run_computes_in_the_usual_context_too(windows: bool, tmp_path: Path) -> None:
    """What is done again is what the run did; also of a program with ticks, by the serial loop, and in the middle of a slice."""
    events = random_log([Pay], seed=1)
    log = tl.Log.from_events(tmp_path / "log", events)
    cls = Watched if windows else Rounded
    run = tl.replay(cls, log, tmp_path / "run", slices=2, spark=False)
    rows = run.stored("Seen").to_pylist()
    row = next(r for r in rows[len(rows) // 3 :] if r["phase"] == 3)
    wanted = (
        run.why(row["seq"]).text,
        run.history("share", row["user"]).text,
        run.state("share", at=row["ts"]),
    )
    with decimal.localcontext(decimal.Context(prec=3, rounding=decimal.ROUND_UP)):
        again = tl.Run.open(tmp_path / "run")
        found = (
            again.why(row["seq"]).text,
            again.history("share", row["user"]).text,
            again.state("share", at=row["ts"]),
        )
    assert found == wanted


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1..2:0.5", ["1", "1.5", "2"]),
        ("0.10..0.40/4", ["0.1", "0.2", "0.3", "0.4"]),
        ("1..0/3", ["1", "0.5", "0"]),
    ],
)
def test_decimal_parameters_are_swept_over_ranges(text: str, values: list[str]) -> None:
    class Limited(tl.Program):
        limit: Money = Decimal("1.00")

        @tl.on(Pay)
        def pay(self, e: Pay) -> None:
            pass

    assert grid_of(Limited(), [f"limit={text}"]) == {"limit": [Decimal(v) for v in values]}


class OwnContext(tl.Program):
    n: tl.Counter[int]

    @tl.on(Pay)
    def pay(self, e: Pay) -> None:
        with decimal.localcontext() as context:
            context.prec = 4
            self.n[int(e.amount / 3)] += 1


def test_handlers_may_not_change_the_context() -> None:
    with pytest.raises(ImpureProgram, match="localcontext"):
        tl.replay(OwnContext, random_log([Pay]), spark=False)


class Inexact(tl.Program):
    total: tl.Sum[int, Money]

    @tl.on(Pay)
    def pay(self, e: Pay) -> None:
        self.total[e.user] += e.amount * Decimal("0.5")


def test_a_sum_is_never_rounded() -> None:
    with pytest.raises(HandlerError) as failed:
        check_replay(Inexact, random_log([Pay], seed=1))
    assert isinstance(failed.value.__cause__, InexactDecimal)


def test_parameters_keep_their_digits() -> None:
    assert str(Ledger(limit=Decimal("10.50")).limit) == "10.50"
    assert Ledger(limit=3).limit == 3
    for wrong in (1.5, Decimal("NaN"), Decimal("1E-19")):
        with pytest.raises(tl.TimelapseError):
            Ledger(limit=wrong)


class Fine(tl.Event):
    k: Rate
    v: int


class Coarse(tl.Event):
    k: Money
    v: int


class Shared(tl.Program):
    """One key, in two scales."""

    last: tl.Value[Rate, int] = tl.state(default=0)

    @tl.on(Fine)
    def fine(self, e: Fine) -> None:
        self.last[e.k] = self.last[e.k] * 5 % 1000 + e.v

    @tl.on(Coarse)
    def coarse(self, e: Coarse) -> None:
        self.last[e.k] = self.last[e.k] * 3 % 1000 + e.v


class Alike(Shared):
    """The same scale."""

    @tl.on(Coarse)
    def coarse(self, e: Coarse) -> None:
        pass


def test_keys_of_other_scales_are_not_shared_out_among_workers() -> None:
    """A number has one hash for each scale: by key only where an event's field has the type of the state's key."""
    assert [row.strategy for row in tl.explain(Shared).states] == ["chain"]
    assert "as many places as its keys" in str(tl.explain(Shared))
    assert [row.strategy for row in tl.explain(Alike).states] == ["by key"]
    events = [(Fine, Coarse)[n % 3 == 1](k=Decimal(n % 7), v=n % 5, ts=n) for n in range(60)]
    for cls in (Shared, Alike):
        check_replay(cls, events)


class Looked(tl.Program):
    """A key of decimals in a state with a past: it is looked up in a slice's start."""

    seen: tl.Max[Money, int] = tl.state(default=0, history=100)

    @tl.on(Pay)
    def pay(self, e: Pay) -> None:
        self.seen.add(e.amount, e.user)
        self.emit(Seen(user=self.seen.get(e.amount, at=self.now - 5), amount=e.amount, rate=None, mean=None))


def test_keys_of_decimals_are_looked_up_in_start_states() -> None:
    run = tl.replay(Looked, random_log([Pay], seed=4), slices=3, strategy="staged", spark=False)
    assert run.certificate["fallback"] is None
    check_replay(Looked, random_log([Pay], seed=4))


class Totals(tl.Program):
    """Sums, one of them looked back on, and means."""

    total: tl.Sum[int, Money]
    mean: tl.Mean[int, Money]

    @tl.on(Pay)
    def pay(self, e: Pay) -> None:
        before = self.total[e.user] + Decimal(self.mean.count(e.user))
        self.total[e.user] += e.amount
        self.mean.add(e.user, e.amount)
        self.emit(Seen(user=e.user, amount=before, rate=None, mean=self.mean[e.user]))


class TotalsOfTime(Totals):
    @tl.every(tl.DAY)
    def day(self) -> None:
        pass


@pytest.mark.parametrize("program", [Totals, TotalsOfTime])
def test_who_wrote_a_sum_is_told_in_amounts(program: type[Totals]) -> None:
    """As JSON too, and the number in a mean as a number: amounts are stored as whole numbers of the smallest unit."""
    events = [
        Pay(user=1, to=2, amount=Decimal(n) / 4, rate=None, parts=[], ts=n * tl.SECOND) for n in range(1, 4)
    ]
    run = tl.replay(program, events, spark=False)
    reads = run.why(2).to_json()["reads"]
    told = {(r["state"], str(r["key"])): [(s["before"], s["after"]) for s in r["sources"]] for r in reads}
    assert told["total", "1"] == [("0.25", "0.75"), (None, "0.25")]
    assert told["mean", "[1, 1]"] == [(1, 2), (None, 1)]
    assert told["mean", "[1, 0]"] == [("0.25", "0.75"), (None, "0.25")]
