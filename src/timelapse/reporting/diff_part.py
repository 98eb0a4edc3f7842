"""What a report says of two runs side by side, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from timelapse.charts import Timeline
from timelapse.compare import Cause, Change, Diff, Judgement, RecordDiff, Scores
from timelapse.compare.score import counted, hit_in_vain, notes_of
from timelapse.compare.views import differences_chart, whole_span
from timelapse.display import clean, date, many, moment, one_line, percent, took
from timelapse.errors import UsageError, meant
from timelapse.reporting.fields import Keys, Spread, countable, field_part, measured
from timelapse.reporting.redact import HIDDEN, PLACE, Redaction, shown
from timelapse.reporting.tables import TOP, nearly_alike
from timelapse.results.parameters import shown_text

if TYPE_CHECKING:
    from timelapse.compare.records import At
    from timelapse.run import Run

_GROUPS = 31
"""Days or segments of labels that are listed."""


@dataclass(frozen=True)
class Side:
    """One of both runs. `params`: those in which it differs from the other, with their values."""

    letter: str
    name: str
    params: tuple[tuple[str, str], ...]
    digest: str
    seconds: str
    outputs: int
    rejected: int
    quarantined: int


@dataclass(frozen=True)
class Entity:
    """Distinct values of a field: in A, in B, only in A (freed), only in B (hit); those with most differences."""

    field: str
    a: int
    b: int
    freed: int
    hit: int
    top: tuple[tuple[str, int, int, float, float], ...]
    """Value, gone, new, and both relative to the largest, in percent; none where all differ as often as each other."""
    why: str = ""
    """Why there is none."""


@dataclass(frozen=True)
class Example:
    """One difference. `cells`: name, text in A, text in B (None where there is no row)."""

    kind: str
    when: str
    seq: int
    cells: tuple[tuple[str, str | None, str | None], ...]
    why: tuple[str, ...] = ()


@dataclass(frozen=True)
class RecordDiffPart:
    """The differences of one record type, or of the rejected events."""

    name: str
    identity: str
    a: int
    b: int
    gone: int
    new: int
    changed: int
    chart: Timeline
    fields: tuple[tuple[str, int], ...]
    entities: tuple[Entity, ...]
    spreads: tuple[Spread, ...]
    """Fields with numbers that are spread otherwise, both sides over each other."""
    examples: tuple[Example, ...]

    @property
    def more(self) -> int:
        """Differences that are not shown."""
        return self.gone + self.new + self.changed - len(self.examples)


@dataclass(frozen=True)
class ScoreRow:
    """Precision and recall of both sides over some items, as texts."""

    name: str
    judged: tuple[str, str]
    precision: tuple[str, str]
    recall: tuple[str, str]


@dataclass(frozen=True)
class LabelPart:
    """What labels say."""

    record: str
    total: ScoreRow
    f1: tuple[str, str]
    groups: tuple[tuple[str, tuple[ScoreRow, ...], int], ...]
    """By what, the rows, and how many are left out."""
    notes: tuple[str, ...]


@dataclass(frozen=True)
class DiffPart:
    """Two runs side by side."""

    same: bool
    sides: tuple[Side, Side]
    records: tuple[RecordDiffPart, ...]
    first: str
    labels: LabelPart | None


def diff_part(
    found: Diff, redaction: Redaction, by: Sequence[str], examples: int, names: tuple[str, str] | None,
    judged: Judgement | None,
) -> DiffPart:  # fmt: skip
    """Everything about a diff. Raises UsageError (TL816) for a field of `by` that no record has."""
    known = {n for r in found.records.values() for n in r.schema.names if n not in PLACE}
    for name in by:
        if name not in known:
            raise UsageError(
                f"--by {one_line(name)}: no record has that field",
                hint=f"{meant(name, known)}fields: {', '.join(sorted(known))}",
                code="TL816",
            )
    records = [
        *found.records.values(),
        *([found.rejected] if found.rejected.counts["a"] or found.rejected.counts["b"] else []),
    ]
    ends, keys = whole_span(records), Keys.of(found.b)
    parts = tuple(
        _record(found, r, redaction, by, examples, ends, keys, rejected=r is found.rejected) for r in records
    )
    first = found.first
    return DiffPart(
        found.same,
        (_side("A", found.a, found.b, redaction, names), _side("B", found.b, found.a, redaction, names)),
        parts,
        ""
        if first is None
        else f"{moment(first.ts)} UTC, seq {first.seq}: {clean(first.record)} {first.kind}",
        None if judged is None else _labels(judged, redaction),
    )


def _side(letter: str, run: Run, other: Run, redaction: Redaction, names: tuple[str, str] | None) -> Side:
    own, theirs = run.manifest.params, other.manifest.params
    changed = {n: t for n, t in own.items() if theirs.get(n) != t}
    given = None if names is None else names["AB".index(letter)]
    return Side(
        letter, one_line(given or (run.path.name if run.path else run.program)),
        tuple((n, HIDDEN if redaction.hides_param(n) else shown(shown_text(t))) for n, t in changed.items()),
        run.digest, took(run.seconds), sum(run.counts.values()), run.rejected_count,
        run.quarantined_count,
    )  # fmt: skip


def _record(
    found: Diff, record: RecordDiff, redaction: Redaction, by: Sequence[str], examples: int,
    ends: tuple[int, int] | None, keys: Keys, *, rejected: bool,
) -> RecordDiffPart:  # fmt: skip
    name, counts = record.name, record.counts
    shown_changes = list(islice(record.changes(), examples))
    causes = found.causes(shown_changes)
    names, spreads = ([], ()) if rejected else _fields(record, by, redaction, keys)
    title = "Rejected events that differ" if rejected else f"{name}: what differs"
    return RecordDiffPart(
        clean(name),
        "event" if record.identity == ("phase", "seq") else ", ".join(record.identity),
        counts["a"], counts["b"], counts["gone"], counts["new"], counts["changed"],
        differences_chart(record, ends, title),
        tuple(sorted(record.fields.items(), key=lambda item: (-item[1], item[0]))),
        tuple(_entity(record, field, redaction) for field in names),
        spreads,
        tuple(_example(c, causes, redaction, rejected=rejected) for c in shown_changes),
    )  # fmt: skip


def _fields(
    record: RecordDiff, by: Sequence[str], redaction: Redaction, keys: Keys
) -> tuple[list[str], tuple[Spread, ...]]:
    """The fields by which people ask who is hit (those of `by`, else names and keys that are no identity), and the spreads of
    those with numbers or times. Numbers that are the same on both sides are left out.
    """
    names, spreads = [], []
    for field in record.schema:
        if field.name in PLACE or field.name in record.identity:
            continue
        if measured(field.type) and not (
            pa.types.is_integer(field.type) and keys.hold(record.name, field.name)
        ):
            if not (any(record.found.counts[:2]) or field.name in record.fields):
                continue
            columns = [table.column(field.name) for table in (record.a, record.b)]
            found = field_part(record.name, field.name, columns, redaction, keys)
            if isinstance(found, Spread):
                spreads.append(found)
                continue
        if countable(field.type):
            names.append(field.name)
    chosen = [f for f in by if f in record.schema.names and f not in PLACE] if by else names[:3]
    return chosen, tuple(spreads)


def _entity(record: RecordDiff, field: str, redaction: Redaction) -> Entity:
    found = record.by(field)
    top = [(v, gone, new) for v, gone, new in record.top(field, TOP) if gone or new]
    most = max((max(gone, new) for _, gone, new in top), default=1)
    rows = tuple(
        (
            redaction.value(record.name, field, v),
            gone,
            new,
            round(100 * gone / most, 2),
            round(100 * new / most, 2),
        )
        for v, gone, new in top
    )
    counts = pc.value_counts(
        pa.chunked_array([*record.gone.column(field).chunks, *record.new.column(field).chunks])
    ).field("counts")
    differing = len(counts)
    if len({gone + new for _, gone, new in top}) == 1 and differing > len(top):
        each = many(sum(top[0][1:]), "output", "outputs")
        why = f"{differing:,} values differ, each in {each} at most"
        return Entity(field, found.a, found.b, len(found.freed), len(found.hit), (), why)
    largest = max((gone + new for _, gone, new in top), default=0)
    if differing > TOP and (middle := nearly_alike(largest, counts)) is not None:
        why = f"{differing:,} values differ, nearly alike: each in {many(largest, 'output', 'outputs')} at most, {middle:,} in the middle"
        return Entity(field, found.a, found.b, len(found.freed), len(found.hit), (), why)
    return Entity(field, found.a, found.b, len(found.freed), len(found.hit), rows)


def _example(change: Change, causes: Mapping[At, Cause], redaction: Redaction, *, rejected: bool) -> Example:
    names = [n for n in (change.a or change.b or {}) if n not in PLACE]
    cells: list[tuple[str, str | None, str | None]] = []
    for name in names:
        if rejected and redaction.any and name == "reason":
            cells.append((name, None if change.a is None else HIDDEN, None if change.b is None else HIDDEN))
            continue
        a, b = (
            None if row is None else redaction.value(change.record, name, row[name])
            for row in (change.a, change.b)
        )
        cells.append((name, a, b))
    return Example(
        change.kind, moment(change.ts), change.seq, tuple(cells), _why(causes[change.place], redaction)
    )


def _why(cause: Cause, redaction: Redaction) -> tuple[str, ...]:
    """The condition and the state that differ; of a redacted report only the condition as the program has it."""
    if not redaction.any:
        return tuple(one_line(line, 400) for line in cause.lines)
    sides = [
        f"{side} {one_line(c.source)} (line {c.line}): {'true' if c.outcome else 'false'}"
        for side, c in (("A", cause.a), ("B", cause.b))
        if c is not None
    ]
    return (f"{cause.handler}  {'    '.join(sides)}",) if sides else ()


# --- labels ---------------------------------------------------------------------------------------------


def _labels(judged: Judgement, redaction: Redaction) -> LabelPart:
    groups = [("day", [(date(day), s) for day, s in judged.days])]
    for field, found in judged.ranked.items():
        hidden = redaction.hides(judged.record, field)
        groups.append((clean(field), [(HIDDEN if hidden else one_line(text, 60), s) for text, s in found]))
    notes = [f"weighed by {clean(judged.weight)}"] if judged.weight else []
    notes += [*counted(judged), *(clean(text) for _, text in notes_of(judged)), *hit_in_vain(judged)]
    return LabelPart(
        clean(judged.record), _score("all", judged.total), (percent(judged.total.a.f1), percent(judged.total.b.f1)),
        tuple(
            (name, tuple(_score(text, s) for text, s in rows[:_GROUPS]), max(0, len(rows) - _GROUPS))
            for name, rows in groups
            if len(rows) > 1
        ),
        tuple(notes),
    )  # fmt: skip


def _score(name: str, s: Scores) -> ScoreRow:
    return ScoreRow(
        name, (f"{s.a.judged:,.6g}", f"{s.b.judged:,.6g}"), (percent(s.a.precision), percent(s.b.precision)),
        (percent(s.a.recall), percent(s.b.recall)),
    )  # fmt: skip
