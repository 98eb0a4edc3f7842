"""Whether a pass can run by key: whether all that an event does to the states is under one key that the event gives.

If every access that the handlers of an event make, of reads and writes, is to keys that hold the value of one
expression over the event, then events with different values have nothing to do with each other. So events
can be shared out among workers by that value, and each worker finds its part of the states exactly by
going through its events in log order. Nothing is re-associated: a key sees what it saw serially.

A state may be keyed by more than that value: with accesses `spent[e.user, e.day]` and `limit[e.user]` the
events are shared out by `e.user`. A state that the pass only needs (a set of friends that a condition asks) may be
accessed under any keys: all workers keep it, and all of them run the events that write it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from timelapse.analysis.closed import Closed, NotClosed, function_of
from timelapse.analysis.declared import declarations
from timelapse.analysis.depend import Closure
from timelapse.analysis.idioms.base import is_pure
from timelapse.analysis.ir import CallSite, FunctionIR, Vertex
from timelapse.analysis.library import Library
from timelapse.analysis.operations import States
from timelapse.analysis.result import ByKey, EventKey
from timelapse.analysis.views import LOOKING
from timelapse.code.scope import Scope
from timelapse.code.source import all_nodes
from timelapse.errors import Place
from timelapse.kinds.base import StateSpec
from timelapse.kinds.grouped import Grouped
from timelapse.model.events import Event
from timelapse.model.types import DecimalType, TupleType

if TYPE_CHECKING:
    from timelapse.analysis.analyse import Analysis

_TRIALS = 256
"""Choices of key parts that are tried; programs need a handful."""


@dataclass(frozen=True)
class NotByKey:
    """Why events cannot be shared out, the line that is to blame, and what to write instead."""

    reason: str
    place: Place = field(default_factory=Place)
    rewrite: str | None = None
    across: str | None = None
    """What to write instead where a state depends on itself across keys: it is read under one and written under another."""


@dataclass(frozen=True)
class Access:
    """One access of a state in the handlers of one event. `key`: over `self` and `e`; None: see `why`."""

    state: str
    event: type[Event]
    key: ast.expr | None
    text: str
    why: str
    place: Place
    writes: bool
    fn: FunctionIR = field(repr=False)
    parts: tuple[ast.expr | None, ...] = ()
    """Where there is no `key`: the parts of the tuple that it is, as far as they follow from the event."""


@dataclass(frozen=True)
class _Context:
    """One way in which a function is called for an event: what its parameters stand for."""

    event: type[Event]
    event_name: str
    given: Mapping[str, ast.expr]


def accesses_of(analysis: Analysis, keep: Closure | None) -> list[Access]:
    """Every access of a state in what a pass runs (None: in the whole program), by handler and line."""
    return _Finder(analysis, keep).accesses()


def by_key(
    analysis: Analysis, keep: Closure | None, targets: Sequence[str], states: Iterable[str]
) -> ByKey | NotByKey:
    """How the events of a pass can be shared out.

    `keep` is what the pass runs (None: the whole program), `targets` the states that it is about, `states` all
    that it keeps. The targets are always shared out; another state only where its accesses follow the same key.
    """
    if analysis.opaque:
        cause = analysis.functions.opaque[0]
        return NotByKey(cause.message, cause.place)
    use = next((u for u in analysis.spec.times if u.what not in ("derive", *LOOKING)), analysis.serial_only)
    if use is not None:
        return NotByKey(f"{use.text_of_what} reaches into another time", use.place)
    for fn in analysis.functions.all:
        for vertex in fn.vertices:
            if vertex.found.sends:
                return NotByKey("events that are sent may have another key", vertex.place)
    kept = set(states)
    accesses = [a for a in accesses_of(analysis, keep) if a.state in kept]
    order = [s for s in analysis.spec.states if s in kept]
    wanted = [s for s in order if s in set(targets)]
    for name in wanted:
        own = [a for a in accesses if a.state == name]
        if analysis.spec.states[name].key is None:
            place = own[0].place if own else Place()
            return NotByKey(f"{name} has no key: it is one value for all events", place)
        odd = next((a for a in own if a.key is None), None)
        if odd is not None:
            return NotByKey(odd.why, odd.place)
    search = _Search(analysis, accesses, wanted)
    found = search.solve()
    if found is None:
        return search.conflict(accesses)
    parts, keys = found
    for name in order:
        if name not in parts:
            search.join(name, parts, keys)
    return _settled(analysis, accesses, wanted, parts, keys)


def _settled(
    analysis: Analysis, accesses: Sequence[Access], wanted: Sequence[str], parts: dict[str, int | None],
    keys: dict[type[Event], ast.expr],
) -> ByKey | NotByKey:  # fmt: skip
    """Take out states until no event that everybody has to run accesses a state that is shared out."""
    while True:
        everywhere = {a.event for a in accesses if a.writes and a.state not in parts}
        split = {a.state: a for a in accesses if a.event in everywhere and a.state in parts}
        blamed = next((a for name, a in split.items() if name in wanted), None)
        if blamed is not None:
            other = next(a for a in accesses if a.event is blamed.event and a.writes and a.state not in parts)
            return NotByKey(
                f"{blamed.event.__name__} also writes {other.state}, which is not under the key of {blamed.state}",
                other.place, f"write {other.state} in a handler of another event, or under the same key",
            )  # fmt: skip
        if not split:
            break
        for name in split:
            del parts[name]
    listed = {a.event: a for a in accesses if a.state in parts}
    made = {}
    for event, access in listed.items():
        expression = keys[event]
        fields = [
            n.attr for n in all_nodes(expression) if isinstance(n, ast.Attribute) and _is_event(n.value)
        ]
        names = [f.name for f in event.__fields__ if f.name in fields]
        text = ast.unparse(expression)
        made[event.__name__] = EventKey(
            text, tuple(names), _plain(expression, names),
            function_of(expression, access.fn.function, {}, "tl_key"), access.place,
        )  # fmt: skip
    for name, part in parts.items():
        odd = _of_other_scale(analysis.spec.states[name], part, listed, made)
        if odd is not None:
            return NotByKey(
                f"{odd.event.__name__} uses {name} under {ast.unparse(keys[odd.event])}, which need not have as many places as its keys",
                odd.place, f"give the field of {odd.event.__name__} the type of {name}'s key",
            )  # fmt: skip
    return ByKey(made, {s: parts[s] for s in analysis.spec.states if s in parts})


def _of_other_scale(
    spec: StateSpec, part: int | None, listed: Mapping[type[Event], Access], made: Mapping[str, EventKey]
) -> Access | None:
    """The first access whose key is not of just the state's type, where that has decimals: one number has a hash for each scale."""
    kind = spec.key.items[part] if part is not None and isinstance(spec.key, TupleType) else spec.key
    wanted = kind.items if isinstance(kind, TupleType) else (kind,)
    if not any(isinstance(t, DecimalType) for t in wanted):
        return None
    for event, access in listed.items():
        types = {f.name: f.type for f in event.__fields__}
        if tuple(types[name] for name in made[event.__name__].plain) != tuple(wanted):
            return access
    return None


def _plain(expression: ast.expr, fields: Sequence[str]) -> tuple[str, ...]:
    """The fields whose values are the key's parts, if it is nothing else; else empty."""
    items = expression.elts if isinstance(expression, ast.Tuple) else [expression]
    found = [i.attr for i in items if isinstance(i, ast.Attribute) and _is_event(i.value)]
    return tuple(found) if len(found) == len(items) and set(found) <= set(fields) else ()


class _Search:
    """Finds for each state the part of its key by which events are shared out."""

    def __init__(self, analysis: Analysis, accesses: Sequence[Access], wanted: Sequence[str]) -> None:
        self._wanted = wanted
        self._of = {
            name: [a for a in accesses if a.state == name]
            for name in dict.fromkeys(a.state for a in accesses)
        }
        specs = analysis.spec.states
        self._kinds = {name: spec.key for name, spec in specs.items()}
        self._grouped = {name for name, spec in specs.items() if issubclass(spec.kind, Grouped)}
        self._left = _TRIALS

    def solve(self) -> tuple[dict[str, int | None], dict[type[Event], ast.expr]] | None:
        """For all wanted states, or None."""
        return self._solve(0, {}, {})

    def _solve(
        self, at: int, parts: dict[str, int | None], keys: dict[type[Event], ast.expr]
    ) -> tuple[dict[str, int | None], dict[type[Event], ast.expr]] | None:
        if at == len(self._wanted):
            return parts, keys
        name = self._wanted[at]
        for part in self._candidates(name):
            self._left -= 1
            if self._left < 0:
                return None
            more = self._agree(name, part, keys)
            if more is not None:
                found = self._solve(at + 1, {**parts, name: part}, {**keys, **more})
                if found is not None:
                    return found
        return None

    def join(self, name: str, parts: dict[str, int | None], keys: dict[type[Event], ast.expr]) -> None:
        """Share out another state too, if its accesses follow keys that are known."""
        for part in self._candidates(name):
            more = self._agree(name, part, keys)
            if more is not None:
                parts[name] = part
                keys.update(more)
                return

    def conflict(self, accesses: Sequence[Access]) -> NotByKey:
        """The first two accesses of one event that no common part of their keys follows from."""
        before: dict[type[Event], list[tuple[Access, dict[int | None, str]]]] = {}
        for access in accesses:
            if access.state not in self._wanted:
                continue
            ways = self._ways(access)
            for other, theirs in before.setdefault(access.event, []):
                same = access.state == other.state
                if not (ways.items() & theirs.items() if same else {*ways.values()} & {*theirs.values()}):
                    states = " and ".join(dict.fromkeys([other.state, access.state]))
                    keys = " and ".join(self._text(a) for a in (other, access))
                    return NotByKey(
                        f"{access.event.__name__} uses {states} under two keys, {keys}",
                        access.place, _pair_rewrite(other, access), _across(accesses, self._wanted),
                    )  # fmt: skip
            before[access.event].append((access, ways))
        return NotByKey("its accesses follow no common key", accesses[0].place if accesses else Place())

    def _ways(self, access: Access) -> dict[int | None, str]:
        """By which part of its key an access could be shared out, and under what."""
        found = {part: access.key if part is None or access.key is None else _item(access.key, part)
                 for part in self._candidates(access.state)}  # fmt: skip
        return {part: ast.unparse(key) for part, key in found.items() if key is not None}

    def _text(self, access: Access) -> str:
        """A key as handlers write it: where all under a declared key is meant, that."""
        match access.key:
            case ast.Tuple(elts=[key]) if access.state in self._grouped:
                return ast.unparse(key)
        return access.text

    def _candidates(self, name: str) -> list[int | None]:
        kind = self._kinds.get(name)
        if kind is None:
            return []
        if name in self._grouped:  # what stands under a declared key belongs together
            return [0]
        return [None, *range(len(kind.items))] if isinstance(kind, TupleType) else [None]

    def _agree(
        self, name: str, part: int | None, keys: Mapping[type[Event], ast.expr]
    ) -> dict[type[Event], ast.expr] | None:
        """The keys of the events that access the state in this part of its key, if they agree."""
        found: dict[type[Event], ast.expr] = {}
        for access in self._of.get(name, ()):
            key = access.key if part is None or access.key is None else _item(access.key, part)
            if key is None:
                return None
            known = found.get(access.event, keys.get(access.event))
            if known is not None and ast.unparse(known) != ast.unparse(key):
                return None
            found[access.event] = key
        return found


def _item(key: ast.expr, part: int) -> ast.expr | None:
    if isinstance(key, ast.Tuple) and part < len(key.elts):
        return key.elts[part]
    return None


def _across(accesses: Sequence[Access], wanted: Sequence[str]) -> str | None:
    """Advice for a state that one event reads under one key and writes under another; both lines are named.

    Nothing can be moved within the program where what is written depends on that read. Where it does not, two
    events with a key each say so, in a way that can be shared out.
    """
    if len(wanted) != 1:
        return None
    own = [a for a in accesses if a.state == wanted[0]]
    for read in own:
        for write in own:
            if not read.writes and write.writes and read.event is write.event and read.text != write.text:
                event, name = read.event.__name__, read.state
                texts: dict[type[Event], list[str]] = {}
                for access in own:
                    texts.setdefault(access.event, []).append(access.text)
                several = {e.__name__: dict.fromkeys(t) for e, t in texts.items() if len(set(t)) > 1}
                keys = ", ".join(f"{name}[{text}]" for text in several[event])
                return (
                    f"none while what {event} writes to {name}[{write.text}] (line {write.place.line}) depends on the "
                    f"{name}[{read.text}] that it reads (line {read.place.line}). If it need not, log {' and '.join(several)} "
                    f"as events that each use one key of {name} (of {event}: {keys}): then it runs by key, or as a scan"
                )
    return None


def _pair_rewrite(a: Access, b: Access) -> str | None:
    """Two orders of the same parts can be one key."""
    if isinstance(a.key, ast.Tuple) and isinstance(b.key, ast.Tuple):
        one, two = ([ast.unparse(i) for i in k.elts] for k in (a.key, b.key))
        if sorted(one) == sorted(two) and len(one) == 2:
            return (
                f"key by the unordered pair, ({one[0]}, {one[1]}) if {one[0]} < {one[1]} else ({one[1]}, {one[0]}), "
                "and this becomes by key"
            )
    return None


def _is_event(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "e"


class _Finder:
    """Lists the accesses, each with its key as an expression over the event."""

    def __init__(self, analysis: Analysis, keep: Closure | None) -> None:
        self._analysis, self._graph = analysis, analysis.graph
        functions = analysis.functions
        self._vertices: list[Vertex] = (
            list(keep.vertices) if keep is not None
            else [v for fn in functions.all if fn.events or functions.reached[fn] for v in fn.vertices]
        )  # fmt: skip
        self._contexts: dict[FunctionIR, list[_Context]] = {}
        self._libraries: dict[tuple[FunctionIR, type[Event]], Library] = {}
        self._globals = functions.handlers[0].function.__globals__ if functions.handlers else {}

    def accesses(self) -> list[Access]:
        """In the order of handlers and lines."""
        found: dict[tuple[Any, ...], Access] = {}
        for vertex in self._vertices:
            for read in vertex.found.reads:
                self._add(found, vertex, read.state, read.key, read.node, writes=False, every=read.all_keys)
            for write in vertex.found.writes:
                self._add(found, vertex, write.state, write.key, write.node, writes=True, every=False)
        place = {fn: i for i, fn in enumerate(self._analysis.functions.all)}
        return sorted(found.values(), key=lambda a: (place[a.fn], a.place.line or 0))

    def _add(
        self, found: dict[tuple[Any, ...], Access], vertex: Vertex, state: str, key: ast.expr | None,
        node: ast.AST, *, writes: bool, every: bool,
    ) -> None:  # fmt: skip
        fn = vertex.fn
        place = Place(fn.file, getattr(node, "lineno", fn.line), fn.name)
        for number, context in enumerate(self._of(fn)):
            which = (id(node), state, writes, number)
            if which in found:
                continue
            closed, why, parts = None, f"{state} is used under no key", tuple[ast.expr | None, ...]()
            if every:
                why = f"all keys of {state} are read"
            elif key is not None:
                try:
                    closed = self._closed(fn, vertex, context, key, place)
                except NotClosed as reason:
                    why = f"the key of {state} does not follow from the event alone: {reason}"
                    parts = self._parts(fn, vertex, context, key, place)
            closed = closed and self._declared(self._analysis.spec.states[state], node, closed)
            text = "" if closed is None else ast.unparse(closed)
            found[which] = Access(state, context.event, closed, text, why, place, writes, fn, parts)

    def _parts(
        self, fn: FunctionIR, vertex: Vertex, context: _Context, key: ast.expr, place: Place
    ) -> tuple[ast.expr | None, ...]:
        """The parts of a tuple over `self` and `e`; None: one that does not follow from the event."""
        found: list[ast.expr | None] = []
        for part in key.elts if isinstance(key, ast.Tuple) else ():
            if isinstance(part, ast.Starred):
                return ()
            try:
                found.append(self._closed(fn, vertex, context, part, place))
            except NotClosed:
                found.append(None)
        return tuple(found)

    def _declared(self, spec: StateSpec, node: ast.AST, key: ast.expr) -> ast.expr | None:
        """The key as a tuple that begins with the declared key, in kinds with several things under one."""
        if not issubclass(spec.kind, Grouped):
            return key
        if spec.kind.asks_pair(_operation(node)):
            return key if isinstance(key, ast.Tuple) and len(key.elts) == 2 else None
        return ast.copy_location(ast.Tuple([key], ast.Load()), key)

    def _closed(
        self, fn: FunctionIR, vertex: Vertex, context: _Context, key: ast.expr, place: Place
    ) -> ast.expr:
        """The key over `self` (parameters) and `e` (fields). Raises NotClosed."""
        maker = Closed(self._graph, fn, vertex, context.event_name, place, context.given)
        made: ast.expr = maker.expression(key)
        if maker.free:
            raise NotClosed(f"it needs {', '.join(maker.free)} ({place})")
        for node in all_nodes(made):
            if isinstance(node, ast.Name) and node.id in ("self", "e") and not _only_as_owner(made, node):
                raise NotClosed(f"it needs the whole {'event' if node.id == 'e' else 'program'} ({place})")
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "self"
            ):
                if node.attr not in self._analysis.spec.params:
                    raise NotClosed(f"it needs self.{node.attr} ({place})")
        named = {n.id for n in all_nodes(made) if isinstance(n, ast.Name)} - {"self", "e"}
        if named and fn.function.__globals__ is not self._globals:
            raise NotClosed(f"{', '.join(sorted(named))} may be something else in another module ({place})")
        if not is_pure(self._graph, fn, made, self._library(fn, context.event)):
            raise NotClosed(f"it may not be the same every time ({place})")
        return made

    def _library(self, fn: FunctionIR, event: type[Event]) -> Library:
        """What is known of a function's expressions where it is called for an event."""
        if (fn, event) not in self._libraries:
            spec = self._analysis.spec
            declared = declarations(spec, States(spec, "self"), "e", [event])
            self._libraries[fn, event] = Library(Scope.of(fn.function, fn.receiver), fn.body, declared)
        return self._libraries[fn, event]

    # --- how functions are called ----------------------------------------------------------------------

    def _of(self, fn: FunctionIR) -> list[_Context]:
        if fn not in self._contexts:
            self._contexts[fn] = []  # functions do not call themselves
            self._contexts[fn] = list(self._found(fn))
        return self._contexts[fn]

    def _found(self, fn: FunctionIR) -> Iterator[_Context]:
        for event in fn.events:
            yield _Context(event, fn.event_param or "", {})
        for caller, site in self._analysis.functions.sites[fn]:
            for outer in self._of(caller.fn):
                yield _Context(outer.event, "", self._arguments(fn, caller, site, outer))

    def _arguments(
        self, fn: FunctionIR, caller: Vertex, site: CallSite, outer: _Context
    ) -> dict[str, ast.expr]:
        """What a call gives for the parameters, as far as it follows from the event."""
        call = site.node
        if not isinstance(call, ast.Call) or fn.function.__globals__ is not caller.fn.function.__globals__:
            return {}
        own = [p for p in fn.params if p != fn.receiver]
        args = list(call.args)
        if site.style == "helper":
            args = [a for a in args if not (isinstance(a, ast.Name) and a.id == caller.fn.receiver)]
        if any(isinstance(a, ast.Starred) for a in args) or len(args) > len(own):
            return {}
        named = {k.arg: k.value for k in call.keywords if k.arg in own}
        if len(named) != len(call.keywords):
            return {}
        maker = Closed(
            self._graph, caller.fn, caller, outer.event_name, Place(caller.fn.file, caller.node.line), outer.given
        )  # fmt: skip
        found: dict[str, ast.expr] = {}
        for name, value in [*zip(own, args, strict=False), *named.items()]:
            try:
                found[name] = maker.expression(value)
            except NotClosed:
                continue
        return found


def _operation(node: ast.AST) -> str:
    """The name of the operation on a state that a node is."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr
    return "contains" if isinstance(node, ast.Compare) else "getitem"


def _only_as_owner(tree: ast.expr, name: ast.Name) -> bool:
    """Whether a name stands where an attribute of it is asked for."""
    return any(isinstance(n, ast.Attribute) and n.value is name for n in all_nodes(tree))
