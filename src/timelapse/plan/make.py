"""From an analysis to a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from timelapse.analysis.keys import NotByKey
from timelapse.analysis.result import ByKey, PassProgram
from timelapse.analysis.views import LOOKING, beyond_sums
from timelapse.display import foretold
from timelapse.errors import PlanError, meant
from timelapse.plan.cost import TYPICAL_CONFLICTS, IsCompiled, Measured, cost_of, law_of
from timelapse.plan.plan import Mode, Plan, Stage
from timelapse.plan.strategy import (
    AVAILABLE,
    Analysed,
    Choice,
    Strategy,
    choose,
    forced_chain,
    forced_keys,
    iterated,
    parse_strategy,
    with_keys,
)
from timelapse.program.program import Program, TimeUse

FEWEST_PARTS = 2
"""Into so many parts at least events are shared out by key."""

_WORTH_IT = 0.95
"""Time slices are taken when they promise at least 5% less: the prediction is not better than that."""
_WORTH_SHARING = 0.9
"""By key 10%: it takes more processor time than a chain, whatever the clock says."""


class Passes(Protocol):
    """Cuts passes out of a program; see timelapse.analysis."""

    def build(
        self, analysis: Analysed, name: str, targets: Sequence[str], delta: Sequence[str]
    ) -> PassProgram:
        """The statements that the writes of `targets` need; those in `delta` are collected as effects."""

    def final(self, analysis: Analysed) -> PassProgram:
        """The whole program."""

    def share_out(self, analysis: Analysed, targets: Sequence[str]) -> ByKey | NotByKey | None:
        """How the events of a pass for these states can be shared out by key; None where nobody knows."""

    def share_out_all(self, analysis: Analysed) -> ByKey | NotByKey | None:
        """The same for the whole program."""


def make_plan(
    program: Program | type[Program] | Analysed,
    *,
    counts: Mapping[str, int] | None = None,
    cores: int = 2,
    slices: int | None = None,
    force: str | Mapping[str, str] | None = None,
    passes: Passes | None = None,
    compiled: IsCompiled | None = None,
    threads: int = 1,
    measured: Measured | None = None,
    guessed: bool = True,
    reach: float = 1.0,
    machines: int = 1,
    most: int | None = None,
) -> Plan:
    """Decide how a program is replayed.

    `counts` is the number of events by type, where a log is known; `slices` the number of slices, where somebody
    says. `force` is "chain" or "staged" for the whole program, "scan" (every state), or a strategy by state's name.
    `compiled` tells which passes will run compiled (default:
    none); `threads` is how many cores a run slice after slice can use, to read and decode ahead.

    `measured`: what a sample of the log says of the chain in it, which is then guessed and repaired instead (`guessed`). `reach`: the
    share of the log's time that windows look back. `machines`: on how many machines the cores are. `most`: into so many slices
    at most, where the number is not given.

    Raises PlanError for a strategy that does not exist or is not exact.
    """
    analysis = _analysed(program)
    maker = passes or _ProgramPasses()
    choices = [_with_keys(choose(component, analysis), analysis, maker) for component in analysis.components]
    whole = maker.share_out_all(analysis) if analysis.spec.states else None
    if _is_by_key(force) and isinstance(whole, ByKey):
        force = "by key"
    else:
        choices = _forced(choices, force, analysis, maker)
    if measured is not None and guessed:
        choices = [_measured(choice, measured) for choice in choices]
    groups = _groups(choices, analysis, maker)
    works = []
    for _, strategy, members in groups:
        targets = tuple(name for c in members for name in c.states)
        delta = targets if strategy is Strategy.SCAN else ()
        work = maker.build(analysis, _stage_name(targets), targets, delta)
        works.append(_by_key(work, members[0].by_key) if strategy is Strategy.BY_KEY else work)
    final = maker.final(analysis)
    law, costs, seconds = law_of(
        [(g[1] is Strategy.CHAIN, w) for g, w in zip(groups, works, strict=True)], final, counts, compiled,
        _more(groups, works, counts, measured),
    )  # fmt: skip
    parts = max(min(cores, most or cores), FEWEST_PARTS)
    stages = tuple(
        Stage(index, level, strategy, members, work, cost, parts if strategy is Strategy.BY_KEY else 1)
        for index, ((level, strategy, members), work, cost) in enumerate(
            zip(groups, works, costs, strict=True)
        )
    )
    plan = Plan(
        analysis.spec.name,
        "staged",
        "",
        stages,
        final,
        law,
        cores,
        analysis.spec,
        tuple(analysis.dependencies),
        costs=tuple(seconds),
        conflicts=TYPICAL_CONFLICTS if measured is None else measured.conflicts,
        events=0 if counts is None else sum(counts.values()),
        threads=threads,
        whole=whole if isinstance(whole, ByKey) else None,
        not_whole=whole.reason if isinstance(whole, NotByKey) else "",
        reach=reach,
        machines=machines,
        most=most,
    )
    mode, reason = _mode(plan, slices, force, compiled)
    plan = replace(plan, mode=mode, reason=reason)
    plan.verify()
    return plan


def _measured(choice: Choice, measured: Measured) -> Choice:
    if choice.strategy is not Strategy.CHAIN:
        return choice
    share = f"{measured.conflicts:.1%} of a sample's events would decide otherwise on a guessed state"
    return iterated(choice, f"{choice.because}; guessed and repaired: {share}")


def _more(
    groups: Sequence[Group],
    works: Sequence[PassProgram],
    counts: Mapping[str, int] | None,
    measured: Measured | None,
) -> dict[str, float]:
    """Seconds over the log that handlers were found to take beyond their instructions, by pass."""
    if measured is None or counts is None:
        return {}
    events = sum(counts.values())
    return {
        work.name: max(0.0, measured.seconds * events - cost_of(work, counts, compiled=False).seconds)
        for (_, strategy, _), work in zip(groups, works, strict=True)
        if strategy in (Strategy.ITERATE, Strategy.CHAIN)
    }


class _ProgramPasses:
    """Passes from the real analysis."""

    def build(self, analysis: Any, name: str, targets: Sequence[str], delta: Sequence[str]) -> PassProgram:
        from timelapse.analysis import build_pass

        return build_pass(analysis, name, targets, delta)

    def final(self, analysis: Any) -> PassProgram:
        from timelapse.analysis import final_pass

        return final_pass(analysis)

    def share_out(self, analysis: Any, targets: Sequence[str]) -> ByKey | NotByKey | None:
        from timelapse.analysis import share_out

        return _not_by_key(analysis, LOOKING) or share_out(analysis, targets)

    def share_out_all(self, analysis: Any) -> ByKey | NotByKey | None:
        from timelapse.analysis import share_out_all

        return _not_by_key(analysis) or share_out_all(analysis)


def _not_by_key(analysis: Any, allowed: tuple[str, ...] = ()) -> NotByKey | None:
    """Why no events of a program that reaches into other times are shared out."""
    uses = [u for u in analysis.spec.times if u.what not in ("derive", *allowed)]
    if not uses:
        return None
    return NotByKey(
        f"{uses[0].text_of_what} takes part, and events are shared out only at their own time", uses[0].place
    )


def _with_keys(choice: Choice, analysis: Analysed, maker: Passes) -> Choice:
    if choice.strategy is Strategy.SCAN:
        return choice
    return with_keys(choice, maker.share_out(analysis, choice.states))


def _by_key(work: PassProgram, found: ByKey | None) -> PassProgram:
    """The pass with how its events are shared out, and the columns that this takes."""
    assert found is not None
    columns = {
        e.__name__: tuple(
            f.name for f in e.__fields__
            if f.name in work.columns[e.__name__]
            or (e.__name__ in found.keys and f.name in found.keys[e.__name__].fields)
        )
        for e in dict.fromkeys(e for h in work.handlers for e in h.events)
    }  # fmt: skip
    return replace(work, by_key=found, columns={**work.columns, **columns})


def _analysed(program: Any) -> Analysed:
    if isinstance(program, Program) or (isinstance(program, type) and issubclass(program, Program)):
        from timelapse.analysis import analyse

        return analyse(program)
    return program  # type: ignore[no-any-return]


# --- stages -----------------------------------------------------------------------------------------


Group = tuple[int, Strategy, tuple[Choice, ...]]


def _groups(choices: Sequence[Choice], analysis: Analysed, maker: Passes) -> list[Group]:
    """Components that share a pass: those of one level and one strategy. In order of level, then the fastest.

    By key only those that can share out their events in the same way.
    """
    levels = _levels(choices, analysis)
    order = {name: i for i, name in enumerate(analysis.spec.states)}
    found: dict[tuple[int, int], list[Choice]] = {}
    for choice, level in zip(choices, levels, strict=True):
        found.setdefault((level, choice.strategy.rank), []).append(choice)
    groups: list[Group] = []
    for level, rank in sorted(found):
        strategy = list(Strategy)[rank]
        members = tuple(sorted(found[level, rank], key=lambda c: order[c.states[0]]))
        parts = _joined(members, analysis, maker) if strategy is Strategy.BY_KEY else [members]
        groups += [(level, strategy, part) for part in parts]
    return groups


def _joined(
    members: Sequence[Choice], analysis: Analysed, maker: Passes
) -> list[tuple[Choice, ...]]:  # fmt: skip
    """Components by key, those together that can share out their events in the same way."""
    groups: list[tuple[Choice, ...]] = []
    for choice in members:
        for i, group in enumerate(groups):
            together = (*group, choice)
            found = maker.share_out(analysis, [name for c in together for name in c.states])
            if isinstance(found, ByKey):
                groups[i] = tuple(replace(c, by_key=found) for c in together)
                break
        else:
            groups.append((choice,))
    return groups


def _levels(choices: Sequence[Choice], analysis: Analysed) -> list[int]:
    """1 + the highest level of what a component depends on. Components come in topological order."""
    of: dict[str, int] = {}
    levels = []
    for choice in choices:
        sources = {s for name in choice.states for s in analysis.facts[name].depends_on} - set(choice.states)
        missing = sources - of.keys()
        if missing:
            raise PlanError(
                f"{choice.states[0]} depends on {', '.join(sorted(missing))}, which comes later",
                hint="this is a bug in Timelapse: please report it", code="TL359",
            )  # fmt: skip
        level = 1 + max((of[s] for s in sources), default=0)
        of.update(dict.fromkeys(choice.states, level))
        levels.append(level)
    return levels


def _stage_name(states: Sequence[str]) -> str:
    """The states' names, as many as fit on a progress line."""
    text = " ".join(states)
    if len(text) <= 32:
        return text
    return f"{states[0]} and {len(states) - 1} more" if len(states) > 1 else text


# --- what is asked for --------------------------------------------------------------------------------


def _forced(
    choices: list[Choice], force: str | Mapping[str, str] | None, analysis: Analysed, maker: Passes
) -> list[Choice]:
    if force is None or force in ("chain", "staged"):
        return choices
    if isinstance(force, str):
        strategy = parse_strategy(force, ["staged"])
        wanted = dict.fromkeys(analysis.spec.declared, strategy)
        if strategy is Strategy.ITERATE:  # nothing is gained where effects compose anyway
            wanted = {n: strategy for c in choices if c.strategy is not Strategy.SCAN for n in c.states}
    else:
        wanted = {name: parse_strategy(text) for name, text in force.items()}
    for name in wanted:
        if name not in analysis.spec.states:
            raise PlanError(
                f"{analysis.spec.name} has no state {name!r}",
                hint=f"{meant(name, analysis.spec.states)}states: {', '.join(analysis.spec.states) or 'none'}", code="TL351",
            )  # fmt: skip
    return [_as_asked(choice, wanted, analysis, maker) for choice in choices]


def _as_asked(choice: Choice, wanted: Mapping[str, Strategy], analysis: Analysed, maker: Passes) -> Choice:
    asked = {wanted[name] for name in choice.states if name in wanted}
    if not asked:
        return choice
    if len(asked) > 1:
        raise PlanError(
            f"{', '.join(choice.states)} depend on each other and need one strategy, not {' and '.join(sorted(asked))}",
            place=choice.place, code="TL353",
        )  # fmt: skip
    (strategy,) = asked
    if strategy not in AVAILABLE:
        raise PlanError(
            f"the strategy {strategy} is not available in this version",
            hint=f"available: {', '.join(AVAILABLE)}", code="TL353",
        )  # fmt: skip
    if strategy is Strategy.CHAIN:
        return forced_chain(choice)
    if strategy is Strategy.ITERATE:
        return _forced_iterate(choice, analysis)
    if strategy is Strategy.BY_KEY:
        found = maker.share_out(analysis, choice.states)
        if isinstance(found, ByKey):
            return forced_keys(choice, found)
        why = NotByKey("nobody knows its keys", choice.place) if found is None else found
        raise PlanError(
            f"{', '.join(choice.states)} cannot run by key: {why.reason}", place=why.place, hint=why.rewrite,
            code="TL353",
        )  # fmt: skip
    if choice.blocked is not None:
        raise PlanError(
            f"{', '.join(choice.states)} cannot be a scan: {choice.blocked}",
            place=choice.place, hint=choice.rewrite, code="TL353",
        )  # fmt: skip
    return choice


def _forced_iterate(choice: Choice, analysis: Analysed) -> Choice:
    uses = [u for u in analysis.spec.times if u.what != "derive"]
    if uses:
        raise PlanError(
            f"{', '.join(choice.states)} cannot be repaired by event: {uses[0].text_of_what} takes part, and only "
            "events of the log are recorded",
            place=uses[0].place, hint="leave the strategy to the planner", code="TL850",
        )  # fmt: skip
    return iterated(choice, "asked for")


def _timed(use: TimeUse, force: str | Mapping[str, str] | None) -> tuple[Mode, str]:
    """Programs that reach into other times, beyond ticks and `after=`."""
    if force not in (None, "chain"):
        raise PlanError(
            f"a program that reaches into other times ({use.text_of_what}) is replayed slice after slice",
            place=use.place, hint="leave the strategy to the planner", code="TL353",
        )  # fmt: skip
    line = f" in line {use.place.line}" if use.place.line else ""
    return "chain", f"{use.text_of_what}{line} reaches into another time: the whole program runs in log order"


def _is_by_key(force: str | Mapping[str, str] | None) -> bool:
    return (
        isinstance(force, str)
        and force not in ("chain", "staged")
        and parse_strategy(force, ["staged"]) is Strategy.BY_KEY
    )


def _mode(
    plan: Plan, slices: int | None, force: str | Mapping[str, str] | None, compiled: IsCompiled | None
) -> tuple[Mode, str]:
    if plan.final.serial is not None:
        return _timed(plan.final.serial, force)
    if force is None and (what := _elsewhere(plan)) and compiled is not None and compiled(plan.final, True):
        return "chain", f"{what} compiled in one pass, and as Python in time slices"
    if force == "by key" and plan.whole is not None:
        return "by key", f"asked for: events are shared out, {plan.whole.text}"
    mode, reason = _sliced(plan, slices, force)
    if force is not None or plan.whole is None or plan.threads < 2:
        return mode, reason
    if mode == "staged" and slices is not None and slices > 1:
        return mode, reason
    if compiled is None or not compiled(replace(plan.final, by_key=plan.whole), True):
        return mode, reason
    keyed, other = plan.ratio("by key", slices), plan.ratio(mode, slices)
    if keyed < other * _WORTH_SHARING:
        times = f"{_against(plan, keyed, other)} {'in time slices' if mode == 'staged' else 'in log order'}"
        return "by key", f"events are shared out among {plan.threads} threads, {plan.whole.text}: {times}"
    return mode, reason


def _against(plan: Plan, one: float, other: float) -> str:
    """Two predictions: in seconds where the log is known, else of the serial time."""
    if not plan.events:
        return f"{one:.2f} of the serial time against {other:.2f}"
    return f"{foretold(one * plan.law.serial_seconds)} against {foretold(other * plan.law.serial_seconds)}"


def _elsewhere(plan: Plan) -> str:
    """What of a program compiles only where one pass goes through the whole log."""
    whole = sorted(beyond_sums(plan.spec, plan.final.logs))
    return f"windows over {', '.join(whole)} run" if whole else ""


def _sliced(plan: Plan, slices: int | None, force: str | Mapping[str, str] | None) -> tuple[Mode, str]:
    """Staged or chain."""
    if force == "chain":
        return "chain", "asked for"
    if slices == 1:
        return "chain", "there is a single slice"
    if force is not None:
        return "staged", "asked for"
    stages, cores = plan.stages, plan.cores
    scans = [s for s in stages if s.strategy in (Strategy.SCAN, Strategy.ITERATE) or s.parts > 1]
    if slices is not None and (scans or not stages):
        return "staged", f"{slices} slices were asked for"
    if stages and not scans:
        return "chain", "no state can be found without running the slices before"
    staged, one = plan.ratio("staged", slices), plan.ratio("chain", slices)
    times = f"{_against(plan, staged, one)}, on {cores} core{'s' if cores != 1 else ''}"
    if staged < one * _WORTH_IT:
        return "staged", f"it takes {times}"
    return "chain", f"time slices would take {times}"
