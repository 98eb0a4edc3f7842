"""Lowering of one function's statements to its control-flow graph.

Short circuits in tests become branches. A jump (return, break, continue, reject, raise inside `try`)
has a second, unreal edge to the statement after it: with it, control dependence also says which jumps
a slice has to keep (Ball and Horwitz, 1993). An exception that nobody catches ends the run, so it
needs no edge; one that is caught, or may be, has an edge to where it is caught.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from timelapse.analysis.ir import Edge, Found, FunctionIR, Node, StateRead, Vertex
from timelapse.analysis.opaque import Opaque
from timelapse.analysis.scan import Scanner
from timelapse.analysis.statements import what_it_does
from timelapse.code import cfg
from timelapse.code.source import all_nodes

Frontier = list[tuple[int, str, bool]]
"""Edges that still need a target: node, label, whether control really takes them."""


@dataclass
class _Loop:
    head: int
    breaks: Frontier = field(default_factory=list)


@dataclass
class _Try:
    """A `try` with handlers or a `with` (which may swallow): where exceptions of its body go."""

    raised: Frontier = field(default_factory=list)
    is_with: bool = False


@dataclass
class _Finally:
    """A `finally`: everything that passes through it, and the ways on from it."""

    variable: str
    entries: Frontier = field(default_factory=list)
    ways: list[str] = field(default_factory=list)


class Builder:
    """Builds the graph of one function. Raises Opaque where it cannot."""

    def __init__(self, fn: FunctionIR, scanner: Scanner) -> None:
        self.fn = fn
        self.scan = scanner
        self._frames: list[_Loop | _Try | _Finally] = []
        self._orders = 0
        self._finals = 0

    def build(self) -> None:
        """Fill `fn`."""
        fn = self.fn
        entry = self._node("entry", None, Found(), [])
        entry.strong |= set(fn.params)
        self._node("exit", None, Found(), [])
        rest = self._block(fn.body, [(0, "", True)])
        self._connect(rest, 1)
        self._finish()

    # --- nodes ----------------------------------------------------------------------------------

    def _node(self, kind: str, node: ast.AST | None, found: Found, preds: Frontier) -> Node:
        fn = self.fn
        made = Node(len(fn.nodes), kind, node, getattr(node, "lineno", fn.line))
        fn.nodes.append(made)
        made.vertices.append(self._vertex(made, found, None))
        # An effect of a jump or test happens although what is made of its result is not needed.
        top = node.value if isinstance(node, ast.Expr) else None
        for expr, sub in found.subs:
            if expr is not top:
                made.vertices.append(self._vertex(made, sub, expr))
        made.strong |= found.strong
        made.weak |= found.weak
        self._connect(preds, made.index)
        made.guarded = kind not in ("entry", "exit", "finally") and self._is_guarded() and _may_raise(node)
        if made.guarded:
            made.weak |= made.strong
            made.strong = set()
            self._raise_from(made, "raise")
            if found.sends:
                raise Opaque("TL313", node or found.sends[0].node, "self.send inside `try`: whether it raises matters there",
                             "send before or after the block")  # fmt: skip
            for write in found.writes:
                write.effect, write.reason = (
                    "opaque",
                    "whether it raises matters here: it stands inside `try`",
                )
                found.reads.append(StateRead(write.state, write.key, write.node))
        return made

    def _vertex(self, node: Node, found: Found, expr: ast.expr | None) -> Vertex:
        self._orders += 1
        return Vertex(self.fn, node, found, self._orders, expr)

    def _connect(self, preds: Frontier, target: int) -> None:
        for source, label, real in preds:
            self.fn.nodes[source].edges.append(Edge(target, label, real))

    def _is_guarded(self) -> bool:
        return self.fn.guarded or any(isinstance(f, _Try) for f in self._frames)

    # --- jumps ----------------------------------------------------------------------------------

    def _jump(self, source: Node, way: str, label: str) -> None:
        """Send control from `source` on its way: return, break, continue or raise."""
        for depth in range(len(self._frames) - 1, -1, -1):
            frame = self._frames[depth]
            if isinstance(frame, _Finally):
                frame.entries.append((source.index, label, True))
                if way not in frame.ways:
                    frame.ways.append(way)
                source.weak.add(frame.variable)
                return
            if isinstance(frame, _Loop) and way == "break":
                frame.breaks.append((source.index, label, True))
                return
            if isinstance(frame, _Loop) and way == "continue":
                source.edges.append(Edge(frame.head, label, True))
                return
            if isinstance(frame, _Try) and way == "raise":
                frame.raised.append((source.index, label, True))
                source.weak.add("%exception")
                return
        source.edges.append(Edge(1, label, True))

    def _raise_from(self, source: Node, label: str) -> None:
        self._jump(source, "raise", label)

    # --- statements -----------------------------------------------------------------------------

    def _block(self, body: list[ast.stmt], preds: Frontier) -> Frontier:
        for statement in body:
            preds = self._statement(statement, preds)
        return preds

    def _statement(self, node: ast.stmt, preds: Frontier) -> Frontier:
        match node:
            case ast.If(test=test, body=body, orelse=orelse):
                yes, no = self._test(test, preds)
                return self._block(body, yes) + self._block(orelse, no)
            case ast.While():
                return self._while(node, preds)
            case ast.For():
                return self._for(node, preds)
            case ast.Try():
                return self._try(node, preds)
            case ast.With():
                return self._with(node, preds)
            case ast.Match():
                return self._match(node, preds)
            case ast.Return(value=value):
                made = self._simple("jump", node, self.scan.expression(value), preds)
                self._jump(made, "return", "")
                return [(made.index, "stay", False)]
            case ast.Break() | ast.Continue():
                made = self._simple("jump", node, Found(), preds)
                self._jump(made, "break" if isinstance(node, ast.Break) else "continue", "")
                return [(made.index, "stay", False)]
            case ast.Raise(exc=exc, cause=cause):
                found = self.scan.expression(exc)
                found.merge(self.scan.expression(cause))
                if exc is None:
                    found.uses.add("%exception")
                made = self._simple("jump" if self._is_guarded() else "stmt", node, found, preds)
                if not made.guarded:
                    return [(made.index, "", True)]  # the run fails: nothing depends on it
                return [(made.index, "stay", False)]
            case ast.Expr(value=ast.Call() as call) if self._is_reject(call):
                return self._reject(node, call, preds)
            case ast.AsyncFor() | ast.AsyncWith() | ast.AsyncFunctionDef() | ast.TryStar():
                raise Opaque(
                    "TL311", node, f"{type(node).__name__} is not analysed", "write it with plain statements"
                )
        made = self._simple("stmt", node, what_it_does(self.scan, node), preds)
        return [(made.index, "", True)]

    def _simple(self, kind: str, node: ast.stmt, found: Found, preds: Frontier) -> Node:
        made = self._node(kind, node, found, preds)
        self.fn.by_ast[id(node)] = made
        return made

    def _is_reject(self, call: ast.Call) -> bool:
        func = call.func
        return (
            isinstance(func, ast.Attribute) and func.attr == "reject" and self.scan.states.is_self(func.value)
        )

    def _reject(self, node: ast.Expr, call: ast.Call, preds: Frontier) -> Frontier:
        if any(isinstance(f, _Try) and f.is_with for f in self._frames):
            raise Opaque("TL311", node, "self.reject inside `with`", "reject before or after the block")
        found = self.scan.expression(call)
        if not self._is_guarded():
            # Its arguments only say what is published; everything else is undone.
            found = Found(rejects=found.rejects)
        made = self._simple("reject", node, found, preds)
        made.edges.append(Edge(1, "", True))
        return [(made.index, "stay", False)]

    # --- tests and loops ------------------------------------------------------------------------

    def _test(self, node: ast.expr, preds: Frontier) -> tuple[Frontier, Frontier]:
        """Lower a condition; gives the edges where it holds and where it does not."""
        if isinstance(node, ast.BoolOp):
            is_and = isinstance(node.op, ast.And)
            current = preds
            other: Frontier = []
            for value in node.values:
                yes, no = self._test(value, current)
                current, out = (yes, no) if is_and else (no, yes)
                other = other + out
            return (current, other) if is_and else (other, current)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yes, no = self._test(node.operand, preds)
            return no, yes
        made = self._node("test", node, self.scan.expression(node), preds)
        self.fn.by_ast[id(node)] = made
        return [(made.index, "true", True)], [(made.index, "false", True)]

    def _while(self, node: ast.While, preds: Frontier) -> Frontier:
        # `while True` too has an edge out of the loop: so every node reaches the exit.
        frame = _Loop(len(self.fn.nodes))
        self._frames.append(frame)
        yes, no = self._test(node.test, preds)
        self._connect(self._block(node.body, yes), frame.head)
        self._frames.pop()
        return self._block(node.orelse, no) + frame.breaks

    def _for(self, node: ast.For, preds: Frontier) -> Frontier:
        scan = self.scan
        variable = f"%iterator{len(self.fn.nodes)}"
        found = scan.expression(node.iter)
        found.strong.add(variable)
        first = self._node("iter", node.iter, found, preds)
        self.fn.iters[id(node)] = first
        head = Found(uses={variable}, weak={variable})
        scan.target(node.target, head)
        head.weak |= scan.mutability.group(scan.mutability.changes(node)) | head.strong
        head.strong = set()
        loop = self._node("loop", node, head, [(first.index, "", True)])
        self.fn.by_ast[id(node)] = loop
        frame = _Loop(loop.index)
        self._frames.append(frame)
        self._connect(self._block(node.body, [(loop.index, "each", True)]), loop.index)
        self._frames.pop()
        return self._block(node.orelse, [(loop.index, "end", True)]) + frame.breaks

    def _match(self, node: ast.Match, preds: Frontier) -> Frontier:
        scan = self.scan
        found = scan.expression(node.subject)
        found.weak |= scan.mutability.group(scan.mutability.names(node.subject))
        for case in node.cases:
            for inner in all_nodes(case.pattern):
                if isinstance(inner, ast.MatchValue):
                    found.merge(scan.expression(inner.value))
                elif isinstance(inner, ast.MatchClass):
                    found.merge(scan.expression(inner.cls))
                name = getattr(inner, "name", None) or getattr(inner, "rest", None)
                if isinstance(name, str):
                    found.weak.add(name)
            if case.guard is not None:
                guard = scan.expression(case.guard)
                guard.subs = []  # whether it is evaluated depends on the patterns
                guard.weak |= guard.strong
                guard.strong = set()
                found.merge(guard)
        made = self._node("match", node, found, preds)
        self.fn.by_ast[id(node)] = made
        rest: Frontier = [(made.index, "none", True)]
        for number, case in enumerate(node.cases):
            rest = rest + self._block(case.body, [(made.index, f"case{number}", True)])
        return rest

    # --- exceptions -----------------------------------------------------------------------------

    def _with(self, node: ast.With, preds: Frontier) -> Frontier:
        scan = self.scan
        found = Found()
        for item in node.items:
            found.merge(scan.expression(item.context_expr))
            found.weak |= scan.mutability.group(scan.mutability.changes(item))
            if item.optional_vars is not None:
                scan.target(item.optional_vars, found)
        made = self._node("with", node, found, preds)
        self.fn.by_ast[id(node)] = made
        frame = _Try(is_with=True)
        self._frames.append(frame)
        rest = self._block(node.body, [(made.index, "", True)])
        self._frames.pop()
        # The unreal edge makes the body depend on the `with`, so that it is kept around it.
        return rest + frame.raised + [(made.index, "stay", False)]

    def _try(self, node: ast.Try, preds: Frontier) -> Frontier:
        final: _Finally | None = None
        if node.finalbody:
            if any(
                isinstance(n, ast.Return | ast.Break | ast.Continue)
                for s in node.finalbody
                for n in all_nodes(s)
            ):
                raise Opaque("TL311", node, "a jump inside `finally`", "move it behind the block")
            self._finals += 1
            final = _Finally(f"%finally{self._finals}")
            self._frames.append(final)
        rest = self._handled(node, preds) if node.handlers else self._block(node.body, preds)
        rest = rest if node.handlers else self._block(node.orelse, rest)
        if final is None:
            return rest
        self._frames.pop()
        normal = self._node("finally", None, Found(strong={final.variable}), rest)
        after = self._block(node.finalbody, [(normal.index, "", True), *final.entries])
        end = self._node("finally", None, Found(uses={final.variable}), after)
        for way in final.ways:
            if way != "raise" or self._is_guarded():
                self._jump(end, way, way)
        return [(end.index, "on", True)]

    def _handled(self, node: ast.Try, preds: Frontier) -> Frontier:
        frame = _Try()
        self._frames.append(frame)
        rest = self._block(node.body, preds)
        self._frames.pop()
        found = Found(uses={"%exception"})
        for handler in node.handlers:
            found.merge(self.scan.expression(handler.type))
        rest = self._block(node.orelse, rest)
        dispatch = self._node("except", node, found, frame.raised)
        self.fn.by_ast[id(node)] = dispatch
        if self._is_guarded() and not dispatch.guarded:
            self._raise_from(dispatch, "raise")
        for number, handler in enumerate(node.handlers):
            caught = Found(uses={"%exception"})
            if handler.name is not None:
                caught.strong.add(handler.name)
            label = f"except{number}"
            start = self._node("except", None, caught, [(dispatch.index, label, True)])
            start.line = handler.lineno
            rest = rest + self._block(handler.body, [(start.index, "", True)])
        return rest

    # --- the end --------------------------------------------------------------------------------

    def _finish(self) -> None:
        fn = self.fn
        real = [[e.target for e in n.edges if e.real] for n in fn.nodes]
        fn.live = cfg.reachable(real, 0) | {1}
        for node in fn.nodes:
            if not node.edges and node.index != 1:
                node.edges.append(Edge(1, "", False))
        fn.control = cfg.control_dependence([[(e.target, e.label) for e in n.edges] for n in fn.nodes], 0, 1)
        for index, found in fn.control.items():
            fn.control[index] = [(b, label) for b, label in found if b in fn.live]
        strong = {n.index: n.strong for n in fn.nodes}
        weak = {n.index: n.weak for n in fn.nodes}
        fn.reaching = cfg.reaching(real, strong, weak, sorted(fn.live))


def _may_raise(node: ast.AST | None) -> bool:
    if node is None or isinstance(node, ast.Pass | ast.Break | ast.Continue | ast.Constant):
        return False
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
        return not all(isinstance(t, ast.Name) for t in node.targets)
    return not (isinstance(node, ast.Return) and (node.value is None or isinstance(node.value, ast.Constant)))
