"""How one source is read: which columns make which fields, in what form times are, what is put aside."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

import msgspec

from timelapse.errors import IngestError, Place, meant
from timelapse.ingest.convert import Times
from timelapse.ingest.objects import JsonObject
from timelapse.ingest.source import Format, Source
from timelapse.log.types import EventType
from timelapse.model.types import (
    BOOL,
    BYTES,
    FLOAT,
    INT,
    STR,
    TIME,
    DecimalType,
    ListType,
    OptionalType,
    ValueType,
)

PYTHON: dict[str, Any] = {
    INT.text: int, FLOAT.text: float, BOOL.text: bool, STR.text: str, BYTES.text: bytes, TIME.text: int | float | str,
}  # fmt: skip
"""The Python type of each scalar in JSON."""
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""What Hive, and Spark after it, calls the folder of rows without a value."""


@dataclass(frozen=True)
class Plan:
    """How one source is read. Travels to the tasks.

    `names`: the source's columns (CSV: of all; else those needed). `floor`: the time after which all events
    must lie, when a log is appended to. `bounds`: times before the first or after the second are put aside.
    `mapped`: columns that the user has named.
    """

    kind: EventType
    format: Format | None
    names: tuple[str, ...]
    columns: tuple[str, ...]
    """The source column of each field."""
    ts: str
    times: Times
    sep: str
    quote: str | None
    header: bool
    regex: str | None
    skip_unmatched: bool
    null: str
    floor: int | None = None
    bounds: tuple[int | None, int | None] = (None, None)
    mapped: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    """JSON: columns that are values inside nested objects: `user.card`."""
    partitions: tuple[str, ...] = ()
    """Columns that the folders of files name: `dt=2026-10-01`."""
    constants: tuple[tuple[str, str], ...] = ()
    """Their values for the file that is read, as texts."""

    @classmethod
    def of(
        cls, kind: EventType, source: Source, format_: Format | None, names: Sequence[str], floor: int | None
    ) -> Plan:
        """Raises IngestError when a mapped column is missing."""
        for name in source.fields:
            if kind.field(name) is None:
                raise IngestError(
                    f"{kind.name} has no field {name!r}, which fields= (--map) maps", place=Place(what=kind.name), code="TL411",
                    hint=f"{meant(name, [f.name for f in kind.fields])}fields: {', '.join(f.name for f in kind.fields)}",
                )  # fmt: skip
        sep = source.sep.replace("\\t", "\t")
        return cls(
            kind=kind, format=format_, names=tuple(names), ts=source.ts,
            columns=tuple(source.fields.get(f.name, f.name) for f in kind.fields),
            times=Times(source.unit, source.time_format, source.year, source.tz),
            sep=sep, quote=source.quote if len(sep) == 1 else None,
            header=source.header, regex=source.regex, skip_unmatched=source.unmatched == "skip",
            null=source.null, floor=floor, bounds=source.bounds, mapped=tuple(dict.fromkeys(source.fields.values())),
        )  # fmt: skip

    @property
    def needed(self) -> list[str]:
        """Source columns that are read, each once."""
        return list(dict.fromkeys((self.ts, *self.columns)))

    def check_columns(self, have: Sequence[str], place: str) -> None:
        """Raises IngestError when `have` lacks a column of a field that must not be null, or of the time.

        `have` may be the columns of one file of several; `check_mapped` looks at those of all.
        """
        lacking = [
            c
            for c, optional in ((self.ts, False), *((c, f.type.nullable) for c, f in zip(self.columns, self.kind.fields, strict=True)))
            if c not in have and not optional
        ]  # fmt: skip
        if lacking:
            option = "ts= (--ts)" if lacking[0] == self.ts else "fields= (--map)"
            raise IngestError(
                f"{self.kind.name} needs the column {lacking[0]!r}, which is not there",
                place=Place(place), code="TL413",
                hint=f"{meant(lacking[0], have)}columns: {', '.join(map(repr, have)) or 'none'}; map another with {option}",
            )  # fmt: skip

    def check_mapped(self, have: Collection[str], place: str) -> None:
        """Raises IngestError when a column that the user has named is nowhere in the source: a slip of the pen."""
        for own, column in zip(self.kind.fields, self.columns, strict=True):
            if column in self.mapped and column not in have:
                raise IngestError(
                    f"{self.kind.name}.{own.name} is mapped to the column {column!r}, which is not there",
                    place=Place(place), code="TL413",
                    hint=f"{meant(column, have)}columns: {', '.join(map(repr, have)) or 'none'}; "
                    "an optional field that is not mapped may be without a column",
                )  # fmt: skip

    def without_column(self, have: Collection[str]) -> list[str]:
        """The fields that no column of `have` feeds: they are None in every event."""
        return [f.name for f, c in zip(self.kind.fields, self.columns, strict=True) if c not in have]

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.regex or "")

    @cached_property
    def decoder(self) -> msgspec.json.Decoder[Any]:
        """Reads one JSON object as a struct with the needed columns as c0, c1, ..."""
        given = {name for name, _ in self.constants}
        wanted: dict[str, list[ValueType]] = {} if self.ts in given else {self.ts: [TIME]}
        for column, own in zip(self.columns, self.kind.fields, strict=True):
            if column not in given:
                wanted.setdefault(column, []).append(own.type)
        whole = JsonObject()
        for column, kinds in wanted.items():
            # a column mapped to several fields is read loosely, and checked for each
            python = _python_type(kinds[0]) if len(kinds) == 1 else Any
            whole.put(self.path_of(column), python, optional=kinds[0].nullable)
        return msgspec.json.Decoder(whole.struct())

    def __getstate__(self) -> dict[str, Any]:
        """Without what is computed from the fields: decoders do not travel."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def within(self, partition: Mapping[str, str]) -> Plan:
        """The plan for a file in folders that name these columns."""
        if not self.partitions:
            return self
        constants = tuple((name, partition[name]) for name in self.partitions)
        if constants not in self._within:
            self._within[constants] = replace(self, constants=constants)
        return self._within[constants]

    @cached_property
    def _within(self) -> dict[tuple[tuple[str, str], ...], Plan]:
        return {}

    def path_of(self, column: str) -> list[str]:
        """The keys under which a JSON column stands, from the outermost object inwards."""
        return column.split(".") if column in self.paths else [column]


def _python_type(kind: ValueType) -> Any:
    if isinstance(kind, OptionalType):
        return _python_type(kind.inner) | None
    if isinstance(kind, ListType):
        return list[_python_type(kind.inner)]  # type: ignore[misc]
    return Decimal if isinstance(kind, DecimalType) else PYTHON[kind.text]
