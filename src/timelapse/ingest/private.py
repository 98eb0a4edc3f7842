"""Fields that a log must not hold as they are: dropped, hashed under a key, or cut short, before anything is written."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from timelapse.errors import IngestError, Place, meant
from timelapse.ingest.convert import wire_type
from timelapse.model.types import INT, STR, OptionalType, ValueType

if TYPE_CHECKING:
    from timelapse.ingest.source import Source
    from timelapse.segments.manifest import IngestEntry
    from timelapse.segments.types import EventType

HASH_KEY = "TIMELAPSE_HASH_KEY"
"""The variable of the environment that has the key of hashes, unless a source names another."""
_MASK = (1 << 63) - 1


@dataclass(frozen=True)
class Private:
    """What is done to fields, by their names. The key travels to the tasks, and is never stored or shown."""

    drop: frozenset[str]
    hash: frozenset[str]
    truncate: tuple[tuple[str, int], ...]
    key: bytes = field(repr=False)

    @classmethod
    def of(cls, kind: EventType, source: Source) -> Private | None:
        """What a source asks for; None where it asks for nothing. Raises IngestError (TL411)."""
        if not (source.drop or source.hash or source.truncate):
            return None
        types = {f.name: f.type for f in kind.fields}
        asked = [*source.drop, *source.hash, *source.truncate]
        for name in asked:
            if name not in types:
                raise _wrong(
                    kind,
                    f"{kind.name} has no field {name!r}",
                    f"{meant(name, types)}fields: {', '.join(types)}",
                )
            if asked.count(name) > 1:
                raise _wrong(kind, f"{name} is named twice", "drop, hash or truncate a field: one of them")
        for name in source.drop:
            if not types[name].nullable:
                raise _wrong(
                    kind,
                    f"{name} cannot be dropped: it is {types[name].text}",
                    f"declare it as {types[name].text} | None",
                )
        for name in source.hash:
            if _inner(types[name]) not in (STR, INT):
                raise _wrong(
                    kind, f"{name} cannot be hashed: it is {types[name].text}", "texts and whole numbers can"
                )
        for name in source.truncate:
            if _inner(types[name]) != STR:
                raise _wrong(kind, f"{name} cannot be cut short: it is {types[name].text}", "texts can")
        key = os.environ.get(source.hash_key, "")
        if source.hash and not key:
            raise _wrong(
                kind, f"{source.hash[0]} is to be hashed, and the environment's variable {source.hash_key} is empty",
                f"export {source.hash_key}=...: the same key gives the same hashes",
            )  # fmt: skip
        return cls(
            frozenset(source.drop),
            frozenset(source.hash),
            tuple(sorted(source.truncate.items())),
            key.encode(),
        )

    @property
    def names(self) -> frozenset[str]:
        """The fields of which nothing may be told."""
        return self.drop | self.hash | frozenset(name for name, _ in self.truncate)

    def of_field(self, name: str, column: pa.Array, kind: ValueType) -> pa.Array:
        """A field's column as the log may hold it."""
        if name in self.drop:
            return pa.nulls(len(column), wire_type(kind))
        if name in self.hash:
            coded = column.dictionary_encode()
            hashed = [None if v is None else self._hash(v) for v in coded.dictionary.to_pylist()]
            return pa.array(hashed, wire_type(kind)).take(coded.indices)
        length = dict(self.truncate).get(name)
        return column if length is None else pc.utf8_slice_codeunits(column, 0, length)

    def _hash(self, value: Any) -> Any:
        return _hash_of(self.key, value)


def _hash_of(key: bytes, value: Any) -> Any:
    digest = hmac.new(key, str(value).encode("utf-8", "surrogatepass"), hashlib.sha256).digest()
    return digest.hex()[:32] if isinstance(value, str) else int.from_bytes(digest[:8], "big") & _MASK


def hashed(value: str | int, variable: str, print_: str | None) -> str | int | None:
    """The hash of a value under the key of the environment; None where that has no key, or another one than was known by `print_`."""
    key = os.environ.get(variable, "").encode()
    return _hash_of(key, value) if key and (print_ is None or _print_of(key, print_) == print_) else None


# --- telling keys apart -----------------------------------------------------------------------------------


_SALT, _TOLD = 32, 6
"""Digits (hexadecimal) of the salt, and of what is kept of the derivation."""


def _print_of(key: bytes, like: str = "") -> str:
    """What a key is known by: a salt (that of `like`, if given), and the beginning of what scrypt derives from both.

    A log that has it must not help those who guess keys: each guess takes them some 50 ms and 16 MB, and what is kept is so little (24 bits)
    that of many guesses some fit by chance. A key that people can think of is found all the same, as from the hashes of values that
    are known: it should be random.
    """
    salt = like[:_SALT] or os.urandom(_SALT // 2).hex()
    return salt + hashlib.scrypt(key, salt=bytes.fromhex(salt), n=1 << 14, r=8, p=1).hex()[:_TOLD]


def known_keys(sources: Sequence[tuple[EventType, Source]], before: Sequence[IngestEntry]) -> dict[str, str]:
    """What the keys of these sources are known by, by the environment's variable; `before`: the ingests of the log that is appended to.

    Raises IngestError (TL421) for another key than the log was made with: the same values would get other hashes.
    """
    found: dict[str, str] = {}
    for kind, source in sources:
        variable = source.hash_key
        key = os.environ.get(variable, "").encode()
        if not source.hash or not key or variable in found:
            continue
        known = print_in(before, variable, kind.name)
        found[variable] = _print_of(key, known or "")
        if known is not None and found[variable] != known:
            raise IngestError(
                f"{source.hash[0]} is hashed, and the key in the environment's variable {variable} is another than that of the log: "
                "the same values would get other hashes",
                place=Place(what=f"the source of {kind.name}"), code="TL421",
                hint="export the key that the log was made with; with another one make the log anew (--overwrite)",
            )  # fmt: skip
    return found


def print_in(ingests: Sequence[IngestEntry], variable: str, type_: str) -> str | None:
    """What a log's last key of a variable is known by, or else that under which the type was hashed; None where no ingest tells."""
    of_type: str | None = None
    for entry in reversed(ingests):
        if variable in entry.keys:
            return entry.keys[variable]
        names = [
            s.source.get("hash_key", HASH_KEY)
            for s in entry.sources
            if s.type == type_ and "hash" in s.source
        ]
        of_type = of_type or next((entry.keys[name] for name in names if name in entry.keys), None)
    return of_type


def _inner(kind: ValueType) -> ValueType:
    return kind.inner if isinstance(kind, OptionalType) else kind


def _wrong(kind: EventType, message: str, hint: str) -> IngestError:
    return IngestError(message, place=Place(what=f"the source of {kind.name}"), code="TL411", hint=hint)


def check_names(kind: EventType, option: str, names: Sequence[str] | Mapping[str, Any]) -> None:
    """Raise IngestError (TL411) where an option names a field that the type has not."""
    have = [f.name for f in kind.fields]
    for name in names:
        if name not in have:
            raise _wrong(
                kind,
                f"{kind.name} has no field {name!r}, which {option} names",
                f"{meant(name, have)}fields: {', '.join(have)}",
            )
