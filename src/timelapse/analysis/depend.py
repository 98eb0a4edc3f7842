"""Dependence over all functions of a program, and what executing a part of it needs.

The rules (a system dependence graph, its edges worked out when they are asked for):

- a vertex needs the definitions that reach the locals it uses, and the branches that decide whether it
  runs; inside `try` an effect also needs its whole statement, because that may raise first;
- a vertex that needs the result of a call needs the callee's `return`s; if it may be changed by what
  the callee does to a mutable argument, or catches what it raises, the whole callee;
- an effect that must always happen *activates* its function: every call of it is needed too;
- a write that must always happen needs every `reject` that may hit an event of the same type.

A value that is only read activates nothing: the calls that matter are in the closure already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from timelapse.analysis.ir import FunctionIR, StateRead, StateWrite, Vertex
from timelapse.analysis.world import Functions


@dataclass
class Relaxed:
    """What recognised idioms take out: reads of a state by its own writes, and guards of them.

    absorbed: ids of syntax nodes that are not reads after all.
    guards: tests that are taken to have the given outcome.
    effects: id of a write's syntax node -> its effect; values: -> its value expression.
    """

    absorbed: set[int] = field(default_factory=set)
    guards: dict[Vertex, bool] = field(default_factory=dict)
    effects: dict[int, str] = field(default_factory=dict)
    values: dict[int, object] = field(default_factory=dict)
    negated: dict[int, bool] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    """id of a write's syntax node -> the idiom."""

    def update(self, other: Relaxed) -> None:
        self.absorbed |= other.absorbed
        self.guards.update(other.guards)
        self.effects.update(other.effects)
        self.values.update(other.values)
        self.negated.update(other.negated)
        self.names.update(other.names)

    def copy(self) -> Relaxed:
        made = Relaxed()
        made.update(self)
        return made


@dataclass
class Closure:
    """What was reached: vertices, and functions all of whose calls are needed. In order of discovery."""

    vertices: dict[Vertex, None] = field(default_factory=dict)
    active: dict[FunctionIR, None] = field(default_factory=dict)

    def __contains__(self, vertex: Vertex) -> bool:
        return vertex in self.vertices


class Graph:
    """Dependence of one program."""

    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self.writes: dict[str, list[tuple[Vertex, StateWrite]]] = {s: [] for s in functions.spec.states}
        self.rejects: list[tuple[Vertex, FunctionIR]] = []
        self._write_vertices()
        self.writing = self._transitive_writes()

    def _write_vertices(self) -> None:
        for fn in self.functions.all:
            if not self.functions.reached[fn] and not fn.events:
                continue
            for node in fn.nodes:
                if node.index not in fn.live:
                    continue
                for write in node.main.found.writes:
                    # The smallest vertex that writes: an effect by itself, else the whole node.
                    alone = [v for v in node.subs if v.expr is write.node]
                    self.writes[write.state].append((alone[0] if alone else node.main, write))
                if node.main.found.rejects:
                    for reject in node.main.found.rejects:
                        alone = [v for v in node.subs if v.expr is reject]
                        self.rejects.append((alone[0] if alone else node.main, fn))

    def _transitive_writes(self) -> dict[FunctionIR, set[str]]:
        found: dict[FunctionIR, set[str]] = {f: set() for f in self.functions.all}
        changed = True
        while changed:
            changed = False
            for fn in self.functions.all:
                before = len(found[fn])
                for vertex in fn.vertices:
                    found[fn] |= {w.state for w in vertex.found.writes}
                    for site in vertex.found.calls:
                        found[fn] |= found[site.callee]
                changed = changed or len(found[fn]) != before
        return found

    def may_write(self, vertex: Vertex) -> set[str]:
        """States that executing the vertex may write, callees included."""
        found = {w.state for w in vertex.found.writes}
        for site in vertex.found.calls:
            found |= self.writing[site.callee]
        return found

    def rejects_with(self, fn: FunctionIR) -> list[Vertex]:
        """The places that may reject an event in which the function runs."""
        events = set(self.functions.reached[fn])
        return [v for v, f in self.rejects if events & set(self.functions.reached[f])]

    # --- one step -------------------------------------------------------------------------------

    def data(self, vertex: Vertex, names: Iterable[str] | None = None) -> list[Vertex]:
        """The vertices whose definitions it uses (only of `names`, if given)."""
        fn, node, found = vertex.fn, vertex.node, vertex.found
        into = fn.reaching.get(node.index, {})
        uses = sorted(found.uses if names is None else found.uses & set(names))
        out: list[Vertex] = []
        for name in uses:
            out += [fn.nodes[d].main for d in sorted(into.get(name, ()))]
            if vertex.expr is not None and name in node.main.found.strong | node.main.found.weak:
                out.append(node.main)
        for name in sorted(found.late if names is None else found.late & set(names)):
            out += [d.main for d in fn.definitions(name)]
        return out

    def control(self, vertex: Vertex, relaxed: Relaxed | None = None) -> list[Vertex]:
        """The branches that decide whether it runs, idioms' guards taken out."""
        fn = vertex.fn
        out: list[Vertex] = []
        seen: set[int] = set()
        todo = [vertex.node.index]
        while todo:
            for branch, _ in fn.control.get(todo.pop(), ()):
                if branch in seen:
                    continue
                seen.add(branch)
                main = fn.nodes[branch].main
                if relaxed is not None and main in relaxed.guards:
                    todo.append(branch)
                else:
                    out.append(main)
        if vertex.expr is not None and vertex.node.guarded:
            out.append(vertex.node.main)
        return out

    def calls(self, vertex: Vertex) -> list[Vertex]:
        """What it needs of the functions it calls."""
        out: list[Vertex] = []
        for site in vertex.found.results:
            out += site.callee.returns
        whole = vertex.node.guarded and vertex.expr is None
        for site in vertex.found.calls:
            if whole or site.shares:
                out += site.callee.vertices
        return out

    def reads(self, vertex: Vertex, relaxed: Relaxed | None = None) -> list[StateRead]:
        """The states it reads, as idioms leave them."""
        if relaxed is None:
            return vertex.found.reads
        return [r for r in vertex.found.reads if id(r.node) not in relaxed.absorbed]

    # --- the closure ----------------------------------------------------------------------------

    def close(
        self,
        needed: Iterable[Vertex],
        active: Iterable[FunctionIR] = (),
        relaxed: Relaxed | None = None,
        follow: Callable[[str], bool] | None = None,
        into: Closure | None = None,
    ) -> Closure:
        """Everything that the needed vertices need, with all calls of the active functions.

        Reads of states are followed to all writes of the state where `follow` says so.
        """
        closure = Closure() if into is None else into
        todo: list[Vertex] = []
        states: set[str] = set()

        def visit(vertex: Vertex) -> None:
            if vertex not in closure.vertices:
                closure.vertices[vertex] = None
                todo.append(vertex)

        def activate(fn: FunctionIR) -> None:
            work = [fn]
            while work:
                current = work.pop()
                if current not in closure.active:
                    closure.active[current] = None
                    for caller, _ in self.functions.sites[current]:
                        visit(caller)
                        work.append(caller.fn)

        for fn in active:
            activate(fn)
        for vertex in needed:
            visit(vertex)
        while todo:
            vertex = todo.pop()
            for other in (*self.data(vertex), *self.control(vertex, relaxed), *self.calls(vertex)):
                visit(other)
            for read in self.reads(vertex, relaxed):
                if follow is not None and read.state not in states and follow(read.state):
                    states.add(read.state)
                    for writer, _ in self.writes[read.state]:
                        visit(writer)
                        activate(writer.fn)
                        for reject in self.rejects_with(writer.fn):
                            visit(reject)
                            activate(reject.fn)
        return closure
