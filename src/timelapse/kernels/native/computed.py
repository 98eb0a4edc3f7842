"""Columns that Python computes from the event alone, each entry a value or *raised*.

What a handler does with nothing but the event and constants, and what the compiler cannot take, is
evaluated for every event before the compiled function runs. An entry whose evaluation raises, or gives
something of another type than the column's, is marked: Python handles an event that comes to it. So is one that
takes very long: the handler may not come to it, and then it must not keep anybody waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from timelapse.ids import INT64_MAX, INT64_MIN
from timelapse.kernels.budget import Spent, within
from timelapse.model.events import Event
from timelapse.segments.rows import ints, python_values

ALL_SECONDS = 5.0
"""Processor seconds for the rows of a chunk together; then they are evaluated one by one."""
ROW_SECONDS = 1.0
"""Processor seconds for a row then."""
LONG_ROWS = 3
"""So many rows that take longer, and all that are left count as such."""
_TYPES = {"int": int, "float": float, "bool": bool, "str": str, "bytes": bytes}
_ARROW = {
    "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(), "str": pa.large_string(),
    "bytes": pa.large_binary(),
}  # fmt: skip
_ARROW |= {f"list:{kind}": pa.large_list(arrow) for kind, arrow in _ARROW.items()}


@dataclass(frozen=True)
class Computed:
    """An expression over the event's fields (`_f_NAME`) and objects (`_gN`).

    `kind`: int, float, bool, str or bytes, with `list:` before it a list or tuple of those; `maybe`: or None.
    """

    text: str
    fields: tuple[str, ...]
    kind: str
    maybe: bool
    objects: tuple[tuple[str, Any], ...] = field(default=(), compare=False, repr=False)

    def __reduce__(self) -> Any:
        return Computed, (self.text, self.fields, self.kind, self.maybe, self.objects)


@dataclass(frozen=True)
class Entries:
    """A computed column: values (null where there is None or nothing), and which entries are which."""

    values: pa.Array
    valid: Any
    raised: Any


@lru_cache(maxsize=256)
def _functions(text: str, fields: tuple[str, ...]) -> tuple[Any, Any]:
    names = ", ".join(f"_f_{name}" for name in fields)
    every = compile(f"[({text}) for {names}, in _rows]", "<computed>", "eval")
    one = compile(f"lambda {names}: ({text})", "<computed>", "eval")
    return every, one


def compute(computed: Computed, event: type[Event], table: pa.Table) -> Entries:
    """Evaluate for every row of a table of events; where all depends on one text that repeats, for each different one."""
    if len(computed.fields) == 1 and (column := _repeated(table, computed.fields[0])) is not None:
        known = pa.chunked_array([column.dictionary])
        if column.null_count:
            known = pa.chunked_array([*known.chunks, pa.nulls(1, known.type)])
        found = compute(computed, event, pa.table({computed.fields[0]: known}))
        places = column.indices.fill_null(len(known) - 1).to_numpy()
        parts = found.values.take(pa.array(places)), found.valid[places], found.raised[places]
        for flags in parts[1:]:
            flags.setflags(write=False)
        return Entries(*parts)
    columns = [_values(table, event, name) for name in computed.fields]
    every, one = _functions(computed.text, computed.fields)
    objects = dict(computed.objects)
    try:
        rows = {**objects, "_rows": zip(*columns, strict=True)}
        found = within(ALL_SECONDS, lambda: 0, lambda: eval(every, rows))  # noqa: S307 the user's own code
        entries = _entries(found, computed)
        if entries is not None:
            return entries
    except (Exception, Spent):  # noqa: S110 which row it was is found out below
        pass
    return _singly(eval(one, objects), columns, computed)  # noqa: S307


def _repeated(table: pa.Table, name: str) -> pa.DictionaryArray | None:
    """A column whose different values are known, and are fewer than its rows."""
    column = table.column(name)
    if not pa.types.is_dictionary(column.type) or column.num_chunks != 1:
        return None
    array = column.chunk(0)
    return array if len(array.dictionary) < len(array) else None


def _values(table: pa.Table, event: type[Event], name: str) -> list[Any]:
    if name in ("ts", "seq"):
        return ints(table.column(name))
    kind = next(f.type for f in event.__fields__ if f.name == name)
    return python_values(table.column(name), kind)


def _entries(found: list[Any], computed: Computed) -> Entries | None:
    """The column where every value is of its type."""
    values, element = found, computed.kind
    if computed.kind.startswith("list:"):
        if not set(map(type, found)) <= {list, tuple}:
            return None
        values, element = list(chain.from_iterable(found)), computed.kind.removeprefix("list:")
    types = set(map(type, values))
    if computed.maybe:
        types.discard(type(None))
    if not types <= {_TYPES[element]}:
        return None
    made = pa.array(found, _ARROW[computed.kind], from_pandas=False)
    return Entries(made, _valid(made), np.zeros(len(found), np.bool_))


def _valid(values: pa.Array) -> Any:
    found = np.asarray(values.is_valid().to_numpy(zero_copy_only=False))
    found.setflags(write=False)
    return found


def _singly(function: Callable[..., Any], columns: Sequence[list[Any]], computed: Computed) -> Entries:
    kind, maybe = computed.kind, computed.maybe
    rows = list(zip(*columns, strict=True))
    found: list[Any] = [None] * len(rows)
    raised = np.ones(len(rows), np.bool_)
    row = -1

    def go_on() -> None:
        nonlocal row
        while row + 1 < len(rows):
            row += 1
            try:
                value = function(*rows[row])
            except Exception:  # noqa: S112 it stays marked
                continue
            if (maybe and value is None) or _fits(value, kind):
                found[row] = value
                raised[row] = False

    for _ in range(LONG_ROWS):
        try:
            within(ROW_SECONDS, lambda: row, go_on)
        except Spent:
            continue
        break
    raised.setflags(write=False)
    made = pa.array(found, _ARROW[kind], from_pandas=False)
    return Entries(made, _valid(made), raised)


def _fits(value: Any, kind: str) -> bool:
    if kind.startswith("list:"):
        inner = kind.removeprefix("list:")
        return type(value) in (list, tuple) and all(_fits(v, inner) for v in value)
    found: type = type(value)
    if found is not _TYPES[kind]:
        return False
    if kind == "int":
        return bool(INT64_MIN <= value <= INT64_MAX)
    if kind == "str" and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return False
    return True
