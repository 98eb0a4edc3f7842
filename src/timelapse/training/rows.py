"""`tl.features`: point-in-time-correct rows for training, from an ordinary program.

A program that emits a record per event gives a row per event. At the rows of a table there are two ways:

- the program listens to an event type that the log does not have: each row is put to it as such an event, at the
  row's time, before everything of that time (log/asked.py), and what it emits there are the row's features;
- else rows name outputs, by the record's key: a row gets the last one before its time.

Nothing after a row's time can reach it: handlers see the log up to there, as they would have live.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from timelapse.compare.engines import Chosen, choose
from timelapse.compare.given import Given
from timelapse.display import moment, span
from timelapse.errors import IngestError, Place, RunError, SilentLog, UsageError, meant
from timelapse.ids import INT64_MAX
from timelapse.ingest.convert import convert
from timelapse.ingest.times import Times
from timelapse.log import Log
from timelapse.log.asked import AskedLog
from timelapse.model.events import Event, Record
from timelapse.model.types import BOOL, BYTES, FLOAT, INT, STR, TIME, OptionalType, ValueType
from timelapse.program.program import Program, as_program, spec_of
from timelapse.program.silence import allowing
from timelapse.progress import Progress
from timelapse.results.records import nameable_records, record_types
from timelapse.run import Run, replay
from timelapse.run.request import Engine
from timelapse.segments.types import EventType
from timelapse.store.parts import PartWriter
from timelapse.store.places import local_path
from timelapse.tables.rowhash import one_array
from timelapse.training.lookup import Several, Stored
from timelapse.training.questions import refuse_writes

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

I64 = npt.NDArray[np.int64]

_LONG_AFTER_1970 = 10**14
"""In a log that begins later than this (microseconds: 1973), whole numbers that are times of January 1970 are another unit."""
_WRITERS = {".parquet": pq.write_table, ".pq": pq.write_table, ".csv": pyarrow.csv.write_csv}


@dataclass(frozen=True)
class Features:
    """Rows for training.

    `table`: without `at` the columns `ts`, `seq` and the record's fields, a row per output. With `at` the table's
    own columns and after them the record's fields, a row per row of the table, in its order; null where the program
    had nothing to say. Columns of CSV that name outputs, or are the questions' fields, have the program's types; others
    are numbers where none of their texts loses anything by it (007). `missing` counts those. `record` is the record type's name, `run` the replay behind it.
    """

    table: pa.Table
    record: str
    missing: int
    run: Run

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a pandas DataFrame."""
        return self.table.to_pandas()

    def to_polars(self) -> Any:
        """The rows as a Polars DataFrame. Raises UsageError (TL835) where Polars is not installed."""
        try:
            import polars
        except ImportError:
            raise UsageError("Polars is not installed", hint="pip install polars", code="TL835") from None
        return polars.from_arrow(self.table)

    def write(self, path: str | Path) -> None:
        """Write the rows to a .parquet or .csv file, whole or not at all."""
        check_target(path)
        target = local_path(path, "table of features")
        with PartWriter(target) as file:
            _WRITERS[target.suffix.lower()](self.table, file)


def check_target(path: str | Path) -> None:
    """Raise UsageError (TL835) where rows cannot be written to a file of this name."""
    target = local_path(path, "table of features")
    if target.suffix.lower() not in _WRITERS:
        raise _unfit("neither .parquet nor .csv", str(path), "--out rows.parquet")
    if not target.absolute().parent.is_dir():
        raise _unfit(
            f"there is no folder {target.parent}", str(path), f"mkdir -p {shlex.quote(str(target.parent))}"
        )


def features(
    program: Program | type[Program],
    log: Log | str | Path,
    at: Any = None,
    *,
    ask: type[Event] | str | None = None,
    record: type[Record] | str | None = None,
    spark: SparkSession | Literal[False] | None = None,
    engine: Engine = "auto",
    slices: int | None = None,
    progress: Progress | None = None,
    cache: bool = True,
) -> Features:
    """Point-in-time-correct rows for training.

    `at` is a Parquet or CSV file, an Arrow table, or a pandas or Polars DataFrame; without it there is a row for
    every output of `record` (which need not be named where there is one type).

    Where the program listens to an event type that the log does not have (`ask` names one of several), each row of
    `at` is put to the program as such an event: it needs a column `ts` (a timestamp, or int64 microseconds) and the
    type's fields. Such an event stands before the log's events of that time (and after ticks and
    what was dated to it), and must not write any state. It emits one record or
    none.

    Else `at` names outputs by the fields of the record's `key=`. With a column `ts` a row gets the last such output
    before that time, without one the only output there is.

    Raises UsageError (TL835) for a table that does not fit, (TL910) for times that are no microseconds, and what
    tl.replay raises.
    """
    made = as_program(program)
    _check_record(made, record)
    opened = Log.open(log) if isinstance(log, str | Path) else log
    options: dict[str, Any] = {
        "spark": spark,
        "slices": slices,
        "progress": progress,
        "cache": cache,
        "engine": engine,
    }
    if at is None:
        if ask is not None:
            raise _unfit(
                "ask= (--ask) without at= (--at)", None, "at= (--at) is the table whose rows are asked"
            )
        run = replay(made, opened, **options)
        name = _record(run, record, [n for n, rows in run.counts.items() if rows])
        return Features(run.table(name), name, 0, run)
    given, own = _table(at)
    if "ts" in given.table.column_names:
        _refuse_units(given, opened)
    kind = _question(made, opened, ask)
    if kind is None:
        run = replay(made, opened, **options)
        stored = Stored.of(run, _record(run, record, _keyed(run, own)), _where(run, engine, spark))
        keys, rows = _named(run, stored, given)
        return _joined(run, stored, _as_read(given, own, keys), rows)
    refuse_writes(made, kind)
    questions = _rows(kind, given)
    asked = AskedLog(opened, EventType.of(kind), questions)
    try:
        run = replay(made, asked, **options)
    except SilentLog as error:
        raise error if error.event != kind.__name__ else _far(error, made, given, questions) from None
    where = _where(run, engine, spark)
    outputs = {name: Stored.of(run, name, where) for name in run.counts}
    found = {name: _answers(one, asked) for name, one in outputs.items()}
    name = _record(run, record, [n for n, rows in found.items() if (rows >= 0).any()])
    own = _as_read(given, own, questions.drop_columns("ts"))
    return _joined(run, outputs[name], own, found[name], taken=[f.name for f in kind.__fields__])


def _far(error: SilentLog, program: Program, given: Given, questions: pa.Table) -> SilentLog:
    """What is said where a row that is asked comes long after all events: it is in the table, and in no log."""
    row = pc.index(questions.column("ts"), pa.scalar(error.ts, pa.int64())).as_py() + 1
    return SilentLog(
        f"row {row} is at {moment(error.ts)}, {span(error.ts - error.before)} after the event before it",
        place=Place(given.name),
        hint=f"is its ts right? If not, leave it out. If so, {allowing(program, error.before, error.ts)}",
    )


def _where(run: Run, engine: Engine, spark: SparkSession | Literal[False] | None) -> Chosen:
    """Where the outputs are read: as a comparison of them would."""
    return choose(engine, spark, (run,), what="looking up features")


# --- the table --------------------------------------------------------------------------------------------


def _table(at: Any) -> tuple[Given, pa.Table]:
    """The rows to be read, where CSV is all texts, and as they are given on."""
    given = Given.read(at, what="rows", code="TL835")
    if not given.texts:
        return given, given.table.replace_schema_metadata(None)
    typed = pyarrow.csv.read_csv(at)
    kept = {
        name: given.table.column(name) if _lossy(typed.column(name), given.table.column(name)) else column
        for name, column in zip(typed.column_names, typed.columns, strict=True)
    }
    return given, pa.table(kept)


def _lossy(typed: pa.ChunkedArray, texts: pa.ChunkedArray) -> bool:
    """Whether numbers say less than the texts of which they were made: 007, and whole numbers that are no int64."""
    if not (pa.types.is_integer(typed.type) or pa.types.is_floating(typed.type)):
        return False
    whole = r"^\s*[-+]?(0\d+|\d{16,})\s*$" if pa.types.is_floating(typed.type) else r"^\s*[-+]?0\d"
    return bool(pc.any(pc.match_substring_regex(texts, whole)).as_py())


def _column(given: Given, name: str, kind: ValueType) -> pa.Array:
    """A column as values of a type. Raises UsageError (TL835) naming the first row that has none."""
    if name not in given.table.column_names:
        raise _unfit(
            f"there is no column {name}",
            given.name,
            f"{meant(name, given.table.column_names)}columns: {', '.join(given.table.column_names) or 'none'}",
        )
    try:
        values, reasons = convert(name, one_array(given.table.column(name)), kind, Times(), texts=given.texts)
    except IngestError as error:
        raise _unfit(error.message, given.name) from None
    for row, reason in sorted(reasons.items()):
        raise _unfit(f"row {row + 1}: {reason}", given.name)
    return values


def _refuse_units(given: Given, log: Log) -> None:
    """Raise UsageError (TL910) for whole numbers that are times before the log as microseconds, and in it as seconds or
    milliseconds: such a row would know nothing, and nobody would be told."""
    column = given.table.column("ts")
    plain = pa.types.is_integer(column.type)
    if not plain and not (given.texts and all(t is not None and t.isdecimal() for t in column.to_pylist())):
        return
    times, first = np.asarray(_column(given, "ts", TIME), np.int64), log.reader.ts_first
    last = log.reader.ts_before(INT64_MAX)
    if first is None or last is None or not len(times):
        return
    alike = int(times.max()) < first
    if not alike and first < _LONG_AFTER_1970:
        return
    for unit, scale in (("milliseconds", 1000), ("seconds", 1_000_000)):
        odd = np.flatnonzero((times < first) & (times >= -(-first // scale)) & (times <= last // scale))
        if len(odd):
            said = f"the times in ts lie before the log's first event; they look like {unit}"
            one = f"row {odd[0] + 1}: ts lies before the log's first event, and looks like {unit}"
            raise UsageError(
                said if alike else one, place=Place(given.name), code="TL910",
                hint=f"make {'them' if alike else 'all of them'} timestamps, or microseconds since 1970: times {scale:,}",
            )  # fmt: skip


# --- rows that are asked ----------------------------------------------------------------------------------


def _question(program: Program, log: Log, ask: type[Event] | str | None) -> type[Event] | None:
    held = {t.name for t in log.types}
    events = {e.__name__: e for e in spec_of(program).events if e not in spec_of(program).sent}
    others = [name for name in events if name not in held]
    name = ask if isinstance(ask, str) or ask is None else ask.__name__
    if name is not None:
        if name not in others:
            raise _unfit(
                f"{name} is an event type of the log" if name in held else f"the program does not listen to {name}",
                None, f"{meant(name, others)}types that can be asked: {', '.join(others) or 'none'}",
            )  # fmt: skip
        return events[name]
    if len(others) > 1:
        raise _unfit(
            f"the log has none of the event types {', '.join(others)}",
            None,
            f"say which rows are: --ask {others[0]}",
        )
    return events[others[0]] if others else None


def _rows(kind: type[Event], given: Given) -> pa.Table:
    columns = {"ts": _column(given, "ts", TIME)}
    columns |= {f.name: _column(given, f.name, f.type).cast(f.type.arrow) for f in kind.__fields__}
    return pa.table(columns)


def _answers(stored: Stored, asked: AskedLog) -> I64:
    """For each row of the table the number of the output that stems from it, or -1."""
    seqs = asked.reader.seqs
    places, rows = stored.put_out_at(np.asarray(seqs, np.int64))
    found = np.full(len(seqs), -1, np.int64)
    of = asked.order[places]
    if len(np.unique(of)) < len(of):
        twice = of[np.flatnonzero(np.diff(of) == 0)[0]]
        raise _unfit(
            f"row {twice + 1} got more than one {stored.record}", None, "emit one record per question"
        )
    found[of] = rows
    return found


# --- rows that name outputs -------------------------------------------------------------------------------


def _keyed(run: Run, table: pa.Table) -> list[str]:
    """The record types whose key the table's columns hold."""
    return [
        r.name for r in run.manifest.records if r.key and all(name in table.column_names for name in r.key)
    ]


_KINDS: tuple[tuple[Any, ValueType], ...] = (
    (pa.types.is_boolean, BOOL), (pa.types.is_integer, INT), (pa.types.is_floating, FLOAT),
    (pa.types.is_timestamp, TIME), (pa.types.is_large_string, STR), (pa.types.is_large_binary, BYTES),
)  # fmt: skip


def _named(run: Run, stored: Stored, given: Given) -> tuple[pa.Table, I64]:
    """The keys that the table's rows have, and for each row the number of the output that it names, or -1."""
    record = stored.record
    key = next(r.key for r in run.manifest.records if r.name == record)
    if not key:
        raise _unfit(
            f"{record} has no key by which rows could name it", given.name,
            'declare class Row(tl.Record, key="message"), or listen to an event type for such rows',
        )  # fmt: skip
    columns = []
    for name in key:
        target = stored.schema.field(name).type
        kind = next((k for test, k in _KINDS if test(target)), None)
        if kind is None:
            raise _unfit(f"{name} is {target}: a row cannot name that", given.name)
        columns.append(_column(given, name, OptionalType(kind)).cast(target))
    times = np.asarray(_column(given, "ts", TIME), np.int64) if "ts" in given.table.column_names else None
    keys = pa.table(columns, names=list(key))
    try:
        return keys, stored.of_keys(tuple(key), keys, times)
    except Several as error:
        raise _unfit(
            f"row {error.row + 1} names {error.count:,} outputs of {record}", given.name,
            "a column ts says which: the last one before it",
        ) from None  # fmt: skip


# --- putting together -------------------------------------------------------------------------------------


def _check_record(program: Program, wanted: type[Record] | str | None) -> None:
    """Raise RunError (TL603) for a record type that the program cannot emit, before it is replayed."""
    if wanted is None:
        return
    name = wanted if isinstance(wanted, str) else wanted.__name__
    known = {c.__name__ for c in nameable_records(program)}
    if name not in known:
        emitted = [c.__name__ for c in record_types(program)]
        raise RunError(
            f"the program emits no {name}", code="TL603",
            hint=f"{meant(name, known)}record types: {', '.join(emitted) or 'none'}",
        )  # fmt: skip


def _record(run: Run, wanted: type[Record] | str | None, usable: list[str]) -> str:
    if wanted is not None:
        name = wanted if isinstance(wanted, str) else wanted.__name__
        run.stored(name)  # raises where there is no such type
        return name
    names = usable or list(run.counts)
    if len(names) == 1:
        return names[0]
    raise _unfit(
        f"rows could be {' or '.join(names)}" if names else "the program emits no record", None,
        f"say which: record={names[0]!r} (--record {names[0]})" if names else "emit a record with the features",
    )  # fmt: skip


def _as_read(given: Given, own: pa.Table, read: pa.Table) -> pa.Table:
    """The table that is given on, where texts of CSV that the program was given stand as the values that they were read as."""
    if given.texts:
        for name in read.column_names:
            own = own.set_column(own.column_names.index(name), name, read.column(name))
    return own


def _joined(run: Run, stored: Stored, own: pa.Table, rows: I64, taken: list[str] | None = None) -> Features:
    """The table with the features of each of its rows; fields that it has already are taken from it."""
    record = stored.record
    outputs = stored.fields(rows)
    key = next(r.key for r in run.manifest.records if r.name == record)
    known = [*key, *(taken or [])]
    for name in outputs.column_names:
        if name in own.column_names and name not in known:
            raise _unfit(f"both the table and {record} have a column {name}", None, "rename one of them")
    table = own
    for name in outputs.column_names:
        if name not in own.column_names:
            table = table.append_column(name, outputs.column(name))
    return Features(table, record, int(np.count_nonzero(rows < 0)), run)


def _unfit(message: str, place: str | None, hint: str = "") -> UsageError:
    return UsageError(message, place=Place(place), hint=hint or None, code="TL835")
