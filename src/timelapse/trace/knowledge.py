"""What is known of a program that says which events matter to a key: who may write it, what that reads, and where keys come from."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from timelapse.analysis import Analysis, analyse
from timelapse.analysis.closed import function_of
from timelapse.analysis.ir import FunctionIR
from timelapse.analysis.keys import Access
from timelapse.analysis.origins import origins
from timelapse.analysis.result import PassProgram
from timelapse.analysis.slicing import accesses, build_pass, functions
from timelapse.kinds.base import UNKEYED, StateSpec
from timelapse.kinds.grouped import Grouped, Under
from timelapse.model.events import Event
from timelapse.model.types import INT, STR, TupleType
from timelapse.program.binding import bind
from timelapse.program.program import params_of
from timelapse.trace.columns import Pattern

if TYPE_CHECKING:
    from timelapse.trace.moments import Past

Place = tuple[str, Any]
"""A state's name and a key."""


class Ask(NamedTuple):
    """Who wrote a place before an event? `absent`: it is known that nothing is there then."""

    place: Place
    end: int
    absent: bool = False


class Unfocused(Exception):
    """It cannot be said which events matter, or they are too many."""


class Key(NamedTuple):
    """A key of a state, as a function of the event: of these fields."""

    spec: StateSpec
    function: types.FunctionType
    fields: frozenset[str]
    text: str = ""
    """Its expression: of a state and a type of events there is one of each."""
    plain: tuple[str, ...] | None = None
    """The fields that the stored key's parts are, or those of all under a declared key; None where it is made otherwise."""

    def stored(self, columns: Sequence[Sequence[Any]]) -> set[Any]:
        """The places of many events, where they are `plain`: of each field the values."""
        alone = columns[0] if len(columns) == 1 else zip(*columns, strict=True)
        return {Under(key) for key in set(alone)} if self._groups else set(alone)

    @property
    def _groups(self) -> bool:
        assert self.plain is not None
        return issubclass(self.spec.kind, Grouped) and (bool(self.spec.kind.parts) or len(self.plain) == 1)


class Uncompiled(Exception):
    """The log is not gone through compiled: why, in a few words."""

    def __init__(self, why: str) -> None:
        super().__init__(why)


@dataclass(frozen=True)
class Part:
    """What has to run at an event to write some of the states."""

    work: PassProgram
    asks: Mapping[type[Event], tuple[Key, ...]]
    """Keys that its statements read."""
    strict: frozenset[str]
    """States that are also read under keys that do not follow from the event alone."""


class Knowledge:
    """What is known of a program, for any slice. `any_kind`: whoever asks runs states of all kinds, not only values under keys."""

    def __init__(self, past: Past, *, any_kind: bool = False) -> None:
        self.program, self.spec = past.program, past.spec
        self._analysis, self._any_kind = analyse(past.program), any_kind
        if self._analysis.opaque:
            raise Unfocused("analysis does not see through the program")
        self._round = _going_round(self._analysis)
        self._parts: dict[frozenset[str], Part] = {}
        self._used_keys: dict[type[Event], tuple[Key, ...]] = {}
        self.bound = bind(
            self.program, dict.fromkeys(self.spec.states), {"emit": None, "reject": None, "now": 0}
        )

    def writers_of(self, state: str) -> list[Pattern]:
        """Which events may write a state, and from where the key comes. Raises Unfocused."""
        if any(vertex.fn in self._round for vertex, _ in self._analysis.graph.writes[state]):
            raise Unfocused("what is sent sends again")
        return self.patterns[state]

    def tells(self, state: str) -> bool:
        """Whether it is known which events may write a state."""
        try:
            self.writers_of(state)
        except Unfocused:
            return False
        return True

    def goes_round(self, cls: type[Event]) -> bool:
        """Whether an event of a type may send what sends again."""
        return any(cls in self._analysis.functions.reached[fn] for fn in self._round)

    @cached_property
    def patterns(self) -> dict[str, list[Pattern]]:
        """For each state which events may write it, and from where the key comes."""
        params = params_of(self.program)
        found: dict[str, list[Pattern]] = {name: [] for name in self.spec.states}
        for access in self._accesses():
            if not access.writes:
                continue
            key = self.spec.states[access.state].key
            width = len(key.items) if isinstance(key, TupleType) else None
            parts: list[Any] = [None] * (width or 1)
            if access.key is not None and key is not None:
                parts = _origins(access, self.spec.states[access.state], params)
            elif len(access.parts) == width:
                names = access.fn.function.__globals__
                parts = [p and origins(p, None, params, names)[0] for p in access.parts]
            known = {"ts", "seq", *(f.name for f in access.event.__fields__)}
            parts = [p if p is not None and p.fields <= known else None for p in parts]
            found[access.state].append(Pattern(access.event.__name__, tuple(parts)))
        return found

    def _accesses(self, targets: Sequence[str] | None = None) -> Iterator[Access]:
        """Every access of a state; a key that is made of the time follows from more than the event."""
        for access in accesses(self._analysis, targets):
            timed = any(
                isinstance(n, ast.Attribute) and n.attr == "now"
                for part in (access.key, *access.parts) if part is not None
                for n in ast.walk(part)
            )  # fmt: skip
            yield replace(access, key=None, parts=()) if timed else access

    def place(self, asked: Key, event: Event) -> Any:
        """The key that an event gives, or all that stands under it. Raises whatever the expression raises."""
        spec = asked.spec
        if spec.key is None:
            return UNKEYED
        key = asked.function(self.bound, event)
        if not issubclass(spec.kind, Grouped) or spec.outer is None:
            return spec.key.checker("")(key)
        if len(key) == 2 and not spec.kind.parts:
            return spec.kind.key_check(spec)(key)
        return Under(spec.outer.checker("")(key[0]))

    def places_at(self, event: Event, *, told: bool = False) -> Iterator[Place]:
        """What handlers may use at an event, as far as it follows from it. `told`: raises Unfocused where a key cannot be told."""
        for asked in self._used(event):
            try:
                yield asked.spec.name, self.place(asked, event)
            except Exception as error:  # in an expression that is not reached, perhaps
                if told:
                    raise Unfocused(f"a key cannot be told: {error}") from error

    def anywhere(self, cls: type[Event], *, read: bool = False) -> frozenset[str]:
        """The states that handlers of an event type use under keys that do not follow from the event; or only those that they read so."""
        own = (a for a in self._accesses() if a.event is cls and a.key is None)
        return frozenset(a.state for a in own if not (read and a.writes))

    def _used(self, event: Event) -> tuple[Key, ...]:
        known = self._used_keys
        if type(event) not in known:
            mine = [a for a in self._accesses() if a.event is type(event)]
            known |= {type(event): (), **self._asks(mine)}
        return known[type(event)]

    def used_at(self, event: Event) -> Iterator[Place]:
        """The keys that handlers may read or write at an event, as far as they follow from it."""
        for asked in self._used(event):
            try:
                key = asked.function(self.bound, event)
                yield from ((asked.spec.name, stored) for stored in _stored(asked.spec, key))
            except Exception:  # noqa: S112 in an expression that is not reached, perhaps
                continue

    def fields(self, states: Iterable[str]) -> dict[str, set[str]]:
        """The columns that tell who writes these states and all that they depend on."""
        return self.fields_of(self.needed(states))

    def fields_of(self, states: Iterable[str]) -> dict[str, set[str]]:
        """The columns that tell who writes these states themselves."""
        found: dict[str, set[str]] = {}
        for name in states:
            for pattern in self.writers_of(name):
                own = found.setdefault(pattern.type, set())
                own.update(f for part in pattern.parts if part is not None for f in part.fields)
        return found

    def needed(self, states: Iterable[str]) -> set[str]:
        """These states, and all that they depend on."""
        todo, seen = list(states), set[str]()
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo += self._analysis.facts[name].depends_on
        return seen

    def part(self, states: frozenset[str]) -> Part:
        """What has to run to write these states."""
        if states not in self._parts:
            if not self._round.isdisjoint(functions(self._analysis, sorted(states))):
                raise Unfocused("what is sent sends again")
            work = build_pass(self._analysis, "focus", sorted(states), ())
            for name in work.exact:
                kind = self.spec.states[name].kind
                if not self._any_kind and (kind.uses_now or (issubclass(kind, Grouped) and kind.parts)):
                    raise Unfocused(f"{name} is more than values under keys")
            reads = [a for a in self._accesses(sorted(states)) if not a.writes]
            self._parts[states] = Part(
                work, self._asks(reads), frozenset(a.state for a in reads if a.key is None)
            )
        return self._parts[states]

    def _asks(self, reads: Sequence[Access]) -> dict[type[Event], tuple[Key, ...]]:
        found: dict[type[Event], dict[tuple[str, str], Key]] = {}
        for access in reads:
            if access.key is not None:
                key = Key(
                    self.spec.states[access.state],
                    function_of(access.key, access.fn.function, {}, "focus_key"),
                    frozenset(
                        n.attr for n in ast.walk(access.key)
                        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "e"
                    ),
                    access.text,
                    _plain(access, self.spec.states[access.state]),
                )  # fmt: skip
                found.setdefault(access.event, {})[access.state, access.text] = key
        return {event: tuple(own.values()) for event, own in found.items()}


def _going_round(analysis: Analysis) -> frozenset[FunctionIR]:
    """The functions that call themselves, or are sent what they send, through whatever; and all that these call. Of what they do not every key
    is told."""
    sites = analysis.functions.sites
    above = {fn: {caller.fn for caller, _ in sites[fn]} for fn in analysis.functions.all}
    grown = True
    while grown:
        grown = False
        for known in above.values():
            more = set().union(*(above[fn] for fn in known)) - known
            grown |= bool(more)
            known |= more
    round_ = {fn for fn, known in above.items() if fn in known}
    return frozenset(fn for fn, known in above.items() if known & round_)


def _plain(access: Access, spec: StateSpec) -> tuple[str, ...] | None:
    """See Key: of whole numbers and texts alone, of which a column holds what the key does."""
    node, kinds = access.key, {f.name: f.type for f in access.event.__fields__}
    nodes = node.elts if isinstance(node, ast.Tuple) else [node]
    names = [
        n.attr
        for n in nodes
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "e"
    ]
    parts: Sequence[Any] = spec.key.items if isinstance(spec.key, TupleType) else [spec.key]
    if issubclass(spec.kind, Grouped):
        if isinstance(spec.outer, TupleType) or not isinstance(node, ast.Tuple):
            return None
        parts = parts[: len(nodes)]
        if spec.kind.parts:
            parts, names, nodes = parts[:1], names[:1], nodes[:1]
    elif isinstance(node, ast.Tuple) != isinstance(spec.key, TupleType):
        return None
    if not len(names) == len(nodes) == len(parts):
        return None
    plain = all(p in (INT, STR) and kinds.get(n) == p for n, p in zip(names, parts, strict=True))
    return tuple(names) if plain else None


def _stored(spec: StateSpec, key: Any) -> Iterator[Any]:
    """The stored keys that a read asks for. Of a declared key with several things under it, those that always are the same."""
    if spec.key is None:
        yield UNKEYED
    elif not issubclass(spec.kind, Grouped) or len(key) == 2:
        yield (
            spec.key.checker("")(key)
            if not issubclass(spec.kind, Grouped)
            else spec.kind.key_check(spec)(key)
        )
    else:
        yield from (spec.kind.key_check(spec)((*key, part)) for part in spec.kind.parts)


def _origins(access: Access, spec: StateSpec, params: Mapping[str, Any]) -> list[Any]:
    """From where each part of a stored key comes. What is only asked with a declared key may end in anything."""
    assert access.key is not None
    width = len(spec.key.items) if isinstance(spec.key, TupleType) else None
    names = access.fn.function.__globals__
    declared = isinstance(access.key, ast.Tuple) and len(access.key.elts) == 1
    if issubclass(spec.kind, Grouped) and declared and not isinstance(spec.outer, TupleType):
        return [*origins(access.key, 1, params, names), *[None] * ((width or 1) - 1)]
    return list(origins(access.key, width, params, names))


__all__ = ["Ask", "Key", "Knowledge", "Part", "Place", "Uncompiled", "Unfocused"]
