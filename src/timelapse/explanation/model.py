"""`tl.explain`: what Timelapse understood of a program, how it would replay it, and what would make it faster."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from timelapse.analysis.result import Diagnostic, PassProgram
from timelapse.env.cores import usable_cores
from timelapse.errors import Place, PlanError, UsageError
from timelapse.plan.cost import AROUND_SECONDS, LOADING_SECONDS
from timelapse.plan.make import make_plan
from timelapse.plan.plan import Plan, columns_of, place_text
from timelapse.plan.strategy import Analysed, Strategy, parse_strategy
from timelapse.plan.uses import Code, code_of, events_at, states_behind
from timelapse.program.pending import PENDING, WRITES
from timelapse.program.program import Program, as_program, params_of, spec_of

if TYPE_CHECKING:
    from rich.console import RenderableType

LAW_CORES = (1, 2, 4, 8, 16, 64)


@dataclass(frozen=True)
class DependencyRow:
    """One line that makes a state depend on another."""

    source: str
    via: str
    place: str


@dataclass(frozen=True)
class StateRow:
    """One state: how its start values are found, why, and what would be faster."""

    stage: int
    state: str
    kind: str
    strategy: str
    because: str
    place: str
    rewrite: str | None
    depends_on: tuple[DependencyRow, ...]
    written_by: tuple[str, ...]
    """Event types whose handlers write it."""
    component: tuple[str, ...]
    """The states that it depends on in a cycle, itself included."""


@dataclass(frozen=True)
class PassRow:
    """One pass over the slices."""

    name: str
    stage: int | None
    """None for the final pass."""
    strategy: str
    states: tuple[str, ...]
    reads: dict[str, tuple[str, ...]]
    """Event types with the fields that are read."""
    needs: tuple[str, ...]
    """States whose start values it needs."""
    rejects: tuple[str, ...]
    cost: float
    """Relative to the final pass."""
    kernel: str = ""
    """"compiled" or "Python"; empty where nobody asked the compiler."""
    why: str = ""
    """Why it is not compiled."""
    handlers: tuple[HandlerRow, ...] = ()


@dataclass(frozen=True)
class HandlerRow:
    """One handler of a pass: whether it could be compiled by itself, and if not why and at which line."""

    handler: str
    events: tuple[str, ...]
    compiled: bool
    why: str = ""
    place: str = ""


class Kernels(Protocol):
    """What the compiler makes of passes; the planner comes before it and has to be told."""

    def compiled(self, work: PassProgram, final: bool) -> bool:
        """Whether a pass will run compiled."""

    def describe(self, row: PassRow, work: PassProgram, *, sliced: bool) -> PassRow:
        """The row with how the pass runs, and why. `sliced`: in time slices."""


@dataclass(frozen=True)
class OutputRow:
    """Records of one type: where they are put out, and the states that decide whether and with what."""

    record: str
    places: tuple[str, ...]
    events: tuple[str, ...]
    states: tuple[str, ...]


@dataclass(frozen=True)
class Note:
    """A diagnostic or a trusted call."""

    code: str
    severity: str
    place: str
    message: str
    remedy: str


@dataclass(frozen=True)
class Explanation:
    """What `explain` found, as plain values. `str()` is a table; see also `rich`, `svg`, `to_json`."""

    program: str
    doc: str
    params: dict[str, str]
    events: dict[str, int | None]
    """Event types that the program listens to, with their number in the log where one was given."""
    states: tuple[StateRow, ...]
    """The slowest strategies first."""
    passes: tuple[PassRow, ...]
    outputs: tuple[OutputRow, ...]
    mode: str
    reason: str
    cores: int
    slices: int | None
    ratio: float
    """Predicted time, relative to the serial loop."""
    law: dict[int, float]
    """Number of cores -> time relative to the serial loop: as the planner foretells it where it has a log (`foretold`), each with
    the plan for so many; else the cost law without constants."""
    total: float
    """R: the work of all passes before the final one, relative to it."""
    chained: float
    """The part of R that runs slice after slice."""
    trusted: tuple[Note, ...]
    diagnostics: tuple[Note, ...]
    seconds: float | None
    """Predicted seconds of all passes, where a log is known. What a user waits for has `around` and `process` too."""
    phases: dict[str, float]
    """Predicted core-seconds of all passes by phase, where a log is known."""
    plan: Plan = field(repr=False, compare=False)
    foretold: bool = False
    """Whether `law` is what the planner foretells."""
    around: float = 0.0
    """Seconds that a replay takes beside its passes: planned, compared, published; machine code loaded."""
    process: float = 0.0
    """Seconds that a process takes to start, to load and to plan, where a command has measured it: of its own."""
    to_compile: int = 0
    """Passes that will wait for the compiler, once."""
    late: str = ""
    """How a replay with quarantine finds the events from which something fails after their own time; empty where nothing happens then."""

    @property
    def whole_seconds(self) -> float | None:
        """Predicted seconds that a user waits for a replay, where a log is known; the compiler left out."""
        return None if self.seconds is None else self.seconds + self.around + self.process

    @property
    def stages(self) -> int:
        """Number of passes before the final one."""
        return len(self.passes) - 1

    def check(self, max_strategy: str) -> None:
        """Raise PlanError naming state, line and rewrite if a state needs a slower strategy than this."""
        slowest = parse_strategy(max_strategy)
        for row in self.states:
            if Strategy(row.strategy).rank > slowest.rank:
                choice = next(c for c in self.plan.choices if row.state in c.states)
                raise PlanError(
                    f"{row.state} needs the strategy {row.strategy}, slower than {slowest}: {row.because}",
                    place=choice.place, hint=row.rewrite, code="TL352",
                )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers."""
        values = {f: getattr(self, f) for f in self.__dataclass_fields__ if f != "plan"}
        for name in ("states", "passes", "outputs", "trusted", "diagnostics"):
            values[name] = [_plain(asdict(row)) for row in values[name]]
        values["law"] = {str(cores): ratio for cores, ratio in self.law.items()}
        return values

    def __str__(self) -> str:
        from timelapse.explanation.text import as_text

        return as_text(self)

    def rich(self) -> RenderableType:
        """The same for a terminal, in colour."""
        from timelapse.explanation.text import as_rich

        return as_rich(self)

    def __rich__(self) -> RenderableType:
        return self.rich()

    def svg(self, took: str = "") -> str:
        """A picture: events, stages of states, outputs, and what depends on what. `took`: what a replay took, in place of what is predicted."""
        from timelapse.explanation.svg import as_svg

        return as_svg(self, took)

    def _repr_html_(self) -> str:
        from html import escape

        from timelapse.explanation.summary import summary
        from timelapse.explanation.text import clean

        rows = "".join(
            f'<tr><th style="text-align:left">{word}</th><td style="text-align:left">{escape(clean(text))}</td></tr>'
            for word, text in summary(self)
        )
        return f'<div style="max-width:1100px"><table>{rows}</table>{self.svg()}</div>'


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return value


def explain(
    program: Program | type[Program],
    log: Any = None,
    *,
    slices: int | None = None,
    cores: int | None = None,
    force: str | Mapping[str, str] | None = None,
) -> Explanation:
    """Explain how a program would be replayed: states, dependencies, stages, strategies, costs, and what is not seen.

    `log` is a tl.Log (or anything that counts its events): costs are then weighted with its event counts. `slices`,
    `cores` and `force` are as for `replay`; `cores` defaults to this machine's. Raises UsageError for something that
    is not a program or a log, PlanError for a forced strategy that is not exact.
    """
    from timelapse.analysis import analyse

    bound = as_program(program)
    return explain_analysis(bound, analyse(bound), log, slices=slices, cores=cores, force=force)


def explain_analysis(
    program: Program, analysis: Analysed, log: Any = None, *, slices: int | None = None, cores: int | None = None,
    force: str | Mapping[str, str] | None = None, kernels: Kernels | None = None,
    plan: Plan | None = None, foretold: Mapping[int, float] | None = None,
) -> Explanation:  # fmt: skip
    """`explain`, given the analysis, and perhaps the plan. `kernels` tells what the compiler makes of each pass;
    `foretold` what the planner foretells for numbers of cores, relative to the serial loop of `plan`.
    """
    counts = counts_of(log)
    cores = cores or usable_cores()
    plan = plan or make_plan(
        analysis, counts=counts, cores=cores, slices=slices, force=force,
        compiled=None if kernels is None else kernels.compiled, threads=cores,
    )  # fmt: skip
    spec = spec_of(program)
    codes = [code_of(type(program), handler) for handler in spec.handlers]
    law = plan.law
    rows = sorted(_state_rows(plan, analysis, codes), key=lambda r: -Strategy(r.strategy).rank)
    return Explanation(
        program=spec.name,
        doc=_own_doc(program),
        params={n: f"{p.text} = {params_of(program)[n]!r}" for n, p in spec.params.items()},
        events={e.__name__: None if counts is None else counts.get(e.__name__, 0) for e in spec.events},
        states=tuple(rows),
        passes=tuple(
            row if kernels is None else kernels.describe(row, work, sliced=plan.mode == "staged")
            for row, work in _pass_rows(plan)
        ),
        outputs=tuple(_outputs(program, analysis, codes)),
        mode=plan.mode,
        reason=plan.reason,
        cores=cores,
        slices=slices,
        ratio=round(plan.ratio(None, slices), 4),
        law={n: round(v, 4) for n, v in (foretold or {n: law.ideal(n) for n in LAW_CORES}).items()},
        foretold=foretold is not None,
        total=round(law.total, 4),
        chained=round(sum(law.chain), 4),
        seconds=None if counts is None else round(plan.ratio(None, slices) * law.serial_seconds, 4),
        around=AROUND_SECONDS + (LOADING_SECONDS if law.compiled else 0.0),
        phases={} if counts is None else {name: round(s, 4) for name, s in plan.phases().items()},
        trusted=tuple(_note(d) for d in analysis.trusted),
        diagnostics=tuple(_note(d) for d in analysis.diagnostics),
        plan=plan,
    )


def counts_of(log: Any) -> dict[str, int] | None:
    """Events by type, of a log that counts them; None without a log, or where it does not know."""
    if log is None:
        return None
    if isinstance(log, Mapping):
        return {str(name): int(n) for name, n in log.items()}
    info = getattr(log, "info", None)
    if callable(info):
        return {t.name: t.count for t in info().types}
    if hasattr(log, "count") and hasattr(log, "types"):
        return None
    raise UsageError(f"a log is needed, not {type(log).__name__}", hint="explain(program, tl.Log.open(path))")


def _own_doc(program: Program) -> str:
    return inspect.cleandoc(type(program).__doc__ or "") if "__doc__" in type(program).__dict__ else ""


def _kind(analysis: Analysed, name: str) -> str:
    hidden = {PENDING: "dated events, timers", WRITES: "dated writes"}
    return hidden.get(name) or analysis.spec.states[name].text


def _state_rows(plan: Plan, analysis: Analysed, codes: list[Code]) -> list[StateRow]:
    rows = []
    for stage in plan.stages:
        for choice in stage.choices:
            for name in choice.states:
                own = [d for d in analysis.dependencies if d.target == name]
                writes = [w.place for w in analysis.facts[name].writes]
                rows.append(
                    StateRow(
                        stage.index + 1, name, _kind(analysis, name), stage.strategy.value, choice.because,
                        place_text(choice.place), choice.rewrite,
                        tuple(dict.fromkeys(DependencyRow(d.source, d.via, place_text(d.place)) for d in own)),
                        tuple(e.__name__ for e in events_at(writes, codes)),
                        choice.states if len(choice.states) > 1 else (),
                    )
                )  # fmt: skip
    return rows


def _pass_rows(plan: Plan) -> list[tuple[PassRow, PassProgram]]:
    rows = [
        (
            PassRow(
                s.name, s.index + 1, s.strategy.value, s.states, dict(columns_of(s.work)),
                tuple(sorted(s.work.exact - set(s.states))), tuple(sorted(s.work.rejects)), round(s.cost, 4),
            ),
            s.work,
        )
        for s in plan.stages
    ]  # fmt: skip
    final = plan.final
    how = {"staged": "serial per slice", "by key": "by key"}.get(plan.mode, "slice after slice")
    last = PassRow(
        "final",
        None,
        how,
        (),
        dict(columns_of(final)),
        tuple(plan.spec.states),
        tuple(sorted(final.rejects)),
        1.0,
    )
    return [*rows, (last, final)]


def _outputs(program: Program, analysis: Analysed, codes: list[Code]) -> list[OutputRow]:
    spec = spec_of(program)
    found: dict[str, tuple[dict[str, None], dict[str, None], dict[str, None]]] = {}
    for code in codes:
        for emission in code.emissions():
            places, events, states = found.setdefault(emission.record, ({}, {}, {}))
            places[place_text(emission.place)] = None
            events.update(dict.fromkeys(e.__name__ for e in code.handler.events))
            behind = states_behind(analysis, emission)
            states.update(dict.fromkeys(code.states(spec) if behind is None else behind))
    return [
        OutputRow(name, tuple(places), tuple(events), tuple(s for s in spec.states if s in states))
        for name, (places, events, states) in found.items()
    ]


def _note(diagnostic: Diagnostic) -> Note:
    place = diagnostic.place
    short = Place(place.file, place.line)
    where = " ".join(part for part in (place_text(short), place.what) if part)
    return Note(diagnostic.code, diagnostic.severity.value, where, diagnostic.message, diagnostic.remedy)
