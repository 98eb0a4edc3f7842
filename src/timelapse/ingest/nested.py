"""Values inside structs of tables, by path, as those inside objects of JSON (ingest/objects.py): `user.card` is the field `card` of the
struct `user`; `items[].sku` the field `sku` of each struct in the list `items`.

A table that is read has them as columns under these names. Of a list that is taken apart these are lists, of one length in a row; beside
them stands `items[]`, which says of each item whether it is null.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.ingest.objects import MANY, JsonObject, list_in
from timelapse.tables.rowhash import whole_array

T = TypeVar("T")


def inner_columns(columns: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    """The columns inside these ones, by path, with their types. A column of such a name goes before a path; what has dots or ends with `[]`
    in its name cannot be named by one."""
    return {p: pa.bool_() if kind is None else kind for p, kind in inside(columns, _fields, _item)}


def inside(
    columns: Mapping[str, T],
    fields: Callable[[T], Iterable[tuple[str, T]] | None],
    item: Callable[[T], T | None],
) -> list[tuple[str, T | None]]:
    """The same for types of any library. `fields`: those of a struct, None for what is none; `item`: what a list is of, None for what
    is none. The type of what says which items a list has is None."""
    found: dict[str, T | None] = {}

    def walk(path: str, kind: T) -> None:
        inner = fields(kind)
        if inner is not None:
            for name, own in inner:
                if can_be_named(name):
                    found.setdefault(f"{path}.{name}", own)
                    walk(f"{path}.{name}", own)
        elif (one := item(kind)) is not None and fields(one) is not None and MANY not in path:
            found.setdefault(path + MANY, None)
            walk(path + MANY, one)

    for name, kind in columns.items():
        if can_be_named(name):
            walk(name, kind)
    return [(path, kind) for path, kind in found.items() if path not in columns]


def _fields(kind: pa.DataType) -> list[tuple[str, pa.DataType]] | None:
    """The fields of a struct, but those of which it has two of a name."""
    if not pa.types.is_struct(kind):
        return None
    return [(f.name, f.type) for f in kind if kind.get_field_index(f.name) >= 0]


def _item(kind: pa.DataType) -> pa.DataType | None:
    return kind.value_type if is_list(kind) else None


def can_be_named(name: str) -> bool:
    """Whether a path may have this name as a part."""
    return bool(name) and "." not in name and not name.endswith(MANY)


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is a list, however it is stored."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def root_of(path: str) -> str:
    """The column that a path begins in."""
    return path.split(".", maxsplit=1)[0].removesuffix(MANY)


def owners(needed: Iterable[str], columns: Collection[str]) -> list[str]:
    """The columns to read, of these ones, for columns and values inside them."""
    found = (c if c in columns else root_of(c) for c in needed)
    return list(dict.fromkeys(c for c in found if c in columns))


def shown(columns: Collection[str], every: Iterable[str], used: Collection[str]) -> list[str]:
    """What people are told of a file: its columns, in place of those of which parts are used these parts. `every`: columns, and what is in them."""
    have = list(every)
    apart = {root_of(c) for c in have if c in used and c not in columns}
    return [c for c in have if c in used or (c in columns and c not in apart)]


def check_paths(needed: Iterable[str], columns: Collection[str]) -> None:
    """Raise IngestError (TL411) for paths of which no event can be made, such as those into two lists."""
    paths = [c.split(".") for c in needed if ("." in c or MANY in c) and c not in columns]
    whole = JsonObject()
    for path in paths:
        if any(part.endswith(MANY) for part in path):
            whole.put(path, None, optional=True)
    list_in(paths)


def with_marks(needed: Sequence[str]) -> list[str]:
    """These columns, and what says of the list among them which items it has."""
    mark = _mark(needed)
    return list(dict.fromkeys([*needed, *([] if mark is None else [mark])]))


def _mark(needed: Sequence[str]) -> str | None:
    return next((c[: c.index(MANY) + len(MANY)] for c in needed if MANY in c), None)


def flat(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """A table with these columns, where it has them: as they are, or from inside its own."""
    found: dict[str, pa.Array | pa.ChunkedArray] = {}
    for name in names:
        if name in table.column_names:
            found[name] = table[name]
        elif root_of(name) in table.column_names:
            inner = _inside(whole_array(table[root_of(name)]), name.split("."))
            if inner is not None:
                found[name] = inner
    if not found:  # rows without columns are rows
        return table.select([])
    return pa.table(found)


def _inside(column: pa.Array, path: Sequence[str]) -> pa.Array | None:
    """What stands under a path that begins in this column; None where its type has nothing there."""
    for at, key in enumerate(path):
        if at:
            name = key.removesuffix(MANY)
            if not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
                return None
            column = pc.struct_field(column, column.type.get_field_index(name))
        if key.endswith(MANY):
            if not is_list(column.type):
                return None
            lengths = np.asarray(pc.fill_null(pc.list_value_length(column), 0)).astype(np.int64)
            items = pc.list_flatten(column)
            values = _inside(items, ["", *path[at + 1 :]]) if path[at + 1 :] else items.is_null()
            if values is None:
                return None
            ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
            return pa.LargeListArray.from_arrays(pa.array(ends), _plain(values))
    return column


class Apart(NamedTuple):
    """Rows of a table with a row for each item of a list.

    `parents`: which row of the table each is of. `places`: its place in the list, from 0. `nulls`: which items are null. `empty`: how many
    rows of the table have no items.
    """

    columns: dict[str, pa.Array]
    parents: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    nulls: npt.NDArray[np.bool_]
    empty: int


def taken_apart(columns: Mapping[str, pa.Array], needed: Sequence[str], count: int) -> Apart | None:
    """What a table's rows make, where a list is taken apart; None where none is."""
    lists = [c for c in needed if MANY in c]
    mark = _mark(needed)
    if mark is None or (mark not in columns and any(c in columns for c in lists)):  # a column of that name
        return None
    found = dict(columns)
    marks = found.pop(mark, None)
    if marks is None:  # a file without the list
        marks = pa.nulls(count, pa.list_(pa.bool_()))
    lengths = np.asarray(pc.fill_null(pc.list_value_length(marks), 0)).astype(np.int64)
    parents = np.repeat(np.arange(count), lengths)
    places = np.arange(len(parents)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    for name, column in columns.items():
        if name != mark:
            found[name] = pc.list_flatten(column) if name in lists else column.take(pa.array(parents))
    nulls = np.asarray(pc.list_flatten(marks), np.bool_)
    return Apart(found, parents, places, nulls, int((lengths == 0).sum()))


def plainly(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece, of values as they are: not as codes of a dictionary, nor as runs or views."""
    return _plain(whole_array(column))


def _plain(whole: pa.Array) -> pa.Array:
    if pa.types.is_run_end_encoded(whole.type):
        whole = pc.run_end_decode(whole)
    if pa.types.is_dictionary(whole.type):
        values = _without_views(whole.dictionary)  # which nothing takes codes of
        whole = pa.DictionaryArray.from_arrays(whole.indices, values).dictionary_decode()
    return _without_views(whole)


def _without_views(values: pa.Array) -> pa.Array:
    if pa.types.is_string_view(values.type):
        return values.cast(pa.string())
    return values.cast(pa.binary()) if pa.types.is_binary_view(values.type) else values
