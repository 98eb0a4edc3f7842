"""The output part of a program: everything that its states do not need, and the states it reads.

The *core* is what all state writes need. The rest (emits, what only they need, and whatever else may
raise) is cut out like a pass, except that it writes no state at all. Where each of its reads of a state
can be *hoisted*, it needs no states either: the value that was read is a column beside the event's fields.

A read can be hoisted when its key follows from the event, parameters and constants alone, and when
the states it reads are not written between the read and the beginning (or the end) of its handler: then its
value is that at a point between handlers, and can be recorded there for every event, also for those where
a short circuit did not look. The point is told by how many of the core's handlers that may write these
states run before it; handlers that only put out something do not count.

What windows hold at such a point follows from the states' writes up to then and from the event's time, so a look back is a read
like any other. What is put out at other times than those of the log's events needs the states.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from timelapse.analysis.closed import Closed, NotClosed
from timelapse.analysis.columns import fields_read
from timelapse.analysis.depend import Closure, Graph, Relaxed
from timelapse.analysis.ir import FunctionIR, StateRead, Vertex
from timelapse.analysis.operations import plain_state
from timelapse.analysis.relax import roots
from timelapse.analysis.result import PassHandler
from timelapse.analysis.rewrite import Cut, Cutter, definition
from timelapse.analysis.slicing import what_is_left
from timelapse.code import cfg
from timelapse.code.source import all_nodes
from timelapse.errors import Place
from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.model.events import Event
from timelapse.model.types import BOOL, BYTES, FLOAT, INT, STR, TIME, OptionalType, ValueType

if TYPE_CHECKING:
    from timelapse.analysis.analyse import Analysis

_STORABLE = (INT, FLOAT, BOOL, STR, BYTES, TIME)
PREFIX = "tl_read"


@dataclass(frozen=True)
class Site:
    """One read of a state, hoisted. `text` uses the names `self` and `e`."""

    name: str
    """Of the column that replaces it."""
    event: type[Event]
    after: int
    """It is recorded behind this many of the handlers that listen to the event."""
    writers: int
    """How many of those may write the states that it reads: its identity, with the text."""
    text: str
    type: ValueType
    place: Place
    function: types.FunctionType = field(compare=False, repr=False)
    """`(self, e) -> value`."""
    free: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """Captured values that it uses."""


@dataclass(frozen=True)
class OutputPart:
    """The output part as a pass without states, or the reason why there is none."""

    reason: str = ""
    handlers: tuple[PassHandler, ...] = ()
    members: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[type[Event], tuple[str, ...]] = field(default_factory=dict)
    """The fields that it reads of each event type, in declared order; its sites not among them."""
    sites: tuple[Site, ...] = ()


def output_part(analysis: Analysis) -> OutputPart:
    """Cut the output part out of a program."""
    try:
        return _Finder(analysis).find()
    except NotClosed as reason:
        return OutputPart(reason=str(reason))


def core_closure(analysis: Analysis) -> Closure:
    """What the writes of all states need."""
    graph = analysis.graph
    needed, active = [], []
    for state in analysis.spec.states:
        for vertex, _ in graph.writes[state]:
            more, functions = roots(graph, vertex)
            needed += more
            active += functions
    return graph.close(needed, active, Relaxed(), lambda _: True)


class _Finder:
    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._graph: Graph = analysis.graph
        self._sites: list[Site] = []
        self._replaced: dict[int, ast.expr] = {}
        self._names: dict[Any, str] = {}

    def find(self) -> OutputPart:
        analysis, graph = self._analysis, self._graph
        if analysis.opaque:
            raise NotClosed(analysis.functions.opaque[0].message)
        if graph.rejects:
            raise NotClosed("the program rejects events")
        core = core_closure(analysis)
        needed = [
            v for fn in analysis.functions.all if fn.events or analysis.functions.reached[fn] for v in fn.vertices
            if v.node.kind not in ("entry", "exit")
            and (v.found.emits or (v not in core and v.node.main not in core))
        ]  # fmt: skip
        keep = graph.close(needed, dict.fromkeys(v.fn for v in needed), Relaxed(), lambda _: False)
        self._check_times(keep)
        for vertex in keep.vertices:
            if vertex.found.writes:
                raise NotClosed(f"the value of a write is used for outputs ({vertex.place})")
        for vertex in keep.vertices:
            for read in vertex.found.reads:
                self._hoist(vertex, read)
        return self._cut(keep)

    def _check_times(self, keep: Closure) -> None:
        """Raises NotClosed where something is put out elsewhere than at the log's own events."""
        functions = self._analysis.functions
        touched = {v.fn for v in keep.vertices}
        heard: set[type[Event]] = set()
        for spec, fn in zip(self._analysis.spec.handlers, functions.handlers, strict=True):
            if fn not in touched:
                continue
            if spec.after is not None or spec.every is not None:
                what = "@tl.every" if spec.after is None else "@tl.on(after=)"
                raise NotClosed(f"outputs need {spec.name}, a handler of {what} ({spec.place})")
            heard.update(spec.events)
        for fn in functions.all:
            for vertex in fn.vertices:
                for send in vertex.found.sends:
                    sent = next((e.__name__ for e in send.events if e in heard), None)
                    if sent is not None:
                        raise NotClosed(f"outputs need {sent}, which may be sent ({vertex.place})")
                    if vertex in keep:
                        raise NotClosed(f"outputs need an event that is sent ({vertex.place})")

    # --- sites --------------------------------------------------------------------------------------

    def _hoist(self, vertex: Vertex, read: StateRead) -> None:
        fn = vertex.fn
        place = Place(fn.file, getattr(read.node, "lineno", fn.line), fn.name)
        if read.all_keys:
            raise NotClosed(f"it reads all keys of {read.state} ({place})")
        if not isinstance(read.node, ast.expr):
            raise NotClosed(f"it reads {read.state} in a statement of its own ({place})")
        if id(read.node) in self._replaced:
            return
        handler, nodes, event_name = self._home(fn, vertex, place)
        maker = Closed(self._graph, fn, vertex, event_name, place)
        expression = maker.expression(read.node)
        negated = isinstance(expression, ast.Compare) and isinstance(expression.ops[0], ast.NotIn)
        if isinstance(expression, ast.Compare):
            if len(expression.ops) != 1:
                raise NotClosed(f"a chain of comparisons reads {read.state} ({place})")
            expression.ops = [ast.In()]
        kind = self._type(read, place)
        states = {s for s in self._analysis.spec.states if any(
            isinstance(n, ast.Attribute) and n.attr == s and _is(n.value, "self") for n in all_nodes(expression)
        )}  # fmt: skip
        function = maker.function(expression)
        found = [(event, *self._position(handler, event, nodes, states, place)) for event in handler.events]
        text = ast.unparse(expression)
        same = (tuple(found), text, kind, id(function.__globals__), tuple(map(id, maker.free.values())))
        name = self._names.setdefault(same, f"{PREFIX}{len(self._names)}")
        for event, after, writers in found:
            if not any(s.name == name and s.event is event for s in self._sites):
                self._sites.append(Site(name, event, after, writers, text, kind, place, function, maker.free))
        column: ast.expr = ast.Attribute(ast.Name(event_name, ast.Load()), name, ast.Load())
        if negated:
            column = ast.UnaryOp(ast.Not(), column)
        self._replaced[id(read.node)] = column

    def _home(self, fn: FunctionIR, vertex: Vertex, place: Place) -> tuple[FunctionIR, list[int], str]:
        """The handler in which a read happens, the nodes where it does, the event's name at the read."""
        if fn.events:
            if fn.event_param is None:
                raise NotClosed(f"the handler has no parameter for its event ({place})")
            if self._analysis.functions.sites[fn]:
                raise NotClosed(f"the handler is called by others as well ({place})")
            return fn, [vertex.node.index], fn.event_param
        sites = self._analysis.functions.sites[fn]
        homes = {v.fn for v, _ in sites}
        if len(homes) != 1 or not next(iter(homes)).events or self._graph.writing[fn]:
            raise NotClosed(f"a method that is not called by one handler alone reads a state ({place})")
        handler = next(iter(homes))
        own = [p for p in fn.params if p != fn.receiver]
        taken: set[str] = set()
        for _, site in sites:
            call = site.node
            given = list(call.args) if isinstance(call, ast.Call) and not call.keywords else []
            given = [a for a in given if not _is(a, handler.receiver or "self")]
            if handler.event_param is None or len(given) != len(own):
                raise NotClosed(f"a method that is not simply given the event reads a state ({place})")
            taken.update(p for p, a in zip(own, given, strict=True) if _is(a, handler.event_param))
            if any(isinstance(n, ast.Name) and n.id == handler.event_param and isinstance(n.ctx, ast.Store)
                   for s in handler.body for n in all_nodes(s)):  # fmt: skip
                raise NotClosed(f"the event's name is given to something else ({place})")
        if len(taken) != 1 or len(own) != 1:
            raise NotClosed(f"a method that is not simply given the event reads a state ({place})")
        return handler, [v.node.index for v, _ in sites], taken.pop()

    def _type(self, read: StateRead, place: Place) -> ValueType:
        spec: StateSpec = self._analysis.spec.states[read.state]
        node = read.node
        if not spec.kind.plain_reads:
            raise NotClosed(f"it reads a {spec.kind.__name__}, {read.state} ({place})")
        kind: ValueType | None = spec.value
        if isinstance(node, ast.Compare) or spec.kind.presence:
            kind = BOOL
        elif isinstance(node, ast.Call):
            assert isinstance(node.func, ast.Attribute)
            if node.func.attr != "get" or any(k.arg != "at" for k in node.keywords):
                raise NotClosed(f"it reads {read.state} through {node.func.attr}() ({place})")
            default = node.args[1] if spec.key is not None and len(node.args) > 1 else None
            if isinstance(default, ast.Constant) and default.value is None:
                kind = kind if isinstance(kind, OptionalType) or kind is None else OptionalType(kind)
            elif default is not None:
                raise NotClosed(f"it reads {read.state} with a default of its own ({place})")
        elif spec.default is ABSENT and not isinstance(kind, OptionalType):
            raise NotClosed(f"{read.state} has no default ({place})")
        inner = kind.inner if isinstance(kind, OptionalType) else kind
        if kind is None or inner not in _STORABLE:
            raise NotClosed(
                f"{read.state} holds {'nothing' if kind is None else kind.text}, which no column does ({place})"
            )
        return kind

    def _position(
        self, handler: FunctionIR, event: type[Event], nodes: list[int], states: set[str], place: Place
    ) -> tuple[int, int]:
        """Behind how many of the event's handlers the value is the same as at the read, and how many write."""
        functions, called = self._analysis.functions.handlers, self._analysis.spec.handlers_of(event)
        listening = [f for s, f in zip(self._analysis.spec.handlers, functions, strict=True) if s in called]
        index = listening.index(handler)
        edges = [[e.target for e in n.edges] for n in handler.nodes]
        writing = [
            n.index
            for n in handler.nodes
            if n.index in handler.live and self._graph.may_write(n.main) & states
        ]
        behind = {n: _beyond(edges, n) for n in {*writing, *nodes}}
        if not any(n in behind[w] or n == w for w in writing for n in nodes):
            after = index
        elif not any(w in behind[n] or n == w for w in writing for n in nodes):
            after = index + 1
        else:
            raise NotClosed(f"it reads {', '.join(sorted(states))} between writes in one handler ({place})")
        before = [f for f in listening[:after] if self._graph.writing[f] & states]
        while after and not self._graph.writing[listening[after - 1]]:
            after -= 1  # as early as can be: reads at one point are recorded together
        return after, len(before)

    # --- the pass -----------------------------------------------------------------------------------

    def _cut(self, keep: Closure) -> OutputPart:
        analysis = self._analysis
        states = analysis.spec.states
        cut = Cut(
            keep, Relaxed(), frozenset(), frozenset(s for s in states if plain_state(states[s])),
            replaced=self._replaced,
        )  # fmt: skip
        trees: dict[FunctionIR, ast.FunctionDef] = {}

        def tree(fn: FunctionIR) -> ast.FunctionDef:
            if fn not in trees:
                try:
                    trees[fn] = definition(fn, Cutter(fn, cut).body())
                except AssertionError as error:
                    raise NotClosed(str(error)) from None
                _without_states(trees[fn], fn, states)
            return trees[fn]

        left = what_is_left(analysis, keep, cut, tree)
        handlers = tuple(handler for handler, _ in left.handlers)
        fields: dict[type[Event], tuple[str, ...]] = {}
        sites = [s for s in self._sites if any(s.event in h.events for h in handlers)]
        for event in analysis.spec.events:
            listening = [fn for handler, fn in left.handlers if event in handler.events]
            if listening:
                fields[event] = _fields(event, listening, tree, sites)
        return OutputPart("", handlers, left.members, fields, tuple(sites))


def _fields(
    event: type[Event], functions: Iterable[FunctionIR], tree: Any, sites: Iterable[Site]
) -> tuple[str, ...]:
    """The fields that are read of an event, sites left out. Raises NotClosed where the event is used otherwise."""
    used: set[str] = set()
    for fn in functions:
        if fn.event_param is None:
            raise NotClosed(f"the handler {fn.name} has no parameter for its event")
        used |= fields_read(fn, fn.event_param, tree)
    names = [f.name for f in event.__fields__]
    own = {s.name for s in sites if s.event is event}
    unknown = used - set(names) - own - {"ts", "seq"}
    if unknown:
        raise NotClosed(f"{event.__name__} is used other than by its fields")
    return tuple(n for n in names if n in used)


def _without_states(tree: ast.AST, fn: FunctionIR, states: Mapping[str, StateSpec]) -> None:
    """Raises NotClosed where a state is mentioned after all."""
    for node in all_nodes(tree):
        if isinstance(node, ast.Attribute) and node.attr in states and _is(node.value, fn.receiver or "self"):
            raise NotClosed(f"{node.attr} is needed as a whole ({fn.name})")


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _beyond(edges: list[list[int]], node: int) -> set[int]:
    """Nodes that can be reached from a node by at least one step."""
    return {n for target in edges[node] for n in cfg.reachable(edges, target)}
