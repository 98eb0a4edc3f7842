"""A finished replay as it is stored, or held in memory: its rows, its states at cuts, the program and log behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.ipc

from timelapse.display import many
from timelapse.engine.job import schema_of
from timelapse.errors import RunError, TimelapseError, UsageError, meant
from timelapse.kernels.tuning import USUAL, KernelTuning
from timelapse.kinds.base import StateSpec
from timelapse.model.events import Record
from timelapse.model.types import TIME
from timelapse.moments import Moment, micros
from timelapse.program.program import Program, spec_of
from timelapse.results.data import DirectoryData, Rows, RunData
from timelapse.results.manifest import RunManifest, read_manifest
from timelapse.results.parameters import parameter
from timelapse.results.shown import presentable, rows_under
from timelapse.store.remote import opened, place_path
from timelapse.tables.table import to_dict

if TYPE_CHECKING:
    from timelapse.segments.reader import EventReader

_TS = TIME.arrow


@dataclass
class RunContext:
    """What a run can use beyond its directory: the live program and log, where the caller has them."""

    program: Program | None = None
    reader: EventReader | None = None
    keep: list[Any] = field(default_factory=list)
    """Held as long as the run is: its directory, which is temporary."""
    held: list[Any] = field(default_factory=list)
    """Held as long as the run is besides."""
    tuning: KernelTuning = USUAL
    """Thresholds of the kernels that questions are answered with."""


class StoredRun:
    """What a replay stored: outputs, rejected events, states, and what proves it; with the program and the log behind it.

    Tables are in log order and start with `ts` (timestamp, UTC) and `seq`. A run is complete when
    it can be opened: it is published whole or not at all.
    """

    def __init__(self, manifest: RunManifest, data: RunData, path: Path | None, context: RunContext) -> None:
        self._manifest = manifest
        self._data = data
        self._context = context
        self.path = path
        """The run's directory; None where it only exists in memory."""

    @classmethod
    def open(cls, path: str | Path, program: Program | None = None) -> Self:
        """Open a run's directory. Raises RunError when there is none or it does not match."""
        folder = opened(place_path(path, "run"))
        manifest = read_manifest(folder)
        return cls(manifest, DirectoryData(folder, manifest), folder, RunContext(program=program))

    @classmethod
    def of(cls, given: StoredRun | str | Path) -> Self:
        """A run, or the one in a directory. Raises RunError as `open` does, UsageError (TL807) for anything else."""
        if isinstance(given, cls):
            return given
        if isinstance(given, str | Path):
            return cls.open(given)
        raise UsageError(
            f"a run is needed, not {given!r:.60}",
            hint="give a tl.Run, as tl.replay returns it, or its folder",
            code="TL807",
        )

    def with_tuning(self, tuning: KernelTuning) -> Self:
        """The same run, whose questions are answered with other thresholds."""
        return type(self)(self._manifest, self._data, self.path, replace(self._context, tuning=tuning))

    @property
    def tuning(self) -> KernelTuning:
        """Thresholds of the kernels that questions are answered with."""
        return self._context.tuning

    # --- what it was ------------------------------------------------------------------------------

    @property
    def manifest(self) -> RunManifest:
        """Everything stored about the run but its rows."""
        return self._manifest

    @property
    def program(self) -> str:
        """The program's name."""
        return self._manifest.program

    @property
    def params(self) -> dict[str, Any]:
        """Parameter values."""
        return {name: _literal(text) for name, text in self._manifest.params.items()}

    @property
    def events(self) -> int:
        """Number of events in the log."""
        return self._manifest.events

    @property
    def slices(self) -> int:
        """Number of time slices."""
        return len(self._manifest.cuts) - 1

    @property
    def seconds(self) -> float:
        """How long the replay took."""
        return self._manifest.seconds

    @property
    def timings(self) -> dict[str, float]:
        """Seconds by stage."""
        return dict(self._manifest.timings)

    @property
    def account(self) -> dict[str, float]:
        """Core-seconds by phase: read, decode, kernel, exchange and so on, and `idle` for cores without work.

        Together they are `seconds` times the cores that the run could use.
        """
        return dict(self._manifest.account)

    @property
    def passes(self) -> dict[str, str]:
        """For each pass that ran: "compiled", or "Python" and why."""
        return dict(self._manifest.certificate.get("passes", {}))

    @property
    def digest(self) -> str:
        """32 hex digits over all outputs and rejections and their places: the same for any slices, cores, machines and retries."""
        return self._manifest.digest

    @property
    def state_digest(self) -> str:
        """The same over the final state."""
        return self._manifest.state_digest

    @property
    def certificate(self) -> dict[str, Any]:
        """What was checked before the run was published."""
        return dict(self._manifest.certificate)

    @property
    def counts(self) -> dict[str, int]:
        """Number of outputs by record type."""
        return {r.name: r.rows for r in self._manifest.records}

    @property
    def rejected_count(self) -> int:
        """Number of rejected events."""
        return self._manifest.rejected

    @property
    def pending(self) -> dict[str, int]:
        """What lay ahead at the end: dated writes by state, dated events by type, `after=` calls by handler."""
        return dict(self._manifest.pending)

    @property
    def engine(self) -> str:
        """Where the replay ran, and why there."""
        found = self.certificate.get("engine", {})
        where, why = f"{self.manifest.executor}{did(found)}", found.get("why")
        return f"{where}: {why}" if why else where

    def __repr__(self) -> str:
        found = ", ".join(f"{n:,} {name}" for name, n in self.counts.items()) or "no outputs"
        most = sorted(((s, n) for n, s in self.account.items() if n != "idle"), reverse=True)[:3]
        spent = f", {self.seconds:.2f} s ({', '.join(f'{n} {s:.2f}' for s, n in most)})" if most else ""
        return (
            f"<Run {self.program}: {many(self.events, 'event', 'events')}, {found}, digest {self.digest[:12]}{spent}"
            f"{f', {self.path}' if self.path else ''}, {self.manifest.executor}{did(self.certificate.get('engine', {}))}>"
        )

    # --- rows -------------------------------------------------------------------------------------

    def stored(
        self, record: type[Record] | str, columns: Sequence[str] | None = None, *, at: int | None = None
    ) -> pa.Table:
        """Outputs in the stored columns: ts and seq as integers, phase, ordinal, then the fields. `columns`: only some of them,
        `at`: only rows of one time; little more is read than that."""
        name, schema = self._record(record)
        return self._data.outputs(name, schema, columns, at)

    @property
    def shared(self) -> bool:
        """Whether its files lie where Spark's executors see them, as far as is known: a temporary folder does where they wrote it."""
        own = self._context.keep and not self.certificate.get("engine", {}).get("jobs")
        return self.path is not None and not own

    def schema(self, record: type[Record] | str) -> pa.Schema:
        """The stored columns' names and types."""
        return self._record(record)[1]

    def table(self, record: type[Record] | str) -> pa.Table:
        """Outputs of a record type: `ts`, `seq`, then its fields, in log order."""
        table = self.stored(record)
        names = [n for n in table.column_names if n not in ("phase", "ordinal")]
        return _with_times(table.select(names))

    @property
    def rejected(self) -> pa.Table:
        """Rejected events: `ts`, `seq`, event type, handler, reason, in log order."""
        return _with_times(self._data.rejected().select(["ts", "seq", "event", "handler", "reason"]))

    @property
    def quarantined(self) -> pa.Table:
        """Events that were taken out of the log because a handler raised, in log order.

        Columns: `ts`, `seq`, `event` (its type), `handler`, `error` (the exception's type and text), `file` and
        `line` of the handler's code. Empty without `quarantine=True`: then an exception fails the replay.
        """
        return _with_times(self._data.quarantined().drop_columns(["phase"]))

    @property
    def left_out(self) -> list[int]:
        """Events, by rising seq, that its result is without: those in `quarantined`, and those that its log was
        replayed without. `log.without(run)` is the log that gives the same result and fails nowhere.
        """
        found = self.stored_quarantined().column("seq").to_pylist()
        return sorted({*self._manifest.without, *found})

    @property
    def quarantined_count(self) -> int:
        """Number of events that were taken out because a handler raised."""
        return self._manifest.quarantined or 0

    def stored_rejected(self, columns: Sequence[str] | None = None, *, at: int | None = None) -> pa.Table:
        """Rejected events in the stored columns; `columns` and `at` as for `stored`."""
        return self._data.rejected(columns, at)

    def stored_quarantined(self) -> pa.Table:
        """Events that were taken out, in the stored columns."""
        return self._data.quarantined()

    def _record(self, record: type[Record] | str) -> tuple[str, pa.Schema]:
        from timelapse.kernels.base import output_schema

        if isinstance(record, type):
            return record.__name__, output_schema(record)
        for entry in self._manifest.records:
            if entry.name == record:
                return record, schema_of(entry.schema)
        raise RunError(
            f"the run has no record type {record!r}",
            hint=f"{meant(record, self.counts)}record types: {', '.join(self.counts) or 'none'}", code="TL603",
        )  # fmt: skip

    # --- states -----------------------------------------------------------------------------------

    def state(self, name: str, at: Moment | None = None) -> pa.Table:
        """A state as a table: columns `key` (a struct for tuple keys) and `value`, in key order; docs/kinds.md has
        the columns of each kind.

        Without `at` it is the state after the last event; with `at` (microseconds UTC, ISO 8601 text or a datetime) the
        state before everything at that time. Raises RunError for an unknown name, UsageError for a time that is none.
        """
        return self.states(at, (name,))[name]

    def under(self, name: str, key: Any, at: Moment | None = None) -> pa.Table:
        """What a SetOf, MapOf or Mean holds under one declared key: the rows of `state` with it.

        Raises RunError for an unknown name, UsageError (TL841) for a kind with one value per key, or what is no key.
        """
        spec = self.state_spec(name)
        if spec.outer is None:
            raise UsageError(
                f"{name} is {spec.text}: it holds one value under a key",
                hint="run.history(name, key)",
                code="TL841",
            )
        try:
            wanted = spec.outer.checker(f"a key of {name}")(key)
        except TimelapseError as error:
            raise UsageError(error.message, hint=f"its keys are {spec.outer.text}", code="TL841") from None
        return rows_under(self.state(name, at), wanted)

    def states(self, at: Moment | None = None, names: Iterable[str] | None = None) -> dict[str, pa.Table]:
        """Several states of one moment, as `state` gives each: those named, else all that the program declares.

        That takes about as long as for one of them. Raises RunError for an unknown name.
        """
        chosen = [s.name for s in self._manifest.states] if names is None else list(names)
        specs = [self.state_spec(name) for name in chosen]
        if at is None:
            tables = [self._data.state_at_cut(spec, self.slices) for spec in specs]
        else:
            tables = self._states_before(micros(at, "at="), specs)
        return {s.name: presentable(s, table) for s, table in zip(specs, tables, strict=True)}

    def state_at_cut(self, name: str, slices: int) -> dict[Any, Any]:
        """A state's values after the first `slices` slices."""
        spec = self.state_spec(name)
        return to_dict(spec, self._data.state_at_cut(spec, slices))

    def table_at_cut(self, state: str | StateSpec, slices: int, only: Rows | None = None) -> pa.Table:
        """The same as a table, as it is stored (tables/table.py). `only`: those of its rows, which then are all that is merged."""
        spec = state if isinstance(state, StateSpec) else self.state_spec(state)
        return self._data.state_at_cut(spec, slices, only)

    def tables_at_cuts(self, spec: StateSpec) -> Iterator[pa.Table]:
        """A state's tables after the first slice, after two, and so on. Take no more than there are slices."""
        return self._data.tables_at_cuts(spec)

    def value_at_cut(self, name: str, key: Any, slices: int) -> Any:
        """What a state holds under a key (as it is stored) after the first `slices` slices; ABSENT: nothing."""
        return self._data.value_at_cut(self.state_spec(name), key, slices)

    def changed(self, name: str, key: Any, slice_id: int) -> bool:
        """Whether a slice left a state's key (as it is stored) otherwise than it was before."""
        return self._data.changed(self.state_spec(name), key, slice_id)

    def state_spec(self, name: str) -> StateSpec:
        """How a state is declared. Raises RunError (TL603) for an unknown name."""
        program = self._context.program
        if program is not None and name in spec_of(program).declared:
            return spec_of(program).declared[name]
        for entry in self._manifest.states:
            if entry.name == name:
                return entry.spec()
        names = [s.name for s in self._manifest.states]
        raise RunError(
            f"the program has no state {name!r}",
            hint=f"{meant(name, names)}states: {', '.join(names) or 'none'}", code="TL603",
        )  # fmt: skip

    def _states_before(self, at: int, specs: Sequence[StateSpec]) -> list[pa.Table]:
        from timelapse.results.travel import states_before

        return states_before(self, at, specs)

    # --- the program and log behind it ------------------------------------------------------------

    def need_program(self) -> Program:
        """The program that ran. Raises RunError when it cannot be had or has changed since."""
        if self._context.program is None:
            from timelapse.results.reload import reload_program

            self._context.program = reload_program(self._manifest, self.path)
        return self._context.program

    def hold(self, what: Any) -> None:
        """Keep something as long as the run is there."""
        self._context.held.append(what)

    def use_reader(self, reader: EventReader) -> None:
        """Say that this is the log that was replayed, where the caller has it."""
        self._context.reader = reader

    def need_reader(self) -> EventReader:
        """The log that was replayed. Raises RunError when it is gone or is another one."""
        if self._context.reader is None:
            from timelapse.results.reload import reopen_log

            self._context.reader = reopen_log(self._manifest)
        return self._context.reader


def did(engine: Mapping[str, Any]) -> str:
    """What Spark did for a run, as its certificate has it: `, application local-1: 2 jobs, 4 tasks on 1 executor`; empty for one process."""
    if not engine.get("jobs"):
        return ""
    name = f", application {engine['application']}" if engine["application"] else ""
    where = f" on {many(engine['executors'], 'executor', 'executors')}" if engine["executors"] else ""
    return f"{name}: {many(engine['jobs'], 'job', 'jobs')}, {many(engine['tasks'], 'task', 'tasks')}{where}"


def _literal(text: str) -> Any:
    try:
        return parameter(text)
    except (ValueError, SyntaxError):
        return text


def _with_times(table: pa.Table) -> pa.Table:
    index = table.schema.get_field_index("ts")
    return table.set_column(index, pa.field("ts", _TS, nullable=False), table.column("ts").cast(_TS))
