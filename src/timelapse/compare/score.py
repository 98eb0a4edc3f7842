"""Precision and recall of two runs against labels.

What is judged are *items*: distinct keys. An item that a run put out is right or wrong as its label says (of several
labels the latest counts). Where the labels hold both right and wrong ones, an output without a label is not judged;
where they only list what is right, every other output counts as wrong.

    precision   right items that were put out, of the judged items that were put out
    recall      right items that were put out, of all right items

Labels come late. Up to the moment until which they are *complete*, the last label's time less the delay that 95% of them
stay below (the label's time against the time of what it labels), items are judged; later ones are left out. Delays of
the newest items are seen cut short, so give `until` where you know better.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from timelapse.compare.judging import (
    NEVER,
    NONE,
    Firsts,
    Others,
    Outputs,
    Wanted,
    add_all,
    codes_of_texts,
    distinct_lanes,
    usable,
)
from timelapse.compare.labels import I64, Bools, Labels, codes_of, lanes_of
from timelapse.compare.records import PLACE
from timelapse.compare.tallies import F64, Tally, amount, tallies, tally
from timelapse.display import clean, moment
from timelapse.errors import UsageError, meant
from timelapse.ids import DAY
from timelapse.moments import Moment, micros
from timelapse.tables.known import Known
from timelapse.tables.rowhash import one_array

if TYPE_CHECKING:
    from timelapse.compare.differences import Diff
    from timelapse.compare.records import RecordDiff

_MOST = 0.95
"""Labels are complete where so many of them have come in."""


@dataclass(frozen=True)
class Score:
    """One run over some items: the weight (else the number) of what is right.

    `right`: right and put out. `judged`: put out, right or wrong. `positives`: right, put out or not; None where their
    weight is not known.
    """

    right: float
    judged: float
    positives: float | None

    @property
    def precision(self) -> float | None:
        """None where nothing was judged."""
        return self.right / self.judged if self.judged else None

    @property
    def recall(self) -> float | None:
        """None where nothing is right, or its weight is not known."""
        return self.right / self.positives if self.positives else None

    @property
    def f1(self) -> float | None:
        """The harmonic mean of precision and recall."""
        p, r = self.precision, self.recall
        if p is None or r is None:
            return None
        return 2 * p * r / (p + r) if p + r else 0.0


@dataclass(frozen=True)
class Scores:
    """Both runs over the same items."""

    a: Score
    b: Score


@dataclass(frozen=True)
class Judgement:
    """What labels say of one record type's outputs in both runs. Times are microseconds, days days since 1970 (UTC)."""

    record: str
    total: Scores
    days: list[tuple[int, Scores]]
    segments: Mapping[str, list[tuple[str, Scores]]]
    good: Mapping[str, tuple[int, int]]
    """For each `by` field, how many values (users) A and B hit of whom nothing that was put out is right."""
    complete: int | None
    """Until when items are judged; None where labels have no times: then all are."""
    labels: int
    """Distinct items with a label."""
    conflicts: int
    """Items with labels that contradict each other; the latest counted."""
    unjudged: tuple[int, int]
    """Items of A and B in the time that is judged, without a label."""
    late: tuple[int, int]
    """Items of A and B after that time."""
    elsewhere: int
    """Items with a label that lie outside the log."""
    only_right: bool
    """Whether the labels only list what is right, so that everything else counts as wrong."""
    placed: str
    """Where right items that neither run put out stand in time: at "log" events, at their "label"'s time, or "nowhere"."""
    missed: int
    """Right items that neither run put out."""
    ignored: tuple[str, ...]
    """Columns of the labels that nothing was made of."""
    weight: str | None = None

    @property
    def ranked(self) -> dict[str, list[tuple[str, Scores]]]:
        """The segments, those in which most was judged first."""
        return {
            field: sorted(found, key=lambda g: (-max(g[1].a.judged, g[1].b.judged), g[0]))
            for field, found in self.segments.items()
        }


def judge(
    diff: Diff, labels: Any, *, record: str | None = None, segments: Sequence[str] = (), by: Sequence[str] = (),
    weight: str | None = None, items: str | None = None, until: Moment | None = None, label: str | None = None,
    label_ts: str | None = None, label_key: Sequence[str] = (),
) -> Judgement:  # fmt: skip
    """Judge both runs of a diff by labels (a Parquet or CSV file, an Arrow table, a pandas or Polars DataFrame, `Labels`).

    `record`: the record type that the labels are about, where several could be. `segments`: columns of the labels, or fields
    of the record, to split by; `weight`: one to weigh items by. `by`: fields of the record for `Judgement.good`.
    `items`: the event type and field where the log has the items themselves (`"Message.id"`): then items that
    neither run put out are found in the log, with their times; else they stand at their label's time. `until`
    (microseconds UTC, ISO 8601 text or a datetime): when labels are complete, instead of an estimate. `label`, `label_ts`,
    `label_key`: the labels' columns that are not called `label`, `ts` and as the record's key (`Labels.of`).

    Raises UsageError: TL818 for labels that do not fit, TL816 for fields that are not there.
    """
    given = Labels.of(labels, label=label, ts=label_ts, key=label_key)
    if record is not None and record not in diff.records:
        raise _no_field(f"neither run has outputs of the type {record!r}", diff.records, record)
    found = diff.records[given.record(diff.records, record)]
    given.refuse_other_labels([*(given.fit(found) or ()), given.ts_column or "", *segments, weight or ""])
    return _Judge(diff, found, given, items).judge(
        segments, by, weight, None if until is None else micros(until, "until=")
    )


_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)


class _Judge:
    def __init__(self, diff: Diff, record: RecordDiff, labels: Labels, items: str | None) -> None:
        self._diff, self._record, self._labels = diff, record, labels
        right, said = labels.right()
        keys, full = labels.keys(record)
        times = labels.times()
        rows = np.flatnonzero(said & full)
        """Rows of the labels that say something."""
        low, high = (lane[rows] for lane in lanes_of(keys, record.identity))
        (codes,), count = codes_of((low, high))
        order = np.arange(len(rows)) if times is None else np.argsort(times[rows], kind="stable")
        row = np.zeros(count, np.int64)
        row[codes[order]] = order  # the latest label stays
        self._items = _Items(Known.of(low[row], high[row]), right[rows][row], rows[row])
        if times is not None:
            self._items.label_ts = times[rows[row]]
        self._conflicts = _conflicts(codes, right[rows], count)
        self._only_right = bool(len(rows)) and bool(right[rows].all())
        self._outputs = Outputs(record.name, record.identity, record.sides, record.jobs)
        self._elsewhere = 0
        self._from = items, keys.take(pa.array(rows[row]))

    def judge(
        self, segments: Sequence[str], by: Sequence[str], weight: str | None, until: int | None
    ) -> Judgement:
        items, names = self._items, self._labels.table.column_names
        wanted = Wanted(
            weight if weight is not None and weight not in names else None,
            tuple(n for n in segments if n not in names),
            tuple(by),
        )
        self._check(wanted)
        items.put_out(self._outputs.known(items.known, wanted.all))
        self._place(*self._from)
        complete = self._complete() if until is None else until
        weights = self._weights(weight, wanted)
        others = self._outputs.others(
            items.known, complete, wanted, judged=self._only_right, bare=weight in names
        )
        timely = np.ones(len(items.ts), np.bool_) if complete is None else items.ts <= complete
        sides = [p & timely & items.there for p in items.put]
        positives = items.right & timely
        of = (items.right, sides, positives, weights)

        total = tally(*of)
        total.add(others.total)
        days = tallies(items.ts // DAY, (items.ts != NEVER) & timely, *of)
        add_all(days, others.days)
        weighed = weight is not None
        return Judgement(
            self._record.name,
            _scores(total, weighed=weighed),
            [(day, _scores(own, weighed=weighed)) for day, own in sorted(days.items())],
            {name: self._by_segment(name, timely, of, others, weighed=weighed) for name in segments},
            {name: (self._good(name, 0, sides[0], others), self._good(name, 1, sides[1], others)) for name in by},
            complete, int(items.there.sum()), self._conflicts, (others.unjudged[0], others.unjudged[1]),
            (others.late[0] + items.late(0, timely), others.late[1] + items.late(1, timely)),
            self._elsewhere, self._only_right, self._placed,
            int((positives & ~items.put[0] & ~items.put[1]).sum()), self._ignored([*segments, weight or ""]), weight,
        )  # fmt: skip

    # --- items that have a label ------------------------------------------------------------------------

    def _place(self, asked: str | None, keys: pa.Table) -> None:
        """When items were that neither run put out: as the log says, else as their labels say."""
        items = self._items
        missing = items.ts == NEVER
        self._placed = "nowhere"
        if asked is not None:
            self._placed = "log"
            items.ts[missing] = self._from_log(asked, keys)[missing]
            outside = missing & (items.ts == NEVER)
        elif items.label_ts is not None:
            self._placed = "label"
            first = _first_ts(self._diff)
            items.ts[missing] = items.label_ts[missing]
            outside = missing & (items.ts < first)
        else:
            return
        self._elsewhere = int(outside.sum())
        items.there &= ~outside
        items.right &= ~outside

    def _from_log(self, asked: str, keys: pa.Table) -> I64:
        """The time of each item's first event of a type whose field is the item's key; NEVER for none."""
        event, _, name = asked.partition(".")
        reader = self._diff.b.need_reader()
        kinds = {t.name: t for t in reader.types}
        if event not in kinds or kinds[event].field(name) is None:
            raise _no_field(
                f"the log has no {asked}",
                [f"{t}.{f.name}" for t, k in kinds.items() for f in k.fields],
                asked,
            )
        if len(self._record.identity) != 1:
            raise UsageError(f"{asked} is one field; outputs are named by several", code="TL816")
        known = Known.of(*lanes_of(keys, self._record.identity))
        target = keys.schema.field(0).type
        ts = np.full(len(known.order), NEVER, np.int64)
        ends = reader.cuts(1)
        for chunk in reader.chunks(ends[0], ends[-1], {event: [name]}):
            table = chunk.tables.get(event)
            if table is None or not len(ts):
                continue
            column = one_array(table.column(name).cast(target))
            codes = known.codes(*lanes_of(pa.table([column], names=["k"]), ("k",)))
            there = codes >= 0
            np.minimum.at(ts, codes[there], np.asarray(table.column("ts"))[there])
        return ts

    def _ignored(self, asked: Sequence[str]) -> tuple[str, ...]:
        labels = self._labels
        used = {*(labels.fit(self._record) or ()), labels.label_column, labels.ts_column, *asked}
        return tuple(name for name in labels.table.column_names if name not in used)

    def _complete(self) -> int | None:
        items = self._items
        if items.label_ts is None or not items.there.any():
            return None
        last = int(items.label_ts[items.there].max())
        delayed = (
            items.there & (items.ts != NEVER) & (items.put[0] | items.put[1] | (items.label_ts != items.ts))
        )
        if not delayed.any():
            return last
        delays = np.sort(np.maximum(items.label_ts[delayed] - items.ts[delayed], 0))
        return last - int(delays[min(len(delays) - 1, int(np.ceil(_MOST * len(delays))) - 1)])

    # --- fields -----------------------------------------------------------------------------------------

    def _check(self, wanted: Wanted) -> None:
        """Raise UsageError (TL816) for a field that the record does not have, or that is no number to weigh by."""
        asked = [(n, "--segment") for n in wanted.segments] + [(n, "--by") for n in wanted.by]
        for name, what in [*([(wanted.weight, "--weight")] if wanted.weight else []), *asked]:
            for side in self._record.sides:
                names = side.schema.names
                if name not in names or name in PLACE:
                    own = [] if what == "--by" else self._labels.table.column_names
                    known = [n for n in dict.fromkeys([*own, *names]) if n not in PLACE]
                    raise _no_field(
                        f"{what} {name}: neither the labels nor {self._record.name} have it", known, name
                    )
                kind = side.schema.field(name).type
                if what == "--weight" and not any(test(kind) for test in _NUMBERS):
                    raise _no_field(f"--weight {name}: {kind} is no number", names)

    def _weights(self, weight: str | None, wanted: Wanted) -> F64 | None:
        items = self._items
        if weight is None:
            return None
        if wanted.weight is not None:
            return items.firsts.weights(weight)
        return usable(self._labels.numbers(weight)[items.row], weight)

    def _by_segment(
        self, name: str, timely: Bools, of: tuple[Bools, Sequence[Bools], Bools, F64 | None], others: Others, *, weighed: bool
    ) -> list[tuple[str, Scores]]:  # fmt: skip
        items = self._items
        own = name in self._labels.table.column_names
        if own:
            said = self._labels.texts_of(name).take(pa.array(items.row)).to_pylist()
            texts = [NONE if text is None else text for text in said]
        else:
            texts = items.firsts.texts(name)
        names, codes = codes_of_texts(texts)
        found = {names[code]: one for code, one in tallies(codes, timely, *of).items()}
        if own and others.days:
            add_all(found, {NONE: others.total})
        add_all(found, others.segments.get(name, {}))
        return [(text, _scores(one, weighed=weighed)) for text, one in sorted(found.items())]

    def _good(self, name: str, side: int, judged: Bools, others: Others) -> int:
        """Distinct values of a field with judged items in a side, none of them right."""
        firsts, right = self._items.firsts, self._items.right
        hit = [firsts.values(name, side, judged), *others.values.get((name, side), [])]
        return len(distinct_lanes(hit)[0]) - len(firsts.values(name, side, judged & right)[0])


class _Items:
    """The items that have a label, one entry each in every array. `row`: that of their latest label; `there`: whether it counts."""

    def __init__(self, known: Known, right: Bools, row: I64) -> None:
        self.known, self.right, self.row = known, right, row
        self.there = np.ones(len(row), np.bool_)
        self.label_ts: I64 | None = None

    def put_out(self, firsts: Firsts) -> None:
        """What was put out of them."""
        self.firsts, self.ts = firsts, firsts.ts
        self.put = [rows >= 0 for rows in firsts.rows]

    def late(self, side: int, timely: Bools) -> int:
        """How many a side put out after the time that is judged."""
        return int((self.put[side] & ~timely).sum())


def _scores(found: Tally, *, weighed: bool) -> Scores:
    if found.bare:
        raise UsageError(
            "an item that was put out has no weight",
            hint="weigh by a field of the record, or label every output", code="TL818",
        )  # fmt: skip
    positives = None if found.lost else amount(found.positives, weighed=weighed)
    a, b = (
        Score(amount(found.right[n], weighed=weighed), amount(found.judged[n], weighed=weighed), positives)
        for n in (0, 1)
    )
    return Scores(a, b)


def counted(judged: Judgement) -> list[str]:
    """What was judged and what was not, in a few words each."""
    said = [f"{judged.labels:,} labelled"]
    if judged.complete is not None:
        said.append(f"labels complete to {moment(judged.complete)} UTC")
    if any(judged.late):
        said.append(f"later and left out: {judged.late[0]:,} (A), {judged.late[1]:,} (B)")
    if judged.only_right:
        said.append("what has no label counts as wrong (labels only say what is right)")
    elif any(judged.unjudged):
        said.append(f"without a label, not judged: {judged.unjudged[0]:,} (A), {judged.unjudged[1]:,} (B)")
    if judged.conflicts:
        said.append(f"contradictory labels: {judged.conflicts:,} (the latest counts)")
    if judged.elsewhere:
        said.append(f"labels outside the log: {judged.elsewhere:,}")
    return said


def hit_in_vain(judged: Judgement) -> list[str]:
    """Of each `by` field, how many values were hit of whom nothing that was put out is right."""
    return [
        f"{clean(field)} hit without anything right: {a:,} -> {b:,}" for field, (a, b) in judged.good.items()
    ]


def notes_of(judged: Judgement) -> list[tuple[bool, str]]:
    """What a reader of precision and recall must know about how they were counted; True: a warning."""
    found: list[tuple[bool, str]] = []
    if judged.missed:
        missed = f"recall: {judged.missed:,} right items that neither side put out count"
        ask = "--items EVENT.FIELD finds them in the log"
        if judged.placed == "log":
            found.append((False, f"{missed} at the time of their event in the log"))
        elif judged.placed == "label":
            found.append((True, f"{missed} at their label's time, as their own is not known; {ask}"))
        else:
            where = "whether or not the log has them, and on no single day"
            found.append((True, f"{missed}, {where}: the labels have no time; {ask}"))
    if judged.ignored:
        found.append((False, f"columns of the labels that were not used: {', '.join(judged.ignored)}"))
    if not (judged.total.a.judged or judged.total.b.judged):
        found.append((True, "nothing was judged: no output of either side has a label that counts"))
    return found


def _conflicts(codes: I64, right: Bools, count: int) -> int:
    yes, no = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    yes[codes[right]] = True
    no[codes[~right]] = True
    return int((yes & no).sum())


def _first_ts(diff: Diff) -> int:
    """The time of the log's first event, as far as it is known."""
    from timelapse.errors import RunError

    try:
        reader = diff.b.need_reader()
    except RunError:
        return -NEVER
    ends = reader.cuts(1)
    types: dict[str, list[str]] = {t.name: [] for t in reader.types}
    for chunk in reader.chunks(ends[0], min(ends[0] + 1, ends[-1]), types):
        return min(int(t.column("ts")[0].as_py()) for t in chunk.tables.values() if t.num_rows)
    return -NEVER


def _no_field(message: str, known: Iterable[str], wanted: str = "") -> UsageError:
    names = list(known)
    return UsageError(message, hint=f"{meant(wanted, names)}there are: {', '.join(names)}", code="TL816")


__all__ = ["Judgement", "Score", "Scores", "counted", "hit_in_vain", "judge", "notes_of"]
