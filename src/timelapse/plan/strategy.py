"""Strategies: how a state's value at the start of every slice is found; and which one each component gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from timelapse.analysis.keys import NotByKey
from timelapse.analysis.result import ByKey, Dependency, Diagnostic, StateFacts, Write
from timelapse.errors import Place, PlanError, meant
from timelapse.kinds.base import StateSpec
from timelapse.kinds.registry import kinds
from timelapse.program.pending import PENDING, WRITES
from timelapse.program.program import ProgramSpec


class Strategy(StrEnum):
    """How start states are found, fastest first."""

    SCAN = "scan"
    """Each slice's effects are collected without knowing its start; a prefix over slices gives the starts."""
    BY_KEY = "by key"
    """Each worker runs its keys over the whole log."""
    ITERATE = "iterate"
    """Slices run from guessed starts; events whose decisions change run again."""
    CHAIN = "chain"
    """Slice after slice."""

    @property
    def rank(self) -> int:
        """0 for the fastest."""
        return list(Strategy).index(self)


AVAILABLE = tuple(Strategy)
"""What this version can execute."""


class Analysed(Protocol):
    """What the planner needs of an analysis."""

    @property
    def spec(self) -> ProgramSpec: ...
    @property
    def facts(self) -> Mapping[str, StateFacts]: ...
    @property
    def dependencies(self) -> Sequence[Dependency]: ...
    @property
    def components(self) -> Sequence[tuple[str, ...]]: ...
    @property
    def diagnostics(self) -> Sequence[Diagnostic]: ...
    @property
    def trusted(self) -> Sequence[Diagnostic]: ...


@dataclass(frozen=True)
class Choice:
    """The strategy of one component (states that depend on each other, mostly a single one), and why."""

    states: tuple[str, ...]
    strategy: Strategy
    because: str
    place: Place
    """The line that causes it."""
    rewrite: str | None = None
    """What to write instead so that a faster strategy would do; None where it is the fastest."""
    blocked: str | None = None
    """Why scan is not possible; None where it is."""
    by_key: ByKey | None = None
    """How its events are shared out, where the strategy is by key."""
    own: bool = False
    """It is a single state, which depends on itself."""


def choose(component: tuple[str, ...], analysis: Analysed) -> Choice:
    """Scan where it is exact for a component, else chain: `with_keys` may know better."""
    facts = analysis.facts
    if len(component) > 1:
        inner = [d for d in analysis.dependencies if d.target in component and d.source in component]
        text = " and ".join([", ".join(component[:-1]), component[-1]])
        return _chain(component, f"{text} depend on each other", _cycle_place(component, inner, facts),
                      _cycle_rewrite(component, inner))  # fmt: skip
    name = component[0]
    known, spec = facts[name], analysis.spec.states[name]
    opaque = next((w for w in known.writes if w.effect in ("opaque", "dated")), None)
    own = next((d for d in analysis.dependencies if d.target == d.source == name), None)
    if opaque is not None:
        reason = known.composes or "a write that does not compose"
        return _chain(component, reason, opaque.place, _opaque_rewrite(spec, name))
    if own is not None or name in known.depends_on:
        via = own.via if own is not None else "value"
        place = own.place if own is not None else _first_place(known)
        return replace(
            _chain(component, _own_reason(name, via), place, _own_rewrite(name, spec, via)), own=True
        )
    if known.composes is not None:
        return _chain(component, known.composes, _culprit(known, spec), _composes_rewrite(spec))
    return Choice(component, Strategy.SCAN, _scan_reason(known, spec), _first_place(known))


def _chain(states: tuple[str, ...], because: str, place: Place, rewrite: str) -> Choice:
    return Choice(states, Strategy.CHAIN, because, place, rewrite, blocked=because)


def with_keys(choice: Choice, found: ByKey | NotByKey | None) -> Choice:
    """A component that cannot be a scan, when it is known whether its events can be shared out by key."""
    if isinstance(found, ByKey):
        because = f"{choice.because}; its events are shared out, {found.text}"
        return replace(choice, strategy=Strategy.BY_KEY, because=because, by_key=found)
    if found is None:
        return choice
    at = f" (line {found.place.line})" if found.place.line is not None else ""
    because = f"{choice.because}; not by key: {found.reason}{at}"
    across = found.across if choice.own else None
    return replace(choice, because=because, rewrite=found.rewrite or across or choice.rewrite)


def forced_keys(choice: Choice, found: ByKey) -> Choice:
    """A component by key because somebody asked for it."""
    if choice.strategy is Strategy.BY_KEY:
        return choice
    return replace(
        choice, strategy=Strategy.BY_KEY, because=f"asked for, {found.text}", by_key=found,
        rewrite="do not force the strategy",
    )  # fmt: skip


def iterated(choice: Choice, because: str) -> Choice:
    """The same component, its slices run from guessed starts and repaired."""
    if choice.strategy is Strategy.ITERATE:
        return choice
    return replace(choice, strategy=Strategy.ITERATE, because=because, by_key=None)


def forced_chain(choice: Choice) -> Choice:
    """The same component, run slice after slice because somebody asked for it."""
    if choice.strategy is Strategy.CHAIN:
        return choice
    return Choice(
        choice.states, Strategy.CHAIN, "asked for", choice.place, "do not force the strategy", choice.blocked
    )


# --- texts ----------------------------------------------------------------------------------------


_EFFECTS = {
    "set": "last write", "del": "delete", "add": "integer add", "first": "first write",
    "up": "maximum", "up_always": "maximum", "top": "maximum",
    "down": "minimum", "down_always": "minimum", "bottom": "minimum",
    "append": "append", "sketch": "union of sketches", "more": "integer sum and number", "less": "integer sum and number",
}  # fmt: skip


def effect_text(spec: StateSpec, effects: frozenset[str]) -> str:
    """Effects in words, in a fixed order."""
    if not effects:
        return "never written"
    words = {**_EFFECTS, **spec.kind.effect_words}
    found = dict.fromkeys(words[e] for e in words if e in effects)
    return " and ".join(found)


def _scan_reason(known: StateFacts, spec: StateSpec) -> str:
    text = effect_text(spec, known.effects)
    idioms = dict.fromkeys(w.idiom for w in known.writes if w.idiom is not None)
    if idioms:
        text += f" (idiom: {', '.join(idioms)})"
    if known.depends_on:
        text += f", depends on {', '.join(sorted(known.depends_on))}"
    elif known.writes:
        text += ", from the event alone"
    return text


def _first_place(known: StateFacts) -> Place:
    return known.writes[0].place if known.writes else Place()


def _culprit(known: StateFacts, spec: StateSpec) -> Place:
    """The write without which the rest would compose; the last one where no single one is to blame."""
    for write in known.writes:
        rest = frozenset(w.effect for w in known.writes if w.effect != write.effect)
        if spec.kind.composes(spec, rest) is None:
            return write.place
    return _last(known.writes)


def _last(writes: Sequence[Write]) -> Place:
    return writes[-1].place if writes else Place()


def _own_reason(name: str, via: str) -> str:
    return {
        "key": f"which key of {name} is written depends on {name} itself",
        "value": f"the value written to {name} depends on {name} itself",
        "condition": f"whether {name} is written depends on {name} itself",
        "reject": f"whether the event is rejected depends on {name}, and a rejection undoes its writes",
        "opaque": f"{name} is used where the analysis cannot see through",
    }.get(via, f"{name} depends on itself")


def _own_rewrite(name: str, spec: StateSpec, via: str) -> str:
    if via == "opaque":
        return "see the diagnostics: move what cannot be analysed out of the handlers that write state"
    if via == "reject":
        return f"decide the rejection from states that this event does not write: then {name} is a scan"
    if via == "condition":
        if spec.kind.presence:
            return f"write `if k not in self.{name}: self.{name}.add(k)` with nothing between, or add without asking"
        return (
            f"recognised forms stay fast: `if k not in self.{name}: self.{name}[k] = v`, "
            f"`if v > self.{name}[k]: self.{name}[k] = v`"
        )
    if spec.kind.net_window:
        return f"write `self.{name}[k] += n` with n from the event or from other states"
    return ", ".join((f"keep sums in integers with `self.{name}[k] += n`", *_kinds_in_place()))


def _kinds_in_place() -> list[str]:
    """What is kept in which kinds where a state that is written from its own value does not scan."""
    found: dict[str, list[str]] = {}
    for name, kind in kinds().items():
        if kind.in_place:
            found.setdefault(kind.in_place, []).append(f"tl.{name}")
    return [f"{what} in {' or '.join(names)}" for what, names in found.items()]


def _opaque_rewrite(spec: StateSpec, name: str) -> str:
    if name == WRITES:
        return "what every event of a type does after the same time, a handler of @tl.on(T, after=L) does without it"
    if name == PENDING:
        return "where every event of a type is followed up after the same time, @tl.on(T, after=L) needs no timers"
    if "iadd" in spec.kind.ops and spec.outer is None:
        return f"write `self.{name}[k] += n` or `self.{name}[k] = v`, with n and v from the event or from other states"
    return f"write {name} through its own methods, in a handler or a plain helper method"


def _composes_rewrite(spec: StateSpec) -> str:
    if spec.value is not None and "float" in spec.value.text:
        adding = ", or ".join(f"{kind.adds} in a tl.{name}" for name, kind in kinds().items() if kind.adds)
        return f"add {adding}: float sums depend on their order"
    return "keep each kind of update in a state of its own, and combine them where they are read"


def _cycle_place(
    component: tuple[str, ...], inner: Sequence[Dependency], facts: Mapping[str, StateFacts]
) -> Place:
    cross = [d for d in inner if d.target != d.source]
    return cross[0].place if cross else _first_place(facts[component[0]])


def _cycle_rewrite(component: tuple[str, ...], inner: Sequence[Dependency]) -> str:
    cross = [d for d in inner if d.target != d.source]
    if not cross:
        return "let one of them be written without reading the others"
    # The rarest link is the easiest to cut.
    counts: dict[tuple[str, str], int] = {}
    for d in cross:
        counts[(d.target, d.source)] = counts.get((d.target, d.source), 0) + 1
    for (target, source), _ in sorted(counts.items(), key=lambda item: item[1]):
        link = [d for d in cross if (d.target, d.source) == (target, source)]
        rejects = all(d.via == "reject" for d in link)
        left = [
            d
            for d in inner
            if not (d.source == source and (d.target == target or (rejects and d.via == "reject")))
        ]
        if _reaches(source, target, left):
            continue  # it goes another way, too
        line = f" (line {link[0].place.line})" if link[0].place.line is not None else ""
        rest = [name for name in component if any(d.target == d.source == name for d in left)]
        after = (
            f"; {', '.join(rest)} would still ask {'itself' if len(rest) == 1 else 'themselves'}"
            if rest
            else ""
        )
        what = "decide the rejection" if rejects else f"write {target}"
        apart = "they" if len(component) == 2 else f"{target} and {source}"
        return f"{what} without asking {source}{line}: then {apart} are separate stages{after}"
    return "let one of them be written without reading the others: no single one of the lines that link them is enough"


def _reaches(source: str, target: str, links: Sequence[Dependency]) -> bool:
    """Whether the first state still has a part in the second, over these dependencies."""
    todo, seen = [source], {source}
    for name in todo:  # grows while it is walked
        for d in links:
            if d.source == name and d.target not in seen:
                seen.add(d.target)
                todo.append(d.target)
    return target in seen


# --- what users ask for -----------------------------------------------------------------------------


def parse_strategy(text: str, others: Sequence[str] = ()) -> Strategy:
    """A strategy's name. Raises PlanError (TL351), which names `others` that would do as well."""
    try:
        return Strategy(text.strip().lower().replace("_", " ").replace("-", " "))
    except ValueError:
        names = [*(s.replace(" ", "-") for s in Strategy), *others]
        raise PlanError(
            f"there is no strategy {text!r}",
            hint=f"{meant(text, names)}strategies: {', '.join(names)}",
            code="TL351",
        ) from None
