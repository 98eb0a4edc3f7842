"""Claims about reading: a stored log and a log in memory give exactly the events that went in."""

from __future__ import annotations

import pickle
import sys
import tempfile
from collections import deque
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import deep
from timelapse.errors import EventOrderError, LogError
from timelapse.ids import INT64_MAX, INT64_MIN
from timelapse.log import EventReader, Log, MemoryLog
from timelapse.segments.reader import Columns, LogReader


class Plain(tl.Event):
    a: int
    b: int


class Rich(tl.Event):
    i: int | None
    f: float
    s: str | None
    raw: bytes
    flag: bool | None
    at: tl.Time | None
    tags: list[str] | None
    deep: list[list[int] | None]
    times: list[tl.Time]


class Bare(tl.Event):
    pass


class Never(tl.Event):
    x: int


INTS = st.integers(INT64_MIN, INT64_MAX)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
RICH = st.builds(
    Rich,
    i=st.none() | INTS,
    f=st.floats(),
    s=st.none() | TEXTS,
    raw=st.binary(max_size=4),
    flag=st.none() | st.booleans(),
    at=st.none() | INTS,
    tags=st.none() | st.lists(TEXTS, max_size=3),
    deep=st.lists(st.none() | st.lists(INTS, max_size=2), max_size=3),
    times=st.lists(INTS, max_size=2),
)
EVENTS = st.lists(
    st.tuples(st.integers(0, 2), st.one_of(st.builds(Plain, INTS, INTS), RICH, st.builds(Bare))), max_size=25
)
CLASSES: list[type[tl.Event]] = [Plain, Rich, Bare, Never]
BY_NAME = {c.__name__: c for c in CLASSES}


def _placed(drawn: list[tuple[int, Any]], start: int = -3) -> list[tl.Event]:
    """Events in order, with many ties."""
    placed: list[tl.Event] = []
    ts = start
    for seq, (gap, event) in enumerate(drawn):
        ts += gap
        placed.append(event._at(ts, seq))
    return placed


def same(left: object, right: object) -> bool:
    """Equal to the last bit and of the same types: NaN is itself, -0.0 is not 0.0, True is not 1."""
    return _repr(left) == _repr(right)


def _repr(value: object) -> str:
    return repr(value) + repr(type(value))


@settings(max_examples=deep(60))
@given(drawn=EVENTS, block=st.integers(1, 9), bounds=st.tuples(st.integers(-2, 27), st.integers(-2, 27)))
def test_stored_events_come_back_to_the_last_bit(
    drawn: list[tuple[int, Any]], block: int, bounds: tuple[int, int]
) -> None:
    """Any range, any block size, any choice of types: events, columns and bounds are those of the list."""
    events = _placed(drawn)
    lo, hi = bounds
    with tempfile.TemporaryDirectory() as folder:
        log = Log.from_events(Path(folder) / "log", events, CLASSES, block=block)
        assert len(log) == log.count == len(events)
        memory = MemoryLog(events, CLASSES)
        encoded = replace(log.reader, encoded=True)
        readers: list[EventReader] = [pickle.loads(pickle.dumps(log.reader)), encoded, memory]
        for reader in readers:
            assert same(list(reader.events(0, len(events), BY_NAME)), events)
            inside = [e for e in events if lo <= e.seq < hi]
            assert same(list(reader.events(lo, hi, BY_NAME)), inside)
            some: dict[str, type[tl.Event]] = {"Rich": Rich, "Never": Never}
            assert same(list(reader.events(lo, hi, some)), [e for e in inside if type(e) is Rich])
            for ts in range(-5, 8):
                assert reader.seq_at(ts) == sum(e.ts < ts for e in events)
            seqs: list[tuple[int, int]] = []
            end = None
            for chunk in reader.chunks(lo, hi, {"Plain": ["b"], "Bare": None, "Rich": []}):
                assert end is None or chunk.seq_lo == end
                end = chunk.seq_hi
                for name, table in chunk.tables.items():
                    assert table.num_rows > 0
                    assert table.column_names == ["seq", "ts", *({"Plain": ["b"]}.get(name, []))]
                    assert all(chunk.seq_lo <= s < chunk.seq_hi for s in table["seq"].to_pylist())
                    seqs.extend(zip(table["seq"].to_pylist(), table["ts"].to_pylist(), strict=True))
                    if name == "Plain":
                        wanted = [events[s].b for s in table["seq"].to_pylist()]
                        assert table["b"].to_pylist() == wanted
            assert sorted(seqs) == [(e.seq, e.ts) for e in inside]


@pytest.mark.parametrize("rich", [0, 1, 5, 300])
def test_the_first_events_of_a_block_are_read_alone(
    rich: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are those that the whole block has, of however few types, and no whole block is read for them."""
    drawn: list[tl.Event] = []
    for n in range(300):
        made = (
            Rich(n, n / 3, f"t{n}", b"", None, None, [str(n)], [[n]], [n]) if n % 60 < rich else Plain(n, -n)
        )
        drawn.append(made)
    log = Log.from_events(tmp_path / "log", _placed([(1, e) for e in drawn]), CLASSES, block=100)
    reader = log.reader
    whole = list(reader.events(0, 300, BY_NAME))
    read = pq.ParquetFile.read_row_group
    groups: list[int] = []

    def noted(file: pq.ParquetFile, group: int, **rest: Any) -> pa.Table:
        groups.append(group)
        return read(file, group, **rest)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", noted)
    for begin in (0, 100, 200):
        for count in range(1, 7):
            assert same(list(reader.events(begin, begin + count, BY_NAME)), whole[begin : begin + count])
    if rich in (0, 300):  # of another type there may be no more rows in a block than events are asked for
        assert groups == []


class Words(tl.Event):
    often: str
    seldom: str
    maybe: bytes | None
    many: list[str]


@pytest.mark.parametrize("alone", [True, False])
def test_text_that_repeats_may_come_as_dictionaries(tmp_path: Path, alone: bool) -> None:
    """Only where asked for, and where it does repeat; the values are the same, in rows and in columns."""
    events: list[tl.Event] = []
    for i in range(6000):
        raw = None if i % 3 == 0 else b"\0" * (i % 4)
        words = Words(often=f"w{i % 7}", seldom=f"{i}", maybe=raw, many=[f"w{i % 7}"])
        events.append((words if alone or i % 3 else Plain(a=i, b=i))._at(i // 2, i))
    log = Log.from_events(tmp_path / "log", events, [Plain, Words], block=1500)
    encoded = replace(log.reader, encoded=True)
    by_name: dict[str, type[tl.Event]] = {"Plain": Plain, "Words": Words}
    assert same(list(encoded.events(0, 6000, by_name)), events)
    columns: Columns = {"Words": None, "Plain": []}
    pairs = list(zip(log.reader.chunks(0, 6000, columns), encoded.chunks(0, 6000, columns), strict=True))
    assert len(pairs) == 4
    for plain, other in pairs:
        a, b = plain.tables["Words"], other.tables["Words"]
        assert {n for n in b.column_names if pa.types.is_dictionary(b[n].type)} == {"often", "maybe"}
        assert not any(pa.types.is_dictionary(c.type) for c in a.columns)
        assert a.to_pylist() == b.to_pylist()
        assert a.schema.names == b.schema.names
        assert a["seldom"].type == b["seldom"].type


def test_an_index_that_contradicts_the_others_is_found(tmp_path: Path) -> None:
    """Each event has a place of its own, whichever types are asked for."""
    events: list[tl.Event] = [(Plain(a=i, b=i) if i % 3 else Bare())._at(i, i) for i in range(30)]
    log = Log.from_events(tmp_path / "log", events, [Plain, Bare])
    path = next(tmp_path.glob("log/segments/*/Bare.parquet"))
    table = pq.read_table(path)
    bare = [  # as a version without checksums wrote it: otherwise those tell
        msgspec.structs.replace(s, files=[msgspec.structs.replace(f, crc32=None) for f in s.files])
        for s in log.manifest.segments
    ]
    reader = LogReader.of(log.path, msgspec.structs.replace(log.manifest, segments=bare))
    for wrong in ([0, 3, 3], [0, 3, 30], [-1, 3, 6]):
        index = pa.array([*wrong, *range(9, 30, 3)])
        pq.write_table(table.set_column(0, table.schema.field("_i"), index), path)
        with pytest.raises(LogError, match="index") as caught:
            list(reader.chunks(0, 30, {"Plain": [], "Bare": []}))
        assert caught.value.code == "TL405"


def test_a_class_may_see_fewer_fields_in_another_order(tmp_path: Path) -> None:
    """Fields are matched by name, in a stored log and in memory."""

    def smaller() -> type[tl.Event]:
        class Rich(tl.Event):
            flag: bool | None
            at: int | None

        return Rich

    cls = smaller()
    event = Rich(
        i=1, f=1.0, s="", raw=b"", flag=True, at=7, tags=None, deep=[[1], None], times=[3], ts=5
    )  # fmt: skip
    log = Log.from_events(tmp_path / "log", [event])
    for reader in (log.reader, MemoryLog([event])):
        (seen,) = reader.events(0, 1, {"Rich": cls})
        assert type(seen) is cls
        assert (seen.flag, seen.at, seen.ts, seen.seq) == (True, 7, 5, 0)  # type: ignore[attr-defined]


def test_times_and_places_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of the events, with some taken out too; and what was found does not travel."""
    events = [(Plain(a=n, b=0, ts=n // 3 * 2) if n % 2 else Never(x=n, ts=n // 3 * 2)) for n in range(100)]
    log = Log.from_events(tmp_path / "log", events, [Plain, Never], block=16)
    reads: list[int] = []
    real = LogReader._read

    def noted(*args: Any) -> pa.Table:
        reads.append(1)
        return real(*args)

    monkeypatch.setattr(LogReader, "_read", noted)
    for gone in ((), (0, 5, 16, 17, 99)):
        reader = replace(log.reader, excluded=gone, count=100 - len(gone))
        left = [n for n in range(100) if n not in gone]
        expected = [max((n // 3 * 2 for n in left if n < seq), default=None) for seq in range(101)]
        places = [next((n for n in range(100) if n // 3 * 2 >= ts), 100) for ts in range(-1, 70)]
        for times in range(2):
            reads.clear()
            assert [reader.ts_before(seq) for seq in range(101)] == expected
            assert [reader.seq_at(ts) for ts in range(-1, 70)] == places
            assert bool(reads) is (times == 0)
        assert len(pickle.dumps(reader)) == len(pickle.dumps(replace(reader)))
        assert pickle.loads(pickle.dumps(reader)) == reader


def test_a_files_end_is_parsed_once_while_it_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log.from_events(tmp_path / "log", [Plain(n, n, ts=n) for n in range(100)], [Plain])
    parsed: list[Path] = []
    read = pq.read_metadata

    def noting(path: Path, **given: Any) -> Any:
        parsed.append(path)
        return read(path, **given)

    monkeypatch.setattr(pq, "read_metadata", noting)
    for lo in (0, 10, 20):
        assert [e.seq for e in log.reader.events(lo, lo + 3, {"Plain": Plain})] == [lo, lo + 1, lo + 2]
    (file,) = dict.fromkeys(parsed)
    assert len(parsed) == 1
    data = bytearray(file.read_bytes())
    data[-12] ^= 1
    file.write_bytes(data)
    with pytest.raises(LogError):
        list(log.reader.events(0, 3, {"Plain": Plain}))


def test_gaps_in_seq_are_kept_in_memory() -> None:
    """Given numbers stay; cuts fall between events."""
    events = [Plain(1, 1, ts=0, seq=5), Plain(2, 2, ts=0, seq=9), Plain(3, 3, ts=4, seq=10)]
    log = MemoryLog(events)
    assert [e.seq for e in log.events(0, 10, {"Plain": Plain})] == [5, 9]
    cuts = log.cuts(3)
    sizes = [len(list(log.events(a, b, {"Plain": Plain}))) for a, b in pairwise(cuts)]
    assert sizes == [1, 1, 1]
    assert log.seq_at(1) == 10
    assert log.seq_at(5) == 11


@given(count=st.integers(0, 50), n=st.integers(1, 60))
def test_cuts_are_even_and_complete(count: int, n: int) -> None:
    """n ranges, in order, covering everything, sizes differing by one at most."""
    log = MemoryLog([Plain(k, k) for k in range(count)], [Plain])
    cuts = log.cuts(n)
    sizes = np.diff(cuts)
    assert len(cuts) == n + 1
    assert (cuts[0], cuts[-1]) == (0, count)
    assert sizes.min() >= 0
    assert sizes.max() - sizes.min() <= 1


def test_events_out_of_order_are_refused(tmp_path: Path) -> None:
    """Nothing is left where the log would have been."""
    with pytest.raises(EventOrderError):
        Log.from_events(tmp_path / "log", [Plain(1, 1, ts=5), Plain(1, 1, ts=4)])
    assert list(tmp_path.iterdir()) == []


def test_the_id_depends_on_events_and_positions_only(tmp_path: Path) -> None:
    """Other blocks, same id; other order of ties, other value, other type names: another id."""
    events = [Plain(k % 3, k, ts=k // 4) for k in range(40)]

    def id_of(name: str, of: list[Plain], block: int) -> str:
        return Log.from_events(tmp_path / name, of, [Plain], block=block).id

    first = id_of("a", events, 7)
    assert id_of("b", events, 64) == first
    swapped = [events[1]._at(events[0].ts, -1), events[0]._at(events[1].ts, -1), *events[2:]]
    assert id_of("c", swapped, 7) != first
    assert id_of("d", [Plain(9, 0, ts=0), *events[1:]], 7) != first
    assert id_of("e", events[:-1], 7) != first


def test_damage_is_found_when_the_log_is_opened(tmp_path: Path) -> None:
    """A missing or shortened file, a broken or newer manifest, a folder that is no log: each named."""
    Log.from_events(tmp_path / "log", [Plain(k, k) for k in range(100)])
    (data,) = (tmp_path / "log").rglob("Plain.parquet")
    whole = data.read_bytes()
    data.write_bytes(whole[:-1])
    with pytest.raises(LogError, match=r"TL405 .*Plain\.parquet.* bytes"):
        Log.open(tmp_path / "log")
    data.unlink()
    with pytest.raises(LogError, match=r"TL405 .*Plain\.parquet.*No such file"):
        Log.open(tmp_path / "log")
    data.write_bytes(bytes(len(whole)))
    log = Log.open(tmp_path / "log")
    with pytest.raises(LogError, match=r"TL405 .*Plain\.parquet"):
        list(log.events(Plain))
    manifest = tmp_path / "log" / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"format_version": 1', '"format_version": 99'))
    with pytest.raises(LogError, match=r"TL404 .*99"):
        Log.open(tmp_path / "log")
    manifest.write_text(text[:50])
    with pytest.raises(LogError, match="TL404"):
        Log.open(tmp_path / "log")
    for wrong in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(LogError, match="TL403"):
            Log.open(wrong)


def test_unknown_types_and_fields_are_refused(tmp_path: Path) -> None:
    """Both readers name what there is."""
    log = Log.from_events(tmp_path / "log", [Plain(1, 1)])
    readers: list[EventReader] = [log.reader, MemoryLog([Plain(1, 1)])]
    for reader in readers:
        with pytest.raises(LogError, match="Never"):
            list(reader.chunks(0, 1, {"Never": None}))
        with pytest.raises(LogError, match=r"no field c .*\n.*fields: a, b"):
            list(reader.chunks(0, 1, {"Plain": ["c"]}))
        with pytest.raises(LogError, match="Never: not a type"):
            reader.events(0, 1, {"Never": Never})


def test_reading_events_calls_nothing_for_each(tmp_path: Path) -> None:
    """What is done for an event is done in C: a call of a function in Python would take longer than all of it."""
    count, calls = 20_000, 0
    log = Log.from_events(tmp_path / "log", [Plain(k, k, ts=k) for k in range(count)])

    def noted(frame: FrameType, what: str, about: object) -> None:
        nonlocal calls
        calls += what == "call"

    before = sys.getprofile()
    sys.setprofile(noted)
    try:
        seen = deque(log.events(Plain), maxlen=1)
    finally:
        sys.setprofile(before)
    assert seen[0].a == count - 1
    assert calls < 1000
