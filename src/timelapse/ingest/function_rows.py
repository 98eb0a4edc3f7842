"""Rows that go through a function of the user's, as typed columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.ingest.batches import (
    Batch,
    _all_at,
    _batch,
    _computed,
    _from_python,
    _noting,
    _only,
    _texts,
)
from timelapse.ingest.convert import Reasons, convert
from timelapse.ingest.doubts import Doubts, doubts_of_values
from timelapse.ingest.objects import parts_of
from timelapse.ingest.plan import COMPUTED, NO_PARTITION, Plan
from timelapse.model.types import TIME, OptionalType, ValueType


def of_rows(
    plan: Plan, rows: list[dict[str, Any]], numbers: npt.NDArray[np.int64], raw: Callable[[int], str]
) -> Batch:
    """Columns are found in what the plan's function returns, by name or by path; a list of objects there is taken apart."""
    assert plan.applied is not None
    constants = {name: None if text == NO_PARTITION else text for name, text in plan.constants}
    found = plan.applied.rows([{**constants, **row} for row in rows])
    columns_ = [c for choice in plan.choices for c in choice if c[:1] != COMPUTED]
    parts = parts_of(found, [*columns_, *plan.inputs])
    told: list[Mapping[str, Any]] = [one if isinstance(one, Mapping) else {} for one in parts.rows]
    wanted = {c: _texts([one.get(c) for one in told]) for c in {c for c, _ in plan.only}}
    failed = {at: one for at, one in enumerate(parts.rows) if isinstance(one, str)}
    free = replace(plan, constants=())
    own = np.union1d(_only(free, wanted, len(told)), np.asarray(sorted(failed), np.int64)).tolist()
    told = [told[n] for n in own]
    parents = np.asarray(parts.parents, np.int64)[own]
    places = None if parts.places is None else np.asarray(parts.places, np.int64)[own]
    count = len(told)
    reasons: Reasons = {at: failed[n] for at, n in enumerate(own) if n in failed}
    whole = set(reasons)
    inputs = {c: _texts([one.get(c) for one in told]) for c in plan.inputs}
    computed = _computed(free, inputs, count, reasons)
    doubts: dict[str, Doubts] = {}

    def typed(name: str, choice: tuple[str, ...], kind: ValueType) -> pa.Array:
        if choice[0] in computed:
            return _noting(plan, name, computed[choice[0]], kind, reasons, doubts, texts=True)
        given = [next((v for c in choice if (v := one.get(c)) is not None), None) for one in told]
        return _from_anything(plan, name, given, kind, reasons, doubts)

    ts = _all_at(plan, count) if plan.at is not None else typed("ts", plan.choices[0], TIME)
    arrival = None if plan.arrival is None else typed("arrival", (plan.arrival,), TIME)
    columns = [typed(f.name, c, f.type) for f, c in zip(plan.kind.fields, plan.choices[1:], strict=True)]
    if places is not None:
        reasons = {at: why if at in whole else f"item {places[at] + 1}: {why}" for at, why in reasons.items()}
    batch = _batch(
        plan, ts, columns, numbers[parents], reasons, lambda at: raw(int(parents[at])), arrival=arrival, items=places, doubts=doubts
    )  # fmt: skip
    batch.seen = {c: frozenset() for one in told for c in one}
    away = len(rows) - len(set(parts.parents)) - parts.empty  # for which the function returned None
    batch.skipped, batch.filtered = parts.empty, batch.filtered + len(parts.rows) - count + away
    batch.read = len(parts.rows) + away + parts.empty
    return batch


def _from_anything(
    plan: Plan, name: str, values: list[Any], kind: ValueType, reasons: Reasons, doubts: dict[str, Doubts]
) -> pa.Array:
    """Python values as a field's type: texts as they would be read from a text file, others as they are."""
    is_text = np.asarray([type(v) is str for v in values], np.bool_)
    at, others = np.flatnonzero(is_text), np.flatnonzero(~is_text)
    texts = pa.array([values[n] for n in at.tolist()], pa.string())
    made, own = convert(name, texts, kind, plan.times, texts=True, null=plan.null)
    for n, reason in own.items():
        reasons.setdefault(int(at[n]), reason)
    if kind in (TIME, OptionalType(TIME)) and (doubted := doubts_of_values(values, plan.times)):
        doubts[name] = doubted
    found: Reasons = {}
    loose = kind if kind.nullable else OptionalType(kind)  # what is missing is told below
    rest = _from_python(name, [values[n] for n in others.tolist()], loose, plan.times, found)
    for n, reason in found.items():
        reasons.setdefault(int(others[n]), reason)
    if not kind.nullable:
        for n in np.flatnonzero(np.asarray(rest.is_null())).tolist():
            reasons.setdefault(int(others[n]), f"{name} is null")
    back = np.empty(len(values), np.int64)
    back[np.concatenate([at, others])] = np.arange(len(values))
    return pa.concat_arrays([made, rest.cast(made.type)]).take(pa.array(back))
