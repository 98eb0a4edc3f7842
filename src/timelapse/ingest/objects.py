"""JSON objects whose values are read by paths: `user.card` is the value `card` of the object `user`; `items[].sku` is
the value `sku` of each object in the list `items`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, get_args, get_origin

import msgspec

from timelapse.errors import IngestError

MANY = "[]"
"""Behind the key of a list of objects that is taken apart: one event for each."""


class JsonObject:
    """What is read of a JSON object: values by key, and of nested objects the same."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[Any, bool]] = {}
        self.inner: dict[str, JsonObject] = {}
        self.list: tuple[str, JsonObject] | None = None
        """The key of a list of objects, and what is read of each."""

    def put(self, path: Sequence[str], python: Any, *, optional: bool) -> None:
        """Add a value. Raises IngestError where it is read whole and in parts."""
        first, *rest = path
        if first.endswith(MANY):
            name = first.removesuffix(MANY)
            if (
                not rest
                or any(part.endswith(MANY) for part in rest)
                or (self.list is not None and self.list[0] != name)
            ):
                raise IngestError(
                    f"{'.'.join(path)!r}: one list of objects can be taken apart, into values of its objects", code="TL411",
                    hint="name values of one list: items[].sku, items[].price; prepare deeper ones with Spark",
                )  # fmt: skip
            self.list = self.list or (name, JsonObject())
            self.list[1].put(rest, python, optional=optional)
            return
        if first in (self.values if rest else self.inner):
            raise IngestError(
                f"{first!r} is mapped whole, and {'.'.join(path) if rest else first + '.…'!r} is a part of it", code="TL411",
                hint="map the parts alone",
            )  # fmt: skip
        if rest:
            self.inner.setdefault(first, JsonObject()).put(rest, python, optional=optional)
        else:
            self.values[first] = (python, optional)

    @property
    def optional(self) -> bool:
        """Whether nothing of it need be there."""
        return all(o for _, o in self.values.values()) and all(o.optional for o in self.inner.values())

    def struct(self) -> Any:
        """The struct that it is decoded as. Its members are v0, v1, ... in the order of the keys."""
        found = {**self.values, **{key: (one.struct(), one.optional) for key, one in self.inner.items()}}
        members: list[Any] = []
        if self.list is not None:
            if self.list[0] in found:
                raise IngestError(
                    f"{self.list[0]!r} is mapped whole, and taken apart",
                    code="TL411",
                    hint="map the parts alone",
                )
            members.append(("many", list[self.list[1].struct()] | None | msgspec.UnsetType, msgspec.UNSET))  # type: ignore[misc]
        for number, (key, (python, optional)) in enumerate(sorted(found.items())):
            name = f"v{number}"
            if not optional:
                members.append((name, python))
                continue
            loose = python if python is Any else python | msgspec.UnsetType
            members.append(
                (name, loose if key in self.values or python is Any else loose | None, msgspec.UNSET)
            )
        for key in found:
            if '"' in key or "\\" in key or not key.isprintable():
                raise IngestError(
                    f"the key {key!r} cannot be read: it has a quotation mark, a backslash or a control character", code="TL411",
                    hint="rename it where the objects are written, or prepare them with Spark",
                )  # fmt: skip
        rename = {f"v{number}": key for number, key in enumerate(sorted(found))}
        if self.list is not None:
            rename["many"] = self.list[0]
        return msgspec.defstruct("Line", members, kw_only=True, rename=rename)


def getter(struct: Any, path: Sequence[str]) -> Callable[[Any], Any]:
    """Reads the value under some keys of a decoded object; UNSET where it, or an object around it, is missing or null."""
    names: list[str] = []
    for at, key in enumerate(path):
        key = key.removesuffix(MANY)
        info = {f.encode_name: f for f in msgspec.structs.fields(struct)}
        names.append(info[key].name)
        if at < len(path) - 1:
            struct = _struct_in(info[key].type)
    if len(names) == 1:
        return attrgetter(names[0])

    def read(row: Any) -> Any:
        for name in names:
            if row is None or row is msgspec.UNSET:
                return msgspec.UNSET
            row = getattr(row, name)
        return row

    return read


def taken_apart(rows: Sequence[Any], path: Sequence[str]) -> tuple[list[int], list[Any], list[int]]:
    """The objects in the list under `path` of each row: their rows' numbers, the objects, their places in the lists (from 0)."""
    read = getter(type(rows[0]), path)
    parents: list[int] = []
    objects: list[Any] = []
    places: list[int] = []
    for number, row in enumerate(rows):
        found = read(row)
        if found is None or found is msgspec.UNSET:
            continue
        parents += [number] * len(found)
        objects += found
        places += range(len(found))
    return parents, objects, places


class Parts(NamedTuple):
    """Rows of a user's function by column, those with a list that is taken apart once for each object in it; a text is why one is bad.

    `parents`: which of the function's rows each is of. `places`: its place in the list, where one is taken apart. `empty`: rows without
    an object there.
    """

    rows: list[Mapping[str, Any] | str]
    parents: list[int]
    places: list[int] | None
    empty: int


def parts_of(found: Sequence[Mapping[str, Any] | str | None], columns: Sequence[str]) -> Parts:
    """What a function returned, with values by path under the names of these columns too; None is left out. A key of that name goes before a path."""
    paths = {c: c.split(".") for c in columns if "." in c or MANY in c}
    several = list_in(list(paths.values()))
    outer = {c: path for c, path in paths.items() if MANY not in c}
    inner = {c: path[len(several) :] for c, path in paths.items() if MANY in c} if several else {}
    parts = Parts([], [], None if several is None else [], 0)
    empty = 0

    def add(number: int, row: Mapping[str, Any] | str, place: int = 0) -> None:
        parts.rows.append(row)
        parts.parents.append(number)
        if parts.places is not None:
            parts.places.append(place)

    for number, one in enumerate(found):
        if one is None:
            continue
        if isinstance(one, str) or not paths:
            add(number, one)
            continue
        own = {**{c: v for c, path in outer.items() if (v := _under(one, path)) is not None}, **one}
        if several is None or inner.keys() <= one.keys():
            add(number, own)
            continue
        items = _under(one, several)
        if items is None:
            empty += 1
        elif not isinstance(items, list | tuple):
            add(number, f"{'.'.join(several)} is {type(items).__name__}, and not a list of objects")
        elif odd := [at for at, item in enumerate(items) if not isinstance(item, Mapping)]:
            add(
                number,
                f"item {odd[0] + 1} of {'.'.join(several)} is {type(items[odd[0]]).__name__}, and not an object",
            )
        else:
            empty += not items
            for place, item in enumerate(items):
                add(
                    number,
                    own | {c: v for c, path in inner.items() if (v := _under(item, path)) is not None},
                    place,
                )
    return parts._replace(empty=empty)


def _under(row: Mapping[str, Any], path: Sequence[str]) -> Any:
    """The value under some keys of nested mappings; None where there is none."""
    found: Any = row
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _struct_in(kind: Any) -> Any:
    """The struct among the members of a union, or in the list among them."""
    for one in (kind, *get_args(kind)):
        if isinstance(one, type) and issubclass(one, msgspec.Struct):
            return one
        if get_origin(one) is list:
            return get_args(one)[0]
    raise TypeError(kind)


def list_in(paths: Sequence[Sequence[str]]) -> list[str] | None:
    """The keys of the list that some of these paths take apart; None where none does. Raises IngestError for two."""
    found: list[str] | None = None
    for path in paths:
        at = next((n for n, key in enumerate(path) if key.endswith(MANY)), None)
        if at is None:
            continue
        own = [*path[:at], path[at].removesuffix(MANY)]
        if found is not None and own != found:
            raise IngestError(
                f"two lists are taken apart: {'.'.join(found)} and {'.'.join(own)}", code="TL411",
                hint="an event is made of one object of one list",
            )  # fmt: skip
        found = own
    return found
