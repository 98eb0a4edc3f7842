"""What a slice of the final pass has done, in files: side by side where there are cores, and durable at once if the
run is to last, so that publishing it has nothing left to wait for."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from timelapse.engine import resume, rows
from timelapse.engine.digest import hash_outputs, hash_rejected
from timelapse.engine.job import (
    Aside,
    Job,
    SliceReport,
    SumRow,
    Task,
    change_path,
    outputs_path,
    quarantined_path,
    record_name,
    rejected_path,
    same_name,
    schema_bytes,
)
from timelapse.engine.known import after
from timelapse.engine.reads import is_reads, write_reads
from timelapse.kernels.base import PassResult, quarantined_table
from timelapse.program.failure import Quarantined
from timelapse.store.parts import Part, PartWriter
from timelapse.tables.parquet import differences, others
from timelapse.tables.sharing import Beside, at_once
from timelapse.tables.table import write_table

_FILES = 4
"""Files that are written at a time where there are cores: who writes one mostly waits for the disk."""


Keep = Callable[[SliceReport, PassResult | None], None]
"""Called with what a slice did, which is to go to files; None: it is there already (engine/portions.py)."""


def keep_results(job: Job, task: Task, beside: Beside) -> Keep:
    """Write a slice's results to a folder of this attempt's own; the driver takes over what it accepts.

    An attempt that Spark gave up on, and that goes on all the same, can so never spoil a run. The files are written
    `beside` the task's next slice; the report is only whole then. After the last one nothing else is to be done.
    """

    start = task.start

    def keep(report: SliceReport, result: PassResult | None) -> None:
        if result is not None:
            report.attempt = uuid.uuid4().hex
            report.quarantined = len(result.quarantined)
        last = report.slice == task.last
        threads = _FILES if last and task.threads > 1 else 1

        def write() -> None:
            nonlocal start
            if report.slice == task.first:
                start = task.start
            if result is not None:
                result.settle()
                report.put_changes(result.changes)
                _write(job, report, result, threads)
            resume.mark(job, task, report, start)
            if task.kind == "final_chain":
                start = after(start, report)

        beside.do(write)
        if last:
            beside.wait()

    return keep


def keep_beside(
    job: Job, aside: Aside, slice_id: int, results: Sequence[PassResult | None], threads: int
) -> dict[int, SliceReport]:
    """Write what output parts beside a slice have put out, each to a folder of its own. Returns their reports by their numbers."""

    def write(number: int, result: PassResult) -> SliceReport:
        report = SliceReport(slice_id, result.events, attempt=uuid.uuid4().hex)
        own = replace(job, scratch=aside.scratch(number), aside=None)
        own.attempt_path("").mkdir(parents=True, exist_ok=True)
        _write(own, report, result, 1)
        return report

    there = [(number, result) for number, result in enumerate(results) if result is not None]
    found = at_once([(result.events, partial(write, number, result)) for number, result in there], threads)
    return {number: report for (number, _), report in zip(there, found, strict=True)}


def _write(job: Job, report: SliceReport, result: PassResult, threads: int) -> None:
    """Write a slice's results, and add to its report what they are."""
    folder = job.attempt_path(report.attempt)
    for inner in (folder, folder / "state", folder / "outputs"):
        inner.mkdir()
    rows.keep_attempt(job, report, result.rows)
    files: list[tuple[int, Callable[[], object]]] = []

    def put(table: pa.Table, path: Path, writer: Callable[..., Part]) -> None:
        def file() -> None:
            name = path.relative_to(folder).as_posix()
            report.parts[name] = writer(table, path, lasting=job.lasting)

        files.append((table.nbytes, file))

    for state, table in result.effects.items():
        if table.num_rows:
            put(table, change_path(folder, report.slice, state), write_table)
    tables: dict[str, pa.Table] = {}
    for cls, table in result.outputs.items():
        if is_reads(cls):
            files.append((table.nbytes, partial(write_reads, table, cls, folder, report.slice)))
            continue
        name = record_name(cls)
        if name in report.classes:
            raise same_name(name)
        report.classes[name] = f"{cls.__module__}.{cls.__qualname__}"
        report.schemas[name] = schema_bytes(table.schema)
        put(table, outputs_path(folder, name, report.slice), _write_parquet)
        tables[name] = table
    assert result.rejected is not None
    if result.rejected.num_rows:
        put(result.rejected, rejected_path(folder, report.slice), _write_parquet)
    at_once(files, threads)
    report.outputs = {name: SumRow.of(hash_outputs(name, table)) for name, table in tables.items()}
    report.rejected = SumRow.of(hash_rejected(result.rejected))
    part = write_quarantined(result.quarantined, folder, report.slice)
    if part is not None:
        report.parts[quarantined_path(folder, report.slice).relative_to(folder).as_posix()] = part


class ParquetFile:
    """A Parquet file as runs have them, written table by table. It is there when its `with` block ends without an error."""

    def __init__(self, path: Path, schema: pa.Schema, *, lasting: bool = False) -> None:
        path.parent.mkdir(exist_ok=True)
        self._file = PartWriter(path, lasting=lasting)
        try:
            self._rows = pq.ParquetWriter(
                self._file, schema, compression="zstd", use_dictionary=others(schema),
                column_encoding=differences(schema) or None, write_page_checksum=True,
            )  # fmt: skip
        except BaseException as error:
            self._file.__exit__(type(error), error, None)
            raise

    def write(self, table: pa.Table) -> None:
        """Append rows."""
        self._rows.write_table(table)

    def part(self) -> Part:
        """What was written. To be asked after the block."""
        return self._file.part()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:  # what is half written is not put in place
            with suppress(Exception):
                self._rows.close()
            self._file.__exit__(kind, error, trace)
            return
        with self._file:
            self._rows.close()


def _write_parquet(table: pa.Table, path: Path, *, lasting: bool = False) -> Part:
    with ParquetFile(path, table.schema, lasting=lasting) as file:
        file.write(table)
    return file.part()


def write_quarantined(rows: Sequence[Quarantined], folder: Path, slice_id: int) -> Part | None:
    """Write which events were taken out of the log, where there are any."""
    if not rows:
        return None
    return _write_parquet(quarantined_table(rows), quarantined_path(folder, slice_id))


def quarantined_seqs(folder: Path, slice_id: int) -> list[int]:
    """The events that `write_quarantined` wrote of."""
    seqs: list[int] = pq.read_table(quarantined_path(folder, slice_id), columns=["seq"])["seq"].to_pylist()
    return seqs


def read_quarantined(folder: Path, slice_id: int) -> list[Quarantined]:
    """What `write_quarantined` wrote of a slice that took events out."""
    rows = pq.read_table(quarantined_path(folder, slice_id)).to_pylist()
    return [tuple(row.values()) for row in rows]
