"""Chunks as arrays: the same whichever way strings are stored."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import timelapse as tl
from timelapse.kernels.native.decode import Decoder
from timelapse.kernels.native.memory.strings import Interned
from timelapse.kernels.native.unit import Column, Unit
from timelapse.log.reader import Chunk


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
