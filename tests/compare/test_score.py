"""Precision and recall of two runs, against a plain loop; conditions."""

from __future__ import annotations

import functools
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import deep
from timelapse.compare import Condition, Diff, Labels, diff, figures_of, judge
from timelapse.compare.score import counted, hit_in_vain, notes_of
from timelapse.errors import UsageError
from timelapse.reporting import report
from timelapse.run import run_serial

DAY = 86_400_000_000


class E(tl.Event):
    n: int
    who: str
    amount: float


class Hit(tl.Record, key="n"):
    n: int
    who: str
    amount: float


class Ban(tl.Record, key="who"):
    who: str


class Rules(tl.Program):
    """Every `step`-th event is a hit, from `first` on."""

    step: int = 2
    first: int = 0

    @tl.on(E)
    def go(self, e: E) -> None:
        if e.n >= self.first and e.n % self.step == 0:
            self.emit(Hit(n=e.n, who=e.who, amount=e.amount))


class Bans(Rules):
    """The same, with another record."""

    @tl.on(E)
    def ban(self, e: E) -> None:
        if e.n == 3:
            self.emit(Ban(who=e.who))


EVENTS = [E(n=i, who="abc"[i % 3], amount=i / 2, ts=i * DAY // 4) for i in range(24)]


@functools.cache
def compared() -> Diff:
    """Every second event from 0 on, and every third one from 6 on."""
    a, b = (tl.replay(r, EVENTS, slices=2, spark=False) for r in (Rules(), Rules(step=3, first=6)))
    return diff(a, b)


A, B = {n for n in range(24) if n % 2 == 0}, {n for n in range(6, 24) if n % 3 == 0}


def table(rows: list[tuple[Any, ...]], *names: str) -> pa.Table:
    return pa.table([pa.array([r[i] for r in rows]) for i in range(len(names))], names=list(names))


def test_reports_alone() -> None:
    """Without a column `label` every row is right and all else wrong; the counts by hand."""
    found = judge(compared(), table([(n,) for n in (0, 6, 9, 11)], "n"))
    assert (found.total.a.right, found.total.a.judged, found.total.a.positives) == (2, len(A), 4)
    assert (found.total.b.right, found.total.b.judged, found.total.b.positives) == (2, len(B), 4)
    assert found.only_right
    assert found.complete is None
    assert found.total.b.precision == pytest.approx(2 / 6)
    assert found.total.b.recall == 0.5
    assert found.total.a.f1 == pytest.approx(2 * (2 / 12) * 0.5 / (2 / 12 + 0.5))
    assert found.labels == 4


def test_days_segments_weights_and_who_is_hit() -> None:
    """By the item's day, by a column of the labels or a field of the record; weighed by either."""
    rows = [(n, n % 6 == 0, "xy"[n % 2], 10 * n) for n in range(24)]
    found = judge(
        compared(),
        table(rows, "key", "label", "land", "worth"),
        segments=["land", "who"],
        by=["who"],
        weight="worth",
    )
    assert found.total.a.right == sum(10 * n for n in A if n % 6 == 0)
    assert found.total.a.judged == sum(10 * n for n in A)
    assert found.total.b.positives == sum(10 * n for n in range(24) if n % 6 == 0)
    assert [d for d, _ in found.days] == [0, 1, 2, 3, 4, 5]
    assert dict(found.days)[1].b.judged == 60
    assert [name for name, _ in found.segments["land"]] == ["x", "y"]
    assert dict(found.segments["land"])["y"].b.judged == sum(10 * n for n in B if n % 2)
    assert [name for name, _ in found.segments["who"]] == ["a", "b", "c"]
    assert found.good["who"] == (2, 0)  # b and c have nothing right in A; B hits a alone
    by_record = judge(compared(), table(rows, "key", "label", "land", "worth"), weight="amount")
    assert by_record.total.a.judged == sum(n / 2 for n in A)
    only = judge(compared(), table([(1,), (6,)], "n"), weight="amount").total
    assert only.a.positives is None  # nobody knows the amount of 1: neither put it out
    assert only.a.recall is None


def test_late_labels_and_the_log() -> None:
    """Items after the moment until which labels are complete are left out; the log places what was missed."""
    rows = [(n, True, EVENTS[n].ts + DAY) for n in (0, 1, 6, 12)] + [
        (99, True, 3 * DAY),
        (12, False, 2 * DAY),
    ]
    labels = table(rows, "n", "label", "ts")
    found = judge(compared(), labels, items="E.n")
    assert found.complete == EVENTS[12].ts
    assert found.elsewhere == 1  # the log has no 99
    assert found.conflicts == 1
    assert (found.total.a.right, found.total.a.positives) == (3, 4)  # the later label of 12 says right
    assert found.total.a.judged == 3  # without a label: not judged, for there is a wrong one
    assert found.late == (5, 3)
    assert found.unjudged == (4, 1)
    without = judge(compared(), labels)
    assert without.elsewhere == 0
    assert without.total.a.positives == 5  # 99 stands at its label's time, on the third day
    early = judge(compared(), labels, until=DAY)
    assert (early.complete, early.total.a.right) == (DAY, 1)
    before = judge(compared(), table([(77, True, -5), (0, True, 0)], "n", "label", "ts"))
    assert (before.elsewhere, before.total.a.positives) == (1, 1)


ITEM = st.tuples(st.integers(0, 26), st.booleans(), st.integers(0, 5))


@settings(max_examples=deep(60))
@given(st.lists(ITEM, min_size=1, max_size=30))
def test_judging_equals_a_plain_loop(rows: list[tuple[int, bool, int]]) -> None:
    """The latest label counts; precision over judged items, recall over right ones."""
    latest = {n: (label, worth) for n, label, worth in rows}
    closed = all(label for _, label, _ in rows)
    worth = {n: latest[n][1] if n in latest else None for n in range(27)}
    right = {n for n, (label, _) in latest.items() if label}
    if closed and (A | B) - set(latest):
        return  # an item without a weight: an error, tested below
    found = judge(compared(), table(rows, "n", "label", "worth"), weight="worth")
    for side, put in ((found.total.a, A), (found.total.b, B)):
        judged = put & set(latest)
        assert side.right == sum(worth[n] or 0 for n in judged & right)
        assert side.judged == sum(worth[n] or 0 for n in judged)
        assert side.positives == sum(worth[n] or 0 for n in right)
    assert found.conflicts == len({n for n, x, _ in rows if x} & {n for n, x, _ in rows if not x})
    whole = judge(compared(), table(rows, "n", "label", "worth"), segments=["n"])
    parts = [s for _, s in whole.segments["n"]]
    assert sum(s.a.judged for s in parts) == whole.total.a.judged
    assert sum(s.b.right for _, s in whole.days) == whole.total.b.right or whole.complete is None


def test_files(tmp_path: Path) -> None:
    """Parquet and CSV say the same; words, numbers and missing values in the column label."""
    rows = [
        (0, "TRUE", "1970-01-01T00:00:00Z"),
        (2, "no", "1970-01-02T00:00:00Z"),
        (4, "", "1970-01-02T00:00:00Z"),
    ]
    pq.write_table(table(rows, "key", "label", "ts"), tmp_path / "x.parquet")
    pyarrow.csv.write_csv(table(rows, "key", "label", "ts"), tmp_path / "x.csv")
    one, two = (judge(compared(), tmp_path / name) for name in ("x.parquet", "x.csv"))
    assert one == two
    assert (one.labels, one.total.a.right, one.total.a.judged) == (2, 1, 2)
    numbers = judge(compared(), table([(0, 1.0), (2, 0.0), (4, None)], "key", "label"))
    assert numbers.total == one.total


@pytest.mark.parametrize(
    ("labels", "options", "code", "words"),
    [(table([(1, "maybe")], "n", "label"), {}, "TL818", "maybe"),
     (table([(1, 2)], "n", "label"), {}, "TL818", "neither true nor false"),
     (table([("x",)], "n"), {}, "TL818", "n"),
     (table([(1,)], "m"), {}, "TL818", "columns: m"),
     (table([(1, -1)], "n", "w"), {"weight": "w"}, "TL818", "negative"),
     (table([(2, None)], "n", "w"), {"weight": "w"}, "TL818", ""),
     (table([(1,)], "n"), {"weight": "who"}, "TL816", "no number"),
     (table([(1,)], "n"), {"segments": ["x"]}, "TL816", "x"),
     (table([(1,)], "n"), {"items": "E.x"}, "TL816", "E.x"),
     (table([(1,)], "n"), {"record": "X"}, "TL816", "X"),
     ("nowhere.parquet", {}, "TL818", "cannot be read")],
)  # fmt: skip
def test_mistakes(labels: Any, options: dict[str, Any], code: str, words: str) -> None:
    """Each has its code, and says what is wrong."""
    with pytest.raises(UsageError) as caught:
        judge(compared(), labels, **options)
    assert caught.value.code == code
    assert words in caught.value.message


def test_which_record() -> None:
    """Columns decide; `key` alone is not enough where several record types have one."""
    both = diff(run_serial(Bans, EVENTS), run_serial(Bans(step=5), EVENTS))
    assert judge(both, table([("a",)], "who")).record == "Ban"
    assert both.judge(table([(2,)], "key"), record="Hit").record == "Hit"
    with pytest.raises(UsageError, match="could be about Ban or Hit"):
        judge(both, table([(2,)], "key"))
    assert Labels.of(table([(2,)], "n")).fit(both.rejected) is None


# --- which columns ------------------------------------------------------------------------------------

FRAUD = [(n, n in (0, 6, 9, 11), n * DAY // 4) for n in range(24)]


def test_columns_of_other_names_are_mapped(tmp_path: Path) -> None:
    """The same judgement as with the names that need no mapping; from files of both kinds."""
    wanted = judge(compared(), table(FRAUD, "n", "label", "ts"))
    given = table(FRAUD, "txn_id", "fraud", "reported_at")
    pq.write_table(given, tmp_path / "l.parquet")
    pa.csv.write_csv(given, tmp_path / "l.csv")
    for labels in (given, tmp_path / "l.parquet", tmp_path / "l.csv"):
        assert (
            judge(compared(), labels, label="fraud", label_ts="reported_at", label_key=["txn_id"]) == wanted
        )
    assert wanted.total.a.precision == pytest.approx(2 / 12)


@pytest.mark.parametrize("values", [[True, False], ["yes", "no"], [1, 0], ["TRUE", "false"]])
def test_a_column_of_true_and_false_that_is_not_used_is_refused(values: list[Any]) -> None:
    """Every row would count as right; `none` says that this is meant, and the column is told as not used."""
    given = pa.table({"n": [0, 1], "fraud": values})
    with pytest.raises(UsageError, match="fraud holds true and false") as caught:
        judge(compared(), given)
    assert caught.value.code == "TL818"
    assert "--label fraud" in str(caught.value.hint)
    found = judge(compared(), given, label="none")
    assert (found.only_right, found.ignored) == (True, ("fraud",))
    assert judge(compared(), given, label="fraud").ignored == ()
    assert judge(compared(), given, segments=["fraud"]).ignored == ()  # a use of its own


def test_columns_that_are_not_there_are_named() -> None:
    given = table(FRAUD, "n", "fraud", "reported_at")
    for options in ({"label": "frau"}, {"label_ts": "report"}, {"label_key": ["m"]}):
        with pytest.raises(UsageError, match="the labels have no such column") as caught:
            judge(compared(), given, **options)
        assert caught.value.code == "TL818"


def test_what_recall_counts_is_said() -> None:
    """Right items that neither side put out: at their event, at their label's time, or nowhere in time."""
    rows = [(n, True, n * DAY // 4) for n in (0, 6, 11, 13)]
    texts = []
    for options, placed, warns in (
        ({"items": "E.n"}, "log", False), ({}, "label", True), ({"label_key": ["n"]}, "label", True),
    ):  # fmt: skip
        found = judge(compared(), table(rows, "n", "label", "ts"), **options)
        assert (found.placed, found.missed) == (placed, 2)
        ((warning, text),) = notes_of(found)
        assert warning is warns
        texts.append(text)
    assert "2 right items that neither side put out count at the time of their event in the log" in texts[0]
    assert "at their label's time" in texts[1]
    timeless = judge(compared(), table([r[:2] for r in rows], "n", "label"))
    assert timeless.placed == "nowhere"
    assert "whether or not the log has them, and on no single day" in notes_of(timeless)[0][1]
    assert notes_of(judge(compared(), table([(0, True)], "n", "label"))) == []  # nothing was missed


def test_what_was_judged_is_said(tmp_path: Path) -> None:
    """In the same words by `diff` and on pages; that nothing was, as a warning."""
    rows = [(0, True, DAY), (1, False, DAY), (6, False, 3 * DAY), (6, True, 4 * DAY), (99, True, 3 * DAY)]
    found = judge(compared(), table(rows, "n", "label", "ts"), until=2 * DAY, by=["who"], items="E.n")
    assert counted(found) == [
        "3 labelled", "labels complete to 1970-01-03 00:00:00 UTC", "later and left out: 7 (A), 5 (B)",
        "without a label, not judged: 3 (A), 0 (B)", "contradictory labels: 1 (the latest counts)",
        "labels outside the log: 1",
    ]  # fmt: skip
    assert hit_in_vain(found) == ["who hit without anything right: 0 -> 0"]
    page = report(compared(), tmp_path / "diff.html", judged=found).html
    assert all(text in page for text in counted(found))
    nothing = judge(compared(), table([(1, True), (3, False)], "n", "label"))
    assert (True, "nothing was judged: no output of either side has a label that counts") in notes_of(nothing)


# --- tables and fields of other types ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pandas", "polars", "categories"])
def test_labels_are_any_table(kind: str) -> None:
    rows = [(n, "yes" if n in (0, 6, 9, 11) else "no") for n in range(24)]
    given = table(rows, "n", "label")
    wanted = judge(compared(), given)
    if kind == "pandas":
        assert judge(compared(), given.to_pandas()[::-1]) == wanted
        return
    polars = pytest.importorskip("polars", reason="Polars comes with `make bench-install`")
    frame = polars.from_arrow(given)
    if kind == "categories":
        frame = frame.with_columns(polars.col("label").cast(polars.Categorical))
    assert judge(compared(), frame) == wanted
    assert judge(compared(), pa.table(frame)) == wanted


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "NoneType is no table"),
        ([{"n": 1}], "list is no table"),
        (pd.DataFrame({"n": ["a", 1]}), "cannot be read as Arrow"),
        (pa.table([pa.array([1]), pa.array([1])], names=["n", "n"]), "several columns n"),
    ],
)
def test_what_is_no_table_of_labels_is_said(given: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        judge(compared(), given)
    assert caught.value.code == "TL818"


class Paid(tl.Record, key="n"):
    n: int
    amount: Annotated[Decimal, tl.scale(2)]
    note: str | None


class Payments(Rules):
    @tl.on(E)
    def go(self, e: E) -> None:
        if e.n >= self.first and e.n % self.step == 0:
            self.emit(Paid(n=e.n, amount=Decimal(e.n) / 10, note=None if e.n % 4 else "None"))


def test_decimals_weigh_and_none_is_no_text() -> None:
    a, b = run_serial(Payments, EVENTS), run_serial(Payments(step=3, first=6), EVENTS)
    rows = [(n, n % 6 == 0) for n in range(24)]
    found = judge(diff(a, b), table(rows, "n", "label"), weight="amount", segments=["note"])
    assert found.total.a.right == float(sum(Decimal(n) / 10 for n in A if n % 6 == 0))
    assert found.total.b.judged == float(sum(Decimal(n) / 10 for n in B))
    judged = {name: scores.a.judged for name, scores in found.segments["note"]}
    assert judged == {
        "None": float(sum(n for n in A if n % 4 == 0)) / 10,
        "(none)": sum(n for n in A if n % 4) / 10,
    }


@pytest.mark.parametrize(("weight", "message"), [(float("inf"), "infinite"), (-1.0, "negative")])
def test_weights_that_weigh_nothing_are_refused(weight: float, message: str) -> None:
    given = table([(n, n % 6 == 0, weight if n == 6 else 1.0) for n in range(24)], "n", "label", "worth")
    with pytest.raises(UsageError, match=f"--weight worth: a weight is {message}"):
        judge(compared(), given, weight="worth")


# --- conditions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "holds"),
    [("precision < .7", True), ("precision < .3", False), ("recall == .5 and not new > 100", True),
     ("recall < recall_a - .02", False), ("gone > 0.1 * a or new > 100", True), ("0 < precision <= 1/3 + 1e-9", True),
     ("Hit.gone == gone", True), ("-b + 6 == 0", True), ("rejected_a + rejected_b > 0", False)],
)  # fmt: skip
def test_conditions(text: str, holds: bool) -> None:
    """Comparisons of figures."""
    figures = figures_of(compared(), judge(compared(), table([(n,) for n in (0, 6, 9, 11)], "n")), [])
    assert Condition(text).holds(figures) is holds


@pytest.mark.parametrize(
    "text",
    ["", "precision", "precision <", "1", "a if b else c", "a < 'x'", "a < True", "a ** 9 > 1", "a // 2 > 1",
     "__import__('os') < 1", "a.b.c < 1", "[a] < 1", "a < (b < 1)", "a in b", "(lambda: 1)() < 2", "a < 1;b",
     "not precision", "a and b < 1", "f'{a}' < 1", "a < 1 " * 400, "a < 1j"],
)  # fmt: skip
def test_what_is_no_condition(text: str) -> None:
    """TL819; nothing is evaluated but what the list allows."""
    with pytest.raises(UsageError) as caught:
        Condition(text)
    assert caught.value.code == "TL819"


@pytest.mark.parametrize("text", ["unknown < 1", "a / changed > 1", "precision < 1"])
def test_what_cannot_be_decided(text: str) -> None:
    """An unknown figure, a division by zero, a precision of nothing."""
    nothing = figures_of(compared(), judge(compared(), table([(1, False)], "n", "label")), [])
    with pytest.raises(UsageError) as caught:
        Condition(text).holds(nothing)
    assert caught.value.code == "TL819"
