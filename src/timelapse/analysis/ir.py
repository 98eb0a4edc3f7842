"""The intermediate form of a program's functions: a control-flow graph of statements and tests.

A *node* is a simple statement, one test between short circuits, a loop's header, or a synthetic point
(entry, exit, the end of a `finally`). A *vertex* is what dependence and slicing work on: every node has
one main vertex, and one further vertex for each effect inside its expressions that can be executed on
its own (a call of a method that writes, a `pop`), so that the effect does not depend on what is made of
its result. Nothing here is ever changed after `build` has finished.
"""

from __future__ import annotations

import ast
import types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from timelapse.analysis.result import Diagnostic
from timelapse.errors import Place
from timelapse.model.events import Event

if TYPE_CHECKING:
    from timelapse.analysis.library import Library


@dataclass(eq=False)
class StateRead:
    """One read of a state. `node` is the expression that reads."""

    state: str
    key: ast.expr | None
    node: ast.AST
    all_keys: bool = False


@dataclass(eq=False)
class StateWrite:
    """One write of a state, as an effect with key and value expressions.

    `key` is None where the state has no key; `value` None where the effect takes none; `negate` means
    that the value counts with the opposite sign (`-=`). `node` is the statement or call that writes.
    """

    state: str
    effect: str
    key: ast.expr | None
    value: ast.expr | None
    node: ast.AST
    negate: bool = False
    reason: str | None = None
    """For the effects "opaque" and "dated", which compose with nothing: why."""


@dataclass(eq=False)
class CallSite:
    """A call of a function that is analysed too, or an event sent to it. `shares`: it is handed a mutable local."""

    callee: FunctionIR
    node: ast.expr
    style: str
    """method (`self.f()`), super, helper (`f(self)`), property, send (a handler of an event that is sent)."""
    shares: bool = False


@dataclass(eq=False)
class Send:
    """A place that sends an event. `events`: of which types it may be."""

    events: tuple[type[Event], ...]
    node: ast.expr
    at_once: bool
    """It may be handled within the same transaction."""
    dated: bool
    """It may be handled later."""
    told: bool = False
    """The line says which type it is."""


@dataclass(eq=False)
class Found:
    """What executing an expression or statement does.

    uses / late: locals it reads now / that a lambda or generator in it may read later.
    strong / weak: locals it surely sets / may set or change in place, while it is evaluated.
    results: those of `calls` whose value it needs.
    """

    uses: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)
    strong: set[str] = field(default_factory=set)
    weak: set[str] = field(default_factory=set)
    reads: list[StateRead] = field(default_factory=list)
    writes: list[StateWrite] = field(default_factory=list)
    calls: list[CallSite] = field(default_factory=list)
    results: list[CallSite] = field(default_factory=list)
    emits: list[ast.AST] = field(default_factory=list)
    rejects: list[ast.AST] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    subs: list[tuple[ast.expr, Found]] = field(default_factory=list)

    def merge(self, other: Found) -> None:
        """Add what another expression does."""
        self.uses |= other.uses
        self.late |= other.late
        self.strong |= other.strong
        self.weak |= other.weak
        self.reads += other.reads
        self.writes += other.writes
        self.calls += other.calls
        self.results += other.results
        self.emits += other.emits
        self.rejects += other.rejects
        self.sends += other.sends
        self.subs += other.subs


@dataclass(eq=False)
class Edge:
    """To node `target`. `real` is False for the way that a jump does not take (needed for slicing)."""

    target: int
    label: str
    real: bool


@dataclass(eq=False)
class Node:
    """One point of a function's control flow."""

    index: int
    kind: str
    """entry, exit, stmt, test, iter, loop, match, with, except, jump, reject, finally."""
    ast: ast.AST | None
    line: int
    edges: list[Edge] = field(default_factory=list)
    strong: set[str] = field(default_factory=set)
    weak: set[str] = field(default_factory=set)
    guarded: bool = False
    """An exception raised here is caught, or may be: whether it raises matters."""
    vertices: list[Vertex] = field(default_factory=list)

    @property
    def main(self) -> Vertex:
        return self.vertices[0]

    @property
    def subs(self) -> list[Vertex]:
        return self.vertices[1:]


@dataclass(eq=False)
class Vertex:
    """A node (`expr` None) or one effect inside it. `order` numbers the function's vertices."""

    fn: FunctionIR
    node: Node
    found: Found
    order: int
    expr: ast.expr | None = None

    @property
    def place(self) -> Place:
        line = getattr(self.expr, "lineno", None) or self.node.line
        return Place(self.fn.file, line, self.fn.name)

    def __repr__(self) -> str:
        return f"<{self.fn.name}:{self.node.index}{'' if self.expr is None else '+'}>"


@dataclass(eq=False)
class FunctionIR:
    """One function: a handler, a method or property of the program, or a helper that is given `self`.

    `leaf`: it touches no state, emits and rejects nothing, so it is executed whole where it is called.
    `opaque`: why nothing is known of it; then it has no nodes.
    """

    name: str
    function: types.FunctionType
    file: str
    receiver: str | None
    params: tuple[str, ...]
    args: ast.arguments
    body: list[ast.stmt]
    line: int
    event_param: str | None = None
    events: tuple[type[Event], ...] = ()
    guarded: bool = False
    opaque: Diagnostic | None = None
    leaf: bool = False
    nodes: list[Node] = field(default_factory=list)
    by_ast: dict[int, Node] = field(default_factory=dict)
    """id of a statement or test -> its node (for a loop: its header; see `iters`)."""
    iters: dict[int, Node] = field(default_factory=dict)
    """id of a `for` statement -> the node that evaluates what it iterates over."""
    control: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    """node -> the (node, label) pairs it is control dependent on."""
    reaching: dict[int, dict[str, set[int]]] = field(default_factory=dict)
    """node -> local -> the nodes whose definition of it may reach the node's start."""
    live: set[int] = field(default_factory=set)
    """Nodes that some execution may reach."""
    library: Library | None = None
    """What is known of its expressions, as far as the standard library goes."""

    def __repr__(self) -> str:
        return f"<FunctionIR {self.name}>"

    @property
    def entry(self) -> Node:
        return self.nodes[0]

    @property
    def vertices(self) -> list[Vertex]:
        """All vertices of live nodes, in order."""
        return [v for n in self.nodes if n.index in self.live for v in n.vertices]

    @property
    def returns(self) -> list[Vertex]:
        return [
            n.main for n in self.nodes
            if n.index in self.live and n.kind == "jump" and isinstance(n.ast, ast.Return)
        ]  # fmt: skip

    def definitions(self, name: str) -> list[Node]:
        """Every node that may set the local."""
        return [n for n in self.nodes if n.index in self.live and (name in n.strong or name in n.weak)]

    def verify(self) -> None:
        """Check what the rest relies on. Raises AssertionError."""
        if self.opaque is not None:
            return
        assert self.nodes[0].kind == "entry", self.name
        assert self.nodes[1].kind == "exit", self.name
        for index, node in enumerate(self.nodes):
            assert node.index == index, f"{self.name}: node {index} is numbered {node.index}"
            assert node.vertices, f"{self.name}: node {index} has no vertex"
            assert all(0 <= e.target < len(self.nodes) for e in node.edges), f"{self.name}: edge out of range"
            assert node.kind == "exit" or node.edges, f"{self.name}: node {index} leads nowhere"
            for source, _ in self.control.get(index, ()):
                assert len({e.target for e in self.nodes[source].edges}) > 1 or source == 0, (
                    f"{self.name}: node {index} depends on node {source}, which does not branch"
                )

    def text(self) -> str:
        """The graph, one line per node."""
        if self.opaque is not None:
            return f"{self.name}: opaque ({self.opaque.message})"
        lines = [f"{self.name}({', '.join(self.params)}){' leaf' if self.leaf else ''}"]
        for node in self.nodes:
            if node.index not in self.live:
                continue
            what = "" if node.ast is None else _one_line(node.ast)
            to = " ".join(f"{e.label + ':' if e.label else ''}{e.target}" for e in node.edges if e.real)
            on = " ".join(
                f"{n}{'/' + label if label else ''}" for n, label in self.control.get(node.index, ())
            )
            lines.append(f"  {node.index:3} {node.kind:7} {what}  -> {to or '.'}{'  on ' + on if on else ''}")
            lines += [f"      + {_one_line(v.expr)}" for v in node.subs if v.expr is not None]
        return "\n".join(lines)


def _one_line(node: ast.AST) -> str:
    if isinstance(node, ast.For | ast.While | ast.Match | ast.With | ast.Try):
        return ast.unparse(node).splitlines()[0]
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 70 else text[:67] + "..."
