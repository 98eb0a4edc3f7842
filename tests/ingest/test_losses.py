"""Claims about what ingest cannot keep: digits below a microsecond are told, numbers beyond a float are bad rows, no time between bounds is an error."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timelapse as tl
from timelapse.cli.ingest_options import chosen
from timelapse.cli.ingest_summary import doubtful_times
from timelapse.errors import IngestError
from timelapse.ids import INT64_MIN
from timelapse.ingest.definition import Definition
from timelapse.ingest.doubts import doubts_of, doubts_of_values
from timelapse.ingest.expressions import expression
from timelapse.ingest.times import Times, is_finer
from timelapse.log import Log, Source


class Pay(tl.Event):
    x: float
    seen: tl.Time | None


def _doubts(log: Log) -> list[str]:
    return [w for s in log.info().ingests[-1].sources for w in s.warnings]


ISO = "2025-01-01T00:00:00"
FINER = [
    # unit, texts, which are finer, what they are read as (None: a bad row)
    (None, [f"{ISO}.1234567Z", f"{ISO}.1234560Z", f"{ISO}Z", "soon.1234567", "7.1234567"], [0]),
    ("s", ["1735689600.1234567", "1735689600.123456", "-0.0000015", "1e-7", "1e3", f"{ISO},1234567Z"], [0, 2, 3, 5]),
    ("ms", ["1735689600123.4567", "1735689600123.456", f"{ISO}.123456Z", "5"], [0]),
    ("us", ["5.5", "5", "5.0", f"{ISO}.000001Z"], [0]),
    ("ns", ["1735689600123456789", "1735689600123456000", "5000.5", "x7", f"{ISO}.1234567Z"], [0, 2, 4]),
]  # fmt: skip


@pytest.mark.parametrize(("unit", "texts", "finer"), FINER)
def test_texts_with_digits_below_a_microsecond_are_found(unit: str | None, texts: list[str], finer: list[int]) -> None:  # fmt: skip
    """In a column, one by one, and among values of JSON; what cannot be read at all is of no account."""
    times = Times(unit)
    found = doubts_of(pa.array([*texts, None]), times)
    assert found.get("fraction", pa.array([])).tolist() == finer
    assert [n for n, text in enumerate(texts) if is_finer(text, times)] == finer
    assert doubts_of_values([*texts, None], times)["fraction"].tolist() == finer


@pytest.mark.parametrize(
    ("column", "unit", "finer"),
    [
        (pa.array([1_500, 2_000, None, -1]), "ns", [0, 3]),
        (pa.array([1_500, 2_000]), "us", []),
        (pa.array([1735689600.1234567, 1735689600.123456, None, float("nan")]), "s", [0]),
        (pa.array([0.0005, 1.0]), "ms", [0]),
        (pa.array([2_000.0, 2_001.0]), "ns", [1]),
        (pa.array([Decimal("0.0000015"), Decimal("1.0000010")]), "s", [0]),
        (pa.array([1_500, 2_000], pa.timestamp("ns", "UTC")), None, [0]),
    ],
)
def test_numbers_with_digits_below_a_microsecond_are_found(
    column: pa.Array, unit: str | None, finer: list[int]
) -> None:
    found = doubts_of(column, Times(unit))
    assert [int(n) for n in found.get("fraction", [])] == finer
    if not pa.types.is_timestamp(column.type):
        own = doubts_of_values(column.to_pylist(), Times(unit))
        assert [int(n) for n in own.get("fraction", [])] == finer


@given(micros=st.integers(-(10**15), 4 * 10**15))
def test_a_float_of_whole_microseconds_is_not_finer(micros: int) -> None:
    """A time in seconds that was written from microseconds and read back as a float loses nothing."""
    value = micros / 1_000_000
    assert doubts_of(pa.array([value]), Times("s")) == {}
    assert Times("s").of_number(value) == micros


@pytest.mark.parametrize(
    ("value", "unit", "micros"),
    [
        ("0.0000019", "s", 1), ("-0.0000011", "s", -2), ("1.9999", "ms", 1_999), ("1.9", "us", 1), ("1999.9", "ns", 1),
        ("1735689600." + "9" * 60, "s", 1735689600_999_999), ("-1999", "ns", -2), (f"{ISO}.9999999Z", None, 1735689600_999_999),
    ],
)  # fmt: skip
def test_digits_below_a_microsecond_are_cut_off_not_rounded(
    value: str, unit: str | None, micros: int
) -> None:
    assert Times(unit).of_text(value) == micros


def test_a_number_of_thousands_of_digits_is_no_time() -> None:
    batch = doubts_of(pa.array(["9" * 5_000]), Times("ns"))
    assert batch == {}
    with pytest.raises(Exception, match="outside int64"):
        Times("ns").of_text("9" * 5_000)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "table"])
def test_digits_that_are_cut_off_are_told_with_field_share_and_place(tmp_path: Path, kind: str) -> None:
    stamps = [1735689600_123456_000, 1735689600_123456_789, 1735689600_123456_999]
    path = tmp_path / f"a.{kind}"
    data: Any = path
    if kind == "csv":
        path.write_text("ts,x,seen\n" + "".join(f"{ts},1,{ts}\n" for ts in stamps))
    elif kind == "jsonl":
        path.write_text("".join(f'{{"ts":{ts},"x":1,"seen":{ts}}}\n' for ts in stamps))
    else:
        data = pa.table({"ts": stamps, "x": [1.0] * 3, "seen": stamps})
        if kind == "parquet":
            pq.write_table(data, path)
            data = path
    log = Log.write(tmp_path / "log", {Pay: Source(data, unit="ns")})
    first = {"csv": f"{path}:3", "jsonl": f"{path}:2", "parquet": f"{path}:2", "table": "Table for Pay:2"}[
        kind
    ]
    said = f"2 of 3 times have digits below a microsecond, which were cut off; the first at {first}"
    assert _doubts(log) == [f"Pay.seen: {said}", f"Pay.ts: {said}"]
    assert {e.ts for e in log.events()} == {1735689600_123456}


@pytest.mark.parametrize("text", ["1e400", "-1e400", "9" * 400])
def test_a_number_beyond_a_float_is_a_bad_row(tmp_path: Path, text: str) -> None:
    """In a column that Arrow reads as numbers, and in one that is read as texts; infinity that is written as such is kept."""
    (tmp_path / "a.csv").write_text(f"ts,x,seen\n1,{text},\n2,1.5,\n3,inf,\n4,-Infinity,\n")
    (tmp_path / "b.csv").write_text(f"ts,x,seen\n5,{text},1\n6, 2.5,x\n")
    log = Log.write(tmp_path / "log", {Pay: tmp_path / "*.csv"}, max_bad=1)
    assert [(e.ts, e.x) for e in log.events(Pay)] == [(2, 1.5), (3, float("inf")), (4, float("-inf"))]
    reasons = log.quarantine()["reason"].to_pylist()
    assert sum("is beyond what a float holds" in why for why in reasons) == 2
    assert len(reasons) == 3


def test_a_computed_number_beyond_a_float_is_a_bad_row() -> None:
    for text in ("x * 1", "cast(x as double)"):
        found, reasons = expression(text, "x").of({"x": pa.array(["1e400", "2", "inf"])}, 3)
        assert found.to_pylist() == [None, 2.0, float("inf")]
        assert reasons == {0: "a number is beyond what a float holds"}


def test_since_must_be_before_before(tmp_path: Path) -> None:
    for before in (datetime(2025, 1, 1, tzinfo=UTC), "2025-02-01"):
        with pytest.raises(IngestError, match="no time lies between since= 2025-02-01") as raised:
            Source(tmp_path, since="2025-02-01", before=before)
        assert raised.value.code == "TL411"
    assert Source(tmp_path, since="2025-02-01", before="2025-02-02").window[0] is not None


def test_options_narrow_the_times_of_a_definitions_sources(tmp_path: Path) -> None:
    """`--from` and `--to` let in no row that the source leaves out; a source without such rows gives none, and its files count as taken."""
    (tmp_path / "events.py").write_text(
        "import timelapse as tl\nclass Pay(tl.Event):\n    x: float\n    seen: tl.Time | None\n"
    )
    (tmp_path / "log.toml").write_text(
        'events = "events.py"\nlog = "log"\n[[source]]\ntype = "Pay"\nfiles = "a.csv"\nsince = 1970-01-01T00:00:00.000010Z\n'
    )
    found = Definition.read(tmp_path / "log.toml")
    windows = [
        [one.window for one in own]
        for span in ({"since": 5}, {"since": 20, "before": 30}, {"before": 10})
        for own in chosen(found, span, None).sources.values()
    ]
    assert windows == [[(10, None)], [(20, 30)], [(None, INT64_MIN)]]


@pytest.mark.parametrize(
    ("early", "said"),
    [
        (["0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"], "before 1970"),
        (["1899-12-30T00:00:00Z", "1899-12-30T00:00:00Z"], "before 1970"),
        (["1969-12-31T23:00:00Z", "1970-01-01T01:00:00Z"], "up to 1970"),
        (["1970-01-01T00:00:00Z", "1970-01-01T01:00:00Z"], "in 1970"),
    ],
)
def test_times_before_1970_beside_others_are_named_whatever_their_share(
    tmp_path: Path, early: list[str], said: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("ts,x,seen\n" + "".join(f"{ts},1,\n" for ts in [*early, "2025-01-01T00:00:00Z"]))
    (warning,) = _doubts(Log.write(tmp_path / "log", {Pay: path}))
    assert "Pay.ts: 2 of 3 rows (66.7%) lie " in warning
    assert f"the first at {path}:2" in warning
    assert warning.endswith(f", {said}: are these times missing, or in another unit?")


def test_a_log_that_is_all_before_1970_is_doubtful() -> None:
    assert doubtful_times(-10, -5) is not None
    assert doubtful_times(-10, 5) is not None
    assert doubtful_times(10**15, 2 * 10**15) is None
