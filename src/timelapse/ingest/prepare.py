"""Looking at the files of an ingest before it starts, and reading them: columns, sizes, line numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.decoding import decoded
from timelapse.display import many
from timelapse.errors import IngestError, Place, meant
from timelapse.ingest import lines as text_lines
from timelapse.ingest import nested, records, table_files
from timelapse.ingest.amounts import refuse_floats
from timelapse.ingest.batches import Batch
from timelapse.ingest.convert import convert
from timelapse.ingest.convert import without_zone as has_no_zone
from timelapse.ingest.csv_layout import with_columns
from timelapse.ingest.doubts import refuse_without_zone, without_zone
from timelapse.ingest.drift import first_break
from timelapse.ingest.files import Format, SourceFile, check_is_text, format_of, list_files
from timelapse.ingest.objects import MANY, list_in
from timelapse.ingest.parse import parse_lines, parse_table
from timelapse.ingest.plan import Plan
from timelapse.ingest.source import Source
from timelapse.ingest.tables.base import Opened
from timelapse.ingest.type_changes import Seen, check_types
from timelapse.ingest.unique import Before
from timelapse.model.types import TIME, OptionalType
from timelapse.segments.beside import FILE, LATE
from timelapse.segments.manifest import IngestEntry
from timelapse.segments.types import EventType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BIN_BYTES = 16 << 20
READ_ROWS = 32 * 1024
TEXT, FOLDER = "text", "folder"
"""In place of a column's type: it is text in a file of text, or named by the file's folders."""
PACKED_FACTOR = 8
"""How much larger a compressed file is taken to be when it is unpacked."""


@dataclass(frozen=True)
class Task:
    """What one task reads: pieces of text files, or row groups of a Parquet file (with its first row)."""

    source: int
    pieces: tuple[text_lines.Piece, ...] = ()
    groups: tuple[tuple[SourceFile, int, int, int], ...] = ()
    """(file, its number, row group, row number of the group's first row, which count from 1 in the file)"""


def _nothing() -> None: ...


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
    layouts: list[str] = field(default_factory=list)
    """How the columns of files differ from those of the file before, for people."""
    shapes: list[dict[str, str]] = field(default_factory=list)
    """The columns of each file with their types, as far as they are known before its rows are read: of JSON lines none."""
    prints: dict[str, str] = field(default_factory=dict)
    """What is kept of each file, by path, to know it again: taken before it is read."""
    days: dict[str, tuple[int, int] | None] = field(default_factory=dict)
    """The first and the last day (since 1970) that each file is of, once its rows have been read (ingest/drift.py); of a DataFrame under no name."""
    told: dict[str, Any] = field(default_factory=dict)
    """Of a table that is kept elsewhere: which version or snapshot was read."""
    close: Callable[[], None] = field(default=_nothing)
    """Called when all has been read."""


def types_of(prepared: Sequence[Prepared]) -> list[EventType]:
    """The types of sources, in order: several sources of one type stand one after the other."""
    return [
        one.plan.kind
        for number, one in enumerate(prepared)
        if not number or prepared[number - 1].plan.kind != one.plan.kind
    ]


def beside_of(prepared: Sequence[Prepared]) -> list[str]:
    """What is kept beside the events of these sources (segments/beside.py)."""
    files = any(one.source.is_files for one in prepared)
    return [FILE] * files + [LATE] * any(one.source.arrival is not None for one in prepared)


def file_numbers(prepared: Sequence[Prepared], before: Before | None) -> npt.NDArray[np.int64]:
    """The number in the log of each file of these sources, by its number in this ingest; -1 for those that are none, and at the end."""
    known = 0 if before is None else len(before.files)
    found: list[int] = []
    for one in prepared:
        found += range(known, known + len(one.files)) if one.source.is_files else [-1] * len(one.files)
        known += len(one.files) if one.source.is_files else 0
    return np.asarray([*found, -1], np.int64)


def prepare_files(
    number: int, kind: EventType, source: Source, floor: int | None, base: int, before: Before | None = None
) -> Prepared:
    """Look at the files of source `number`; `base` is the number of its first file. Line numbers are not known yet.
    `before`: the log that is appended to.

    Raises IngestError for what can be seen to be wrong.
    """
    if source.order_by:
        raise IngestError(
            "order_by= is for DataFrames: rows of files are ordered by (path, row)", place=Place(what=kind.name),
            code="TL411", hint="leave it out, or read the files with spark.read and give the DataFrame",
        )  # fmt: skip
    if source.elsewhere is not None:
        return _prepare_elsewhere(number, kind, source, source.elsewhere.open(), floor, base, before)
    files = list_files(source.paths)
    format_ = source.format or ("text" if source.regex is not None else format_of(files))
    if source.multiline and format_ != "csv":
        raise IngestError(
            f"multiline= (--multiline) is for CSV, and these files are {format_}", place=Place(files[0].path), code="TL411", hint="leave it out"
        )  # fmt: skip
    if format_ in ("parquet", "orc", "avro"):
        return _prepare_tables(number, kind, source, format_, files, floor, base, None, before)
    plan = Plan.of(kind, source, format_, (), floor)
    names: Sequence[str] = plan.needed
    for file in files:
        check_is_text(file, format_)
    if format_ == "csv":
        files = with_columns(plan, source, files)
        names = next((file.columns for file in files if file.columns is not None), plan.needed)
    elif format_ == "text":
        if source.regex is None:
            raise IngestError(
                "text files need regex= (--regex), with a named group for the time and for each field",
                place=Place(files[0].path), code="TL411", hint=r"for example (?P<ts>\S+) (?P<user>\w+)",
            )  # fmt: skip
        names = list(plan.pattern.groupindex)
    without: dict[str, int] = {}
    folders = _folders(plan, names if format_ != "json" else (), files)
    layouts: list[str] = []
    shapes = [dict.fromkeys(folders, FOLDER) for _ in files]
    if format_ != "json":
        columns = [(f.path, [*(names if f.columns is None else f.columns), *folders]) for f in files]
        without, layouts = _over_files(plan, columns)
        own = [names if f.columns is None and f.size else f.columns or () for f in files]
        shapes = [{**dict.fromkeys(have, TEXT), **one} for have, one in zip(own, shapes, strict=True)]
    plan = Plan.of(kind, source, format_, (*names, *folders), floor)
    plan = replace(plan, names=tuple(names))
    if format_ == "json":
        keys = _first_keys(files)
        plan = replace(plan, paths=tuple(c for c in plan.needed if ("." in c or MANY in c) and c not in keys))
        _ = plan.decoder  # what cannot be read is an error now
        list_in([plan.path_of(c) for c in plan.needed])
    plan = replace(plan, partitions=tuple(folders))
    pieces = [p for n, file in enumerate(files) for p in text_lines.pieces(file, base + n)]
    if source.multiline:  # where a record begins is not seen in the middle of a file
        pieces = text_lines.whole_files(pieces)
    tasks = [Task(number, tuple(group)) for group in _bins(pieces)]
    size = sum(f.size * (PACKED_FACTOR if f.packed else 1) for f in files)
    return Prepared(plan, source, tasks, size // 50, files, without=without, layouts=layouts, shapes=shapes)


def _over_files(
    plan: Plan, columns: Sequence[tuple[str, Sequence[str]]], inner: Collection[str] = ()
) -> tuple[dict[str, int], list[str]]:
    """The fields without a column, with the number of files, and how the files' columns differ from one to the next. `inner`: those that stand
    inside others, by path.

    Files are read by the names of their columns: these may stand in any order, come and go. Raises IngestError for one that lacks
    a column that must be there, and for a named column that is in none.
    """
    without: Counter[str] = Counter()
    layouts: list[str] = []
    used = plan.every_needed
    before: Sequence[str] | None = None
    for path, have in columns:
        plan.check_columns(have, path)
        without.update(plan.without_column(have))
        have = nested.shown([c for c in have if c not in inner], have, used)
        if before is not None and set(have) != set(before):
            gone = [f"{c!r}{'' if c in used else ' (not used)'}" for c in before if c not in have]
            come = [f"{c!r}{'' if c in used else ' (not used)'}" for c in have if c not in before]
            said = [
                *([f"without {', '.join(gone)}"] if gone else []),
                *([f"with {', '.join(come)}"] if come else []),
            ]
            layouts.append(f"{plan.kind.name}: from {path} on {' and '.join(said)}")
        before = have
    if columns:
        plan.check_mapped(list(dict.fromkeys(c for _, have in columns for c in have)), columns[0][0])
    return dict(without), layouts


def _folders(plan: Plan, have: Sequence[str], files: Sequence[SourceFile]) -> list[str]:
    """The needed columns that files lack and the folders of all of them name: `dt=2026-10-01`. Raises IngestError for one that some folders do not name."""
    named = set.intersection(*(set(file.partition) for file in files)) if files else set()
    some = {name: file for file in files for name in file.partition if name not in named}
    told = plan.applied is None and plan.format != "json"  # of JSON an object may have it
    if told and (column := next((c for c in plan.needed if c in some and c not in have), None)):
        lacks = next(file for file in files if column not in file.partition)
        raise IngestError(
            f"{plan.kind.name} needs the column {column!r}, which no folder of this file names, as those of {some[column].path} do",
            place=Place(lacks.path), code="TL413", hint="move the file, or make it a source of its own",
        )  # fmt: skip
    wanted = sorted(named) if plan.applied is not None else plan.needed  # a function gets all of them
    found = [c for c in wanted if c in named and c not in have]
    plan.check_folders(found, files[0].path if files else "")
    return found


def _first_keys(files: Sequence[SourceFile]) -> set[str]:
    """The keys of the first JSON object: a column with dots is one of them, or else a path into nested objects."""
    for file in files:
        line = text_lines.header_line(file)
        if line.strip():
            try:
                found = decoded(line, Any)
            except (msgspec.DecodeError, RecursionError):
                return set()  # it is a bad row
            return set(found) if isinstance(found, dict) else set()
    return set()


def prepare_table(kind: EventType, source: Source, floor: int | None) -> Prepared:
    """Look at a table in memory; its rows count as those of one file that is named after it. Raises IngestError."""
    table = source.table()
    plan = Plan.of(kind, source, None, (), floor)
    what = f"{type(source.data).__name__} for {kind.name}"
    types = dict(zip(table.column_names, table.schema.types, strict=True))
    types |= nested.inner_columns(types)
    have = list(types)
    if twice := next((name for name, n in Counter(table.column_names).items() if n > 1), None):
        raise IngestError(
            f"two columns are named {twice!r}", place=Place(what=what), code="TL413", hint="rename one"
        )
    _check_paths(plan, table.column_names)
    plan.check_columns(have, what)
    plan.check_mapped(have, what)
    plan = plan.reading(tuple(have))
    floats = {name: str(type_) for name, type_ in types.items() if pa.types.is_floating(type_)}
    refuse_floats(source.data, plan.read_fields, floats, what)
    for column in source.order_by:
        if column not in table.column_names:
            raise IngestError(
                f"order_by: there is no column {column!r}", place=Place(what=what), code="TL413",
                hint=f"{meant(column, table.column_names)}columns: {', '.join(table.column_names)}",
            )  # fmt: skip
    if source.order_by:
        table = table.take(_sorted(table, source.order_by))
    shape = {name: str(types[name]) for name in nested.shown(table.column_names, have, plan.needed)}
    if plan.applied is None:  # a function gets all of them
        table = nested.flat(table, nested.with_marks(plan.needed))
    files = [SourceFile(what, table.nbytes)]
    return Prepared(
        plan, source, [], table.num_rows, files, table=table,
        without=dict.fromkeys(plan.without_column(have), 1), shapes=[shape],
    )  # fmt: skip


def _sorted(table: pa.Table, columns: Sequence[str]) -> pa.Array:
    """The numbers of a table's rows by these columns, missing values first, as Spark sorts; rows that tie keep their order."""
    keys = [part for c in columns for part in (pc.is_valid(table[c]), table[c])]
    names = [f"k{n}" for n in range(len(keys))]
    return pc.sort_indices(pa.table(keys, names), sort_keys=[(name, "ascending") for name in names])


def _prepare_elsewhere(
    number: int,
    kind: EventType,
    source: Source,
    opened: Opened,
    floor: int | None,
    base: int,
    before: Before | None,
) -> Prepared:
    """Look at a table that is kept elsewhere, which has been opened."""
    try:
        shapes = [table_files.Shape(opened.columns, [n] if n else []) for n in opened.rows]
        inside = nested.inner_columns(opened.columns)
        files = [replace(f, columns=tuple(opened.columns), inner=tuple(inside)) for f in opened.files]
        made = _prepare_tables(number, kind, source, opened.format, files, floor, base, shapes, before)
        return replace(made, told=opened.told, close=opened.close)
    except BaseException:
        opened.close()
        raise


def _prepare_tables(
    number: int,
    kind: EventType,
    source: Source,
    format_: Format,
    files: list[SourceFile],
    floor: int | None,
    base: int,
    shapes: Sequence[table_files.Shape] | None,
    before: Before | None,
) -> Prepared:
    """Look at files of tables: Parquet, ORC, Avro; and at parts of tables, whose shapes are known."""
    plan = Plan.of(kind, source, format_, (), floor)
    shapes = [table_files.shape(format_, file) for file in files] if shapes is None else shapes
    folders = _folders(plan, list(shapes[0].columns), files) if shapes else []
    plan = replace(plan, partitions=tuple(folders))
    columns = [(file.path, [*shape.every, *folders]) for file, shape in zip(files, shapes, strict=True)]
    _check_paths(plan, {c for s in shapes for c in s.columns})
    without, layouts = _over_files(plan, columns, {c for s in shapes for c in s.every if c not in s.columns})
    earlier = () if before is None else before.ingests
    layouts += _types(plan, files, shapes, source.position, earlier) if plan.applied is None else []
    groups: list[tuple[SourceFile, int, int, int]] = []
    unread = 0
    for n, (file, shape) in enumerate(zip(files, shapes, strict=True)):
        first = 1
        away = _outside_window(plan.within(file.partition, tuple(shape.every)), file, shape)
        for group, rows in enumerate(shape.groups):
            if group in away:
                unread += rows
            else:
                groups.append((file, base + n, group, first))
            first += rows
    if unread:
        layouts.append(
            f"{plan.kind.name}: {many(unread, 'row was', 'rows were')} not read: files say that they are of other times"
        )
    used = plan.every_needed
    size = max(1, sum(f.size for f in files) // max(1, len(groups)))
    per_task = max(1, BIN_BYTES // size)
    tasks = [Task(number, (), tuple(groups[k : k + per_task])) for k in range(0, len(groups), per_task)]
    return Prepared(
        plan,
        source,
        tasks,
        sum(sum(s.groups) for s in shapes) - unread,
        files,
        without=without,
        layouts=layouts,
        shapes=[{**shape.told(used), **dict.fromkeys(folders, FOLDER)} for shape in shapes],
    )


def _check_paths(plan: Plan, columns: Collection[str]) -> None:
    """Raise IngestError (TL411) for paths into the columns of tables that cannot be read together."""
    if plan.applied is None:
        nested.check_paths(plan.every_needed, columns)


_CLOCKS = 86_400_000_000
"""So much may a time of day that clocks show be away from what its zone makes of it."""


def _outside_window(plan: Plan, file: SourceFile, shape: table_files.Shape) -> set[int]:
    """The row groups of a Parquet file that have no row of the log's time, by their statistics."""
    low, high = plan.window
    kind = shape.every.get(plan.ts)
    if (low is None and high is None) or plan.format != "parquet" or kind is None or plan.by_arrival:
        return set()
    if not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind)):
        return set()
    found = set()
    for group, span in enumerate(table_files.spans(file, plan.ts)):
        if span is None:
            continue
        times, bad = convert("ts", pa.array(span, kind), TIME, plan.times, texts=False)
        if bad:
            continue
        least, most = times.to_pylist()
        if (low is not None and most + _CLOCKS < low) or (high is not None and least - _CLOCKS >= high):
            found.add(group)
    return found


def _types(
    plan: Plan, files: Sequence[SourceFile], shapes: Sequence[table_files.Shape], position: int, earlier: Sequence[IngestEntry]
) -> list[str]:  # fmt: skip
    """How the types of columns differ from one file to the next. Raises IngestError for one that cannot become the field's, and for one
    that is narrower than in the file before, or of another kind: for the first such file, be it after those of earlier ingests."""
    said: list[str] = []
    before: dict[str, pa.DataType] = {}
    seen: dict[str, Seen] = {}
    used = plan.every_needed
    for file, shape in zip(files, shapes, strict=True):
        own = plan.within(file.partition, tuple(shape.every))
        wanted = [
            ("ts", own.ts, TIME),
            *((f.name, c, f.type) for f, c in zip(plan.kind.fields, own.columns, strict=True)),
        ]
        for name, column, kind in wanted:
            given = shape.every.get(column)
            if given is None:
                continue
            if kind in (TIME, OptionalType(TIME)) and has_no_zone(given) and not plan.times.told:
                raise without_zone(plan.kind, name, file.path)
            try:
                convert(name, pa.array([], given), kind, plan.times, texts=False)
            except IngestError as error:
                raise IngestError(
                    error.message,
                    place=Place(file.path),
                    hint=error.hint,
                    code=error.code,
                ) from None
            if before.setdefault(column, given) != given:
                said.append(
                    f"{plan.kind.name}: from {file.path} on {column!r} is {given}, not {before[column]}"
                )
                before[column] = given
        try:
            check_types(plan, shape.told(used), file.path, seen)
        except IngestError as error:
            looked = [(f, s.told(used)) for f, s in zip(files, shapes, strict=True)]
            raise first_break(plan, position, looked[: files.index(file)], earlier) or error from None
    return said


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


def front_to_back(prepared: Sequence[Prepared]) -> None:
    """For whoever reads tasks one after the other: a file's pieces are one, so that its lines need no counting beforehand."""
    for one in prepared:
        one.tasks = [replace(t, pieces=tuple(text_lines.whole_files(t.pieces))) for t in one.tasks]


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
    """A table in memory, as `read_task` gives the rows of files: `number` stands for its file. Rows count from 1."""
    for first in range(0, table.num_rows, READ_ROWS):
        batch = parse_table(plan, table.slice(first, READ_ROWS), first + 1)
        refuse_without_zone(plan.kind, batch.doubts, f"the table for {plan.kind.name}")
        yield number, batch


def read_task(task: Task, plan: Plan) -> Iterator[tuple[int, Batch]]:
    """What a task reads, in the order of its files and their rows: (the file's number, events). Raises IngestError."""
    for number, parse in blocks_of(task, plan):
        yield number, parse()


def blocks_of(task: Task, plan: Plan) -> Iterator[tuple[int, Callable[[], Batch]]]:
    """The same, each block yet to be parsed: (the file's number, what does so, in whatever thread). Raises IngestError."""
    for piece in task.pieces:
        for block in records.read(piece, plan):
            own = plan.within(piece.file.partition, piece.file.columns)
            yield piece.number, partial(_parsed, partial(parse_lines, own, block), plan, piece.file)
    for file, file_number, group, first in task.groups:
        row = first
        for part in table_files.read(plan.format or "parquet", file, group, READ_ROWS, plan):
            own = plan.within(file.partition, tuple(part.column_names))
            yield file_number, partial(_parsed, partial(parse_table, own, part, row), plan, file)
            row += part.num_rows


def _parsed(parse: Callable[[], Batch], plan: Plan, file: SourceFile) -> Batch:
    batch = parse()
    refuse_without_zone(plan.kind, batch.doubts, file.path)
    return batch
