"""Columns that grow as batches come are what the batches' columns are, one after the other."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pytest

import timelapse as tl
from timelapse.env.garbage import memory_reused
from timelapse.ingest.batches import Batch
from timelapse.ingest.columns_held import HeldColumns
from timelapse.ingest.convert import wire_type
from timelapse.segments.types import event_types
from timelapse.tables.coded import is_coded, plain_bytes


class Every(tl.Event):
    whole: int
    real: float | None
    text: str | None
    raw: bytes
    truth: bool | None
    when: tl.Time | None
    cents: Annotated[Decimal, tl.scale(2)] | None
    many: list[int] | None


class Nothing(tl.Event):
    pass


def _value(rng: random.Random, name: str) -> Any:
    return {
        "whole": rng.randrange(-(2**63), 2**63), "real": rng.choice([0.0, -0.0, float("inf"), rng.random()]),
        "text": rng.choice(["", "ä", "x" * rng.randrange(40)]), "raw": rng.randbytes(rng.randrange(5)),
        "truth": rng.random() < 0.5, "when": rng.randrange(-(2**54), 2**54),
        "cents": Decimal(rng.randrange(-(10**17), 10**17)).scaleb(-2), "many": [rng.randrange(9) for _ in range(rng.randrange(4))],
    }[name]  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_as_one_after_the_other(seed: int) -> None:
    """Parts of arrays, empty batches, columns with and without missing values."""
    rng = random.Random(seed)
    (kind,) = event_types([Every])
    held, parts = HeldColumns(kind), []
    for _ in range(rng.randrange(6)):
        rows, before = rng.choice([0, 1, 7, 30_000 if seed == 0 else 300]), rng.randrange(3)
        missing = rng.choice([0, 0.3, 1])
        columns = [
            pa.array(
                [
                    None if f.type.nullable and rng.random() < missing else _value(rng, f.name)
                    for _ in range(rows + before)
                ],
                wire_type(f.type),
            )[before:]
            for f in kind.fields
        ]
        parts.append(columns)
        held.add(Batch(np.zeros(rows, np.int64), np.zeros(rows, np.int64), columns))
    found = held.table()
    found.validate(full=True)
    assert found.schema == kind.schema
    for n, field in enumerate(kind.fields):
        expected = pa.chunked_array([part[n] for part in parts], wire_type(field.type)).cast(field.type.arrow)
        assert found[field.name].to_pylist() == expected.to_pylist(), field.name
        assert found[field.name].null_count == expected.null_count


class Texts(tl.Event):
    text: str
    maybe: str | None


@pytest.mark.parametrize("seed", range(12))
def test_codes_are_the_texts_that_they_stand_for(seed: int) -> None:
    """Batches with dictionaries that have more than occurs, have a text twice, or come as values in between."""
    rng = random.Random(seed)
    (kind,) = event_types([Texts])
    held, told = HeldColumns(kind), []
    always = seed % 2 == 0
    for _ in range(rng.randrange(2, 6)):
        words = pa.array([f"w{rng.randrange(30)}" + "é" * rng.randrange(3) for _ in range(20)] + [""])
        rows = rng.choice([0, 1, 300])
        columns = []
        for share in (0.0, rng.choice([0.0, 0.3, 1.0])):
            codes = [None if rng.random() < share else rng.randrange(len(words)) for _ in range(rows + 2)]
            column = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), words).slice(2)
            columns.append(column if always or rng.random() < 0.7 else column.dictionary_decode())
        told.append([c.to_pylist() for c in columns])
        held.add(Batch(np.zeros(rows, np.int64), np.zeros(rows, np.int64), columns))
    found = held.table()
    found.validate(full=True)
    for n, name in enumerate(kind.schema.names):
        expected = [value for part in told for value in part[n]]
        assert found[name].to_pylist() == expected
        assert found[name].null_count == expected.count(None)
        if always and expected:
            assert is_coded(found[name])
        assert plain_bytes(found[name]) == pa.array(expected, pa.large_string()).nbytes
    if not always:
        assert any(part for part in told)


def test_a_type_without_fields_keeps_its_rows() -> None:
    (kind,) = event_types([Nothing])
    held = HeldColumns(kind)
    held.add(Batch(np.zeros(3, np.int64), np.zeros(3, np.int64), []))
    assert held.table().num_rows == 3


def test_arrow_allocates_as_before_afterwards() -> None:
    before = pa.default_memory_pool().backend_name
    with memory_reused(), memory_reused():
        assert pa.default_memory_pool().backend_name == "system"
    assert pa.default_memory_pool().backend_name == before
