"""What a report shows of the states after the last event: how many keys, and those with the largest numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from timelapse.errors import TimelapseError
from timelapse.reporting.fields import Spread, measured, spread
from timelapse.reporting.redact import Redaction, shown
from timelapse.reporting.tables import TOP, Ranked, nearly_alike

if TYPE_CHECKING:
    from timelapse.kinds.base import StateSpec
    from timelapse.run import Run

_ALIKE = 99.0
"""The largest values are alike where the last of those shown has so many percent of the first."""
READ_BYTES = 300_000_000
"""Stored changes that are read for a report; more would take seconds."""


@dataclass(frozen=True)
class StatePart:
    """A state at the end. `keys` is None where it was not read; `value` is that of a state without a key."""

    name: str
    kind: str
    keys: int | None
    value: str = ""
    top: tuple[Ranked, ...] = ()
    spread: Spread | None = None
    """How the values are spread, where a ranking would say nothing: the largest are alike, or at most twice the middle one."""


def state_parts(run: Run, redaction: Redaction) -> list[StatePart]:
    """Every declared state of a run, in order; what would take long is named, but not read."""
    budget, found = READ_BYTES, []
    for entry in run.manifest.states:
        if not entry.name.isidentifier():
            continue  # what the engine keeps for itself
        spec = run.state_spec(entry.name)
        budget -= _stored_bytes(run, entry.name)
        found.append(_part(run, spec, redaction) if budget >= 0 else StatePart(spec.name, spec.text, None))
    return found


def _stored_bytes(run: Run, state: str) -> int:
    if run.path is None:
        return 0
    return sum(file.stat().st_size for file in (run.path / "state" / state).glob("*"))


def _part(run: Run, spec: StateSpec, redaction: Redaction) -> StatePart:
    try:
        table = run.table_at_cut(spec.name, run.slices)
    except TimelapseError:
        return StatePart(spec.name, spec.text, None)
    if "v" in table.column_names and not redaction.any:
        seen = spec.kind.shown_values(spec, table.column("v"))
        table = table.set_column(table.column_names.index("v"), "v", seen)
    keys = [n for n in table.column_names if n.startswith("k") and n[1:].isdigit()]
    if not keys:
        value = table.column("v")[0].as_py() if table.num_rows and "v" in table.column_names else None
        text = "" if redaction.any else shown(value)
        return StatePart(spec.name, spec.text, table.num_rows, text)
    if (
        "v" not in table.column_names
        or redaction.any
        or spec.outer is not None
        or not measured(table.schema.field("v").type)
    ):
        return StatePart(spec.name, spec.text, table.num_rows)
    values = table.column("v")
    table = table.filter(pc.invert(pc.is_null(values, nan_is_null=True)))
    if pa.types.is_timestamp(values.type):
        return StatePart(spec.name, spec.text, len(values), spread=spread(spec.name, [values]))
    top = _top(table, keys)
    known = table.column("v")
    same = len(top) > 2 and top[0].count == top[-1].count
    alike = len(top) == TOP and top[-1].percent >= _ALIKE
    if not (same or alike) and (not top or nearly_alike(top[0].count, known) is None):
        return StatePart(spec.name, spec.text, len(values), top=top)
    if len(known) <= TOP and not same:
        text = f"{shown(top[-1].count)} or {shown(top[0].count)} under each of {len(values):,} keys"
        return StatePart(spec.name, spec.text, len(values), text)
    if pc.count_distinct(values, mode="all").as_py() == 1:
        text = f"{shown(top[0].count)} under each of {len(values):,} keys"
        return StatePart(spec.name, spec.text, len(values), text)
    found = spread(spec.name, [values])
    why = "keys are not ranked: the largest values are nearly alike"
    return StatePart(spec.name, spec.text, len(values), spread=replace(found, notes=(*found.notes, why)))


def _top(table: pa.Table, keys: list[str]) -> tuple[Ranked, ...]:
    """The keys with the largest values; ties by key, so that a report is the same each time."""
    if not table.num_rows:
        return ()
    order = pc.select_k_unstable(table, TOP, [("v", "descending")])
    least = min(v.as_py() for v in table.column("v").take(order))
    close = table.filter(pc.greater_equal(table.column("v"), least))
    rows = (close if close.num_rows <= 20_000 else table.take(order)).select([*keys, "v"]).to_pylist()
    ranked = sorted(rows, key=lambda r: (-r["v"], repr([r[k] for k in keys])))[:TOP]
    most = max(abs(r["v"]) for r in ranked) or 1
    return tuple(
        Ranked(shown(r[keys[0]] if len(keys) == 1 else tuple(r[k] for k in keys)), r["v"], round(float(100 * max(0, r["v"]) / most), 2))
        for r in ranked
    )  # fmt: skip
