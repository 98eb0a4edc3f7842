"""How CSV files are laid out: the columns that their headers name, and what shows that they are laid out otherwise than was said.

Only the first lines of a file are looked at. What is wrong with all of them, and right with another separator or quote, is an error that
names these; what is wrong with some rows is seen when they are read.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

import pyarrow as pa

from timelapse.errors import IngestError, Place
from timelapse.ingest import lines as text_lines
from timelapse.ingest.convert import convert
from timelapse.ingest.files import SourceFile
from timelapse.ingest.plan import COMPUTED, Plan
from timelapse.ingest.records import texts_of
from timelapse.ingest.source import Source
from timelapse.ingest.texts import cells_of
from timelapse.ingest.times import A_NUMBER
from timelapse.model.types import TIME, ValueType

_SEPARATORS = {";": "';'", "\t": "tab", "|": "'|'", ",": "','", " ": "' '"}
_QUOTES = ('"', "'", "`")
_SAMPLE = 100
"""So many rows of a file are looked at, at most."""
_NEARLY = 0.9
"""The share of them that another layout must fit."""


def with_columns(plan: Plan, source: Source, files: Sequence[SourceFile]) -> list[SourceFile]:
    """CSV files with their columns: as given, or as their headers say. Raises IngestError (TL413)."""
    if source.columns is None and not source.header:
        raise IngestError(
            "CSV files without a header need columns= (--columns)", place=Place(files[0].path), code="TL411",
            hint="name them in the order of the file: ts, sender, text",
        )  # fmt: skip
    given = None if source.columns is None else tuple(source.columns)
    known: dict[str, tuple[str, ...]] = {}
    found: list[SourceFile] = []
    for file in files:
        looked = text_lines.first_lines(file, _SAMPLE + 1)
        lines = [line.decode("utf-8", "replace") for line in texts_of(looked, plan)]
        first = lines[0] if lines else ""
        rows = [line for line in (lines[1:] if source.header else lines) if line]
        names = given
        if names is not None:
            if source.header:
                _check_is_header(plan, file, names, first)
        elif not first:
            found.append(file)  # an empty file has no rows either
            continue
        else:
            names = known[first] = known.get(first) or _header(plan, file, first)
        _check_rows(plan, file, names, rows, given=given is not None)
        found.append(replace(file, columns=names))
    return found


def _header(plan: Plan, file: SourceFile, line: str) -> tuple[str, ...]:
    """The columns that a header names."""
    try:
        names = cells_of(line, plan.sep, plan.quote)
    except csv.Error as error:
        raise IngestError(
            f"its header cannot be read: {error}", place=Place(file.path, 1), code="TL413",
            hint="check sep= (--sep) and quote= (--quote)",
        ) from None  # fmt: skip
    needed = set(plan.needed)
    if len(names) == 1 and names[0] not in needed:
        _check_separator(plan, file, line)
    if plan.applied is None and not _has_time(plan, names):
        _check_quote_of_header(plan, file, names)
        if value := next((name for name in names if _is_value(name)), None):
            raise IngestError(
                f"its first line seems to be a row, not a header: {value!r} is no name of a column", place=Place(file.path, 1), code="TL413",
                hint=f"header=False (--no-header) and columns= (--columns) with the {len(names)} names in the order of the file",
            )  # fmt: skip
    if len(set(names)) < len(names):
        raise IngestError(
            f"two columns have the same name: {line}", place=Place(file.path, 1), code="TL413",
            hint="is this a header? header=False (--no-header) with columns= (--columns) names them",
        )  # fmt: skip
    return tuple(names)


def _has_time(plan: Plan, names: Sequence[str]) -> bool:
    """Whether a header names the column of the time; where none is needed, any column that is."""
    times = [c for c in plan.choices[0] if c[:1] != COMPUTED and c not in plan.partitions] or plan.needed
    return not times or not set(times).isdisjoint(names)


def _is_value(text: str) -> bool:
    """Whether a cell is a number or a time, and so no name of a column."""
    text = text.strip()
    if A_NUMBER.match(text):
        return True
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _check_separator(plan: Plan, file: SourceFile, line: str) -> None:
    """Raise IngestError (TL413) where a header is one column, and another separator makes several."""
    for sep, shown in _SEPARATORS.items():
        names = line.split(sep)
        if sep == plan.sep or len(names) < 2 or (sep == " " and not set(names) & set(plan.needed)):
            continue
        raise IngestError(
            f"its lines are not separated by {plan.sep!r}: the first is one column, and {len(names)} with {shown}", place=Place(file.path, 1),
            code="TL413", hint=_say_sep(sep),
        )  # fmt: skip


def _check_quote_of_header(plan: Plan, file: SourceFile, names: Sequence[str]) -> None:
    """Raise IngestError (TL413) where the names of a header are the needed ones, but for a quote around them."""
    for quote in _QUOTES:
        if set(plan.needed) & {n[1:-1] for n in names if _is_quoted(n, quote)}:
            raise IngestError(
                f"its cells are quoted by {quote}: a column is named {next(n for n in names if _is_quoted(n, quote))}", place=Place(file.path, 1),
                code="TL413", hint=_say_quote(quote),
            )  # fmt: skip


def _check_is_header(plan: Plan, file: SourceFile, names: Sequence[str], line: str) -> None:
    """Raise IngestError (TL413) for a first line that is left out as a header and is a row."""
    try:
        cells = cells_of(line, plan.sep, plan.quote)
    except csv.Error:
        return
    if len(cells) != len(names):
        return
    there = 0
    for n, kind in _typed(plan, names).items():
        values, bad = convert(names[n], pa.array([cells[n]]), kind, plan.times, texts=True, null=plan.null)
        if bad:
            return
        there += values.null_count == 0
    if there:
        raise IngestError(
            "its first line is a row, and would be left out as a header", place=Place(file.path, 1), code="TL413",
            hint="header=False (--no-header), as columns= (--columns) names the columns",
        )  # fmt: skip


def _check_rows(
    plan: Plan, file: SourceFile, names: Sequence[str], rows: Sequence[str], *, given: bool
) -> None:
    """Raise IngestError (TL413) where no row fits its columns, and nearly all would with another separator or quote."""
    typed = _typed(plan, names)

    def fits(row: str, sep: str, quote: str | None) -> bool:
        try:
            cells = cells_of(row, sep, quote)
        except csv.Error:
            return False
        return len(cells) == len(names) and not any(_is_quoted(cells[n], q) for n in typed for q in _QUOTES)

    if not rows or len(names) < 2 or any(fits(row, plan.sep, plan.quote) for row in rows):
        return
    for sep, quote in _others(plan, rows):
        if sum(fits(row, sep, quote) for row in rows) < _NEARLY * len(rows):
            continue
        what, hint = [], []
        if sep != plan.sep:
            what.append(
                f"separated by {_SEPARATORS[sep]}, not by {plan.sep!r}{'' if given else ' as the header is'}"
            )
            hint.append(_say_sep(sep))
        if quote != plan.quote:
            what.append(f"quoted by {quote}" if quote else f"not quoted by {plan.quote}")
            hint.append(_say_quote(quote))
        if sep != plan.sep and not given:
            told = ",".join(names) if len(names) <= 12 else "..."
            hint.append(f"columns= (--columns {told}), which then stand for the header")
        raise IngestError(
            f"its rows are {' and '.join(what)}: none has {len(names)} columns that can be read, and with these nearly all have",
            place=Place(file.path, 2 if plan.header else 1), code="TL413", hint=" and ".join(hint),
        )  # fmt: skip


def _others(plan: Plan, rows: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Other layouts, those with one difference first."""
    seps = [sep for sep in _SEPARATORS if sep != plan.sep]
    quotes = [quote for quote in (*_QUOTES, None) if quote != plan.quote]
    quotes = [quote for quote in quotes if quote is None or any(quote in row for row in rows)]
    yield from ((sep, plan.quote) for sep in seps)
    if len(plan.sep) == 1:
        yield from ((plan.sep, quote) for quote in quotes if quote != plan.sep)
    yield from ((sep, quote) for sep in seps for quote in quotes)


def _typed(plan: Plan, names: Sequence[str]) -> dict[int, ValueType]:
    """The places of columns that are no texts to whoever reads them, with a type that they are read as: numbers, times, truth values."""
    if plan.applied is not None:
        return {}
    own = [(plan.ts, TIME), *zip(plan.columns, (f.type for f in plan.kind.fields), strict=True)]
    as_texts = {c for c, kind in own if kind.text.removesuffix(" | None") in ("str", "bytes")}
    kinds = {c: kind for c, kind in own if c not in as_texts and c not in plan.inputs}
    return {n: kinds[name] for n, name in enumerate(names) if name in kinds}


def _is_quoted(text: str, quote: str) -> bool:
    return len(text) > 1 and text[0] == text[-1] == quote


def _say_sep(sep: str) -> str:
    said = {"\t": "\\t"}.get(sep, sep)
    return f'sep="{said}" (--sep {_SEPARATORS[sep]})'


def _say_quote(quote: str | None) -> str:
    if quote is None:
        return "quote=None (--quote none)"
    return "quote='\"' (--quote '\"')" if quote == '"' else f'quote="{quote}" (--quote "{quote}")'
