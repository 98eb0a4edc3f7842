"""The record types of a program."""

from __future__ import annotations

import inspect

from timelapse.model.events import Record
from timelapse.model.program import Program, spec_of


def record_types(program: Program) -> list[type[Record]]:
    """The record types that a program's code names: they are listed with 0 rows when nothing was emitted."""
    found: dict[str, type[Record]] = {}
    module_globals = [h.function.__globals__ for h in spec_of(program).handlers]
    codes = [
        member.__code__
        for base in type(program).__mro__
        for member in base.__dict__.values()
        if inspect.isfunction(member)
    ]
    names = sorted({name for code in codes for name in code.co_names})
    for scope in module_globals:
        for name in names:
            value = scope.get(name)
            if isinstance(value, type) and issubclass(value, Record) and value is not Record:
                found.setdefault(value.__name__, value)
    return list(found.values())
