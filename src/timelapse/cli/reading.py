"""How rows of files are read: options that `ingest` and `live` share. Most count for all event types, or for one."""

from __future__ import annotations

from typing import Annotated, Any

import typer

PerType = list[str] | None
"""A value for all types, `TYPE=VALUE` for one."""


def each(metavar: str, text: str, *names: str) -> Any:
    """An option that may be given for each event type."""
    return typer.Option(
        *names, metavar=metavar, help=f"{text} May start with TYPE= to apply to one type, and repeat."
    )


Ts = Annotated[PerType, each("COLUMN", "Column of the event time, by default ts.")]
Unit = Annotated[PerType, each("s|ms|us|ns", "Unit of numeric times, by default us.")]
TimeFormat = Annotated[PerType, each("FORMAT", "strptime format of times in text.")]
Year = Annotated[PerType, each("YEAR", "Year of times that have none.")]
Tz = Annotated[PerType, each("ZONE", "Zone of times without one: none is guessed.")]
Sep = Annotated[PerType, each("TEXT", r"What separates columns, by default a comma; \t is a tab.")]
NoHeader = Annotated[bool, typer.Option("--no-header", help="CSV files have no header; needs --columns.")]
Columns = Annotated[PerType, each("A,B,C", "Names of the columns of CSV files.")]
Mapping = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="TYPE.FIELD=COLUMN",
        help="The column of a field that is named otherwise. May repeat.",
    ),
]
Regex = Annotated[
    PerType, each("PATTERN", "Text files: named groups are the columns, searched in each line.")
]
Null = Annotated[PerType, each("TEXT", "The text of a missing value, by default empty.")]
