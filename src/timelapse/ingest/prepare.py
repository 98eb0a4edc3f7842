"""Looking at the files of an ingest before it starts, and reading them: columns, sizes, line numbers."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from timelapse.errors import IngestError, Place, meant
from timelapse.ingest import lines as text_lines
from timelapse.ingest.parse import Batch, parse_lines, parse_table
from timelapse.ingest.plan import Plan
from timelapse.ingest.source import Source, SourceFile, format_of, list_files
from timelapse.log.types import EventType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BIN_BYTES = 16 << 20
READ_ROWS = 32 * 1024
PACKED_FACTOR = 8
"""How much larger a compressed file is taken to be when it is unpacked."""


@dataclass(frozen=True)
class Task:
    """What one task reads: pieces of text files, or row groups of a Parquet file (with its first row)."""

    source: int
    pieces: tuple[text_lines.Piece, ...] = ()
    groups: tuple[tuple[SourceFile, int, int, int], ...] = ()
    """(file, its number, row group, row number of the group's first row)"""


@dataclass
class Prepared:
    """A source, looked at: its plan, its tasks (files) or DataFrame, and an estimate of its rows."""

    plan: Plan
    source: Source
    tasks: list[Task]
    rows: int
    files: list[SourceFile]
    frame: DataFrame | None = None
    table: pa.Table | None = None
    """A table in memory, of the columns that are needed, in the order of its rows."""
    without: dict[str, int] = field(default_factory=dict)
    """Optional fields for which files have no column, with the number of those files (JSON lines: found while reading)."""


def types_of(prepared: Sequence[Prepared]) -> list[EventType]:
    """The types of sources, in order: several sources of one type stand one after the other."""
    return [
        one.plan.kind
        for number, one in enumerate(prepared)
        if not number or prepared[number - 1].plan.kind != one.plan.kind
    ]


def prepare_files(number: int, kind: EventType, source: Source, floor: int | None, base: int) -> Prepared:
    """Look at the files of source `number`; `base` is the number of its first file. Line numbers are not known yet.

    Raises IngestError for what can be seen to be wrong.
    """
    files = list_files(source.paths)
    format_ = format_of(source, files)
    if source.order_by:
        raise IngestError(
            "order_by= is for DataFrames: rows of files are ordered by (path, row)", place=Place(files[0].path),
            code="TL411", hint="leave it out, or read the files with spark.read and give the DataFrame",
        )  # fmt: skip
    if format_ == "parquet":
        return _prepare_parquet(number, kind, source, files, floor, base)
    plan = Plan.of(kind, source, format_, (), floor)
    names: Sequence[str] = plan.needed
    if format_ == "csv":
        names = _csv_names(plan, source, files)
    elif format_ == "text":
        if source.regex is None:
            raise IngestError(
                "text files need regex= (--regex), with a named group for the time and for each field",
                place=Place(files[0].path), code="TL411", hint=r"for example (?P<ts>\S+) (?P<user>\w+)",
            )  # fmt: skip
        names = list(plan.pattern.groupindex)
    without: dict[str, int] = {}
    folders = _folders(plan, names if format_ != "json" else (), files)
    if format_ != "json":
        plan.check_columns([*names, *folders], files[0].path)
        plan.check_mapped([*names, *folders], files[0].path)
        without = dict.fromkeys(plan.without_column([*names, *folders]), len(files))
    plan = Plan.of(kind, source, format_, names, floor)
    if format_ == "json":
        keys = _first_keys(files)
        plan = replace(plan, paths=tuple(c for c in plan.needed if "." in c and c not in keys))
        _ = plan.decoder  # what cannot be read is an error now
    plan = replace(plan, partitions=tuple(folders))
    pieces = [p for n, file in enumerate(files) for p in text_lines.pieces(file, base + n)]
    tasks = [Task(number, tuple(group)) for group in _bins(pieces)]
    size = sum(f.size * (PACKED_FACTOR if f.packed else 1) for f in files)
    return Prepared(plan, source, tasks, size // 50, files, without=without)


def _folders(plan: Plan, have: Sequence[str], files: Sequence[SourceFile]) -> list[str]:
    """The needed columns that files lack and the folders of all of them name: `dt=2026-10-01`."""
    named = [set(file.partition) for file in files]
    return [c for c in plan.needed if c not in have and all(c in one for one in named)]


def _first_keys(files: Sequence[SourceFile]) -> set[str]:
    """The keys of the first JSON object: a column with dots is one of them, or else a path into nested objects."""
    for file in files:
        line = text_lines.header_line(file)
        if line.strip():
            try:
                found = msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError):
                return set()  # it is a bad row
            return set(found) if isinstance(found, dict) else set()
    return set()


def prepare_table(number: int, kind: EventType, source: Source, floor: int | None) -> Prepared:
    """Look at a table in memory; its rows count as those of one file that is named after it. Raises IngestError."""
    table = source.table()
    plan = Plan.of(kind, source, None, (), floor)
    have, what = table.column_names, f"{type(source.data).__name__} for {kind.name}"
    if len(set(have)) < len(have):
        twice = next(name for name, n in Counter(have).items() if n > 1)
        raise IngestError(
            f"two columns are named {twice!r}", place=Place(what=what), code="TL413", hint="rename one"
        )
    plan.check_columns(have, what)
    plan.check_mapped(have, what)
    for column in source.order_by:
        if column not in have:
            raise IngestError(
                f"order_by: there is no column {column!r}", place=Place(what=what), code="TL413",
                hint=f"{meant(column, have)}columns: {', '.join(have)}",
            )  # fmt: skip
    if source.order_by:
        table = table.take(_sorted(table, source.order_by))
    table = table.select([c for c in plan.needed if c in have])
    files = [SourceFile(what, table.nbytes)]
    return Prepared(
        plan, source, [], table.num_rows, files, table=table,
        without=dict.fromkeys(plan.without_column(have), 1),
    )  # fmt: skip


def _sorted(table: pa.Table, columns: Sequence[str]) -> pa.Array:
    """The numbers of a table's rows by these columns, missing values first, as Spark sorts; rows that tie keep their order."""
    keys = [part for c in columns for part in (pc.is_valid(table[c]), table[c])]
    names = [f"k{n}" for n in range(len(keys))]
    return pc.sort_indices(pa.table(keys, names), sort_keys=[(name, "ascending") for name in names])


def _csv_names(plan: Plan, source: Source, files: Sequence[SourceFile]) -> Sequence[str]:
    """The columns of CSV files: as given, or as all their headers agree."""
    if source.columns is not None:
        return list(source.columns)
    if not source.header:
        raise IngestError(
            "CSV files without a header need columns= (--columns)", place=Place(files[0].path), code="TL411",
            hint="name them in the order of the file: ts, sender, text",
        )  # fmt: skip
    first: list[str] | None = None
    for file in files:
        line = text_lines.header_line(file).decode("utf-8", "replace")
        if not line:
            continue  # an empty file has no rows either
        try:
            names = (
                next(csv.reader([line], delimiter=plan.sep, quotechar=plan.quote, strict=True))
                if plan.quote
                else line.split(plan.sep)
            )
        except csv.Error as error:
            raise IngestError(
                f"its header cannot be read: {error}", place=Place(file.path, 1), code="TL413",
                hint="check sep= (--sep) and quote= (--quote)",
            ) from None  # fmt: skip
        if first is None:
            first = names
            if len(set(names)) < len(names):
                raise IngestError(
                    f"two columns have the same name: {line}", place=Place(file.path, 1), code="TL413",
                    hint="is this a header? header=False (--no-header) with columns= (--columns) names them",
                )  # fmt: skip
        elif names != first:
            raise IngestError(
                f"its columns are {names}, those of {files[0].path} are {first}", place=Place(file.path, 1),
                code="TL413", hint="ingest files of one layout as one source: give a list of tl.Source(...), or one [[source]] for each in a definition",
            )  # fmt: skip
    return first or plan.needed


def _prepare_parquet(
    number: int, kind: EventType, source: Source, files: list[SourceFile], floor: int | None, base: int
) -> Prepared:
    plan = Plan.of(kind, source, "parquet", (), floor)
    folders = _folders(plan, _parquet_names(files[0]), files)
    plan = replace(plan, partitions=tuple(folders))
    groups: list[tuple[SourceFile, int, int, int]] = []
    rows = 0
    everywhere: dict[str, None] = {}
    without: Counter[str] = Counter()
    for n, file in enumerate(files):
        system, path = file.locate()
        try:
            with pq.ParquetFile(system.open_input_file(path)) as opened:
                have = [*opened.schema_arrow.names, *folders]
                plan.check_columns(have, file.path)
                everywhere.update(dict.fromkeys(have))
                without.update(plan.without_column(have))
                meta = opened.metadata
        except (OSError, pa.ArrowInvalid) as error:
            raise IngestError(
                f"not a readable Parquet file: {error}",
                place=Place(file.path),
                code="TL412",
                hint="leave it out",
            ) from error
        first = 0
        for group in range(meta.num_row_groups):
            groups.append((file, base + n, group, first))
            first += meta.row_group(group).num_rows
        rows += first
    plan.check_mapped(list(everywhere), files[0].path)
    size = max(1, sum(f.size for f in files) // max(1, len(groups)))
    per_task = max(1, BIN_BYTES // size)
    tasks = [Task(number, (), tuple(groups[k : k + per_task])) for k in range(0, len(groups), per_task)]
    return Prepared(plan, source, tasks, rows, files, without=dict(without))


def _parquet_names(file: SourceFile) -> Sequence[str]:
    """The columns of a Parquet file; none where it cannot be read, which is found out later."""
    system, path = file.locate()
    try:
        with pq.ParquetFile(system.open_input_file(path)) as opened:
            return list(opened.schema_arrow.names)
    except (OSError, pa.ArrowInvalid):
        return ()


def _bins(pieces: Sequence[text_lines.Piece]) -> Iterator[list[text_lines.Piece]]:
    """Small pieces together, so that many small files do not make many tasks."""
    group: list[text_lines.Piece] = []
    size = 0
    for piece in pieces:
        group.append(piece)
        size += (piece.end or piece.file.size * PACKED_FACTOR) - piece.start
        if size >= BIN_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def number_lines(
    prepared: Sequence[Prepared], count: Callable[[Sequence[text_lines.Piece]], Sequence[int]]
) -> None:
    """Give each line its number: `count` tells the line ends in the pieces of the files that have several."""
    cut = [p for one in prepared for task in one.tasks for p in task.pieces]
    several = [p for p in cut if p.start or (p.end is not None and p.end < p.file.size)]
    if not several:
        return
    placed = {(p.number, p.start): p for p in text_lines.with_line_numbers(several, count(several))}
    for one in prepared:
        one.tasks = [
            Task(t.source, tuple(placed.get((p.number, p.start), p) for p in t.pieces), t.groups)
            for t in one.tasks
        ]


def read_table(table: pa.Table, plan: Plan, number: int) -> Iterator[tuple[int, Batch]]:
    """A table in memory, as `read_task` gives the rows of files: `number` stands for its file. Rows count from 0."""
    for first in range(0, table.num_rows, READ_ROWS):
        yield number, parse_table(plan, table.slice(first, READ_ROWS), first)


def read_task(task: Task, plan: Plan) -> Iterator[tuple[int, Batch]]:
    """What a task reads, in the order of its files and their rows: (the file's number, events). Raises IngestError."""
    for piece in task.pieces:
        for block in text_lines.read_lines(piece):
            yield piece.number, parse_lines(plan.within(piece.file.partition), block)
    for file, file_number, group, first in task.groups:
        system, path = file.locate()
        try:
            with pq.ParquetFile(system.open_input_file(path)) as opened:
                names = [
                    c for c in plan.needed if c in opened.schema_arrow.names and c not in plan.partitions
                ]
                row = first
                for part in opened.iter_batches(READ_ROWS, [group], names, use_threads=False):
                    table = pa.Table.from_batches([part])
                    yield file_number, parse_table(plan.within(file.partition), table, row)
                    row += part.num_rows
        except (OSError, pa.ArrowInvalid) as error:
            raise IngestError(
                f"cannot be read: {error}", place=Place(file.path), code="TL412", hint="leave it out"
            ) from error
