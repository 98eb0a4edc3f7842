"""A sweep as charts: outputs and scores by setting, precision against recall.

One parameter with numbers is an axis; of several, the first with more than one number is the axis and the rest tell lines apart.
Without any, settings stand beside each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING

from timelapse.charts.lines import Line, LineChart, Spot
from timelapse.display import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from timelapse.compare.sweeps import Point, Sweep

RATES = ("precision", "recall", "f1")


@dataclass(frozen=True)
class Curves:
    """`hidden`: the parameters whose values are not told, so that settings are numbered from 1. `text`: how a parameter's value is told."""

    sweep: Sweep
    hidden: Callable[[str], bool] = lambda name: False
    text: Callable[[str, object], str] = lambda name, value: str(value)

    def said(self, values: Mapping[str, object], without: str | None = None) -> str:
        """`ratio=2.0 share=0.1`."""
        return " ".join(f"{clean(n)}={self.text(n, v)}" for n, v in values.items() if n != without)

    @cached_property
    def axis(self) -> str | None:
        """The first parameter whose values are numbers, and more than one; not one that is hidden."""
        for name in self.sweep.names:
            values = [p.values[name] for p in self.sweep.points]
            if (
                all(type(v) in (int, float, Decimal) for v in values)
                and len(set(values)) > 1
                and not self.hidden(name)
            ):
                return name
        return None

    @cached_property
    def records(self) -> tuple[str, ...]:
        """The record types that any setting has put out."""
        return tuple(dict.fromkeys(name for p in self.sweep.points for name in p.run.counts))

    @cached_property
    def groups(self) -> dict[str, list[tuple[float, Point]]]:
        """Points by what tells lines apart, each with its place on the axis."""
        axis = self.axis
        found: dict[str, list[tuple[float, Point]]] = {}
        for number, point in enumerate(self.sweep.points):
            name = "" if axis is None else self.said(point.values, axis)
            at = float(number) if axis is None else float(point.values[axis])
            found.setdefault(name, []).append((at, point))
        return {name: sorted(own, key=lambda pair: pair[0]) for name, own in found.items()}

    def outputs(self) -> LineChart:
        """How many outputs of each type, by setting."""
        made = []
        for group, points in self.groups.items():
            for record in self.records:
                name = " ".join(
                    t for t in (clean(record) if len(self.records) > 1 or not group else "", group) if t
                )
                counts = [(x, p, p.run.counts.get(record, 0)) for x, p in points]
                made.append(
                    Line(name, tuple(Spot(x, n, f"{self.said(p.values)}: {n:,}") for x, p, n in counts))
                )
        return self._by_setting("Outputs", made, share=False)

    def scores(self) -> LineChart | None:
        """Precision, recall and f1 by setting; None where several lines of each would stand there."""
        if len(self.groups) != 1:
            return None
        (points,) = self.groups.values()
        return self._by_setting("By the labels", [self._rate(rate, points) for rate in RATES], share=True)

    def recall(self) -> LineChart:
        """Precision against recall."""
        curves = [self._curve(name, points) for name, points in self.groups.items()]
        return LineChart(
            "Precision against recall", "recall", "precision", tuple(curves), share=(True, True), close=True
        )

    def _by_setting(self, title: str, series: Sequence[Line], *, share: bool) -> LineChart:
        axis, points, named = self.axis, self.sweep.points, None
        if axis is None:
            numbered = any(self.hidden(n) for n in self.sweep.names)
            named = tuple(str(n + 1) if numbered else self.said(p.values) for n, p in enumerate(points))
        whole = axis is not None and all(type(p.values[axis]) is int for p in points)
        across = "setting" if axis is None else clean(axis)
        return LineChart(
            title, across, "", tuple(series), share=(False, share), whole=(whole, True), named=named
        )

    def _rate(self, name: str, points: Sequence[tuple[float, Point]]) -> Line:
        best, spots = self.sweep.best(), []
        for x, point in points:
            value = None if point.judged is None else getattr(point.judged.total.b, name)
            if value is not None:
                text = f"{self.said(point.values)}: {name} {100 * value:.1f}%"
                spots.append(Spot(x, value, text, best=point is best and name == "f1"))
        return Line(name, tuple(spots))

    def _curve(self, name: str, points: Sequence[tuple[float, Point]]) -> Line:
        best, spots = self.sweep.best(), []
        for _, point in points:
            score = None if point.judged is None else point.judged.total.b
            if score is not None and score.recall is not None and score.precision is not None:
                text = (
                    f"{self.said(point.values)}: precision {100 * score.precision:.1f}%, "
                    f"recall {100 * score.recall:.1f}%"
                )
                short = "" if self.axis is None else self.text(self.axis, point.values[self.axis])
                spots.append(Spot(score.recall, score.precision, text, best=point is best, short=short))
        return Line(name, tuple(spots))
