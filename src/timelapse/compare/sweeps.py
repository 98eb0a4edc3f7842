"""Many settings of one program over one log: what each puts out.

Only what depends on a parameter is repeated. Settings that agree in all that states depend on share one replay: the first of
them finds the states and records what the last rules read of them, the others run the last rules on these columns
(docs/cache.md). Each point is a whole run, equal to `tl.replay` with these parameters.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from timelapse.analysis import analyse
from timelapse.cache.key import core_key
from timelapse.compare.before import check_asked
from timelapse.compare.curves import Curves
from timelapse.compare.differences import Diff, single
from timelapse.compare.labels import Labels
from timelapse.compare.score import Judgement, judge
from timelapse.display import many, written
from timelapse.errors import Place, RunError, UsageError, meant
from timelapse.log import Log
from timelapse.program.fingerprint import fingerprint
from timelapse.program.program import Program, as_program, params_of, spec_of
from timelapse.progress import Progress, Silent
from timelapse.progress.patience import looking
from timelapse.run.request import Engine
from timelapse.run.run import Run
from timelapse.run.several import sharing
from timelapse.run.start import replay_one_of
from timelapse.run.tuning import USUAL, Tuning
from timelapse.segments.types import heard
from timelapse.store.places import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import RenderableType

    from timelapse.charts.drawn import MatplotlibFigure

MOST = 10_000
"""Points of a sweep."""


REPLAYED = {
    "replay": "everything",
    "states": "from kept states on",
    "last rules": "only what decides outputs",
}
"""What is said of each value of `Point.source`."""


@dataclass(frozen=True)
class Point:
    """One setting: the values of the parameters that vary, its run, and what labels say of that."""

    values: Mapping[str, Any]
    run: Run
    judged: Judgement | None = None
    resumed: bool = False
    """Whether the run was there already."""

    @property
    def source(self) -> str:
        """What was needed: `replay` (everything), `states` (all but finding the states) or `last rules`."""
        cache = self.run.certificate.get("cache")
        return (
            "replay"
            if cache is None or cache.get("older")
            else "states"
            if cache["what"] == "states"
            else "last rules"
        )

    @property
    def replayed(self) -> str:
        """The same for people: what of this setting had to be replayed, and what others spared it."""
        return "nothing: the run was there" if self.resumed else REPLAYED[self.source]


@dataclass(frozen=True)
class Sweep:
    """All points, in the order in which they were asked for. `names` are the parameters that vary."""

    program: str
    names: tuple[str, ...]
    points: list[Point]

    def table(self) -> pa.Table:
        """One row per point: the parameters, outputs per record type, rejected events, seconds; with labels
        precision, recall and f1 (null where nothing was judged)."""
        records = list(dict.fromkeys(name for p in self.points for name in p.run.counts))
        columns: dict[str, Any] = {n: [_cell(p.values[n]) for p in self.points] for n in self.names}
        for name in records:
            columns[_free(name, columns)] = [p.run.counts.get(name, 0) for p in self.points]
        columns[_free("rejected", columns)] = [p.run.rejected_count for p in self.points]
        if any(p.judged is not None for p in self.points):
            for what in ("precision", "recall", "f1"):
                scores = [None if p.judged is None else getattr(p.judged.total.b, what) for p in self.points]
                columns[_free(what, columns)] = pa.array(scores, pa.float64())
        columns[_free("seconds", columns)] = [p.run.seconds for p in self.points]
        columns[_free("needed", columns)] = [p.source for p in self.points]
        return pa.table(columns)

    def best(self) -> Point | None:
        """The point with the highest f1, the first of several; None without labels."""
        known = [(p.judged.total.b.f1, -i) for i, p in enumerate(self.points) if p.judged is not None]
        found = max((k for k in known if k[0] is not None), default=None)
        return None if found is None else self.points[-found[1]]

    def figure(self) -> MatplotlibFigure:
        """A matplotlib figure: with labels precision against recall, else outputs by setting."""
        from timelapse.charts.drawn import drawn

        curves = Curves(self)
        title = f"{self.program}: {many(len(self.points), 'setting', 'settings')}"
        if any(p.judged is not None for p in self.points):
            return drawn(replace(curves.recall(), title=title, close=False))
        y = curves.records[0] if len(curves.records) == 1 else "outputs"
        return drawn(replace(curves.outputs(), title=title, y=y))

    def __rich__(self) -> RenderableType:
        from timelapse.compare.views import sweep_card

        return sweep_card(self).rich()

    def _repr_html_(self) -> str:
        from timelapse.compare.views import sweep_card

        return sweep_card(self).html()

    def __repr__(self) -> str:
        return f"<Sweep {self.program}: {len(self.points)} points over {', '.join(self.names)}>"


def sweep(
    program: Program | type[Program],
    log: Any,
    settings: Mapping[str, Iterable[Any]] | Sequence[Mapping[str, Any]],
    out: str | Path | None = None,
    *,
    labels: Any = None,
    spark: SparkSession | Literal[False] | None = None,
    engine: Engine = "auto",
    progress: Progress | None = None,
    **judging: Any,
) -> Sweep:
    """Replay a program with many settings.

    `settings`: values for each parameter, all combinations of which are tried, or a list of parameter sets. What they do
    not name stays as `program` has it. `log` is a stored log or its path. `out`: a folder for the runs; what
    is there already is not made again, so an interrupted sweep goes on where it stopped. Without it the runs go with the
    objects. `labels` and `judging`: as for `judge`; all points are judged up to the same moment.

    Raises UsageError TL801 for unknown parameters, TL820 for settings that make no sense; what `tl.replay` raises.
    """
    return sweep_as(program, log, settings, out, labels, spark, engine, progress, judging, USUAL)


def sweep_as(
    program: Program | type[Program], log: Any, settings: Mapping[str, Iterable[Any]] | Sequence[Mapping[str, Any]],
    out: str | Path | None, labels: Any, spark: SparkSession | Literal[False] | None, engine: Engine,
    progress: Progress | None, judging: Mapping[str, Any], tuning: Tuning,
) -> Sweep:  # fmt: skip
    """`sweep` with other thresholds."""
    base = as_program(program)
    chosen = _settings(base, settings)
    listener = progress or Silent()
    opened = Log.open(log) if isinstance(log, str | Path) else log
    if not isinstance(opened, Log):
        raise UsageError("a sweep needs a stored log", hint="Log.from_events(path, events)", code="TL810")
    opened.bind(heard(spec_of(base), opened.types))
    if labels is not None:
        check_asked([base], opened, judging={**judging, "labels": Labels.of(labels)})
    names = tuple(dict.fromkeys(n for values in chosen for n in values))
    full = [{**{n: params_of(base)[n] for n in names}, **values} for values in chosen]
    programs = [type(base)(**{**params_of(base), **values}) for values in full]
    folder = None if out is None else local_path(out, "sweep")
    found: dict[int, Point] = {}
    places = [
        None if folder is None else folder / _name(values, made, opened)
        for values, made in zip(full, programs, strict=True)
    ]
    for number, (place, made) in enumerate(zip(places, programs, strict=True)):
        known = None if place is None else _known(place, made, opened)
        if known is not None:
            found[number] = Point(full[number], known, resumed=True)
    done = 0
    for group in _groups(programs, opened):
        missing = [programs[n] for n in group if n not in found]
        with sharing(missing, folder, len(programs), tuning) as several:
            for number in group:
                if number not in found:
                    run = replay_one_of(
                        several,
                        programs[number],
                        opened,
                        places[number],
                        spark,
                        listener,
                        overwrite=True,
                        engine=engine,
                    )
                    found[number] = Point(full[number], run)
                point = found[number]
                done += 1
                listener.note(f"{done}/{len(programs)} {describe(point.values)}: {_counts(point.run)}")
    points = [found[n] for n in range(len(programs))]
    if labels is not None:
        with looking(listener, "judging by labels"):
            points = _judged(points, labels, judging)
    return Sweep(spec_of(base).name, names, points)


def open_sweep(folder: str | Path) -> Sweep:
    """The sweep whose runs lie in a folder, with the parameters in which they differ; without what labels said.

    Raises UsageError TL870 where there are no runs, or not all are of one program over one log; RunError for a damaged one.
    """
    place = local_path(folder, "sweep")
    runs = [Run.open(path.parent) for path in sorted(place.glob("*/run.json")) if path.parent.name[0] != "."]
    kinds = {(r.manifest.program, r.manifest.log_id, r.events, tuple(r.manifest.params)) for r in runs}
    if len(kinds) != 1:
        what = (
            "holds no runs"
            if not runs
            else "holds runs that are not of one program, with the same parameters, over one log"
        )
        raise UsageError(
            f"the folder {what}", place=Place(str(place)), code="TL870",
            hint="name the folder that `timelapse sweep` ended with, or a single run",
        )  # fmt: skip
    values = [r.params for r in runs]
    names = tuple(n for n in values[0] if len({repr(v[n]) for v in values}) > 1) or tuple(values[0])[:1]
    points = [Point({n: v[n] for n in names}, r, resumed=True) for v, r in zip(values, runs, strict=True)]
    return Sweep(runs[0].program, names, sorted(points, key=lambda p: [_rank(p.values[n]) for n in names]))


def _rank(value: Any) -> tuple[bool, float, str]:
    """Numbers by size, before all else by its text."""
    number = isinstance(value, int | float)
    return (not number, value if number else 0.0, repr(value))


def describe(values: Mapping[str, Any]) -> str:
    """`ratio=2.0 share=0.1`."""
    return " ".join(f"{n}={written(v)}" for n, v in values.items())


def _counts(run: Run) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in run.counts.items()) or "no outputs"


def _settings(base: Program, settings: Any) -> list[dict[str, Any]]:
    known = spec_of(base).params
    if isinstance(settings, Mapping):
        values = {n: list(v) for n, v in settings.items()}
        count = 1
        for each in values.values():
            count *= len(each)
        if count <= MOST:
            chosen = [dict(zip(values, c, strict=True)) for c in itertools.product(*values.values())]
    else:
        chosen = [dict(s) for s in settings]
        values, count = {n: [] for s in chosen for n in s}, len(chosen)
    for name in values:
        if name not in known:
            raise UsageError(
                f"{spec_of(base).name} has no parameter {name!r}", hint=f"{meant(name, known)}parameters: {', '.join(known) or 'none'}",
                code="TL801",
            )  # fmt: skip
    if not count or count > MOST or not values:
        raise UsageError(
            f"a sweep of {count:,} settings of {len(values)} parameters makes no sense",
            hint=f"name parameters and values, at most {MOST:,} combinations", code="TL820",
        )  # fmt: skip
    unique: dict[str, dict[str, Any]] = {}
    for one in chosen:
        unique.setdefault(repr(sorted(one.items())), one)
    return list(unique.values())


def _groups(programs: Sequence[Program], log: Log) -> list[list[int]]:
    """Numbers of programs, those together that find the same states."""
    groups: dict[str, list[int]] = {}
    for number, program in enumerate(programs):
        key = core_key(program, analyse(program), log.id, ())
        groups.setdefault(key.whole or f"alone {number}", []).append(number)
    return list(groups.values())


def _name(values: Mapping[str, Any], program: Program, log: Log) -> str:
    """A folder's name: what people recognise, and a hash of what the run depends on."""
    readable = re.sub(r"[^\w.=-]", "_", "-".join(f"{n}={v}" for n, v in values.items()))[:80]
    identity = hashlib.sha256(f"{fingerprint(program)} {log.id}".encode()).hexdigest()[:12]
    return f"{readable}-{identity}"


def _known(place: Path, program: Program, log: Log) -> Run | None:
    """The run that is at a place, if it is of this program over this log."""
    if not (place / "run.json").is_file():
        return None
    try:
        run = Run.open(place, program)
    except RunError:
        return None
    same = (run.manifest.fingerprint, run.manifest.log_id, run.events) == (
        fingerprint(program),
        log.id,
        log.count,
    )
    return run if same else None


def _judged(points: Sequence[Point], labels: Any, options: Mapping[str, Any]) -> list[Point]:
    done: list[Point] = []
    until = options.get("until")
    for point in points:
        found: Diff = single(point.run)
        judged = judge(found, labels, **{**options, "until": until})
        until = judged.complete if until is None else until
        done.append(replace(point, judged=judged))
    return done


def _cell(value: Any) -> Any:
    return value if isinstance(value, int | float | str | bool | bytes) or value is None else repr(value)


def _free(name: str, taken: Mapping[str, Any]) -> str:
    while name in taken:
        name += "_"
    return name
