"""Claims about reading CSV, JSON lines, text and tables: what fits, what does not, and why."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import timelapse as tl
from timelapse.errors import IngestError
from timelapse.ids import INT64_MAX, INT64_MIN
from timelapse.ingest.amounts import Unfit
from timelapse.ingest.batches import Batch
from timelapse.ingest.canonical import _bytes_of, canonical_bytes
from timelapse.ingest.convert import convert, wire_type
from timelapse.ingest.lines import Lines
from timelapse.ingest.parse import parse_lines, parse_table
from timelapse.ingest.plan import Plan
from timelapse.ingest.source import Source
from timelapse.ingest.times import Times
from timelapse.model.types import (
    BOOL,
    BYTES,
    FLOAT,
    INT,
    STR,
    TIME,
    DecimalType,
    ListType,
    OptionalType,
    ValueType,
)
from timelapse.segments.types import EventType


class Row(tl.Event):
    n: int
    x: float | None
    s: str
    b: bool | None
    o: str | None


NAMES = ("ts", "n", "x", "s", "b", "o")


def plan(
    cls: type[tl.Event] = Row, floor: int | None = None, names: tuple[str, ...] = NAMES, **options: Any
) -> Plan:
    source = Source("x", **options)
    return Plan.of(EventType.of(cls), source, options.get("format", "csv"), names, floor)


def events(batch: Batch) -> list[tuple[Any, ...]]:
    """(line, ts, fields...) of each event."""
    columns = [c.to_pylist() for c in batch.columns]
    return list(zip(batch.rows.tolist(), batch.ts.tolist(), *columns, strict=True))


def read(text: str | bytes, how: Plan, first: int = 1) -> Batch:
    data = text.encode() if isinstance(text, str) else text
    return parse_lines(how, Lines(first, data))


def test_csv_rows_that_do_not_fit_are_named_with_line_and_reason() -> None:
    """Every kind of bad row; the rest is read; nothing is trimmed or lost."""
    data = b"\r\n".join(
        [
            b"ts,n,x,s,b,o",
            b"5,1,1.5, kept as it is ,true,",
            b'6,2,,"quoted, ""with"" separators",0,z',
            b"",
            b"7,3,1.5,too few",
            b"8,4,1,1,1,1,too many",
            b"9,9223372036854775808,,s,,",
            b"10,1.5,,s,,",
            b"11,,,s,,",
            b"12,1,,s,yes,",
            b"13,1,abc,s,,",
            b"14,1,,\xff,,",
            b'15,1,,"open,,',
            b'16,1,,"closed"then,,',
            b"soon,1,,s,,",
            b"2024-01-01T00:00:00+02:00,-9223372036854775808,1e3,,FALSE, ",
        ]
    )
    batch = read(data, plan())
    assert events(batch) == [
        (2, 5, 1, 1.5, " kept as it is ", True, None),
        (3, 6, 2, None, 'quoted, "with" separators', False, "z"),
        (16, 1704060000_000_000, INT64_MIN, 1000.0, "", False, " "),
    ]
    assert [(b.row, b.reason) for b in batch.bad] == [
        (5, "4 columns, not 6"),
        (6, "7 columns, not 6"),
        (7, "n: it is '9223372036854775808', outside int64"),
        (8, "n: '1.5' is not a whole number"),
        (9, "n is empty"),
        (10, "b: 'yes' is not true, false, 1 or 0"),
        (11, "x: 'abc' is not a number"),
        (12, "byte 7 is not UTF-8"),
        (13, "a quoted cell does not end on its line: one line is one record"),
        (14, "',' expected after '\"'"),
        (15, "ts: 'soon' is not an ISO-8601 time"),
    ]
    assert batch.bad[7].raw == "14,1,,\\xff,,"
    assert batch.skipped == 1


CELLS = st.sampled_from(
    ["1", "0", "-7", "+7", " 3 ", "", "x", "0x10", "1_0", "1.5", "1e3", "nan", "true", "é", '"q,q"', '"', "9" * 18,
     "9" * 19, "9" * 40, "-9223372036854775808", "2024-02-29", "2023-02-29", "2024-01-01T10:00:00Z", "a\rb", "0001-01-01",
     "0000-01-01", "٣", "\t4", "1704067200.5"]
)  # fmt: skip
CSV_LINES = st.lists(st.lists(CELLS, min_size=5, max_size=7).map(",".join) | st.just(""), max_size=8)


@given(lines=CSV_LINES, cut=st.integers(0, 8))
@example(lines=["1,1,1,s,1,", '2,2,2,"s",1,'], cut=1)
def test_where_blocks_end_changes_nothing(lines: list[str], cut: int) -> None:
    """One block or several, or line by line: same events, same bad rows, same reasons. (Fast paths agree with slow.)"""
    how = plan(header=False)
    whole = read("\n".join(lines), how) if lines else read("", how)
    parts = [lines[:cut], lines[cut:]]
    for split in (parts, [[line] for line in lines]):
        first, got, bad = 1, [], []
        for part in split:
            if part:
                batch = read("\n".join(part), how, first)
                got.extend(events(batch))
                bad.extend(batch.bad)
                first += len(part)
        assert repr(got) == repr(events(whole))
        assert bad == whole.bad


@pytest.mark.parametrize(
    ("text", "options", "micros"),
    [
        ("1082040961", {"unit": "s"}, 1082040961_000_000),
        ("1082040961.25", {"unit": "s"}, 1082040961_250_000),
        ("1082040961250", {"unit": "ms"}, 1082040961_250_000),
        ("1082040961250000", {}, 1082040961_250_000),
        ("1082040961250000999", {"unit": "ns"}, 1082040961_250_000),
        ("-1", {"unit": "ns"}, -1),
        ("0.0000005", {"unit": "s"}, 0),
        ("0.0000015", {"unit": "s"}, 1),
        ("1970-01-01", {}, 0),
        ("1970-01-01 00:00:01", {}, 1_000_000),
        ("1970-01-01T00:00:01.000001Z", {}, 1_000_001),
        ("1970-01-01T05:30:00+05:30", {}, 0),
        ("1970-01-01T01:00:00", {"tz": "Europe/Berlin"}, 0),
        ("Dec 10 06:55:46", {"time_format": "%b %d %H:%M:%S", "year": 2017}, 1512888946_000_000),
        ("Feb 29 00:00:00", {"time_format": "%b %d %H:%M:%S", "year": 2024}, 1709164800_000_000),
        ("20240102", {"time_format": "%Y%m%d"}, 1704153600_000_000),
        ("1.5", {}, "fractional time"),
        ("9223372036854", {"unit": "s"}, 9223372036854_000_000),
        ("9223372036855", {"unit": "s"}, "outside int64"),
        ("1e999", {"unit": "s"}, "not a time"),
        ("nan", {"unit": "s"}, "not a time"),
        ("Feb 30 00:00:00", {"time_format": "%b %d %H:%M:%S", "year": 2024}, "not a time in the format"),
        ("2024-13-01", {}, "ISO-8601"),
    ],
)
def test_times_in_texts(text: str, options: dict[str, Any], micros: int | str) -> None:
    """Units, ISO-8601, formats, zones; alone and beside another value that takes the slow path."""
    times = Times(**options)
    for others in ([], ["nonsense"]):
        values, reasons = convert("ts", pa.array([text, *others]), TIME, times, texts=True)
        if isinstance(micros, int):
            assert values[0].as_py() == micros
            assert 0 not in reasons
        else:
            assert micros in reasons[0]


@given(
    st.sampled_from([INT, FLOAT, BOOL, TIME, DecimalType.of(2), OptionalType(INT), OptionalType(TIME)]),
    st.lists(
        st.sampled_from(
            ["7", "-12.25", "2024-05-06T07:08:09Z", "2024-13-01", "true", "odd", "", "1e3", "9" * 19]
        )
    ),
    st.lists(st.integers(0, 5_000), max_size=6),
    st.integers(1, 5_000),
    st.sampled_from([Times(unit="s"), Times(), Times(tz="Europe/Berlin")]),
)
def test_a_row_does_not_depend_on_those_beside_it(
    kind: ValueType, odd: list[str], places: list[int], rows: int, times: Times
) -> None:
    """Of a long column, most of which is read at once, each row is what it is alone."""
    inner = kind.inner if isinstance(kind, OptionalType) else kind
    plain = (
        "2024-05-06 07:08:09Z"
        if inner is TIME and times.unit is None
        else "1"
        if inner is BOOL
        else "1715000000"
    )
    if isinstance(inner, DecimalType):
        plain = "17.25"
    texts = [plain] * rows
    for place, text in zip(places, odd, strict=False):
        texts[place % rows] = text
    values, reasons = convert("f", pa.array(texts, pa.string()), kind, times, texts=True)
    alone = {text: convert("f", pa.array([text]), kind, times, texts=True) for text in set(texts)}
    assert values.equals(pa.concat_arrays([alone[text][0] for text in texts]))
    assert reasons == {row: alone[text][1][0] for row, text in enumerate(texts) if alone[text][1]}


@given(
    st.datetimes(datetime(1000, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)),
    st.sampled_from(["", "milliseconds", "microseconds"]),
    st.sampled_from("T "),
    st.one_of(
        st.sampled_from(["Z", "+00:00", "-00:00", "+23:59", "-23:59", "+24:00", "+05:60", "+0530", "z", ""]),
        st.integers(-1439, 1439),
    ),
    st.sampled_from([Times(), Times(unit="s", tz="Asia/Kolkata"), Times(told=False)]),
)
def test_iso_times_of_a_column_are_those_of_single_texts(
    moment: datetime, parts: str, between: str, zone: str | int, times: Times
) -> None:
    """Arrow reads most of them at once, by the same rules."""
    if isinstance(zone, int):
        zone = f"{'-' if zone < 0 else '+'}{abs(zone) // 60:02}:{abs(zone) % 60:02}"
    text = moment.isoformat(between, parts or "seconds") + zone
    values, reasons = convert("ts", pa.array([text, None]), OptionalType(TIME), times, texts=True)
    try:
        expected = times.of_text(text)
    except Unfit as error:
        assert reasons == {0: f"ts: {error}"}
    else:
        assert (values.to_pylist(), reasons) == ([expected, None], {})


@pytest.mark.parametrize(
    "text",
    ["2024-05-06T23:59:60Z", "2023-02-29T00:00:00+01:00", "2024-05-06T07:60:00Z"],
)
def test_times_that_no_clock_shows_are_bad_in_a_column_too(text: str) -> None:
    values, reasons = convert("ts", pa.array([text]), TIME, Times(), texts=True)
    assert values.to_pylist() == [None]
    assert "ISO-8601" in reasons[0]


def test_a_row_that_is_odd_slows_no_other_block_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """One time that cannot be read had all of its block read one by one."""
    read: list[str] = []
    plain = Times.of_text

    def noted(times: Times, text: str) -> int:
        read.append(text)
        return plain(times, text)

    monkeypatch.setattr(Times, "of_text", noted)
    texts = [str(datetime.fromtimestamp(n, UTC)).replace("+00:00", "Z") for n in range(20_000)]
    texts[9_000] = "n/a"
    values, reasons = convert("ts", pa.array(texts), TIME, Times(), texts=True)
    assert list(reasons) == [9_000]
    assert values[9_001].as_py() == 9_001_000_000
    assert "n/a" in read
    assert len(read) <= 1_024


def test_json_lines_are_read_strictly() -> None:
    """Types are those of JSON; missing optional members are None; unknown members do not matter."""

    class J(tl.Event):
        n: int
        x: float | None
        s: str
        b: bool | None
        at: tl.Time
        l: list[int | None]
        raw: bytes

    how = plan(J, format="json", fields={"n": "the id"})
    good = {
        "ts": "2024-01-01T00:00:00Z",
        "the id": 1,
        "s": "é\u2028",
        "at": 5,
        "l": [1, None],
        "raw": "AAE=",
        "more": {},
    }

    def line(**changes: Any) -> str:
        return json.dumps({**good, **changes})

    rows = [
        line(), line(x=1, b=True, ts=7), "", line(**{"the id": 2**63}), line(**{"the id": 1.0}), line(**{"the id": True}),
        line(s=None), line(l=["a"]), line(l=[2**63]), line(ts=1.5), line(ts=None), "{", "[1]", line()[:-1] + "} {}",
        line().replace('"s"', '"t"'), '{"s": "\\ud800"}',
    ]  # fmt: skip
    batch = read("\n".join(rows), how)
    first = 1704067200_000_000
    assert events(batch) == [
        (1, first, 1, None, "é\u2028", None, 5, [1, None], b"\0\1"),
        (2, 7, 1, 1.0, "é\u2028", True, 5, [1, None], b"\0\1"),
    ]
    assert batch.skipped == 1
    assert [b.row for b in batch.bad] == list(range(4, 17))
    reasons = {b.row: b.reason for b in batch.bad}
    assert "outside int64" in reasons[4]
    assert "`$.the id`" in reasons[5]
    assert "fractional" in reasons[10]
    assert "missing required field `s`" in reasons[15]


def test_text_lines_by_regular_expression() -> None:
    """Lines without a match are skipped or bad, as asked; groups that took no part are null."""
    regex = r"^(?P<ts>\d+) (?P<n>\w+)(?: x=(?P<x>\S+))? (?P<s>.*)$"
    text = "1 5 x=2.5 hello  \nnothing\n2 6 there\n3 z t\n"

    class T(tl.Event):
        n: int
        x: float | None
        s: str

    names = ("ts", "n", "x", "s")
    skip = read(text, plan(T, format="text", regex=regex, names=names))
    assert events(skip) == [(1, 1, 5, 2.5, "hello  "), (3, 2, 6, None, "there")]
    assert (skip.skipped, [b.row for b in skip.bad]) == (2, [4])
    strict = read(text, plan(T, format="text", regex=regex, names=names, unmatched="quarantine"))
    assert [(b.row, b.reason) for b in strict.bad] == [
        (2, "the regular expression does not match"), (4, "n: 'z' is not a whole number"),
    ]  # fmt: skip


def test_separators_of_any_length_and_no_quoting() -> None:
    """Tabs, several characters, quotes as plain text."""
    names = ("ts", "s")

    class S(tl.Event):
        s: str

    assert events(read('1\t"a', plan(S, names=names, sep="\t", quote=None, header=False))) == [(1, 1, '"a')]
    assert events(read('1\t"a\tb"', plan(S, names=names, sep="\\t", header=False))) == [(1, 1, "a\tb")]
    assert events(read("1||a|b", plan(S, names=names, sep="||", header=False))) == [(1, 1, "a|b")]
    assert events(read("1§a", plan(S, names=names, sep="§", header=False))) == [(1, 1, "a")]


def test_headers_empty_files_and_missing_last_line_ends() -> None:
    for text in ("ts,n,x,s,b,o", "ts,n,x,s,b,o\r", ""):
        batch = read(text, plan())
        assert (events(batch), batch.bad) == ([], [])
    assert len(events(read("ts,n,x,s,b,o\n1,1,1,s,1,o", plan()))) == 1


def test_events_before_the_floor_are_set_aside() -> None:
    """At the log's last time is too early as well: only strictly later events can follow."""
    batch = read("5,1,,s,,\n6,1,,s,,\n7,1,,s,,", plan(floor=6, header=False))
    assert [row for row, *_ in events(batch)] == [3]
    assert [(b.row, b.rule, b.reason) for b in batch.bad] == [(1, "early", "5"), (2, "early", "6")]


# --- typed columns --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "kind", "values", "bad"),
    [
        (pa.array([1, 255], pa.uint8()), INT, [1, 255], []),
        (pa.array([1, 2**63, None], pa.uint64()), OptionalType(INT), [1, None, None], [1]),
        (pa.array([1.0, 2.5, float("nan"), 2.0**53, 1e300]), INT, [1, None, None, 2**53, None], [1, 2, 4]),
        (pa.array([Decimal("3.00"), Decimal("3.50")]), INT, [3, None], [1]),
        (pa.array([1, None], pa.int32()), INT, [1, None], [1]),
        (pa.array([1, 2**62 + 1], pa.int64()), FLOAT, [1.0, float(2**62 + 1)], []),
        (pa.array([0.1], pa.float32()), FLOAT, [float(np.float32(0.1))], []),
        (pa.array(["7", "x", None]), OptionalType(INT), [7, None, None], [1]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), STR, ["a", "b", "a"], []),
        (pa.array(["a"], pa.large_string()), STR, ["a"], []),
        (pa.array([b"ab"], pa.binary(2)), BYTES, [b"ab"], []),
        (pa.array([True, None]), OptionalType(BOOL), [True, None], []),
        (pa.array([date(1970, 1, 2)]), TIME, [86_400_000_000], []),
        (pa.array([datetime(1970, 1, 1, 0, 0, 1)]), TIME, [1_000_000], []),
        (pa.array([1999, -1], pa.timestamp("ns")), TIME, [1, -1], []),
        (pa.array([5], pa.timestamp("s", "Asia/Kolkata")), TIME, [5_000_000], []),
        (pa.array([INT64_MAX], pa.timestamp("s")), TIME, [None], [0]),
        (pa.array([[1, 2], None, [2**63 - 1]]), OptionalType(ListType(INT)), [[1, 2], None, [2**63 - 1]], []),
        (pa.array([[1, None]]), ListType(INT), [None], [0]),
        (pa.array([[datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)]]), ListType(TIME), [[2_000_000]], []),
        (pa.nulls(2), OptionalType(STR), [None, None], []),
        (pa.nulls(1), STR, [None], [0]),
    ],
)  # fmt: skip
def test_typed_columns(column: pa.Array, kind: ValueType, values: list[Any], bad: list[int]) -> None:
    """What Parquet files and DataFrames hold becomes the declared type exactly, or the row is bad."""
    made, reasons = convert("f", column, kind, Times(), texts=False)
    assert made.type == wire_type(kind)
    assert made.to_pylist() == values
    assert sorted(reasons) == bad


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([True]), INT), (pa.array([1]), BOOL), (pa.array([1]), STR),
        (pa.array([b"a"]), INT), (pa.array([datetime(1970, 1, 1)]), INT), (pa.array([[1]]), INT),
    ],
)  # fmt: skip
def test_columns_that_can_never_fit_are_an_error(column: pa.Array, kind: ValueType) -> None:
    """Not one bad row after the other: the column's type is named."""
    with pytest.raises(IngestError, match=r"TL413 field: the column for field is .* cannot become"):
        convert("field", column, kind, Times(), texts=False)


def test_fractional_epochs_need_a_unit() -> None:
    column = pa.array([1.5])
    _, reasons = convert("ts", column, TIME, Times(), texts=False)
    assert list(reasons) == [0]
    values, reasons = convert("ts", column, TIME, Times(unit="s"), texts=False)
    assert (values.to_pylist(), reasons) == ([1_500_000], {})


def test_tables_keep_row_numbers_and_fill_missing_optional_columns() -> None:
    table = pa.table({"ts": [1, None, 3], "n": [1, 2, 3], "s": ["a", "b", "c"]})
    batch = parse_table(plan(format="parquet"), table, 100)
    assert events(batch) == [(100, 1, 1, None, "a", None, None), (102, 3, 3, None, "c", None, None)]
    assert [(b.row, b.reason) for b in batch.bad] == [(101, "ts is null")]
    assert "'n': 2" in batch.bad[0].raw


def test_missing_columns_and_unknown_fields_are_errors() -> None:
    with pytest.raises(IngestError, match=r"Row needs the column 'n', which is not there"):
        plan().check_columns(["ts", "s"], "file.csv")
    plan().check_columns(["ts", "n", "s"], "file.csv")
    with pytest.raises(IngestError, match="no field 'nn'"):
        plan(fields={"nn": "a"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unit": "min"}, "unit='min'"), ({"sep": ""}, "sep=''"), ({"quote": "''"}, "quote="), ({"year": 2000}, "time_format"),
        ({"regex": "("}, "regex"), ({"regex": "a"}, "no group named 'ts'"), ({"tz": "Mars/Base"}, "Mars/Base"),
        ({"format": "xml"}, "format='xml'"), ({"unmatched": "x"}, "unmatched"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(IngestError, match="TL411") as caught:
        Source("x", **options)
    assert message in str(caught.value)
    assert caught.value.hint


# --- canonical bytes ------------------------------------------------------------------------------------

KINDS: list[ValueType] = [
    INT, OptionalType(INT), FLOAT, OptionalType(BOOL), STR, OptionalType(BYTES), ListType(OptionalType(INT)),
]  # fmt: skip
VALUES: list[st.SearchStrategy[Any]] = [
    st.integers(INT64_MIN, INT64_MAX), st.none() | st.integers(-2, 2), st.floats(allow_nan=False), st.none() | st.booleans(),
    st.text(st.characters(codec="utf-8"), max_size=3), st.none() | st.binary(max_size=3),
    st.lists(st.none() | st.integers(-2, 2), max_size=2),
]  # fmt: skip


@given(rows=st.lists(st.tuples(*VALUES), max_size=6))
def test_canonical_bytes_by_column_are_those_by_value(rows: list[tuple[Any, ...]]) -> None:
    """The vectorised form equals the definition, tells different rows apart, and orders ints by value."""
    columns = [
        pa.array([row[n] for row in rows], type=wire_type(kind)) for n, kind in enumerate(KINDS)
    ]  # fmt: skip
    made = canonical_bytes(columns, KINDS, len(rows)).to_pylist()
    plain = [b"".join(_bytes_of(v, k) for v, k in zip(row, KINDS, strict=True)) for row in rows]
    assert made == plain
    for a, left in zip(rows, plain, strict=True):
        for b, right in zip(rows, plain, strict=True):
            assert (left == right) == (repr(a) == repr(b))
            if a[0] != b[0]:
                assert (left < right) == (a[0] < b[0])


def test_unfit_is_not_raised_through_public_functions() -> None:
    """It is how parsers say why; callers get reasons."""
    with pytest.raises(Unfit):
        Times().of_text("x")
