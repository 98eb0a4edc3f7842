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
from timelapse.log.types import event_types


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
