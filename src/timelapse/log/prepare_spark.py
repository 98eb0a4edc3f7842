"""Looking at the sources of an ingest before it starts: files, columns, sizes, line numbers."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from timelapse.errors import IngestError, Place
from timelapse.log import lines as text_lines
from timelapse.log.parse import Plan
from timelapse.log.source import Source, SourceFile, format_of, list_files
from timelapse.log.types import EventType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BIN_BYTES = 16 << 20


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


def prepare(
    spark: SparkSession, sources: Sequence[tuple[EventType, Source]], floor: int | None, rows: int | None
) -> list[Prepared]:
    """Look at every source: its files, columns, size. Raises IngestError for what can be seen to be wrong."""
    prepared: list[Prepared] = []
    base = 0
    for number, (kind, source) in enumerate(sources):
        if source.is_files:
            found = _prepare_files(number, kind, source, floor, base)
            base += len(found.files)
        else:
            found = _prepare_frame(kind, source, floor, rows)
        prepared.append(found)
    _number_lines(spark, prepared)
    return prepared


def _prepare_frame(kind: EventType, source: Source, floor: int | None, rows: int | None) -> Prepared:
    from pyspark.sql import functions as F  # noqa: N812

    frame: DataFrame = source.data  # type: ignore[assignment]
    plan = Plan.of(kind, source, None, (), floor)
    have = frame.columns
    # a name with dots may mean a column of that name, or a field of a struct
    usable = [c for c in (*plan.needed, *source.order_by) if c in have or c.split(".")[0] in have]
    plan.check_columns([*have, *usable], f"DataFrame for {kind.name}")
    for column in source.order_by:
        if column not in usable:
            raise IngestError(
                f"order_by: there is no column {column!r}", place=Place(what=f"DataFrame for {kind.name}"),
                code="TL413", hint=f"columns: {', '.join(have)}",
            )  # fmt: skip
    picked = [c for c in plan.needed if c in usable]
    selected = frame.select(
        *[F.col(_quoted(c, have)).alias(c) for c in picked],
        *[F.col(_quoted(c, have)).alias(f"__order{n}") for n, c in enumerate(source.order_by)],
    )
    count = frame.count() if rows is None else rows
    return Prepared(plan, source, [], count, [], selected)


def _quoted(name: str, have: Sequence[str]) -> str:
    return f"`{name.replace('`', '``')}`" if name in have else name


def _prepare_files(number: int, kind: EventType, source: Source, floor: int | None, base: int) -> Prepared:
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
                "text files need regex=, with a named group for the time and for each field",
                place=Place(files[0].path), code="TL411", hint=r'for example regex=r"(?P<ts>\S+) (?P<user>\w+)"',
            )  # fmt: skip
        names = list(plan.pattern.groupindex)
    if format_ != "json":
        plan.check_columns(names, files[0].path)
    plan = Plan.of(kind, source, format_, names, floor)
    pieces = [p for n, file in enumerate(files) for p in text_lines.pieces(file, base + n)]
    tasks = [Task(number, tuple(group)) for group in _bins(pieces)]
    size = sum(f.size * (8 if f.packed else 1) for f in files)
    return Prepared(plan, source, tasks, size // 50, files)


def _csv_names(plan: Plan, source: Source, files: Sequence[SourceFile]) -> Sequence[str]:
    """The columns of CSV files: as given, or as all their headers agree."""
    if source.columns is not None:
        return list(source.columns)
    if not source.header:
        raise IngestError(
            "CSV files without a header need columns=", place=Place(files[0].path), code="TL411",
            hint='for example columns=["ts", "sender", "text"]',
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
                hint="check sep= and quote=",
            ) from None  # fmt: skip
        if first is None:
            first = names
            if len(set(names)) < len(names):
                raise IngestError(
                    f"two columns have the same name: {line}", place=Place(file.path, 1), code="TL413",
                    hint="is this a header? header=False with columns= names them",
                )  # fmt: skip
        elif names != first:
            raise IngestError(
                f"its columns are {names}, those of {files[0].path} are {first}", place=Place(file.path, 1),
                code="TL413", hint="ingest files of one layout as one source",
            )  # fmt: skip
    return first or plan.needed


def _prepare_parquet(
    number: int, kind: EventType, source: Source, files: list[SourceFile], floor: int | None, base: int
) -> Prepared:
    plan = Plan.of(kind, source, "parquet", (), floor)
    groups: list[tuple[SourceFile, int, int, int]] = []
    rows = 0
    for n, file in enumerate(files):
        system, path = file.locate()
        try:
            with pq.ParquetFile(system.open_input_file(path)) as opened:
                plan.check_columns(opened.schema_arrow.names, file.path)
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
    size = max(1, sum(f.size for f in files) // max(1, len(groups)))
    per_task = max(1, BIN_BYTES // size)
    tasks = [Task(number, (), tuple(groups[k : k + per_task])) for k in range(0, len(groups), per_task)]
    return Prepared(plan, source, tasks, rows, files)


def _bins(pieces: Sequence[text_lines.Piece]) -> Iterator[list[text_lines.Piece]]:
    """Small pieces together, so that many small files do not make many tasks."""
    group: list[text_lines.Piece] = []
    size = 0
    for piece in pieces:
        group.append(piece)
        size += (piece.end or piece.file.size * 8) - piece.start
        if size >= BIN_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _number_lines(spark: SparkSession, prepared: Sequence[Prepared]) -> None:
    """Count the line ends before every piece of the files that have several, so that each line has its number."""
    cut = [p for one in prepared for task in one.tasks for p in task.pieces]
    several = [p for p in cut if p.start or (p.end is not None and p.end < p.file.size)]
    if not several:
        return
    counts = run_tasks(spark, several, text_lines.count_line_ends)
    placed = {(p.number, p.start): p for p in text_lines.with_line_numbers(several, counts)}
    for one in prepared:
        one.tasks = [
            Task(t.source, tuple(placed.get((p.number, p.start), p) for p in t.pieces), t.groups)
            for t in one.tasks
        ]


def run_tasks(spark: SparkSession, items: Sequence[Any], function: Callable[[Any], int]) -> list[int]:
    """A whole number for each item, one Spark task per item, in order."""

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            ids = batch.column(0).to_pylist()
            yield pa.record_batch(
                [pa.array(ids), pa.array([function(items[i]) for i in ids], pa.int64())], ["id", "n"]
            )

    found = spark.range(0, len(items), 1, len(items)).mapInArrow(each, "id long, n long").collect()
    by_id = {row["id"]: row["n"] for row in found}
    return [by_id[n] for n in range(len(items))]


def collect(spark: SparkSession, frame: DataFrame) -> list[Any]:
    """The rows of a DataFrame; Ctrl-C cancels its Spark jobs."""
    context = getattr(spark, "_sc", None)
    if context is None:  # Spark Connect has no context, and cancels by itself
        return frame.collect()
    tag = f"timelapse-{uuid4().hex}"
    context.addJobTag(tag)
    try:
        return frame.collect()
    except KeyboardInterrupt:
        context.cancelJobsWithTag(tag)
        raise
    finally:
        context.removeJobTag(tag)
