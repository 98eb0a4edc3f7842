"""Whole numbers are stored as differences: whatever they are, what is read is what was written."""

from __future__ import annotations

import io
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timelapse as tl
from timelapse.ids import DAY, INT64_MAX, INT64_MIN
from timelapse.segments.manifest import SegmentEntry
from timelapse.segments.segment import SegmentWriter, write_events
from timelapse.segments.types import event_types
from timelapse.tables.parquet import differences, others

EDGES = st.sampled_from([INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX - 1, INT64_MAX])


class Everything(tl.Event):
    id: int
    when: tl.Time
    maybe: int | None
    several: list[int]
    real: float
    flag: bool
    text: str


def test_a_segment_has_differences_for_every_whole_number(tmp_path: Path) -> None:
    events = [
        Everything(id=n, when=5, maybe=None, several=[n, INT64_MIN], real=0.5, flag=True, text="x", ts=n)
        for n in range(3)
    ]
    (entry,) = write_events(tmp_path, event_types([Everything]), events)
    found = pq.read_metadata(next((tmp_path / entry.folder).glob("*.parquet"))).row_group(0)
    columns = [found.column(n) for n in range(found.num_columns)]
    delta = {c.path_in_schema for c in columns if "DELTA_BINARY_PACKED" in c.encodings}
    assert delta == {"_i", "ts", "id", "when", "maybe", "several.list.element"}


def test_all_columns_are_named() -> None:
    inner = pa.struct([("a", pa.int64()), ("b", pa.large_string())])
    schema = pa.schema([("x", pa.int64()), ("s", inner), ("t", pa.timestamp("us")), ("f", pa.float64())])
    assert set(differences(schema)) == {"x", "s.a", "t"}
    assert others(schema) == ["s.b", "f"]


@given(st.lists(EDGES | st.none() | st.integers(INT64_MIN, INT64_MAX), max_size=300))
def test_what_is_read_is_what_was_written(values: list[int | None]) -> None:
    """Differences that leave int64 too."""
    lists = [None if v is None else [v, INT64_MAX, INT64_MIN] for v in values]
    table = pa.table({"x": pa.array(values, pa.int64()), "y": pa.array(lists, pa.list_(pa.int64()))})
    file = io.BytesIO()
    pq.write_table(table, file, use_dictionary=False, column_encoding=differences(table.schema))
    assert pq.read_table(file).cast(table.schema).equals(table)


def test_random_numbers_hardly_take_more(tmp_path: Path) -> None:
    numbers = np.random.default_rng(3).integers(INT64_MIN, INT64_MAX, 100_000)
    table = pa.table({"x": numbers})
    path = tmp_path / "x.parquet"
    pq.write_table(table, path, use_dictionary=False, column_encoding=differences(table.schema))
    assert pq.read_table(path).equals(table)
    assert path.stat().st_size < 8.2 * len(numbers)


class Texts(tl.Event):
    text: str
    maybe: str | None


def _written(folder: Path, blocks: list[pa.Table]) -> SegmentEntry:
    folder.mkdir()
    writer = SegmentWriter(folder, "s", event_types([Texts]))
    first = 0
    for block in blocks:
        ts = np.arange(first, first + block.num_rows)
        writer.write(ts, np.zeros(len(ts), np.int64), {0: block})
        first += block.num_rows
    return writer.close()


@pytest.mark.parametrize("seed", range(6))
def test_codes_are_written_as_the_values_that_they_stand_for(tmp_path: Path, seed: int) -> None:
    """Blocks with dictionaries that have more than occurs, another one each, or none; missing values, blocks without any: the same file."""
    rng = random.Random(seed)
    (kind,) = event_types([Texts])
    plain, coded = [], []
    for _ in range(4):
        words = [f"w{rng.randrange(50)}" + "é" * rng.randrange(3) for _ in range(40)] + [""]
        rows = rng.choice([1, 30, 700])
        missing = rng.choice([0.0, 0.4, 1.0])
        columns = [
            pa.array([rng.choice(words) for _ in range(rows)], pa.large_string()),
            pa.array([None if rng.random() < missing else rng.choice(words) for _ in range(rows)], pa.large_string()),
        ]  # fmt: skip
        plain.append(pa.table(columns, schema=kind.schema))
        known = pa.array(rng.sample(sorted(set(words)), len(set(words))), pa.large_string())
        codes = [pa.DictionaryArray.from_arrays(pc.index_in(c, known), known) for c in columns]
        coded.append(pa.table(codes if rng.random() < 0.8 else columns, ["text", "maybe"]))
    a, b = _written(tmp_path / "a", plain), _written(tmp_path / "b", coded)
    assert (a.content, a.days, a.empty) == (b.content, b.days, b.empty)
    assert [f.crc32 for f in a.files] == [f.crc32 for f in b.files]
    (file,) = (tmp_path / "b").glob("*/*.parquet")
    assert pq.read_table(file).select(["text", "maybe"]).cast(kind.schema).equals(pa.concat_tables(plain))
    assert pq.read_schema(file).field("text").type == pa.large_string()


NEAR = st.integers(-3, 3).flatmap(lambda day: st.sampled_from([day * DAY - 1, day * DAY, day * DAY + 1]))


class Maybe(tl.Event):
    text: str | None


@given(
    st.lists(st.tuples(EDGES | NEAR | st.integers(INT64_MIN, INT64_MAX), st.booleans()), min_size=1) |
    st.lists(st.tuples(NEAR, st.booleans()), min_size=9)
)  # fmt: skip
def test_events_are_counted_by_their_days(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[int, bool]]
) -> None:
    """Whether most days between the first and the last have events, or hardly any."""
    events.sort()
    ts = np.asarray([t for t, _ in events], np.int64)
    (kind,) = event_types([Maybe])
    writer = SegmentWriter(tmp_path_factory.mktemp("days"), "s", [kind])
    texts = pa.array(["x" if has else None for _, has in events], pa.large_string())
    writer.write(ts, np.zeros(len(ts), np.int64), {0: pa.table([texts], schema=kind.schema)})
    entry = writer.close()
    assert entry.days == {0: Counter(t // DAY for t, _ in events)}
    empty = Counter(t // DAY for t, has in events if not has)
    assert entry.empty == ({0: {"text": empty}} if empty else {})
