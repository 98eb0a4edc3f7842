"""Comparing two results to the last bit: the first event, record or state key at which they differ.

Works on what `timelapse.serial.run` gives, on runs, and on a `Result` made by hand from any other source.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple

import pyarrow as pa

from timelapse.errors import UsageError
from timelapse.model.events import Event, Record
from timelapse.moments import time_text


class Row(NamedTuple):
    """One output or rejection: where it stands and what it holds. A part of the place that is not known is None."""

    ts: int
    phase: int | None
    seq: int
    ordinal: int | None
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Result:
    """What two runs are compared by. Rows are in order; states map present keys to values."""

    outputs: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    """By the record type's name."""
    rejected: Sequence[Row] = ()
    """Values: event type, handler, reason."""
    states: Mapping[str, Mapping[Any, Any]] = field(default_factory=dict)
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Field names by record type, for the text."""


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


NOTHING: Any = _Nothing()
"""Stands in a Divergence where one side has no row or key at all."""


@dataclass(frozen=True)
class Divergence:
    """The first difference between two results.

    `kind` is output, rejection, state or pending (what lies ahead at the end); `name` the record type or the state; `seq` the log event (None for
    a state, which is compared at the end); `field` the record's field and `key` the state's key, where that is
    what differs; `a` and `b` both values (NOTHING where a side has none).
    """

    kind: str
    name: str
    a: Any
    b: Any
    ts: int | None = None
    seq: int | None = None
    field: str | None = None
    key: Any = NOTHING
    row: int | None = None
    """Index of the row among the outputs of its type, or among the rejections."""
    names: tuple[str, str] = ("a", "b")

    @property
    def text(self) -> str:
        """Two or three lines for people."""
        width = max(len(n) for n in self.names)
        sides = "\n".join(
            f"  {label:<{width}}  {_short(value)}"
            for label, value in zip(self.names, (self.a, self.b), strict=True)
        )
        return f"{self._head()}\n{sides}"

    def _head(self) -> str:
        if self.kind == "state":
            if self.key is NOTHING:
                return f"the state {self.name} differs"
            at = "" if self.key == () else f"[{_short(self.key)}]"
            return f"the state {self.name}{at} differs at the end"
        if self.kind == "pending":
            return "what lies ahead at the end differs"
        place = f"at {time_text(self.ts or 0)}, seq {self.seq}"
        if self.kind == "rejection":
            return f"first difference {place}: rejections"
        what = f"{self.name}, row {self.row}"
        return f"first difference {place}: {what}" + (f", field {self.field}" if self.field else "")

    def __str__(self) -> str:
        return self.text


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}... ({len(text)} characters)"


# --- equality ---------------------------------------------------------------------------------


def identical(a: Any, b: Any) -> bool:
    """Whether two values are the same to the last bit: 1, 1.0 and True differ, 0.0 and -0.0 differ, NaN is NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack("<d", a) == struct.pack("<d", b) or (a != a and b != b)
    if isinstance(a, Record | Event):
        return identical(_all_values(a), _all_values(b))
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(identical, a, b))
    if isinstance(a, Mapping):
        return next(_map_differences(a, b), None) is None
    return bool(a == b)


def _all_values(row: Record | Event) -> tuple[Any, ...]:
    return tuple.__getitem__(row, slice(None))  # an event's ts and seq too


def _map_differences(a: Mapping[Any, Any], b: Mapping[Any, Any]) -> Iterator[tuple[Any, Any, Any]]:
    """(key, value in a, value in b) where they differ, in key order."""
    own = {key: key for key in b}
    wrong = [k for k, v in a.items() if k not in b or not identical(k, own[k]) or not identical(v, b[k])]
    wrong.extend(k for k in b if k not in a)
    for key in in_key_order(wrong):
        left, right = a.get(key, NOTHING), b.get(key, NOTHING)
        if left is not NOTHING and right is not NOTHING and identical(left, right):
            mine = next(k for k in a if k == key)  # equal keys of different types: 1 and True
            yield key, (mine, left), (own[key], right)
        else:
            yield key, left, right


def in_key_order(keys: Iterable[Any]) -> list[Any]:
    """Keys in their own order; in the order of their texts where they have none."""
    found = list(keys)
    try:
        return sorted(found)
    except TypeError:
        return sorted(found, key=repr)


# --- comparing ----------------------------------------------------------------------------------


def compare_runs(a: Any, b: Any, *, names: tuple[str, str] = ("a", "b")) -> Divergence | None:
    """The first difference between two results, or None when they are the same to the last bit.

    `a` and `b` are serial outcomes, runs or Results. Outputs and rejections come first, by their place in the log;
    then the states at the end, in order of declaration and of key. `names` are what the text calls the two.
    Raises UsageError for something that is not a result.
    """
    left, right = result_of(a), result_of(b)
    found: list[tuple[tuple[int, ...], Divergence]] = []
    records = dict.fromkeys([*left.outputs, *right.outputs])
    for name in records:
        fields = left.fields.get(name) or right.fields.get(name) or ()
        first = _first_row("output", name, left.outputs.get(name, ()), right.outputs.get(name, ()), fields)
        if first is not None:
            found.append(first)
    first = _first_row("rejection", "rejected", left.rejected, right.rejected, ())
    if first is not None:
        found.append(first)
    if found:
        return _named(min(found, key=lambda item: item[0])[1], names)
    for name in dict.fromkeys([*left.states, *right.states]):
        mine, other = left.states.get(name, NOTHING), right.states.get(name, NOTHING)
        if mine is NOTHING or other is NOTHING:
            sides = ["a state" if s is not NOTHING else NOTHING for s in (mine, other)]
            return Divergence("state", name, sides[0], sides[1], names=names)
        for key, x, y in _map_differences(mine, other):
            return Divergence("state", name, x, y, key=key, names=names)
    return None


def assert_same(a: Any, b: Any, *, names: tuple[str, str] = ("a", "b")) -> None:
    """Raise AssertionError with the first difference, if there is one. Arguments as for `compare_runs`."""
    __tracebackhide__ = True
    divergence = compare_runs(a, b, names=names)
    if divergence is not None:
        raise AssertionError(divergence.text)


def _named(divergence: Divergence, names: tuple[str, str]) -> Divergence:
    return Divergence(**{**divergence.__dict__, "names": names})


def _first_row(
    kind: str, name: str, a: Sequence[Row], b: Sequence[Row], fields: tuple[str, ...]
) -> tuple[tuple[int, ...], Divergence] | None:
    for index, (x, y) in enumerate(zip_longest(a, b)):
        if x is not None and y is not None and _same_place(x, y):
            if identical(x.values, y.values):
                continue
            where, left, right = x, _shown(name, x, fields), _shown(name, y, fields)
            at = _only_field(x.values, y.values, fields)
            if at is not None:
                left, right = x.values[at], y.values[at]
            label = None if at is None else fields[at]
        else:
            # The row that comes first in the log is missing on the other side.
            label = None
            if y is None or (x is not None and _order(x) < _order(y)):
                where, left, right = x, _shown(name, x, fields), NOTHING
            else:
                where, left, right = y, NOTHING, _shown(name, y, fields)
        found = Divergence(kind, name, left, right, where.ts, where.seq, label, row=index)
        return _order(where), found
    return None


def _order(row: Row) -> tuple[int, ...]:
    return (
        row.ts,
        -1 if row.phase is None else row.phase,
        row.seq,
        -1 if row.ordinal is None else row.ordinal,
    )


def _same_place(x: Row, y: Row) -> bool:
    known = [(p, q) for p, q in zip(x[:4], y[:4], strict=True) if p is not None and q is not None]
    return all(p == q for p, q in known)


def _only_field(a: tuple[Any, ...], b: tuple[Any, ...], fields: tuple[str, ...]) -> int | None:
    """The one field that differs."""
    if len(a) != len(b) or len(a) != len(fields):
        return None
    wrong = [i for i, (x, y) in enumerate(zip(a, b, strict=True)) if not identical(x, y)]
    return wrong[0] if len(wrong) == 1 else None


class _Text(str):
    """Shown as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _shown(name: str, row: Row, fields: tuple[str, ...]) -> Any:
    if len(fields) == len(row.values):
        return _Text(f"{name}({', '.join(f'{f}={v!r}' for f, v in zip(fields, row.values, strict=True))})")
    return row.values


# --- reading results ----------------------------------------------------------------------------


def result_of(source: Any) -> Result:
    """What a serial outcome, a run or a Result holds, in one form. Raises UsageError for anything else."""
    if isinstance(source, Result):
        return source
    if all(hasattr(source, name) for name in ("outputs", "refused", "states")):
        return _of_outcome(source)
    if all(hasattr(source, name) for name in ("stored", "stored_rejected", "state_at_cut", "manifest")):
        return _of_run(source)
    raise UsageError(
        f"{type(source).__name__} is not a result that can be compared",
        hint="give what tl.run_serial, tl.replay or timelapse.serial.run returns",
    )


def _of_outcome(outcome: Any) -> Result:
    outputs: dict[str, list[Row]] = {}
    fields: dict[str, tuple[str, ...]] = {}
    for output in outcome.outputs:
        p = output.position
        record = type(output.record)
        fields.setdefault(record.__name__, tuple(f.name for f in record.__fields__))
        outputs.setdefault(record.__name__, []).append(
            Row(p.ts, p.phase, p.seq, p.ordinal, output.record._values())
        )
    rejected = [
        Row(r.position.ts, r.position.phase, r.position.seq, None, (r.event, r.handler, r.reason))
        for r in outcome.refused
    ]
    return Result(outputs, rejected, outcome.states, fields)


def _of_run(run: Any) -> Result:
    outputs, fields = {}, {}
    for name in run.counts:
        table = run.stored(name)
        fields[name] = tuple(table.column_names[4:])
        rows = zip(*(_values(column) for column in table.columns), strict=True)
        outputs[name] = [Row(r[0], r[1], r[2], r[3], r[4:]) for r in rows]
    refused = zip(*(_values(column) for column in run.stored_rejected().columns), strict=True)
    rejected = [Row(r[0], r[1], r[2], None, r[3:]) for r in refused]
    names = [entry.name for entry in run.manifest.states]
    states = {name: run.state_at_cut(name, run.slices) for name in names}
    return Result({n: rows for n, rows in outputs.items() if rows}, rejected, states, fields)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """A stored column as Python values: times as integers, lists as tuples."""
    plain = _with_ints(column.type)
    if plain != column.type:
        column = column.cast(plain)
    return [_frozen(value) for value in column.to_pylist()]


def _with_ints(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_ints(kind.value_type)))
    return kind


def _frozen(value: Any) -> Any:
    return tuple(_frozen(v) for v in value) if isinstance(value, list) else value


__all__ = [
    "NOTHING", "Divergence", "Result", "Row", "assert_same", "compare_runs", "identical", "result_of"
]  # fmt: skip
