"""What `diff` prints: for people and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from timelapse.cli.console import clean, console, line, one_line, print_json
from timelapse.cli.view import date, share, sparkline
from timelapse.compare.score import counted, hit_in_vain, notes_of
from timelapse.display import many, percent, written
from timelapse.progress import Progress, Silent
from timelapse.progress.patience import looking

if TYPE_CHECKING:
    from timelapse.compare import Cause, Change, Counterfactual, Diff, Judgement, RecordDiff, Score, Scores
    from timelapse.compare.records import At
    from timelapse.run import Run

_ROWS = 31
"""Rows of a table by day or segment; JSON has all."""
_KINDS = ("gone", "new", "changed")


@dataclass(frozen=True)
class View:
    """A diff, and what was asked about it."""

    diff: Diff
    by: tuple[str, ...]
    shown: int
    names: tuple[str, str]
    judged: Judgement | None = None
    what: Counterfactual | None = None
    """Where B is A enforced."""
    progress: Progress = Silent()  # noqa: RUF009 it has nothing of its own

    @property
    def records(self) -> list[RecordDiff]:
        """All record types, and what was rejected."""
        return [*self.diff.records.values(), self.diff.rejected]

    @property
    def entities(self) -> list[tuple[RecordDiff, str]]:
        """The record types that have a `--by` field."""
        return [(r, f) for r in self.diff.records.values() for f in self.by if f in r.schema.names]

    def _causes(self, changes: Sequence[Change]) -> Mapping[At, Cause]:
        with looking(self.progress, "finding why they differ" if changes else ""):
            return self.diff.causes(changes)

    # --- for people -------------------------------------------------------------------------------

    def print(self, holding: Sequence[str] | None, code: int) -> None:
        """`holding`: the conditions of --fail-if that hold; None where there are none."""
        found = self.diff
        for side, name, run in (("A", self.names[0], found.a), ("B", self.names[1], found.b)):
            changed = ", ".join(f"{n}={written(v)}" for n, v in self._own_params(run).items())
            line((f"{side} ", "bold"), one_line(name), (f"   {changed}" if changed else "", "cyan"),
                 (f"   {run.program}, {run.seconds:.1f} s{_shared(run)}, digest {run.digest[:12]}", "dim"))  # fmt: skip
        if self.what is not None:
            line(
                ("B is A enforced", "bold"),
                f" ({clean(self.what.how)}): {many(self.what.blocked, 'event', 'events')} blocked",
            )
        if found.same:
            outputs = sum(found.a.counts.values())
            line(
                ("the same", "bold green"),
                f"   {many(outputs, 'output', 'outputs')}, {found.a.rejected_count:,} rejected",
            )
        else:
            self._print_counts()
            self._print_days()
            self._print_top()
        if found.place.jobs is not None:
            line((f"compared on {one_line(found.engine, 400)}", "dim"))
        _print_taken_out(found)
        if self.judged is not None:
            _print_judged(self.judged)
        if not found.same:
            self._print_examples()
        if self.what is not None:
            line(("warning: ", "bold yellow"), self.what.warning)
        for text in holding or ():
            line(("fails: ", "bold red"), one_line(text))
        meaning = {0: "", 1: "they differ", 3: "a condition of --fail-if holds"}[code]
        if meaning:
            line((f"exit {code}: {meaning}", "dim"))

    def _own_params(self, run: Run) -> dict[str, Any]:
        """The parameters in which a side differs from the other."""
        other = self.diff.b if run is self.diff.a else self.diff.a
        from timelapse.compare.enforcing import FOR

        own = {n: v for n, v in run.params.items() if n not in other.params or other.params[n] != v}
        if self.what is not None:
            own.pop(FOR, None)  # the name of B says it
        return own

    def _print_counts(self) -> None:
        table = _table("", "A", "B", *_KINDS)
        for record in self.records:
            c = record.counts
            if c["a"] or c["b"]:
                table.add_row(clean(record.name), *(f"{c[k]:,}" for k in ("a", "b", *_KINDS)))
            for owner, field in self.entities:
                if owner is record:
                    e = record.by(field)
                    counts = (e.a, e.b, len(e.freed), len(e.hit))
                    table.add_row(f"  by {clean(field)}", *(f"{n:,}" for n in counts), "")
        console().print(table)

    def _print_days(self) -> None:
        """One character per day, from the first day with a difference to the last; and a day that has most of them."""
        for record in self.records if self.what is None else self.diff.records.values():
            days = dict(record.by_day())
            if len(days) < 2:
                continue
            first, last = min(days), max(days)
            for kind in _KINDS:
                series = [days.get(d, {}).get(kind, 0) for d in range(first, min(last, first + 3660) + 1)]
                if not any(series):
                    continue
                most = max(days, key=lambda d: (days[d][kind], -d))
                found = (days[most][kind], sum(series))
                note = f"   {date(most)} has {share(*found)}" if 2 * found[0] >= found[1] else ""
                line((f"{clean(record.name)} {kind} by day ", "dim"), sparkline(series),
                     f"  {date(first)} to {date(last)}{note}")  # fmt: skip

    def _print_top(self) -> None:
        """The values with most differences."""
        for record, field in self.entities:
            top = record.top(field, self.shown)
            if top and self.shown:
                texts = [f"{one_line(v, 60)} -{gone:,} +{new:,}" for v, gone, new in top]
                line((f"{clean(record.name)} by {clean(field)}, most: ", "dim"), ", ".join(texts))

    def _print_examples(self) -> None:
        """The first difference, and some more, each with what it comes from."""
        changes = self.diff.examples(self.shown + 1, rejected=self.what is None)
        causes = self._causes(changes)
        for number, change in enumerate(changes):
            line(("       " if number else "first: ", "bold"), one_line(change.text, 400))
            for text in causes[change.place].lines:
                line((f"         {one_line(text, 400)}", "cyan" if number == 0 else "dim"))

    # --- JSON -------------------------------------------------------------------------------------

    def print_json(self, holding: Sequence[str] | None) -> None:
        """One document."""
        found = self.diff
        sides = {
            side: {"program": run.program, "params": run.params, "digest": run.digest, "path": str(run.path)}
            for side, run in (("a", found.a), ("b", found.b))
        }
        first = found.first
        shown = [c for r in self.records for c in islice(r.changes(), self.shown)]
        causes = self._causes([*shown, *([] if first is None else [first])])
        print_json(
            {
                **sides, "engine": found.engine, "same": found.same, "first": None if first is None else _change(first, causes),
                "records": {name: self._record(r, causes) for name, r in found.records.items()},
                "rejected": self._record(found.rejected, causes), "quarantined": _taken_out(found),
                "labels": None if self.judged is None else _judged(self.judged),
                "fails": holding,
                "enforced": None if self.what is None
                else {"how": self.what.how, "blocked": self.what.blocked, "warning": self.what.warning},
            }
        )  # fmt: skip

    def _record(self, record: RecordDiff, causes: Mapping[At, Cause]) -> dict[str, Any]:
        fields = [field for owner, field in self.entities if owner is record]
        return {
            **record.counts, "identity": record.identity, "changed_fields": record.fields,
            "by_day": [{"day": date(day), **counts} for day, counts in record.by_day()],
            "by": {
                field: {
                    "a": e.a, "b": e.b, "freed": len(e.freed), "hit": len(e.hit),
                    "top": [{"value": v, "gone": gone, "new": new} for v, gone, new in record.top(field)],
                } for field in fields for e in [record.by(field)]
            },
            "examples": [_change(c, causes) for c in islice(record.changes(), self.shown)],
        }  # fmt: skip


def _shared(run: Run) -> str:
    """What a replay did not have to do again."""
    from timelapse.run.views import of_older

    kept = run.certificate.get("cache")
    return f" ({clean(str(kept['what']))} from the cache{of_older(kept)})" if kept else ""


def _table(*names: str) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for place, name in enumerate(names):
        table.add_column(name, justify="right" if place else "left")
    return table


def _change(change: Change, causes: Mapping[At, Cause]) -> dict[str, Any]:
    return {
        "record": change.record, "kind": change.kind, "ts": change.ts, "seq": change.seq, "fields": change.fields,
        "a": change.a, "b": change.b, "cause": causes[change.place].to_json(),
    }  # fmt: skip


# --- labels ---------------------------------------------------------------------------------------------


def _print_judged(judged: Judgement) -> None:
    total = judged.total
    weighed = f", weighed by {clean(judged.weight)}" if judged.weight else ""
    line((f"{clean(judged.record)} ", "bold"),
         f"precision {_pair(total, 'precision')}   recall {_pair(total, 'recall')}   f1 {_pair(total, 'f1')}{weighed}")  # fmt: skip
    for text in hit_in_vain(judged):
        line(f"  {text}")
    line(("  " + "; ".join(counted(judged)), "dim"))
    for warning, text in notes_of(judged):
        line(("note: ", "yellow") if warning else ("  ", "dim"), (clean(text), "" if warning else "dim"))
    _print_groups("day", [(date(day), scores) for day, scores in judged.days])
    for field, groups in judged.ranked.items():
        _print_groups(clean(field), groups)


def _print_taken_out(found: Diff) -> None:
    """Events that were taken out of the log because a handler raised: those of one side alone, one by one."""
    taken = found.taken_out
    if not (taken.a or taken.b):
        return
    line(
        ("quarantined ", "bold yellow"), f"A {taken.a:,}  B {taken.b:,} events taken out of the log",
        f"   {taken.only_a.num_rows:,} by A alone, {taken.only_b.num_rows:,} by B alone",
    )  # fmt: skip
    for side, table in (("A", taken.only_a), ("B", taken.only_b)):
        for row in table.slice(0, 3).to_pylist():
            line(
                (f"  {side} ", "dim"),
                one_line(f"{row['event']} {row['seq']}  {row['handler']}: {row['error']}", 160),
            )


def _taken_out(found: Diff) -> dict[str, Any]:
    taken = found.taken_out
    only = [
        t.select(["ts", "seq", "event", "handler", "error"]).to_pylist() for t in (taken.only_a, taken.only_b)
    ]
    return {"a": taken.a, "b": taken.b, "only_a": only[0], "only_b": only[1]}


def _print_groups(name: str, groups: Sequence[tuple[str, Scores]]) -> None:
    if len(groups) < 2:
        return
    table = _table(f"  {name}", "judged A", "B", "precision A", "B", "recall A", "B")
    for text, s in groups[:_ROWS]:
        counts = (f"{s.a.judged:,.6g}", f"{s.b.judged:,.6g}")
        rates = [percent(getattr(side, what)) for what in ("precision", "recall") for side in (s.a, s.b)]
        table.add_row(f"  {one_line(text, 40)}", *counts, *rates)
    console().print(table)
    if len(groups) > _ROWS:
        line((f"  and {len(groups) - _ROWS:,} more: --json has all", "dim"))


def _pair(scores: Scores, name: str) -> str:
    a, b = (percent(getattr(s, name)) for s in (scores.a, scores.b))
    return f"{a} -> {b}"


def _judged(judged: Judgement) -> dict[str, Any]:
    return {
        "record": judged.record, "weight": judged.weight, **scores_json(judged.total),
        "by_day": [{"day": date(day), **scores_json(s)} for day, s in judged.days],
        "segments": {
            field: [{"value": text, **scores_json(s)} for text, s in groups] for field, groups in judged.segments.items()
        },
        "good": {field: {"a": a, "b": b} for field, (a, b) in judged.good.items()},
        "complete": judged.complete, "labels": judged.labels, "conflicts": judged.conflicts,
        "unjudged": judged.unjudged, "late": judged.late, "elsewhere": judged.elsewhere,
        "only_right": judged.only_right, "placed": judged.placed, "missed": judged.missed, "ignored": judged.ignored,
    }  # fmt: skip


def scores_json(scores: Scores) -> dict[str, Any]:
    """Both sides' scores."""

    def one(score: Score) -> dict[str, Any]:
        return {
            "right": score.right, "judged": score.judged, "positives": score.positives,
            "precision": score.precision, "recall": score.recall, "f1": score.f1,
        }  # fmt: skip

    return {"a": one(scores.a), "b": one(scores.b)}
