"""Columns whose type changes from one file to a later one. A wider type is taken; a narrower one, or one of another kind, is an error until
a rule is stated: values that happen to read as before may mean something else.

Types go by the names that files' schemas tell, which is also what a log keeps of its earlier files.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from timelapse.errors import IngestError, Place
from timelapse.ingest.plan import Plan
from timelapse.model.types import BOOL, FLOAT, INT, STR, TIME, DecimalType, OptionalType


class _Held(NamedTuple):
    """What a column's type holds: values of one kind, and sizes that tell how many of them. Sizes may grow."""

    kind: str
    sizes: tuple[int, ...]


class Seen(NamedTuple):
    """The column that a field was read from, its type, and the file or files that tell it, for people."""

    column: str
    type: str
    where: str


_WHOLE = re.compile(r"(u?)int(8|16|32|64)")
_DECIMAL = re.compile(r"decimal\d*\((\d+), ?(-?\d+)\)")
_TIMES = {"s": 0, "ms": 1, "us": 2, "ns": 2, "millis": 1, "micros": 2, "nanos": 2}
"""Units by how much of a microsecond they keep."""
_TIME = re.compile(r"(?:local-)?timestamp[-\[](s|ms|us|ns|millis|micros|nanos)\b.*")
_OTHERS: dict[str, _Held] = {
    "halffloat": _Held("number", (2, 11)), "float": _Held("number", (2, 24)), "double": _Held("number", (2, 53)),
    "tinyint": _Held("number", (0, 7)), "smallint": _Held("number", (0, 15)),
    "int": _Held("number", (0, 31)), "long": _Held("number", (0, 63)), "bigint": _Held("number", (0, 63)),
    "bool": _Held("truth", ()), "boolean": _Held("truth", ()), "date": _Held("time", (-1,)), "timestamp": _Held("time", (2,)),
}  # fmt: skip
_CASTS = {INT.text: "bigint", FLOAT.text: "double", STR.text: "string", BOOL.text: "boolean"}
_TEXT = ("string", "large_string", "string_view", "utf8", "large_utf8")
_BYTES = ("binary", "large_binary", "binary_view", "fixed_size_binary", "bytes")


def _held(name: str) -> _Held | None:
    """None: nothing is known of it, as of a column of nulls, of columns of text files, or of values of several kinds."""
    if name.startswith("dictionary<values="):
        name = name.removeprefix("dictionary<values=").split(",")[0]
    if name in _TEXT or name.split("[")[0] in _BYTES:  # one for str and bytes, which read both
        return _Held("text", ())
    if name in _OTHERS:
        return _OTHERS[name]
    if (whole := _WHOLE.fullmatch(name)) is not None:
        return _Held("number", (0, int(whole[2]) - (not whole[1])))
    if (exact := _DECIMAL.fullmatch(name)) is not None:
        return _Held("number", (1, int(exact[1]) - int(exact[2]), int(exact[2])))
    if (time := _TIME.fullmatch(name)) is not None:
        return _Held("time", (_TIMES[time[1]],))
    if name.startswith("date"):
        return _Held("time", (-1,))
    return _Held("list", ()) if name.split("<")[0] in ("list", "large_list", "array") else None


def check_types(plan: Plan, columns: Mapping[str, str], path: str, seen: dict[str, Seen]) -> None:
    """Go on from the types of the files before (`seen`, by field) to those of the file `path`, whose columns have these types' names.

    Raises IngestError (TL420) for the first column that is read as it is, for a field or the time, and whose type is narrower than before,
    or of another kind. Columns that only expressions read are let through: these say what becomes of them.
    """
    for name, column in columns_read(plan, columns).items():
        new, old = _held(columns[column]), seen.get(name)
        if new is None:
            continue
        before = None if old is None else _held(old.type)
        if (
            old is not None
            and before is not None
            and (new.kind != before.kind or _less(new.sizes, before.sizes))
        ):
            told = "narrower than" if new.kind == before.kind else "of another kind than"
            raise IngestError(
                f"{plan.kind.name}.{name}: from this file on the column {column!r} is {columns[column]}, which is {told} {old.type}, as in {old.where}",
                place=Place(path), code="TL420", hint=_rule(plan, name, column),
            )  # fmt: skip
        seen[name] = Seen(column, columns[column], path)


def columns_read(plan: Plan, columns: Collection[str]) -> dict[str, str]:
    """The columns that are read as they are, of those that there are, by the field that each makes (`ts`: the time)."""
    if plan.applied is not None:
        return {}
    names = ("ts", *(f.name for f in plan.kind.fields))
    found = {
        name: next((c for c in choice if c in columns), None)
        for name, choice in zip(names, plan.choices, strict=True)
    }
    return {name: column for name, column in found.items() if column is not None}


def _less(new: Sequence[int], old: Sequence[int]) -> bool:
    """Whether a type of these sizes holds less than the other: whole numbers less than decimals, and these less than floats."""
    if len(old) > 1 and new[0] != old[0]:
        return new[0] < old[0]
    return any(a < b for a, b in zip(new, old, strict=True))


def _rule(plan: Plan, name: str, column: str) -> str:
    """What states how a column is read whatever its type."""
    apart = "a [[source]] of their own in log.toml for this file and those behind it"
    own = next((f.type for f in plan.kind.fields if f.name == name), TIME)
    inner = own.inner if isinstance(own, OptionalType) else own
    to = _CASTS.get(inner.text)
    if isinstance(inner, DecimalType):
        to = f"decimal(18, {inner.scale})"
    if to is None:
        return f"write the files anew with one type, or state what it means: {apart}"
    quoted = column if column.isidentifier() else f"`{column}`"
    return f'state what it means: compute = {{ {name} = "cast({quoted} as {to})" }} in log.toml reads all of them so; or {apart}'
