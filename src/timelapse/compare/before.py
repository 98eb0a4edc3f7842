"""What will be asked of a comparison, checked before its programs are replayed: a slip of the pen costs no replay.

The questions are put to a comparison of nothing: both versions with no outputs, over a log without events. Which record
types a program puts out is known for certain only afterwards. So a question is refused only where it would also be
refused if the program put out every record type that its modules name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from timelapse.compare.conditions import Condition, figures_of
from timelapse.compare.differences import Diff, key_fields
from timelapse.compare.match import Found
from timelapse.compare.records import BY_EVENT, REJECTED, RecordDiff, checked_identity, compared
from timelapse.compare.score import judge
from timelapse.compare.sides import Held
from timelapse.errors import UsageError
from timelapse.kernels.base import POSITION_FIELDS, output_schema
from timelapse.model.events import Record
from timelapse.program.program import Program
from timelapse.results.records import nameable_records, record_types
from timelapse.segments.reader import Chunk, Columns

if TYPE_CHECKING:
    from timelapse.log.log import Log
    from timelapse.run.run import Run
    from timelapse.segments.types import EventType


def check_asked(
    programs: Sequence[Program], log: Log, *, key: Sequence[tuple[str, Sequence[str]]] = (), by: Sequence[str] = (),
    judging: Mapping[str, Any] | None = None, conditions: Sequence[Condition] = (),
) -> None:  # fmt: skip
    """Raise the UsageError that `diff`, `Diff.judge` or a condition would raise after the programs were replayed.

    TL816 for record types and fields, TL818 for labels, TL819 for figures. `judging`: the arguments of `judge`; `by`: as for
    `RecordDiff.by`; `key`: as for `key_fields`.
    """
    for types in (record_types, nameable_records):
        sides = [{c.__name__: c for c in types(program)} for program in programs]
        try:
            _ask(_nothing(sides, log, key), by, judging or {}, conditions)
            return
        except UsageError as error:
            refused = error
    if "could be about" not in refused.message:  # with the types that there really are it may be clear
        raise refused


class _NoEvents:
    """A reader of a log's types, without its events."""

    def __init__(self, types: tuple[EventType, ...]) -> None:
        self.types = types

    def cuts(self, n: int) -> list[int]:
        return [0] * (n + 1)

    def chunks(self, lo: int, hi: int, columns: Columns) -> Iterator[Chunk]:
        return iter(())


class _NoOutputs:
    """As much of a run as a comparison of nothing needs."""

    def __init__(self, log: Log) -> None:
        self._reader = _NoEvents(log.types)

    def need_reader(self) -> _NoEvents:
        return self._reader


def _nothing(
    sides: Sequence[Mapping[str, type[Record]]], log: Log, key: Sequence[tuple[str, Sequence[str]]]
) -> Diff:
    names = sorted({name for side in sides for name in side})
    schemas = {n: [set(output_schema(s[n]).names) for s in sides if n in s] for n in names}
    keys_asked = key_fields(key, {n: set.intersection(*found) for n, found in schemas.items()})
    records: dict[str, RecordDiff] = {}
    for name in names:
        classes = [side.get(name) for side in sides]
        keys = {c.__key__ for c in classes if c is not None}
        own = keys.pop() if len(keys) == 1 else ()
        tables = [None if c is None else output_schema(c).empty_table() for c in classes]
        tables = (tables * 2)[:2]
        own_schemas = [None if t is None else t.schema for t in tables]
        records[name] = compared(
            name, tables, checked_identity(name, own_schemas, tuple(keys_asked.get(name, own)))
        )
    none = Held(pa.schema(POSITION_FIELDS).empty_table())
    run = cast("Run", _NoOutputs(log))
    return Diff(run, run, records, RecordDiff(REJECTED, BY_EVENT, (none, none), Found.nothing()))


def _ask(
    nothing: Diff, by: Sequence[str], judging: Mapping[str, Any], conditions: Sequence[Condition]
) -> None:
    check_fields(nothing, by)
    owners = [(r, f) for f in by for r in nothing.records.values() if f in r.schema.names]
    judged = None
    if judging:
        about = nothing.records[judging["labels"].record(nothing.records, judging.get("record"))]
        fields = [f for f in by if f in about.schema.names]
        judged = judge(nothing, **{**judging, "record": about.name, "by": fields})
    known = figures_of(nothing, judged, [(r.name, r.by(f)) for r, f in owners])
    for condition in conditions:
        condition.check(known)


def check_fields(found: Diff, fields: Sequence[str]) -> None:
    """Raise UsageError (TL816) for a field that no record type has."""
    from timelapse.compare.records import PLACE
    from timelapse.errors import meant

    known = sorted({n for r in found.records.values() for n in r.schema.names if n not in PLACE})
    for field in fields:
        if field not in known:
            raise UsageError(
                f"--by {field}: no record has that field", code="TL816",
                hint=f"{meant(field, known)}fields: {', '.join(known)}",
            )  # fmt: skip


__all__ = ["check_asked", "check_fields"]
