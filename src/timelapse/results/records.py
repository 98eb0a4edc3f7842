"""The record types of a program, and what a run says of each."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator, Mapping

import pyarrow as pa

from timelapse.engine.job import schema_bytes
from timelapse.kernels.base import output_schema
from timelapse.model.events import Record
from timelapse.program.program import Program, spec_of
from timelapse.results.manifest import RecordEntry
from timelapse.tables.rowhash import ZERO, HashSum


def record_types(program: Program) -> list[type[Record]]:
    """The record types that the program's methods name: they are listed with 0 rows when nothing was emitted."""
    found: dict[str, type[Record]] = {}
    module_globals = [h.function.__globals__ for h in spec_of(program).handlers]
    names = sorted({name for method in _methods(type(program)) for name in method.__code__.co_names})
    for scope in module_globals:
        for name in names:
            value = scope.get(name)
            if isinstance(value, type) and issubclass(value, Record) and value is not Record:
                found.setdefault(value.__name__, value)
    return list(found.values())


def nameable_records(program: Program) -> list[type[Record]]:
    """Every record type in the modules of a program's handlers, first those of `record_types`: no output is of another
    type, unless code that cannot be seen makes one."""
    found = {c.__name__: c for c in record_types(program)}
    for handler in spec_of(program).handlers:
        for value in handler.function.__globals__.values():
            if isinstance(value, type) and issubclass(value, Record) and value is not Record:
                found.setdefault(value.__name__, value)
    return list(found.values())


def _methods(cls: type[Program]) -> Iterator[types.FunctionType]:
    """The methods that can run: an overridden one only where `super()` may reach it."""
    for name in dict.fromkeys(name for base in cls.__mro__ for name in base.__dict__):
        for member in (base.__dict__[name] for base in cls.__mro__ if name in base.__dict__):
            if not inspect.isfunction(member):
                break
            yield member
            if "super" not in member.__code__.co_names:
                break


def record_entries(
    program: Program, outputs: Mapping[str, HashSum], schemas: Mapping[str, pa.Schema]
) -> list[RecordEntry]:
    """What a manifest says of the record types that were put out, and of those that the program's code names."""
    named = {cls.__name__: cls for cls in record_types(program)}
    known = {**{name: output_schema(cls) for name, cls in named.items()}, **schemas}
    return [
        RecordEntry(
            name,
            found.rows,
            found.hex,
            schema_bytes(known[name]),
            named[name].__key__ if name in named else (),
        )
        for name in sorted(known)
        for found in [outputs.get(name, ZERO)]
    ]
