"""The analysed functions of a program: handlers, and everything they call that is given `self`.

What a helper's parameters may hold, what it returns and whether it is called inside a `try` is found
out while its callers are built, so building is repeated until nothing changes.
"""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Sequence

from timelapse.analysis.build import Builder
from timelapse.analysis.declared import declarations
from timelapse.analysis.desugar import Desugar
from timelapse.analysis.ir import CallSite, FunctionIR, StateRead, Vertex
from timelapse.analysis.library import Library
from timelapse.analysis.mutability import Kind, Mutability
from timelapse.analysis.opaque import Opaque
from timelapse.analysis.result import Diagnostic, Severity
from timelapse.analysis.scan import Scanner
from timelapse.code.scope import Scope
from timelapse.code.source import all_nodes, function_source
from timelapse.errors import Place
from timelapse.kinds.base import StateSpec
from timelapse.model.events import Event
from timelapse.program.pending import PENDING
from timelapse.program.program import Program, ProgramSpec

Key = tuple[types.FunctionType, int]
_GENERATOR = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Tick(Event):
    """What ticks are to the analysis: an event of one type, so that one tick's rejection counts for its writes."""


class Functions:
    """All analysed functions of one program class."""

    def __init__(self, cls: type[Program], spec: ProgramSpec) -> None:
        self.cls: type = cls
        self.spec = spec
        self.handlers: list[FunctionIR] = []
        self.all: list[FunctionIR] = []
        self.trusted: dict[tuple[str, str], Diagnostic] = {}
        self._arguments: dict[Key, list[Kind]] = {}
        self._results: dict[Key, Kind] = {}
        self._guarded: set[Key] = set()
        self._keys: dict[int, Key] = {}
        self._made: dict[Key, FunctionIR] = {}
        self._open: list[Key] = []
        self._changed = True
        self._file = ""
        self._name = ""
        while self._changed:
            self._changed = False
            self._made, self._keys, self.trusted = {}, {}, {}
            self.handlers = [self._handler(h.function, h.name, h.events or (Tick,)) for h in spec.handlers]
        self.all = list(self._made.values())
        self._depend_on_pending()
        self.sites = self._call_sites()
        self.reached = self._reached()

    # --- what scanning asks for -----------------------------------------------------------------

    def callee(self, function: types.FunctionType, receiver: int, node: ast.AST) -> FunctionIR:
        key = (function, receiver)
        if key in self._open:
            raise Opaque("TL302", node, f"{function.__qualname__} calls itself", "write it as a loop")
        file, name = self._file, self._name
        found = self._made.get(key) or self._function(key, function.__qualname__, None, ())
        self._file, self._name = file, name
        return found

    def trust(self, node: ast.AST, what: str, why: str) -> None:
        place = Place(self._file, getattr(node, "lineno", None), self._name)
        self.trusted.setdefault((what, self._name), Diagnostic(
            "TL321" if why == "a resource" else "TL320", Severity.INFO, place,
            f"{what} is trusted ({why})",
            "it must depend on its arguments alone; replays process the first events twice and compare",
        ))  # fmt: skip

    def pass_arguments(self, callee: FunctionIR, kinds: Sequence[Kind] | None) -> None:
        key = self._keys.get(id(callee))
        if key is None:
            return
        if callee.events and key not in self._arguments:
            self._changed = True  # a handler that is called, too: its event may be anything
        known = self._arguments.setdefault(key, [])
        count = len(callee.params)
        given = [Kind.ANYTHING] * count if kinds is None else list(kinds)
        worst = max(given, default=Kind.IMMUTABLE)
        for place in range(count):
            # Keyword arguments may stand anywhere: every parameter gets the worst kind.
            if place >= len(known):
                known.append(Kind.IMMUTABLE)
            if worst > known[place]:
                known[place] = worst
                self._changed = True

    def result(self, callee: FunctionIR) -> Kind:
        key = self._keys.get(id(callee))
        return Kind.ANYTHING if key is None else self._results.get(key, Kind.IMMUTABLE)

    # --- building -------------------------------------------------------------------------------

    def _handler(
        self, function: types.FunctionType, name: str, events: tuple[type[Event], ...]
    ) -> FunctionIR:
        key = (function, 0)
        made = self._made.get(key)
        if made is None:
            made = self._function(key, f"{self.spec.name}.{name}", None, events)
        made.events = tuple(dict.fromkeys((*made.events, *events)))
        made.event_param = made.params[1] if len(made.params) > 1 else None
        return made

    def _function(
        self, key: Key, name: str, event: str | None, events: tuple[type[Event], ...]
    ) -> FunctionIR:
        function, position = key
        source = function_source(function)
        code = function.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        receiver = names[position] if position < len(names) else None
        empty = ast.arguments([], [], None, [], [], None, [])
        node = source.node
        fn = FunctionIR(
            name, function, source.file, receiver, _parameters(node.args) if node is not None else tuple(names),
            node.args if node is not None else empty, list(node.body) if node is not None else [], source.line,
            event, events, guarded=key in self._guarded,
        )  # fmt: skip
        self._keys[id(fn)] = key
        self._made[key] = fn
        if node is None:
            code_ = "TL309" if source.problem and "differs" in source.problem else "TL301"
            place = Place(source.file, source.line, name)
            fn.opaque = Diagnostic(
                code_, Severity.INFO, place, f"{name} is opaque: {source.problem}",
                "everything it could touch is computed in log order; define it in a file that can be read",
            )  # fmt: skip
            return fn
        self._open.append(key)
        self._file, self._name = source.file, name
        try:
            self._build(fn, key)
        except Opaque as reason:
            line = getattr(reason.node, "lineno", source.line)
            fn.nodes, fn.by_ast, fn.iters = [], {}, {}
            fn.opaque = Diagnostic(
                reason.code, Severity.INFO, Place(source.file, line, name),
                f"{name} is opaque: {reason.message}",
                f"everything it could touch is computed in log order; {reason.remedy}",
            )  # fmt: skip
        finally:
            self._open.pop()
        return fn

    def _build(self, fn: FunctionIR, key: Key) -> None:
        scope = Scope.of(fn.function, fn.receiver)
        scanner = Scanner(
            self, scope, fn.receiver, self._owner(fn.function), Mutability(scope, [], {}), Library(scope, [])
        )
        fn.body = Desugar(fn.receiver, lambda n: scanner.states.named(n) is not None).block(fn.body)
        made = {
            n.id for s in fn.body for n in all_nodes(s) if isinstance(n, ast.Name) and n.id.startswith("_tl_")
        }
        scope = Scope(fn.function, scope.locals | made, fn.receiver)
        scanner.scope = scope
        kinds = dict(
            zip((p for p in fn.params if p != fn.receiver), self._arguments.get(key, ()), strict=False)
        )
        params = {p: kinds.get(p, Kind.IMMUTABLE) for p in fn.params}
        if fn.args.vararg is not None:
            params[fn.args.vararg.arg] = max(params.values(), default=Kind.IMMUTABLE)
        if fn.args.kwarg is not None:
            params[fn.args.kwarg.arg] = Kind.BOX if max(params.values()) == Kind.IMMUTABLE else Kind.CONTAINER
        event = fn.params[1] if fn.events and key not in self._arguments and len(fn.params) > 1 else None
        declared = declarations(self.spec, scanner.states, event, fn.events)
        fn.library = scanner.library = Library(scope, fn.body, declared)
        scanner.mutability = Mutability(
            scope, fn.body, params, lambda n: self._self_kind(scanner, n), scanner.library
        )
        Builder(fn, scanner).build()
        is_generator = fn.function.__code__.co_flags & _GENERATOR
        result = Kind.ANYTHING if is_generator else scanner.mutability.returns(fn.body)
        if result > self._results.get(key, Kind.IMMUTABLE):
            self._results[key] = result
            self._changed = True
        self._guard_callees(fn)
        fn.leaf = not fn.events and not any(
            v.found.reads or v.found.writes or v.found.calls or v.found.emits or v.found.rejects or v.found.sends
            for n in fn.nodes for v in n.vertices
        )  # fmt: skip
        if fn.function.__code__.co_flags & _GENERATOR and not fn.leaf:
            raise Opaque("TL308", fn.body[0], "a generator that touches the program's state",
                         "return a list, or write the loop in the handler")  # fmt: skip

    def _guard_callees(self, fn: FunctionIR) -> None:
        for node in fn.nodes:
            if node.guarded:
                for site in node.main.found.calls:
                    key = self._keys[id(site.callee)]
                    if key not in self._guarded:
                        self._guarded.add(key)
                        self._changed = True

    def _self_kind(self, scanner: Scanner, node: ast.expr) -> Kind | None:
        """The kind of `self.X`, `self.X[...]`, `self.f(...)`."""
        try:
            operation = scanner.states.called(node)
        except Opaque:
            return Kind.ANYTHING
        if operation is not None:
            return Kind.BOX if operation.op.all_keys else Kind.IMMUTABLE
        if scanner.states.subscripted(node) is not None:
            return Kind.IMMUTABLE
        if isinstance(node, ast.Attribute) and scanner.states.is_self(node.value):
            found = inspect.getattr_static(self.cls, node.attr, None)
            if isinstance(found, property) and isinstance(found.fget, types.FunctionType):
                return self._results.get((found.fget, 0), Kind.IMMUTABLE)
            param = self.spec.params.get(node.attr)
            return Kind.ANYTHING if param is not None and param.text == "resource" else Kind.IMMUTABLE
        if isinstance(node, ast.Call):
            func = node.func
            if isinstance(func, ast.Attribute) and scanner.states.is_self(func.value):
                found = inspect.getattr_static(self.cls, func.attr, None)
                if isinstance(found, types.FunctionType):
                    return self._results.get((found, 0), Kind.IMMUTABLE)
                return Kind.IMMUTABLE if func.attr in ("emit", "reject", "send") else Kind.ANYTHING
            target = scanner.scope.resolve(func)
            for place, argument in enumerate(node.args):
                if scanner.states.is_self(argument) and isinstance(target, types.FunctionType):
                    return self._results.get((target, place), Kind.IMMUTABLE)
        return None

    def _owner(self, function: types.FunctionType) -> type | None:
        """The class whose body defines the function."""
        for base in self.cls.__mro__:
            for value in base.__dict__.values():
                inner = value.fget if isinstance(value, property) else value
                if inner is function or getattr(inner, "__func__", None) is function:
                    return base
        return None

    # --- what the dependence graph needs --------------------------------------------------------

    def _call_sites(self) -> dict[FunctionIR, list[tuple[Vertex, CallSite]]]:
        """For each function the vertices that execute a call of it, or send it an event: the smallest that does."""
        found: dict[FunctionIR, list[tuple[Vertex, CallSite]]] = {f: [] for f in self.all}
        for fn in self.all:
            for vertex in fn.vertices:
                sent = [
                    CallSite(f, s.node, "send")
                    for s in vertex.found.sends
                    if s.at_once
                    for f in self.receivers(s.events)
                ]
                for site in (*vertex.found.calls, *sent):
                    inner = [
                        v for v in vertex.node.subs
                        if v is not vertex and v.expr is not None and v.expr is site.node
                    ]  # fmt: skip
                    if (vertex.expr is None and not inner) or vertex.expr is site.node:
                        found[site.callee].append((vertex, site))
        return found

    def _depend_on_pending(self) -> None:
        """Whether handlers of dated events run at all is for the pending state to say."""
        dated = tuple(
            e for f in self.all for v in f.vertices for s in v.found.sends if s.dated for e in s.events
        )
        for fn in self.receivers(dated):
            if fn.nodes:
                fn.entry.main.found.reads.append(StateRead(PENDING, None, ast.Pass(lineno=fn.line)))

    def receivers(self, events: Sequence[type[Event]]) -> list[FunctionIR]:
        """The handlers that are called for events of these types when they are sent, in order."""
        handlers = zip(self.spec.handlers, self.handlers, strict=True)
        return list(dict.fromkeys(
            f for spec, f in handlers if spec.after is None and any(e in spec.events for e in events)
        ))  # fmt: skip

    def _reached(self) -> dict[FunctionIR, list[type[Event]]]:
        """For each function the event types in whose transactions it may be called, in the order of handlers."""
        found: dict[FunctionIR, list[type[Event]]] = {f: [] for f in self.all}
        for handler in self.handlers:
            todo, seen = [handler], {handler}
            while todo:
                fn = todo.pop()
                found[fn] += [e for e in handler.events if e not in found[fn]]
                for vertex in fn.vertices:
                    sent = [f for s in vertex.found.sends if s.at_once for f in self.receivers(s.events)]
                    for callee in (*(site.callee for site in vertex.found.calls), *sent):
                        if callee not in seen:
                            seen.add(callee)
                            todo.append(callee)
        return found

    @property
    def opaque(self) -> list[Diagnostic]:
        """Why functions are opaque, in order."""
        return [f.opaque for f in self.all if f.opaque is not None]

    def state(self, name: str) -> StateSpec:
        return self.spec.states[name]


def _parameters(args: ast.arguments) -> tuple[str, ...]:
    extra = [a.arg for a in (args.vararg, args.kwarg) if a is not None]
    return (*(a.arg for a in (*args.posonlyargs, *args.args)), *(a.arg for a in args.kwonlyargs), *extra)
