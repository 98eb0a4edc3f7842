"""The event types of a live run: as it began, and as later versions of its program declare them.

Types and fields are added, never removed: rows of every version stand in one journal. Rows from before a field was added have
none in it, so it has to be optional; a field that a later version leaves out is optional from then on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from timelapse.engine.job import schema_of
from timelapse.errors import Place, RunError
from timelapse.model.events import Field
from timelapse.model.types import OptionalType
from timelapse.program.program import Program, spec_of
from timelapse.results.records import record_types
from timelapse.segments.types import EventType, readable_as
from timelapse.streaming import chain
from timelapse.streaming.format import Epoch, LiveRun
from timelapse.streaming.place import RunPlace

Types = tuple[EventType, ...]


class Unfit(Exception):
    """Event types that the journal's rows do not fit: what differs, and what to do."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


def types_of(place: RunPlace, run: LiveRun, last: Epoch | None) -> Types:
    """The event types of a live run at the end of an epoch, in the order in which they order rows of the same time."""
    found, number = run.types, 0 if last is None else last.last_change
    while number:
        change = chain.read_about(place, number).change
        assert change is not None
        if change.types:
            found = change.types
            break
        number = change.before
    return tuple(EventType.parse(name, fields) for name, fields in found)


def grown(known: Sequence[EventType], given: Sequence[EventType]) -> Types:
    """A run's types, with those and with the fields that a version has besides, behind them. Raises Unfit."""
    now = {kind.name: kind for kind in given}
    there = {kind.name for kind in known}
    same = [_grown(kind, now[kind.name]) if kind.name in now else kind for kind in known]
    return (*same, *(kind for kind in given if kind.name not in there))


def _grown(known: EventType, given: EventType) -> EventType:
    fields: list[Field] = []
    for field in known.fields:
        wanted = given.field(field.name)
        if wanted is None:
            kind = field.type if isinstance(field.type, OptionalType) else OptionalType(field.type)
            fields.append(Field(field.name, kind))
        elif readable_as(field.type, wanted.type):
            fields.append(Field(field.name, wanted.type))
        else:
            raise Unfit(
                f"{known.name}.{field.name} was {field.type.text} and is {wanted.type.text}",
                "give the field another name: the journal's rows keep what they have",
            )
    had = {field.name for field in known.fields}
    for field in given.fields:
        if field.name not in had:
            if not isinstance(field.type, OptionalType):
                raise Unfit(
                    f"{known.name}.{field.name} is new, and the journal's rows have none",
                    f"make it optional: {field.name}: {field.type.text} | None",
                )
            fields.append(field)
    return EventType(known.name, tuple(fields))


def differences(
    known: Sequence[EventType], now: Sequence[EventType], given: Sequence[EventType]
) -> list[str]:
    """What a version changes about the types, for people. `given`: the types as it declares them."""
    before = {kind.name: kind for kind in known}
    own = {kind.name: kind for kind in given}
    done: list[str] = []
    for kind in now:
        had = before.get(kind.name)
        if had is None:
            done.append(f"event type {kind.name} is added")
            continue
        for field in kind.fields:
            old = had.field(field.name)
            if old is None:
                done.append(f"{kind.name} has the field {field.name} besides: None in rows from before")
            elif kind.name in own and own[kind.name].field(field.name) is None:
                done.append(f"{kind.name} no longer has the field {field.name}: None in rows from now on")
            elif old.type != field.type:
                done.append(f"{kind.name}.{field.name} was {old.type.text} and is {field.type.text}")
    return done


def fitted(kind: EventType, table: pa.Table) -> pa.Table:
    """Rows with the fields of a type as it is declared now, whichever version they are of; other columns stay where they are.

    Whether a column may be null is not said where that changes something.
    """
    others = [
        n for n in table.column_names if n in ("seq", "ts") or n.startswith("@")
    ]  # no field is called so
    # Places stand behind the fields in the journal, and before them in rows on their way.
    first = [n for n in others if not n.startswith("@")] if others[:1] == ["seq"] else others
    names = [*first, *kind.schema.names, *others[len(first) :]]
    if names == table.column_names:
        return table
    had = set(table.column_names)
    columns = [
        table.column(n) if n in had else pa.nulls(table.num_rows, kind.schema.field(n).type) for n in names
    ]
    return pa.table(columns, names)


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Rows that several versions of a program have put out, or taken, in one table: what a version does not have is null."""
    schemas = [table.schema for table in tables]
    if all(schema.equals(schemas[0]) for schema in schemas[1:]):
        return pa.concat_tables(tables)
    everywhere = set.intersection(*(set(schema.names) for schema in schemas))
    relaxed = [
        table.cast(pa.schema([f if f.name in everywhere else f.with_nullable(True) for f in table.schema]))
        for table in tables
    ]
    return pa.concat_tables(relaxed, promote_options="default")


Records = Mapping[str, Mapping[str, pa.DataType]]
"""The fields of records, by the records' names."""


def put_out(place: RunPlace, last: Epoch) -> Records:
    """What a run has put out up to an epoch, whichever version of its program did."""
    found: dict[str, dict[str, pa.DataType]] = {}
    about: Epoch | None = last
    while about is not None:
        for name, data in about.schemas.items():
            schema = schema_of(data)
            found.setdefault(name, {}).update({field.name: field.type for field in schema})
        about = chain.read_about(place, about.last_change - 1) if about.last_change > 1 else None
    return found


def declared_records(program: Program) -> Records:
    """The records that a program's code names. It may emit others, which are known once it does."""
    return {
        cls.__name__: {field.name: field.type.arrow for field in cls.__fields__}
        for cls in record_types(program)
    }


def refuse_other(program: Program, had: Records, now: Records) -> None:
    """Raise RunError (TL847) where a field of a record has another type now: outputs of all versions stand in one table."""
    for name, fields in now.items():
        for field, kind in fields.items():
            before = had.get(name, {}).get(field, kind)
            if before != kind:
                raise unsafe(
                    program,
                    f"{name}.{field} was {before} and is {kind}",
                    "give the record another name: outputs of all versions stand in one table",
                )


def another(program: Program, where: str) -> RunError:
    """What is there is another program's."""
    return RunError(
        f"the live run is of another program, version or parameters than this {spec_of(program).name}", place=Place(where), code="TL943",
        hint="run the same code and parameters, say that this is the next version with evolve=True (--evolve), or write to another directory",
    )  # fmt: skip


def unsafe(program: Program, what: str, hint: str) -> RunError:
    """A change of the program that is refused."""
    return RunError(
        f"a live run cannot go on with this {spec_of(program).name}: {what}",
        place=Place(),
        hint=hint,
        code="TL847",
    )
