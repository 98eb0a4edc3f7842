"""JSON objects whose values are read by paths: `user.card` is the value `card` of the object `user`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, get_args

import msgspec

from timelapse.errors import IngestError


class JsonObject:
    """What is read of a JSON object: values by key, and of nested objects the same."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[Any, bool]] = {}
        self.inner: dict[str, JsonObject] = {}

    def put(self, path: Sequence[str], python: Any, *, optional: bool) -> None:
        """Add a value. Raises IngestError where it is read whole and in parts."""
        first, *rest = path
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
        for number, (key, (python, optional)) in enumerate(sorted(found.items())):
            name = f"v{number}"
            if not optional:
                members.append((name, python))
                continue
            loose = python if python is Any else python | msgspec.UnsetType
            members.append(
                (name, loose if key in self.values or python is Any else loose | None, msgspec.UNSET)
            )
        rename = {f"v{number}": key for number, key in enumerate(sorted(found))}
        return msgspec.defstruct("Line", members, kw_only=True, rename=rename)


def getter(struct: Any, path: Sequence[str]) -> Callable[[Any], Any]:
    """Reads the value under some keys of a decoded object; UNSET where it, or an object around it, is missing or null."""
    names: list[str] = []
    for at, key in enumerate(path):
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


def _struct_in(kind: Any) -> Any:
    """The struct among the members of a union."""
    return next(k for k in (kind, *get_args(kind)) if isinstance(k, type) and issubclass(k, msgspec.Struct))
