"""How one source is read: which columns make which fields, in what form times are, what is put aside."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from timelapse.errors import IngestError, Place, meant
from timelapse.ingest.applied import Applied
from timelapse.ingest.files import Format
from timelapse.ingest.objects import MANY, JsonObject
from timelapse.ingest.private import Private, check_names
from timelapse.ingest.source import Source
from timelapse.ingest.times import Times
from timelapse.model.events import Field
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
from timelapse.moments import micros
from timelapse.segments.types import EventType

if TYPE_CHECKING:
    from timelapse.ingest.expressions import Expression

PYTHON: dict[str, Any] = {
    INT.text: int, FLOAT.text: float, BOOL.text: bool, STR.text: str, BYTES.text: bytes, TIME.text: int | float | str,
}  # fmt: skip
"""The Python type of each scalar in JSON."""
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""What Hive, and Spark after it, calls the folder of rows without a value."""


COMPUTED = "\0"
"""Before the name of a column that is computed: no column of a source has such a name."""


def expression(text: str, what: str) -> Expression:
    """As ingest/expressions.py, which takes a tenth of a second to load: only where there are any. Raises IngestError (TL411)."""
    from timelapse.ingest import expressions

    return expressions.expression(text, what)


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
    multiline: bool = False
    """Whether quoted cells of CSV may go on over several lines."""
    from_start: bool = False
    """Whether the first bound is the time at which the log starts."""
    window: tuple[int | None, int | None] = (None, None)
    """Rows before the first time, or not before the second, are not this log's."""
    mapped: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    """JSON: columns that are values inside nested objects: `user.card`, or of each object in a list: `items[].sku`."""
    partitions: tuple[str, ...] = ()
    """Columns that the folders of files name: `dt=2026-10-01`."""
    constants: tuple[tuple[str, str], ...] = ()
    """Their values for the file that is read, as texts."""
    choices: tuple[tuple[str, ...], ...] = ()
    """The columns that may be the time, and those that may be each field, the first choice first."""
    computed: tuple[tuple[str, str], ...] = ()
    """Fields (or `ts`) that are computed, with their expressions."""
    only: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Columns with the values that rows of this source have."""
    at: int | None = None
    """The time of all rows."""
    arrival: str | None = None
    by_arrival: bool = False
    private: Private | None = None
    applied: Applied | None = None
    """The function that rows go through before fields are found in them."""
    codes: bool = False
    """Whether texts of CSV that repeat may come as codes of a dictionary."""

    @classmethod
    def of(
        cls, kind: EventType, source: Source, format_: Format | None, names: Sequence[str], floor: int | None
    ) -> Plan:
        """Raises IngestError for options that name what the type has not."""
        for name in source.fields:
            if kind.field(name) is None:
                raise IngestError(
                    f"{kind.name} has no field {name!r}, which fields= (--map) maps", place=Place(what=kind.name), code="TL411",
                    hint=f"{meant(name, [f.name for f in kind.fields])}fields: {', '.join(f.name for f in kind.fields)}",
                )  # fmt: skip
        check_names(kind, "compute=", [name for name in source.compute if name != "ts"])
        check_names(kind, "unique= (--unique)", [name for name in source.unique if name != "ts"])
        for name, text in source.compute.items():
            expression(text, f"compute: {name} of {kind.name}")
        fields_ = [
            (COMPUTED + f.name,) if f.name in source.compute else _several(source.fields.get(f.name, f.name))
            for f in kind.fields
        ]
        choices = (
            (COMPUTED + "ts",) if source.at is not None or "ts" in source.compute else source.times,
            *fields_,
        )
        sep = source.sep.replace("\\t", "\t")
        return cls(
            kind=kind, format=format_, names=tuple(names), ts=choices[0][0], columns=tuple(c[0] for c in choices[1:]),
            times=Times(source.unit, source.time_format, source.year, source.tz or "UTC", source.tz is not None),
            sep=sep, quote=source.quote if len(sep) == 1 else None,
            header=source.header, regex=source.regex, skip_unmatched=source.unmatched == "skip",
            null=source.null, floor=floor, bounds=source.bounds, from_start=source.from_start, multiline=source.multiline, window=(None, None) if source.at is not None else source.window,
            mapped=tuple(dict.fromkeys(c for said in source.fields.values() for c in _several(said))),
            choices=choices, computed=tuple(source.compute.items()),
            only=tuple((column, _several(values)) for column, values in source.only.items()),
            at=None if source.at is None else micros(source.at, "at="), arrival=source.arrival,
            by_arrival=source.order == "arrival", private=Private.of(kind, source), applied=source.applied,
        ).reading(tuple(names))  # fmt: skip

    def reading(self, have: tuple[str, ...]) -> Plan:
        """The plan for a file with these columns: of several that may be a field, the first that is there."""
        if all(len(choice) == 1 for choice in self.choices) or not have:
            return self
        chosen = [next((c for c in choice if c in have), choice[0]) for choice in self.choices]
        return replace(self, ts=chosen[0], columns=tuple(chosen[1:]))

    @property
    def read_fields(self) -> list[tuple[Field, str]]:
        """Fields with the columns that they are read from as they are: none where a function is between."""
        return [] if self.applied is not None else list(zip(self.kind.fields, self.columns, strict=True))

    @property
    def needed(self) -> list[str]:
        """Source columns that are read, each once."""
        if self.format == "json":  # any object may have any of them
            wanted = [c for choice in self.choices for c in choice]
        else:
            wanted = [self.ts, *self.columns]
        return list(dict.fromkeys([c for c in wanted if c[:1] != COMPUTED] + self.inputs))

    @property
    def every_needed(self) -> set[str]:
        """The source columns that may be read: of a field with several all of them."""
        return {c for choice in self.choices for c in choice} | set(self.inputs)

    @property
    def inputs(self) -> list[str]:
        """Columns that are read for what is not a field: expressions, which rows there are, the time of arrival."""
        found = [column for name, text in self.computed for column in expression(text, name).columns]
        return [
            *found,
            *(column for column, _ in self.only),
            *([] if self.arrival is None else [self.arrival]),
        ]

    def check_columns(self, have: Sequence[str], place: str) -> None:
        """Raises IngestError when `have` lacks a column of a field that must not be null, or of the time.

        `have` may be the columns of one file of several; `check_mapped` looks at those of all. What a function returns is seen when it is called.
        """
        if self.applied is not None:
            return
        needed = [
            self.choices[0],
            *(c for c, f in zip(self.choices[1:], self.kind.fields, strict=True) if not f.type.nullable),
        ]
        needed += [(column,) for column in self.inputs]
        for choice in needed:
            if choice[0][:1] == COMPUTED or set(choice) & set(have):
                continue
            is_time = choice == self.choices[0]
            option = "ts= (--ts)" if is_time else "fields= (--map)"
            own = (f.name for c, f in zip(self.choices[1:], self.kind.fields, strict=True) if c == choice)
            renamed = f'["{choice[0]}", "ITS_OTHER_NAME"]'
            key = f"ts = {renamed}" if is_time else f"fields = {{ {next(own, choice[0])} = {renamed} }}"
            raise IngestError(
                f"{self.kind.name} needs the column {_either(choice)}, which is not there",
                place=Place(place), code="TL413",
                hint=f"{meant(choice[0], have)}columns: {', '.join(map(repr, have)) or 'none'}; map another with {option}; if it was renamed between files, {key} in log.toml",
            )  # fmt: skip

    def check_mapped(self, have: Collection[str], place: str) -> None:
        """Raises IngestError when a column that the user has named is nowhere in the source: a slip of the pen."""
        if self.applied is not None:
            return
        for own, choice in zip(self.kind.fields, self.choices[1:], strict=True):
            if set(choice) & set(self.mapped) and not set(choice) & set(have):
                raise IngestError(
                    f"{self.kind.name}.{own.name} is mapped to the column {_either(choice)}, which is not there",
                    place=Place(place), code="TL413",
                    hint=f"{meant(choice[0], have)}columns: {', '.join(map(repr, have)) or 'none'}; "
                    "an optional field that is not mapped may be without a column",
                )  # fmt: skip

    def check_folders(self, folders: Collection[str], place: str) -> None:
        """Raises IngestError for a private field that the names of folders tell: the log keeps the paths of its files."""
        if self.private is None:
            return
        computed = dict(self.computed)
        for own, choice in zip(self.kind.fields, self.choices[1:], strict=True):
            columns = expression(computed[own.name], own.name).columns if own.name in computed else choice
            told = [c for c in columns if c in folders]
            if own.name in self.private.names and told:
                raise IngestError(
                    f"{own.name} is private, and the names of folders tell it ({told[0]}=...): the log keeps the paths of its files",
                    place=Place(place), code="TL411", hint="give the files other paths, with it as a column, or leave it out of drop, hash and truncate",
                )  # fmt: skip

    def without_column(self, have: Collection[str]) -> list[str]:
        """The fields that no column of `have` feeds: they are None in every event."""
        return [
            f.name for f, choice in zip(self.kind.fields, self.choices[1:], strict=True)
            if choice[0][:1] != COMPUTED and not set(choice) & set(have)
        ]  # fmt: skip

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.regex or "")

    @cached_property
    def decoder(self) -> msgspec.json.Decoder[Any]:
        """Reads one JSON object as a struct with the needed columns as c0, c1, ..."""
        given = {name for name, _ in self.constants}
        wanted: dict[str, list[ValueType]] = {}
        kinds = [TIME, *(f.type for f in self.kind.fields)]
        for kind, choice in zip(kinds, self.choices, strict=True):
            for column in choice:
                if column not in given and column[:1] != COMPUTED:
                    wanted.setdefault(column, []).append(
                        kind if len(choice) == 1 else OptionalType(kind) if not kind.nullable else kind
                    )
        if self.arrival is not None:
            wanted.setdefault(self.arrival, []).append(TIME)
        loose = {column for column in self.inputs if column != self.arrival}
        whole = JsonObject()
        for column in dict.fromkeys([*wanted, *(c for c in self.inputs if c not in given)]):
            own = wanted.get(column, [])
            # a column that is read for several ends is read loosely, and checked for each
            python = _python_type(own[0]) if len(own) == 1 and column not in loose else Any
            whole.put(self.path_of(column), python, optional=not own or own[0].nullable)
        return msgspec.json.Decoder(whole.struct())

    @cached_property
    def telling(self) -> tuple[msgspec.json.Decoder[Any], list[tuple[list[str], tuple[str, ...]]]] | None:
        """JSON: what reads of an object whether it is this source's: others need not have the fields. None: all are."""
        given = {name for name, _ in self.constants}
        wanted = [(self.path_of(c), values) for c, values in self.only if c not in given and MANY not in c]
        if not wanted:
            return None
        whole = JsonObject()
        for path, _ in wanted:
            whole.put(path, Any, optional=True)
        return msgspec.json.Decoder(whole.struct()), wanted

    def __getstate__(self) -> dict[str, Any]:
        """Without what is computed from the fields: decoders do not travel."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def within(self, partition: Mapping[str, str], have: tuple[str, ...] | None = None) -> Plan:
        """The plan for a file in folders that name these columns; `have`: the columns of the file, where they are known."""
        constants = tuple((name, partition[name]) for name in self.partitions)
        names = self.names if have is None else have
        if not constants and names == self.names:
            return self
        if (constants, names) not in self._within:
            there = (*names, *self.partitions)
            made = replace(self, constants=constants, names=names)
            self._within[constants, names] = made if have is None else made.reading(there)
        return self._within[constants, names]

    @cached_property
    def _within(self) -> dict[tuple[tuple[tuple[str, str], ...], tuple[str, ...]], Plan]:
        return {}

    @cached_property
    def numeric(self) -> dict[str, pa.DataType]:
        """The columns of CSV that are nothing but numbers to all who read them, with Arrow's type: these may be read as such.

        In a block without hexadecimal numbers Arrow reads them as `convert` does, or refuses the block, which then is read as texts.
        """
        if self.only or self.computed or self.private is not None or self.null:
            return {}
        users: dict[str, list[ValueType]] = {}
        for column, kind in zip(self.columns, self.kind.fields, strict=True):
            users.setdefault(column, []).append(kind.type)
        for column in (self.ts, *([] if self.arrival is None else [self.arrival])):
            users.setdefault(column, []).append(TIME)
        found: dict[str, pa.DataType] = {}
        for column, kinds in users.items():
            texts = {kind.text for kind in kinds}
            if column not in self.names or (TIME.text in texts and self.times.time_format is not None):
                continue
            if texts <= {"int", TIME.text}:
                found[column] = pa.int64()
            elif texts == {"float"}:
                found[column] = pa.float64()
        return found

    @cached_property
    def coded(self) -> dict[str, bool]:
        """The columns of CSV that are nothing but texts to all who read them, and whether they are read as codes: not where texts hardly repeat."""
        if not self.codes or self.computed or self.private is not None:
            return {}
        others = {self.ts, *self.inputs}
        others.update(
            c
            for c, f in zip(self.columns, self.kind.fields, strict=True)
            if f.type.text.removesuffix(" | None") != "str"
        )
        return {c: True for c in self.columns if c in self.names and c not in others}

    @cached_property
    def tried(self) -> dict[tuple[bool, bool], list[bool]]:
        """Of blocks that were split in each way, whether they could be: with columns as numbers, without looking for quotes."""
        return {}

    def worth(self, way: tuple[bool, bool]) -> bool:
        """Whether a way is worth trying: not where none of the last blocks could be split so."""
        last = self.tried.get(way, [])[-8:]
        return len(last) < 2 or any(last)

    def path_of(self, column: str) -> list[str]:
        """The keys under which a JSON column stands, from the outermost object inwards."""
        return column.split(".") if column in self.paths else [column]


def _several(said: str | Sequence[str]) -> tuple[str, ...]:
    return (said,) if isinstance(said, str) else tuple(said)


def _either(columns: Sequence[str]) -> str:
    return " or ".join(map(repr, columns))


def _python_type(kind: ValueType) -> Any:
    if isinstance(kind, OptionalType):
        return _python_type(kind.inner) | None
    if isinstance(kind, ListType):
        return list[_python_type(kind.inner)]  # type: ignore[misc]
    return Decimal if isinstance(kind, DecimalType) else PYTHON[kind.text]
