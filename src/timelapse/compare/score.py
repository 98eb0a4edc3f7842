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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.compare.labels import I64, Bools, Labels, codes_of, lanes_of
from timelapse.errors import UsageError, meant
from timelapse.ids import DAY, INT64_MAX
from timelapse.moments import Moment, micros
from timelapse.tables.rowhash import one_array

if TYPE_CHECKING:
    from timelapse.compare.differences import Diff
    from timelapse.compare.records import RecordDiff

_NEVER = INT64_MAX
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


@dataclass
class _Items:
    """One entry per item in every array."""

    known: Bools
    right: Bools
    put: tuple[Bools, Bools]
    ts: I64
    """When the item was; _NEVER where that is not known."""
    label_ts: I64 | None
    row: tuple[I64, I64, I64]
    """Its row in A, in B, in the labels; -1 for none."""
    weight: npt.NDArray[np.float64] | None = None
    segments: dict[str, list[str]] = field(default_factory=dict)


def judge(
    diff: Diff, labels: Any, *, record: str | None = None, segments: Sequence[str] = (), by: Sequence[str] = (),
    weight: str | None = None, items: str | None = None, until: Moment | None = None, label: str | None = None,
    label_ts: str | None = None, label_key: Sequence[str] = (),
) -> Judgement:  # fmt: skip
    """Judge both runs of a diff by labels (a Parquet or CSV file, an Arrow table, `Labels`).

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


class _Judge:
    def __init__(self, diff: Diff, record: RecordDiff, labels: Labels, items: str | None) -> None:
        self._diff, self._record, self._labels = diff, record, labels
        right, said = labels.right()
        keys, full = labels.keys(record)
        self._times = labels.times()
        self._rows = np.flatnonzero(said & full)
        """Rows of the labels that say something."""
        label_lanes = tuple(lane[self._rows] for lane in lanes_of(keys, record.identity))
        sides = [lanes_of(t, record.identity) for t in (record.a, record.b)]
        (codes_a, codes_b, codes), count = codes_of(sides[0], sides[1], (label_lanes[0], label_lanes[1]))
        self._elsewhere = 0
        self._items = self._gather(codes_a, codes_b, codes, count, right[self._rows])
        self._conflicts = _conflicts(codes, right[self._rows], count)
        self._only_right = bool(len(self._rows)) and bool(right[self._rows].all())
        self._place(items, keys, codes)

    def _gather(self, a: I64, b: I64, codes: I64, count: int, right: Bools) -> _Items:
        row_a, row_b, row = (np.full(count, -1, np.int64) for _ in range(3))
        for target, source in ((row_a, a), (row_b, b)):
            target[source[::-1]] = np.arange(len(source))[::-1]  # the first row stays
        order = np.arange(len(codes))
        if self._times is not None:
            order = np.argsort(self._times[self._rows], kind="stable")
        row[codes[order]] = order  # the latest label stays
        known = row >= 0
        ts = np.full(count, _NEVER, np.int64)
        for rows, table in ((row_a, self._record.a), (row_b, self._record.b)):
            there = rows >= 0
            ts[there] = np.minimum(ts[there], np.asarray(table.column("ts"))[rows[there]])
        said = np.zeros(count, np.bool_)
        said[known] = right[row[known]]
        label_ts = None
        if self._times is not None:
            label_ts = np.full(count, _NEVER, np.int64)
            label_ts[known] = self._times[self._rows[row[known]]]
        row[known] = self._rows[row[known]]
        return _Items(known, said, (row_a >= 0, row_b >= 0), ts, label_ts, (row_a, row_b, row))

    def _place(self, items: str | None, keys: pa.Table, codes: I64) -> None:
        """When items were that neither run put out: as the log says, else as their labels say."""
        found, log_items = self._items, None
        if items is not None:
            log_items = self._from_log(items, keys, codes)
        missing = found.known & (found.ts == _NEVER)
        self._placed = "nowhere"
        if log_items is not None:
            self._placed = "log"
            found.ts[missing] = log_items[missing]
            outside = missing & (found.ts == _NEVER)
        elif found.label_ts is not None:
            self._placed = "label"
            first = _first_ts(self._diff)
            found.ts[missing] = found.label_ts[missing]
            outside = missing & (found.ts < first)
        else:
            return
        self._elsewhere = int(outside.sum())
        found.known &= ~outside
        found.right &= ~outside

    def _from_log(self, items: str, keys: pa.Table, codes: I64) -> I64:
        """The time of each item's first event of a type whose field is the item's key; _NEVER for none."""
        event, _, name = items.partition(".")
        reader = self._diff.b.need_reader()
        kinds = {t.name: t for t in reader.types}
        if event not in kinds or kinds[event].field(name) is None:
            raise _no_field(
                f"the log has no {items}",
                [f"{t}.{f.name}" for t, k in kinds.items() for f in k.fields],
                items,
            )
        if len(self._record.identity) != 1:
            raise UsageError(f"{items} is one field; outputs are named by several", code="TL816")
        low, high = lanes_of(keys, self._record.identity)
        low, high = low[self._rows], high[self._rows]
        order = np.argsort(low, kind="stable")
        sorted_low = low[order]
        target = keys.schema.field(0).type
        ts = np.full(len(self._items.known), _NEVER, np.int64)
        ends = reader.cuts(1)
        for chunk in reader.chunks(ends[0], ends[-1], {event: [name]}):
            table = chunk.tables.get(event)
            if table is None or not len(order):
                continue
            column = one_array(table.column(name).cast(target))
            found = lanes_of(pa.table([column], names=["k"]), ("k",))
            place = np.minimum(np.searchsorted(sorted_low, found[0]), len(order) - 1)
            label = order[place]
            same = (low[label] == found[0]) & (high[label] == found[1])
            np.minimum.at(ts, codes[label[same]], np.asarray(table.column("ts"))[same])
        return ts

    # --- judging ----------------------------------------------------------------------------------

    def judge(
        self, segments: Sequence[str], by: Sequence[str], weight: str | None, until: int | None
    ) -> Judgement:
        items = self._items
        complete = self._complete() if until is None else until
        timely = np.ones(len(items.ts), np.bool_) if complete is None else items.ts <= complete
        judged = timely & (items.known | self._only_right)
        if weight is not None:
            items.weight = self._weights(weight)
        sides = [p & judged for p in items.put]
        positives = items.right & timely
        return Judgement(
            self._record.name,
            self._scores(sides, positives),
            self._groups(items.ts // DAY, (items.ts != _NEVER) & timely, sides, positives),
            {name: self._by_segment(name, timely, sides, positives) for name in segments},
            {name: (self._good(name, 0, sides[0]), self._good(name, 1, sides[1])) for name in by},
            complete, int(items.known.sum()), self._conflicts,
            (int((items.put[0] & timely & ~judged).sum()), int((items.put[1] & timely & ~judged).sum())),
            (int((items.put[0] & ~timely).sum()), int((items.put[1] & ~timely).sum())),
            self._elsewhere, self._only_right, self._placed,
            int((positives & ~items.put[0] & ~items.put[1]).sum()), self._ignored([*segments, weight or ""]), weight,
        )  # fmt: skip

    def _ignored(self, asked: Sequence[str]) -> tuple[str, ...]:
        labels = self._labels
        used = {*(labels.fit(self._record) or ()), labels.label_column, labels.ts_column, *asked}
        return tuple(name for name in labels.table.column_names if name not in used)

    def _complete(self) -> int | None:
        items = self._items
        if items.label_ts is None or not items.known.any():
            return None
        last = int(items.label_ts[items.known].max())
        there = (
            items.known & (items.ts != _NEVER) & (items.put[0] | items.put[1] | (items.label_ts != items.ts))
        )
        if not there.any():
            return last
        delays = np.sort(np.maximum(items.label_ts[there] - items.ts[there], 0))
        return last - int(delays[min(len(delays) - 1, int(np.ceil(_MOST * len(delays))) - 1)])

    def _weights(self, name: str) -> npt.NDArray[np.float64]:
        items = self._items
        found = np.full(len(items.ts), np.nan)
        if name in self._labels.table.column_names:
            values, there = self._labels.numbers(name), items.row[2] >= 0
            found[there] = values[items.row[2][there]]
        else:
            for rows, table in zip(items.row[:2], (self._record.a, self._record.b), strict=True):
                column = self._field(name, table, "--weight")
                if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
                    raise _no_field(f"--weight {name}: {column.type} is no number", table.column_names)
                values, there = (
                    np.asarray(pc.fill_null(column.cast(pa.float64(), safe=False), float("nan"))),
                    rows >= 0,
                )
                found[there] = values[rows[there]]
        if (found < 0).any():
            raise UsageError(
                f"--weight {name}: a weight is negative", hint="weights are 0 or more", code="TL818"
            )
        return found

    def _field(self, name: str, table: pa.Table, what: str) -> pa.Array:
        if name not in table.column_names or name in ("ts", "phase", "seq", "ordinal"):
            own = [] if what == "--by" else self._labels.table.column_names
            known = [
                n
                for n in dict.fromkeys([*own, *table.column_names])
                if n not in ("ts", "phase", "seq", "ordinal")
            ]
            raise _no_field(f"{what} {name}: neither the labels nor {self._record.name} have it", known, name)
        return one_array(table.column(name))

    def _by_segment(
        self, name: str, timely: Bools, sides: Sequence[Bools], positives: Bools
    ) -> list[tuple[str, Scores]]:
        items = self._items
        texts = np.full(len(items.ts), None, object)
        if name in self._labels.table.column_names:
            there = items.row[2] >= 0
            texts[there] = np.array(self._labels.texts_of(name).to_pylist(), object)[items.row[2][there]]
        else:
            for rows, table in zip(items.row[:2], (self._record.a, self._record.b), strict=True):
                column, there = self._field(name, table, "--segment"), rows >= 0
                values = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
                texts[there] = np.array([str(v) for v in values.to_pylist()], object)[rows[there]]
        texts = np.where(texts == None, "(none)", texts)  # noqa: E711 element by element
        names, codes = np.unique(texts.astype(str), return_inverse=True)
        return [
            (str(names[code]), s)
            for code, s in self._groups(codes.astype(np.int64), timely, sides, positives)
        ]

    def _groups(
        self, groups: I64, which: Bools, sides: Sequence[Bools], positives: Bools
    ) -> list[tuple[int, Scores]]:
        """Scores for each group that has anything judged or right, in order."""
        there = which & (sides[0] | sides[1] | positives)
        rows = np.flatnonzero(there)
        order = rows[np.argsort(groups[rows], kind="stable")]
        if not len(order):
            return []
        values, starts = np.unique(groups[order], return_index=True)
        return [
            (int(value), self._scores(sides, positives, part))
            for value, part in zip(values.tolist(), np.split(order, starts[1:]), strict=True)
        ]

    def _scores(self, sides: Sequence[Bools], positives: Bools, rows: I64 | None = None) -> Scores:
        items = self._items
        take: Any = slice(None) if rows is None else rows
        right, mine = items.right[take], [s[take] for s in sides]
        all_right = positives[take]
        weight = None if items.weight is None else items.weight[take]

        def amount(mask: Bools) -> float | None:
            if weight is None:
                return int(mask.sum())
            found = weight[mask]
            return None if np.isnan(found).any() else float(found.sum())

        made = []
        for side in mine:
            good, judged = amount(side & right), amount(side)
            if good is None or judged is None:
                raise UsageError(
                    "an item that was put out has no weight",
                    hint="weigh by a field of the record, or label every output", code="TL818",
                )  # fmt: skip
            made.append(Score(good, judged, amount(all_right)))
        return Scores(made[0], made[1])

    def _good(self, name: str, side: int, judged: Bools) -> int:
        """Distinct values of a field with judged items in a side, none of them right."""
        table = (self._record.a, self._record.b)[side]
        column = self._field(name, table, "--by")
        rows = self._items.row[side][judged]
        values = pa.table({"v": column.take(pa.array(rows)), "right": pa.array(self._items.right[judged])})
        grouped = values.group_by("v").aggregate([("right", "any")])
        return int(pc.sum(pc.invert(grouped.column("right_any"))).as_py() or 0)


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
        return -_NEVER
    ends = reader.cuts(1)
    types: dict[str, list[str]] = {t.name: [] for t in reader.types}
    for chunk in reader.chunks(ends[0], min(ends[0] + 1, ends[-1]), types):
        return min(int(t.column("ts")[0].as_py()) for t in chunk.tables.values() if t.num_rows)
    return -_NEVER


def _no_field(message: str, known: Iterable[str], wanted: str = "") -> UsageError:
    names = list(known)
    return UsageError(message, hint=f"{meant(wanted, names)}there are: {', '.join(names)}", code="TL816")


__all__ = ["Judgement", "Score", "Scores", "judge", "notes_of"]
