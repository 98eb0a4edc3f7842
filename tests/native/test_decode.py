"""Chunks as arrays: the same whichever way strings are stored."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import timelapse as tl
from timelapse.kernels.native.decode import Decoder, part_of
from timelapse.kernels.native.lowering.unit import Column, Later, Unit
from timelapse.kernels.native.memory.strings import Interned
from timelapse.segments.reader import Chunk


class Said(tl.Event):
    text: str
    raw: bytes


UNIT = Unit(
    events=[Said],
    columns=[
        Column(0, "text", "str"),
        Column(0, "raw", "bytes"),
        Column(0, "text", "bool", "contains", "@"),
        Column(0, "text", "int", "length"),
        Column(0, "raw", "int", "length"),
    ],
)


@pytest.mark.parametrize("texts", [["a@b", "é", "", "a@b", "é", "x@"], ["\0@", "\0@", "\0@"], []])
def test_dictionaries_give_the_same_arrays(texts: list[str]) -> None:
    rows = len(texts)
    text, raw = pa.array(texts, pa.large_string()), pa.array([t.encode() for t in texts], pa.large_binary())
    interned = Interned(["@"])
    found = []
    for columns in ([text, raw], [text.dictionary_encode(), raw.dictionary_encode()]):
        place = pa.array(range(rows), pa.int64())
        table = pa.table([place, place, *columns], names=["seq", "ts", "text", "raw"])
        batch = Decoder(UNIT, interned).decode(Chunk(0, rows, {"Said": table}))
        assert batch.events == rows
        assert all(not array.flags.writeable for array in batch.arrays)
        found.append(batch.arrays)
    for a, b in zip(*found, strict=True):
        assert a.dtype == b.dtype
        assert np.array_equal(a, b)
    *_, codes, raws, contains, length, size = found[1]
    assert [interned.value(c) for c in codes.tolist()] == texts
    assert [interned.value(c) for c in raws.tolist()] == [t.encode() for t in texts]
    assert contains.tolist() == ["@" in t for t in texts]
    assert length.tolist() == [len(t) for t in texts]
    assert size.tolist() == [len(t.encode()) for t in texts]


class Heard(tl.Event):
    x: int


@pytest.mark.parametrize("start", [0, -40, 2**62, -(2**62)])
@pytest.mark.parametrize("twice", [False, True])
def test_steps_come_by_time_then_calls_then_by_seq(start: int, twice: bool) -> None:
    """Also at times that are far away, and where several calls come at one time; and of some of them it is known which rows they have."""
    lags = {1: Later(3, "late", 1)} | ({2: Later(3, "again", 2)} if twice else {})
    unit = Unit(events=[Heard] * (1 + len(lags)), columns=[Column(0, "x", "int")], later=lags)
    rng = np.random.default_rng(5)
    times, tables = np.sort(rng.integers(0, 30, 200)) + start, {}
    for kind, own in enumerate([np.arange(50, 200), np.arange(40, 190), np.arange(0, 200, 3)]):
        tables[unit.table_of(min(kind, len(lags)))] = pa.table({"seq": own, "ts": times[own], "x": own * 2})
    batch = Decoder(unit, Interned([])).decode(Chunk(0, 200, tables))
    rows = [
        (at, kind == 0, seq, kind)
        for kind in range(len(unit.events))
        for at, seq in zip(*(array.tolist() for array in batch.arrays[2 * kind : 2 * kind + 2]), strict=True)
    ]
    assert batch.when is not None
    in_order = sorted(rows, key=lambda row: row[:3])
    assert batch.kinds.tolist() == [kind for *_, kind in in_order]
    assert batch.when.tolist() == [at for at, *_ in in_order]
    keep = rng.random(batch.events) < 0.3
    part = part_of(unit, batch, keep)
    kept = [row for row, is_kept in zip(in_order, keep.tolist(), strict=True) if is_kept]
    for kind in range(len(unit.events)):
        assert part.arrays[2 * kind + 1].tolist() == [seq for *_, seq, own in kept if own == kind]
        assert part.chunk.tables[unit.table_of(kind)]["seq"].to_pylist() == [
            s for *_, s, k in kept if k == kind
        ]
    assert part.kinds.tolist() == [kind for *_, kind in kept]
    assert part.arrays[-1].tolist() == [2 * seq for _, own, seq, _ in kept if own]
    passing = batch.passing(np.flatnonzero(keep))
    assert passing.passed == len(kept)
    assert (passing.kinds < 0).tolist() == keep.tolist()
    assert [passing.kind_of(at) for at in range(passing.events)] == batch.kinds.tolist()
    position = np.full(len(unit.events), 3, np.int64)
    passing.count_kinds(10, 90, position)
    assert position.tolist() == [
        3 + batch.kinds[10:90].tolist().count(kind) for kind in range(len(unit.events))
    ]
