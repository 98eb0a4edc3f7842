"""`tl.check`: one look at a program and a log before its figures are believed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from timelapse.analysis import analyse
from timelapse.analysis.result import Severity
from timelapse.checks.fields import arrival, times_of_fields
from timelapse.checks.findings import Check, Finding
from timelapse.checks.orders import orders
from timelapse.checks.reads import missing_reads
from timelapse.checks.warmup import settling
from timelapse.errors import SilentLog, UsageError
from timelapse.log import Log
from timelapse.log.part import PartLog
from timelapse.moments import time_text
from timelapse.program.program import Program, as_program, spec_of
from timelapse.program.times import VIEWS, width_of
from timelapse.progress import Progress, Silent
from timelapse.progress.patience import looking
from timelapse.run import Run, replay
from timelapse.run.request import Engine
from timelapse.run.source import refuse_silence
from timelapse.segments.types import heard
from timelapse.tables.rowhash import alike

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check(
    program: Program | type[Program],
    log: Log | str,
    *,
    arrived: str | None = None,
    warm_up: bool = True,
    sample: int = 400,
    spark: SparkSession | Literal[False] | None = None,
    engine: Engine = "auto",
    progress: Progress | None = None,
) -> Check:
    """Check a program together with a log.

    - purity: what a replay could not reproduce (an error); calls that analysis cannot see through
    - code: what is probably not meant, such as a method that takes an event and that nothing calls, or an event that is sent and that nothing handles
    - truncation: a replay of the log's first half gives the same outputs up to there. That tests the engine, not
      the program: it cannot fail but for a bug in Timelapse or a call that is not pure
    - fields: `tl.Time` fields with values after the event's own time, which live could not have known
    - arrival: with `arrived`, the name of the field with the time of arrival: how late events came, and how many out of order
    - orders: where ingest was told the time of arrival (`arrival`): how many outputs change between the order of events and that of arrival
    - warm-up: how much of the log before an event its outputs depend on, by replays of shorter parts (`warm_up=False` leaves it out)
    - reads: per state how many of the reads find nothing, over about `sample` events of the log's second half

    Replays the program several times. Raises what `tl.replay` raises.
    """
    made = as_program(program)
    opened = log if isinstance(log, Log) else Log.open(log)
    opened.bind(heard(spec_of(made), opened.types))
    if sample < 1:
        raise UsageError("a sample has at least one event", code="TL845")
    listener = progress or Silent()

    def run(part: Log) -> Run:
        return replay(made, part, spark=spark, progress=listener, engine=engine)

    findings = list(_findings(made, opened, run, arrived, warm_up, sample, listener))
    return Check(spec_of(made).name, str(opened.path), tuple(findings))


def _findings(
    program: Program, log: Log, run: Callable[[Log], Run], arrived: str | None, warm_up: bool, sample: int,
    progress: Progress,
) -> Iterator[Finding]:  # fmt: skip
    analysis = analyse(program)
    impure = [d for d in analysis.diagnostics if d.severity is Severity.ERROR]
    for d in impure:
        yield Finding("purity", "error", f"{d.code} {d.place} {d.message}", d.remedy)
    if not impure:
        yield Finding("purity", "ok", "no handler reads a clock, randomness or the like")
    for d in analysis.diagnostics:
        if d.severity is Severity.WARNING:
            yield Finding("code", "warning", f"{d.code} {d.place} {d.message}", d.remedy)
    yield from _trusted(analysis.trusted)
    with looking(progress, "looking at times in fields"):
        found = list(times_of_fields(log, arrived))
        if arrived is not None:
            found.append(arrival(log, arrived))
    yield from found
    if impure:
        yield Finding("replay", "note", "what needs a replay was left out: the program is impure")
        return
    if not log.count:
        yield Finding("replay", "note", "the log is empty")
        return
    try:
        refuse_silence(program, log.reader)
    except SilentLog as error:
        yield Finding("gaps", "error", f"{error.code} {error.message}", error.hint or "")
        yield Finding("replay", "note", "what needs a replay was left out: a replay refuses this log")
        return
    whole = run(log)
    yield _truncated(log, whole, run, progress)
    yield from orders(log, whole, run, progress)
    yield from _windows(program, log)
    if warm_up:
        yield settling(log, whole, run, progress)
    with looking(progress, f"looking at what {sample:,} events read"):
        reads = list(missing_reads(program, log, whole, sample, progress))
    yield from reads


def _trusted(calls: tuple[Any, ...]) -> Iterator[Finding]:
    if not calls:
        yield Finding("trusted", "ok", "analysis sees through every call")
    for d in calls:
        yield Finding("trusted", "note", f"{d.code} {d.place} {d.message}", d.remedy)


def _truncated(log: Log, whole: Run, run: Callable[[Log], Run], progress: Progress) -> Finding:
    """The outputs and rejections of the first half, from a replay of nothing else."""
    reader = log.reader
    cut = reader.seq_after(log.count // 2)
    ts = reader.ts_before(cut + 1)
    part = run(PartLog(log, 0, cut))
    wrong = []
    with looking(progress, "comparing the first half's outputs"):
        for name in whole.counts:
            if not alike(_rows(whole.stored(name), ts, cut), _rows(part.stored(name), ts, cut)):
                wrong.append(name)
        if not alike(_rows(whole.stored_rejected(), ts, cut), _rows(part.stored_rejected(), ts, cut)):
            wrong.append("rejections")
    details = {"cut": cut, "ts": ts, "differ": wrong}
    if wrong:
        return Finding(
            "truncation", "error", f"without what comes after {time_text(ts or 0)}, {', '.join(wrong)} before it differ",
            "a bug in Timelapse, or a trusted call that is not pure: `timelapse verify` tells", details,
        )  # fmt: skip
    return Finding(
        "truncation", "ok",
        f"the first {cut:,} events alone give the same outputs up to there (this tests the engine)", "", details,
    )  # fmt: skip


def _rows(table: Any, ts: int | None, cut: int) -> Any:
    """Rows before the cut; those of the cut's own time only where they are log events'."""
    import numpy as np
    import pyarrow as pa

    times, seqs, phases = (np.asarray(table.column(n)) for n in ("ts", "seq", "phase"))
    keep = (times < (ts or 0)) | ((phases == 3) & (seqs < cut))
    return table.filter(pa.array(keep)).combine_chunks()


def _windows(program: Program, log: Log) -> Iterator[Finding]:
    """Windows that are longer than the log."""
    first, last = log.reader.ts_first, log.reader.ts_before(2**63 - 1)
    if first is None or last is None:
        return
    from timelapse.display import span

    length = last - first
    views = [u for u in spec_of(program).times if u.what in VIEWS]
    long = [(u, width_of(program, u)) for u in views]
    for use, width in long:
        if width > length:
            yield Finding(
                "windows", "warning", f"{use.text_of_what} looks back {span(width)}; the log has {span(length)}",
                "what it gives is understated everywhere: ingest earlier events", {"window": width, "log": length},
            )  # fmt: skip
        elif 2 * width > length:
            yield Finding(
                "windows", "note",
                f"{use.text_of_what} looks back {span(width)} of the log's {span(length)}: before that it is understated",
                "", {"window": width, "log": length},
            )  # fmt: skip
