"""Columns of a source as events: fields in their types, and the rows that are none, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.ingest.amounts import Unfit
from timelapse.ingest.convert import (
    Reasons,
    convert,
    is_bytes,
    value_checker,
    wire_type,
)
from timelapse.ingest.doubts import Doubts, doubts_of, doubts_of_values
from timelapse.ingest.objects import MANY, getter, list_in, taken_apart
from timelapse.ingest.plan import COMPUTED, NO_PARTITION, PYTHON, Plan, expression
from timelapse.ingest.times import Times
from timelapse.model.types import (
    TIME,
    DecimalType,
    ListType,
    OptionalType,
    ValueType,
)
from timelapse.moments import time_text
from timelapse.segments.quarantine import CUT, NOT_KEPT

RAW_LIMIT = 4096


class Bad(NamedTuple):
    """A row that is left out: its line or row (-1: unknown), why, its text, and which rule left it out.

    `rule`: "bad" does not fit; "early" is before the end of the log that is appended to; "outside" the bounds.
    """

    row: int
    reason: str
    raw: str
    rule: Literal["bad", "early", "outside"] = "bad"
    ts: int | None = None
    """The row's time, where that can be read."""


@dataclass
class Batch:
    """Events of one type: times, source rows, fields in wire form; and what was left out."""

    ts: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    columns: list[pa.Array]
    bad: list[Bad] = field(default_factory=list)
    skipped: int = 0
    seen: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """JSON lines: which of the needed columns some object had, and the kinds of their values, if they are known. Other formats say
    what they have beforehand."""
    read: int = 0
    """Rows that were read: events, and all that was left out."""
    filtered: int = 0
    """Rows that `only` leaves out."""
    items: npt.NDArray[np.int64] | None = None
    """Where rows make several events: the place of each among those of its row."""
    late: npt.NDArray[np.int64] | None = None
    """How long after its event each row arrived, in microseconds."""
    doubts: dict[str, Doubts] = field(default_factory=dict)
    """Times that were decided: by field, why, and the source's rows."""


_ABSENT = {type(msgspec.UNSET)}
_KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", list: "list", Decimal: "decimal"}
"""The kinds of values in JSON, as it calls them."""


def show(raw: bytes) -> str:
    """A bad row's text as it is kept: undecodable bytes escaped, at most RAW_LIMIT characters."""
    text = raw.decode("utf-8", "backslashreplace")
    return text if len(text) <= RAW_LIMIT else text[: RAW_LIMIT - len(CUT)] + CUT


def of_objects(
    plan: Plan, rows: list[Any], numbers: npt.NDArray[np.int64], raw: Callable[[int], str]
) -> Batch:
    """Decoded objects as typed columns."""
    if not rows:
        return no_rows(plan)
    constants = dict(plan.constants)
    names = [name for name in plan.needed if name not in constants]
    paths = {name: plan.path_of(name) for name in names}
    several = list_in(list(paths.values()))
    parents = list(range(len(rows)))
    objects: list[Any] = []
    places: list[int] = []
    if several is not None:
        parents, objects, places = taken_apart(rows, several)
    without = len(rows) - len(set(parents))
    values: dict[str, list[Any]] = {}
    seen: dict[str, frozenset[str]] = {}
    for name, path in paths.items():
        at = next((n for n, key in enumerate(path) if key.endswith(MANY)), None)
        if at is not None:
            own = list(map(getter(type(objects[0]), path[at + 1 :]), objects)) if objects else []
        else:
            read = getter(type(rows[0]), path)
            own = list(map(read, rows)) if several is None else [read(rows[n]) for n in parents]
        kinds = set(map(type, own))
        if not own or kinds != _ABSENT:
            seen[name] = frozenset(_KINDS.get(kind, "object") for kind in kinds - _ABSENT - {type(None)})
        values[name] = [None if v is msgspec.UNSET else v for v in own] if kinds >= _ABSENT else own
    numbers = numbers[parents] if several is not None else numbers
    keep = _only(plan, {c: _texts(values[c]) for c, _ in plan.only if c in values}, len(parents))
    filtered = len(parents) - len(keep)
    if filtered:
        values = {name: [own[n] for n in keep.tolist()] for name, own in values.items()}
        numbers, parents = numbers[keep], [parents[n] for n in keep.tolist()]
        places = [places[n] for n in keep.tolist()] if several is not None else places
    reasons: Reasons = {}
    count = len(parents)
    computed = _computed(plan, {c: _texts(values[c]) for c in plan.inputs if c in values}, count, reasons)
    doubts: dict[str, Doubts] = {}

    def typed(name: str, choice: tuple[str, ...], kind: ValueType) -> pa.Array:
        found = next((c for c in choice if c in computed or c in constants), None)
        if found in computed:
            return _noting(plan, name, computed[found], kind, reasons, doubts, texts=True)
        if found is not None:
            return _constant(plan, name, found, kind, count, reasons, doubts)
        given = values[choice[0]]
        for other in choice[1:]:
            given = [b if a is None else a for a, b in zip(given, values[other], strict=True)]
        inner = kind.inner if isinstance(kind, OptionalType) else kind
        if inner == TIME and (own := doubts_of_values(given, plan.times)):
            doubts[name] = own
        return _from_python(name, given, kind, plan.times, reasons)

    ts = _all_at(plan, count) if plan.at is not None else typed("ts", plan.choices[0], TIME)
    arrival = None if plan.arrival is None else typed("arrival", (plan.arrival,), TIME)
    columns = [typed(f.name, c, f.type) for f, c in zip(plan.kind.fields, plan.choices[1:], strict=True)]
    if several is not None:
        reasons = _of_items(reasons, places)
    batch = _batch(
        plan, ts, columns, numbers, reasons, lambda place: raw(parents[place]), arrival=arrival,
        items=None if several is None else np.asarray(places, np.int64), doubts=doubts,
    )  # fmt: skip
    batch.seen = {**seen, **dict.fromkeys(constants, frozenset[str]())}
    batch.skipped, batch.filtered = without, filtered + batch.filtered
    batch.read = count + filtered + without
    return batch


def _of_items(reasons: Reasons, places: Sequence[int] | npt.NDArray[np.int64]) -> Reasons:
    """Why rows do not fit, with the places of the items that they are."""
    return {row: f"item {places[row] + 1}: {why}" for row, why in reasons.items()}


def as_text(value: Any) -> str:
    """A value of JSON as text."""
    return value if type(value) is str else msgspec.json.encode(value).decode()


def _texts(values: list[Any]) -> pa.Array:
    """Values of JSON as texts: the same whatever else is in their column."""
    return pa.array([None if v is None else as_text(v) for v in values], pa.string())


def _only(plan: Plan, columns: Mapping[str, pa.Array], count: int) -> npt.NDArray[np.int64]:
    """The rows that are this source's."""
    keep = np.ones(count, np.bool_)
    constants = dict(plan.constants)
    for name, wanted in plan.only:
        if name in constants:
            keep &= constants[name] in wanted
        else:
            own = columns[name]
            own = own.dictionary_decode() if pa.types.is_dictionary(own.type) else own
            kind = pa.binary() if is_bytes(own.type) else pa.string()  # bytes that are no text are no value's
            values = pa.array(wanted, pa.string()).cast(kind)
            keep &= np.asarray(pc.fill_null(pc.is_in(own.cast(kind), values), False))
    return np.flatnonzero(keep)


def _computed(
    plan: Plan, columns: Mapping[str, pa.Array], count: int, reasons: Reasons
) -> dict[str, pa.Array]:
    """The columns that are computed, by the names that the plan has for them. Of CSV and text files the text of a missing value is null."""
    given = {
        **columns,
        **{
            name: pa.array([None if text == NO_PARTITION else text] * count, pa.string())
            for name, text in plan.constants
        },
    }
    found: dict[str, pa.Array] = {}
    for name, text in plan.computed:
        parsed = expression(text, name)
        if plan.format in ("csv", "text"):
            null = pa.scalar(plan.null)
            given |= {c: pc.if_else(pc.equal(given[c], null), None, given[c]) for c in parsed.columns}
        values, own = parsed.of(given, count)
        for row, reason in own.items():
            reasons.setdefault(row, f"{name}: {reason}")
        found[COMPUTED + name] = values
    return found


def _all_at(plan: Plan, count: int) -> pa.Array:
    return pa.array(np.full(count, plan.at, np.int64))


def _noting(
    plan: Plan,
    name: str,
    column: pa.Array,
    kind: ValueType,
    reasons: Reasons,
    doubts: dict[str, Doubts],
    *,
    texts: bool,
) -> pa.Array:
    """A column as a field's type; what does not fit and what had to be decided is noted."""
    if pa.types.is_dictionary(column.type):
        return _codes(plan, name, column, kind)
    texts = texts and pa.types.is_string(column.type)
    values, own = convert(name, column, kind, plan.times, texts=texts, null=plan.null)
    for row, reason in own.items():
        reasons.setdefault(row, reason)
    inner = kind.inner if isinstance(kind, OptionalType) else kind
    if inner == TIME:
        _doubt(plan, name, column, doubts)
    return values


def _codes(plan: Plan, name: str, column: pa.DictionaryArray, kind: ValueType) -> pa.DictionaryArray:
    """Texts of a text file that come as codes, as they stay: each is looked at once. None of them fails to be one."""
    texts, _ = convert(name, column.dictionary, kind, plan.times, texts=True, null=plan.null)
    if not texts.null_count:
        return column
    codes = column.indices
    codes = pc.if_else(texts.is_valid().take(codes), codes, pa.scalar(None, codes.type))
    return pa.DictionaryArray.from_arrays(codes, texts.fill_null(""), safe=False)


def _doubt(plan: Plan, name: str, column: pa.Array, doubts: dict[str, Doubts]) -> None:
    if found := doubts_of(column, plan.times):
        doubts[name] = found


def _constant(
    plan: Plan, name: str, column: str, kind: ValueType, count: int, reasons: Reasons, doubts: dict[str, Doubts]
) -> pa.Array:  # fmt: skip
    """A column that the file's path gives: the same text in every row."""
    text = pa.array([dict(plan.constants)[column]] * count, pa.string())
    values, own = convert(name, text, kind, plan.times, texts=True, null=NO_PARTITION)
    for row, reason in own.items():
        reasons.setdefault(row, reason)
    if kind in (TIME, OptionalType(TIME)):
        _doubt(plan, name, text, doubts)
    return values


def _from_python(name: str, values: list[Any], kind: ValueType, times: Times, reasons: Reasons) -> pa.Array:
    target = wire_type(kind)
    inner = kind.inner if isinstance(kind, OptionalType) else kind
    if not isinstance(inner, ListType | DecimalType) and inner != TIME and _same_types(values, kind):
        try:
            return pa.array(values, type=target)
        except (OverflowError, pa.ArrowInvalid, UnicodeEncodeError):
            pass
    check = value_checker(kind, times)
    out: list[Any] = []
    for row, value in enumerate(values):
        try:
            out.append(check(value))
        except Unfit as error:
            out.append(None)
            reasons.setdefault(row, f"{name}: {error}")
    return pa.array(out, type=target)


def _same_types(values: list[Any], kind: ValueType) -> bool:
    """Whether all values have the kind's own Python type, so that Arrow converts nothing."""
    inner = kind.inner if isinstance(kind, OptionalType) else kind
    allowed = {PYTHON[inner.text], type(None)} if kind.nullable else {PYTHON[inner.text]}
    return set(map(type, values)) <= allowed


def of_columns(
    plan: Plan,
    columns: dict[str, pa.Array],
    rows: npt.NDArray[np.int64],
    raw: Callable[[int], str],
    *,
    texts: bool,
    items: tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]] | None = None,
) -> Batch:
    """Columns as events. `items`: where rows are those of lists, the place of each in its list, and whether it is null."""
    reasons: Reasons = {}
    keep = _only(plan, columns, len(rows))
    filtered = len(rows) - len(keep)
    if filtered:
        columns = {name: column.take(pa.array(keep)) for name, column in columns.items()}
        rows, all_rows = rows[keep], raw
        raw = lambda place: all_rows(int(keep[place]))  # noqa: E731
        items = None if items is None else (items[0][keep], items[1][keep])
    places = None if items is None else items[0]
    if items is not None:
        reasons.update(dict.fromkeys(np.flatnonzero(items[1]).tolist(), "null is not an object"))
    count = len(rows)
    constants = dict(plan.constants)
    computed = _computed(plan, columns, count, reasons)
    doubts: dict[str, Doubts] = {}

    def typed(name: str, column: str, kind: ValueType) -> pa.Array:
        if column in computed:
            return _noting(plan, name, computed[column], kind, reasons, doubts, texts=True)
        if column in constants:
            return _constant(plan, name, column, kind, count, reasons, doubts)
        if column in columns:
            return _noting(plan, name, columns[column], kind, reasons, doubts, texts=texts)
        return pa.nulls(count, wire_type(kind))

    ts = _all_at(plan, count) if plan.at is not None else typed("ts", plan.ts, TIME)
    arrival = None if plan.arrival is None else typed("arrival", plan.arrival, TIME)
    made = [typed(f.name, c, f.type) for f, c in zip(plan.kind.fields, plan.columns, strict=True)]
    if places is not None:
        reasons = _of_items(reasons, places)
    batch = _batch(plan, ts, made, rows, reasons, raw, arrival=arrival, doubts=doubts, items=places)
    batch.filtered, batch.read = filtered + batch.filtered, count + filtered
    return batch


def _batch(
    plan: Plan, ts: pa.Array, columns: list[pa.Array], rows: npt.NDArray[np.int64], reasons: Reasons,
    raw: Callable[[int], str], *, arrival: pa.Array | None = None, items: npt.NDArray[np.int64] | None = None,
    doubts: dict[str, Doubts] | None = None,
) -> Batch:  # fmt: skip
    """Put the rows that fit into a batch, the others aside."""
    private = plan.private
    if private is not None:
        raw = lambda place: NOT_KEPT  # noqa: E731
        reasons = {row: _without_values(why) for row, why in reasons.items()}
        columns = [
            private.of_field(f.name, c, f.type) for f, c in zip(plan.kind.fields, columns, strict=True)
        ]
    doubted = {name: {why: rows[at] for why, at in own.items()} for name, own in (doubts or {}).items()}
    late = None
    if arrival is not None:
        late = pc.subtract(arrival, ts)
        ts = arrival if plan.by_arrival else ts
    beside = [*([] if late is None else [late]), *([] if items is None else [pa.array(items)])]
    columns = [*columns, *beside]
    bad = [
        Bad(int(rows[place]), reason, raw(place), "bad", ts[place].as_py())
        for place, reason in sorted(reasons.items())
    ]
    if reasons:
        keep = np.ones(len(rows), np.bool_)
        keep[list(reasons)] = False
        kept = pa.array(np.flatnonzero(keep))
        ts, columns, rows = ts.take(kept), [c.take(kept) for c in columns], rows[keep]
        places: npt.NDArray[np.int64] = np.asarray(kept)
    else:
        places = np.arange(len(rows))
    times = np.asarray(ts, dtype=np.int64)
    within = _within(plan, times)
    if not within.all():
        kept = pa.array(np.flatnonzero(within))
        times, columns, rows = times[within], [c.take(kept) for c in columns], rows[within]
        places = places[within]
    for rule, out, why in _put_aside(plan, times):
        for at in np.flatnonzero(out).tolist():
            bad.append(Bad(int(rows[at]), why(int(times[at])), raw(int(places[at])), rule))
        keep = ~out
        kept = pa.array(np.flatnonzero(keep))
        times, columns, rows = times[keep], [c.take(kept) for c in columns], rows[keep]
        places = places[keep]
    batch = Batch(times, rows, columns[: len(columns) - len(beside)], bad, doubts=doubted)
    batch.filtered = int((~within).sum())
    if items is not None:
        batch.items = np.asarray(columns.pop(), dtype=np.int64)
    if late is not None:
        batch.late = np.asarray(columns.pop(), dtype=np.int64)
    return batch


def _within(plan: Plan, times: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which rows are of the log's time."""
    low, high = plan.window
    found = np.ones(len(times), np.bool_)
    if low is not None:
        found &= times >= low
    if high is not None:
        found &= times < high
    return found


def _without_values(why: str) -> str:
    """A reason without what was read: `item 3: mail: 'x' is not ...` is `item 3: mail: does not fit`. Computed fields tell of others' values."""
    parts = why.split(": ")
    named = parts[: 2 if parts[0].startswith("item ") else 1]
    return why if len(parts) == len(named) else f"{': '.join(named)}: does not fit"


def _put_aside(
    plan: Plan, times: npt.NDArray[np.int64]
) -> Iterator[tuple[Literal["early", "outside"], npt.NDArray[np.bool_], Callable[[int], str]]]:
    """Which rows a rule about their times puts aside, and why; the second of what the first one left.

    The caller keeps the others before it asks for the next.
    """
    low, high = plan.bounds
    if low is not None or high is not None:
        out = np.zeros(len(times), np.bool_)
        if low is not None:
            out |= times < low
        if high is not None:
            out |= times > high
        if out.any():
            yield "outside", out, lambda ts: _outside(ts, low, high, from_start=plan.from_start)
            times = times[~out]
    if plan.floor is not None and len(times) and (early := times <= plan.floor).any():
        yield "early", early, str


def _outside(ts: int, low: int | None, high: int | None, *, from_start: bool) -> str:
    if low is not None and ts < low:
        bound = "the log's start" if from_start else "--min-ts"
        return f"ts is {time_text(ts)}, before {time_text(low)} ({bound})"
    return f"ts is {time_text(ts)}, after {time_text(high or 0)} (--max-ts)"


def no_rows(plan: Plan) -> Batch:
    nothing = np.zeros(0, np.int64)
    return Batch(nothing, nothing, [pa.array([], type=wire_type(f.type)) for f in plan.kind.fields])
