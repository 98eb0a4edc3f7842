"""Blocks of CSV with quotes are split by Arrow where that gives what line by line gives, and only there."""

from __future__ import annotations

import csv
from dataclasses import replace

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import deep
from timelapse.ingest.lines import Lines
from timelapse.ingest.parse import _quick_csv as quick_csv
from timelapse.ingest.parse import parse_lines
from timelapse.ingest.plan import Plan
from timelapse.ingest.source import Source
from timelapse.segments.types import EventType


class Row(tl.Event):
    a: str
    b: str | None


def _quick_csv(plan: Plan, data: bytes) -> dict[str, pa.Array] | None:
    return quick_csv(plan, data, data.count(b"\n") + 1)


def _plan() -> Plan:
    return Plan.of(EventType.of(Row), Source("x.csv"), "csv", ("ts", "a", "b"), None)


def _one_by_one(data: bytes) -> list[list[str]] | None:
    rows = []
    for line in data.decode().split("\n"):
        try:
            rows.append(next(csv.reader([line], strict=True)))
        except (csv.Error, StopIteration):
            return None
    return rows


@given(st.text(alphabet='",\nab ;', max_size=40))
@settings(max_examples=deep(500), deadline=None)
def test_what_is_split_at_once_is_what_each_line_is(text: str) -> None:
    data = text.encode()
    quick = _quick_csv(_plan(), data)
    if quick is None:
        return
    rows = _one_by_one(data)
    assert rows is not None
    assert [
        list(row) for row in zip(*(quick[name].to_pylist() for name in ("ts", "a", "b")), strict=True)
    ] == rows


cells = st.text(alphabet='",ab ', max_size=5)
pieces = st.lists(st.sampled_from(['"', '""', '","', "a", "b ", "\n1,", ",", ""]), max_size=4).map("".join)


@given(st.lists(st.tuples(pieces, pieces, pieces), min_size=1, max_size=4))
@settings(max_examples=deep(250), deadline=None)
def test_quotes_in_columns_that_nobody_needs_are_seen_too(rows: list[tuple[str, str, str]]) -> None:
    data = "\n".join(",".join(("1", *row)) for row in rows).encode()
    quick = _quick_csv(
        Plan.of(EventType.of(Row), Source("x.csv"), "csv", ("ts", "a", "other", "b"), None), data
    )
    if quick is None:
        return
    told = _one_by_one(data)
    assert told is not None
    wanted = [[row[n] for n in (0, 1, 3)] for row in told if len(row) == 4]
    assert len(wanted) == len(told)
    assert [
        [str(v) for v in row] for row in zip(*(quick[c].to_pylist() for c in ("ts", "a", "b")), strict=True)
    ] == wanted


def test_arrow_need_not_look_for_quotes_around_texts() -> None:
    plan = _plan()
    found = _quick_csv(plan, '1,"é",plain\n2,"é",""\n3,,a b'.encode())
    assert found is not None
    assert plan.tried == {(True, True): [True]}
    assert found["a"].to_pylist() == ["é", "é", ""]
    assert found["b"].to_pylist() == ["plain", "", "a b"]
    for data in (b'1,"a,b",c', b'1,"a""b",c'):  # a separator or a quote inside
        plan = _plan()
        assert _quick_csv(plan, data) is not None
        assert plan.tried == {(True, True): [False], (True, False): [True]}
    for data in (b'1,a"b",c', b'1,"a"b,c', b'1,a,"b\nc",2,3'):  # by the line these are other cells, or none
        assert _quick_csv(_plan(), data) is None


@given(st.lists(st.tuples(cells, cells), min_size=1, max_size=6))
@settings(max_examples=deep(250), deadline=None)
def test_what_a_writer_of_csv_quotes_is_split_at_once(rows: list[tuple[str, str]]) -> None:
    lines = []
    for n, row in enumerate(rows):
        cells_ = [f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in (str(n), *row)]
        lines.append(",".join(cells_))
    data = "\n".join(lines).encode()
    assert _quick_csv(_plan(), data) is not None
    batch = parse_lines(_plan(), Lines(1, b"ts,a,b\n" + data))
    assert batch.ts.tolist() == list(range(len(rows)))
    assert batch.columns[0].to_pylist() == [a for a, _ in rows]
    assert batch.columns[1].to_pylist() == [b or None for _, b in rows]


@given(
    st.lists(st.tuples(pieces, pieces, pieces), min_size=1, max_size=12),
    st.sampled_from(["", "a", "b "]),
    st.booleans(),
)
@settings(max_examples=deep(250), deadline=None)
def test_texts_that_come_as_codes_are_those_that_come_as_texts(
    rows: list[tuple[str, str, str]], null: str, every: bool
) -> None:
    """Quotes around some of them, around all, elsewhere; what stands for None; columns that nobody needs."""
    names = ("ts", "a", "b", "other")[: 3 + every]
    data = "\n".join(",".join((str(n % 3), *row[: len(names) - 1])) for n, row in enumerate(rows)).encode()
    texts, codes = (
        Plan.of(
            EventType.of(Row), Source("x.csv", null=null, header=False, columns=names), "csv", names, None
        )
        for _ in range(2)
    )
    codes = replace(codes, codes=True)
    plain, coded = parse_lines(texts, Lines(1, data)), parse_lines(codes, Lines(1, data))
    assert [c.to_pylist() for c in coded.columns] == [c.to_pylist() for c in plain.columns]
    assert (coded.ts.tolist(), coded.rows.tolist(), coded.bad) == (
        plain.ts.tolist(),
        plain.rows.tolist(),
        plain.bad,
    )
    assert codes.tried == texts.tried


def test_texts_that_repeat_come_as_codes() -> None:
    plan = replace(_plan(), codes=True)
    lines = "\n".join(f'{n},"{n % 3}",{n}' for n in range(40)).encode()
    first, second = (_quick_csv(plan, lines) for _ in range(2))
    assert first is not None
    assert second is not None
    assert [pa.types.is_dictionary(first[c].type) for c in ("a", "b")] == [True, True]
    assert [pa.types.is_dictionary(second[c].type) for c in ("a", "b")] == [True, False]
    assert first["a"].to_pylist() == second["a"].to_pylist() == [str(n % 3) for n in range(40)]


class Sums(tl.Event):
    n: int
    x: float
    at: tl.Time


NUMBERS = st.one_of(
    st.integers(-(2**64), 2**64).map(str),
    st.floats().map(repr),
    st.text(alphabet="0123456789-+.eE xXnaif_", max_size=6),
    st.sampled_from(
        [
            "1.5",
            "007",
            " 12",
            "12 ",
            "1e3",
            "-0",
            "+4",
            "",
            "1_0",
            "nan",
            "-inf",
            "infinity",
            "0x1F",
            "2026-10-01",
        ]
    ),
)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=5))
@example([("0", "0", "0", "9223372036854776")])  # milliseconds that leave int64 as microseconds
@settings(max_examples=deep(500), deadline=None)
def test_numbers_that_arrow_reads_are_what_their_texts_are(rows: list[tuple[str, str, str, str]]) -> None:
    names = ("ts", "n", "x", "at")
    data = b"ts,n,x,at\n" + "\n".join(",".join(row) for row in rows).encode()
    plan, plain = (
        Plan.of(EventType.of(Sums), Source("x.csv", unit="ms"), "csv", names, None) for _ in range(2)
    )
    plain.tried[True, True] = [False] * 8
    quick, texts = parse_lines(plan, Lines(1, data)), parse_lines(plain, Lines(1, data))
    assert quick.ts.tolist() == texts.ts.tolist()
    assert [repr(c.to_pylist()) for c in quick.columns] == [repr(c.to_pylist()) for c in texts.columns]
    assert quick.bad == texts.bad
