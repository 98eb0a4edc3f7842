"""What an expression does: locals, states, calls, emits, rejects."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from timelapse.analysis.ir import CallSite, Found, FunctionIR, Send, StateRead, StateWrite
from timelapse.analysis.library import Library
from timelapse.analysis.mutability import Kind, Mutability
from timelapse.analysis.opaque import Opaque
from timelapse.analysis.operations import Operation, States, need, plain_state
from timelapse.analysis.sends import sent_types, surely_later
from timelapse.analysis.tables import DYNAMIC, EAGER, builtin_name
from timelapse.analysis.views import length_of, viewed
from timelapse.code.scope import UNKNOWN, Scope
from timelapse.code.source import all_nodes
from timelapse.code.syntax import children
from timelapse.model.resource import Resource
from timelapse.program.pending import PENDING, WRITES
from timelapse.program.program import ProgramSpec
from timelapse.program.times import is_derived


class World(Protocol):
    """What scanning one function needs to know of the others."""

    spec: ProgramSpec
    cls: type

    def callee(self, function: types.FunctionType, receiver: int, node: ast.AST) -> FunctionIR:
        """The analysed form of a function that is called; `receiver` is self's position among its parameters."""

    def trust(self, node: ast.AST, what: str, why: str) -> None:
        """Note a call that analysis cannot see through."""

    def pass_arguments(self, callee: FunctionIR, kinds: Sequence[Kind] | None) -> None:
        """Note the kinds of the arguments (after self) that a function is called with; None: any."""

    def result(self, callee: FunctionIR) -> Kind:
        """The kind of what a function returns."""


class Where(NamedTuple):
    """The circumstances in which an expression is evaluated."""

    used: bool = True
    """Its value matters."""
    conditional: bool = False
    """It may not be evaluated although the expression around it is."""
    late: bool = False
    """It may be evaluated at another time, or several times: in a lambda or a generator."""
    bound: frozenset[str] = frozenset()
    """Names that lambdas and comprehensions around it bind."""

    def part(self, *, conditional: bool = False) -> Where:
        """A part of the expression, whose value matters to it."""
        return self._replace(used=True, conditional=self.conditional or conditional)

    def branch(self, *, conditional: bool = True) -> Where:
        """A part whose value is the expression's own, if it is evaluated."""
        return self._replace(conditional=self.conditional or conditional)


@dataclass
class Scanner:
    """Scans the expressions of one function."""

    world: World
    scope: Scope
    receiver: str | None
    owner: type | None
    """The class whose body holds the function: where `super()` starts."""
    mutability: Mutability
    library: Library
    trusting: bool = True
    callees: list[FunctionIR] = field(default_factory=list)
    states: States = field(init=False)

    def __post_init__(self) -> None:
        self.states = States(self.world.spec, self.receiver)

    # --- entry points ---------------------------------------------------------------------------

    def expression(self, node: ast.expr | None, *, used: bool = True) -> Found:
        """What evaluating an expression does; `used`: its value matters."""
        found = Found()
        if node is not None:
            self._visit(node, found, Where(used))
        return found

    def target(self, node: ast.expr, found: Found) -> None:
        """Add what assigning to a target does (states as targets are the statement's business)."""
        match node:
            case ast.Name(id=name):
                if name == self.receiver:
                    raise Opaque("TL307", node, "`self` is assigned", "use another name")
                found.strong.add(name)
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                for element in elts:
                    self.target(element, found)
            case ast.Starred(value=value):
                self.target(value, found)
            case ast.Attribute(value=value):
                state = self.states.named(node) or self.states.subscripted(node)
                if state is not None:
                    found.writes.append(_unknown_write(state.name, node))
                else:
                    found.merge(self.expression(value))
            case ast.Subscript(value=value, slice=index):
                state = self.states.named(value)
                found.merge(self.expression(index))
                if state is not None and not plain_state(state):
                    found.writes.append(_unknown_write(state.name, node, index))
                else:
                    found.merge(self.expression(value))
        found.weak |= self.mutability.group(self.mutability.changes(node))

    # --- the walk -------------------------------------------------------------------------------

    def _visit(self, node: ast.AST, out: Found, where: Where) -> None:
        def visit(child: ast.AST | None, conditional: bool = False) -> None:
            if child is not None:
                self._visit(child, out, where.part(conditional=conditional))

        match node:
            case ast.Name(id=name):
                self._name(node, name, out, where)
            case ast.Attribute():
                self._attribute(node, out, where)
            case ast.Subscript(value=value, slice=index):
                state = self.states.subscripted(node)
                if state is not None:
                    need(state, "getitem", node)
                    out.reads.append(StateRead(state.name, index, node))
                    visit(length_of(value))
                else:
                    visit(value)
                visit(index)
            case ast.Compare(left=left, ops=ops, comparators=right):
                visit(left)
                previous = left
                for place, (op, operand) in enumerate(zip(ops, right, strict=True)):
                    state = self.states.named(viewed(operand))
                    if state is not None and not plain_state(state) and isinstance(op, ast.In | ast.NotIn):
                        need(state, "contains", node)
                        visit(length_of(operand), place > 0)
                        out.reads.append(StateRead(state.name, None if state.key is None else previous, node))
                    else:
                        visit(operand, place > 0)
                    previous = operand
                self._change(node, out)
            case ast.Call():
                self._call(node, out, where)
            case ast.BoolOp(values=values):
                for place, value in enumerate(values):
                    self._visit(value, out, where.branch(conditional=place > 0))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                visit(test)
                self._visit(body, out, where.branch())
                self._visit(orelse, out, where.branch())
            case ast.NamedExpr(target=target, value=value):
                visit(value)
                (out.weak if where.conditional or where.late else out.strong).add(target.id)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                self._comprehension(node, out, where, late=isinstance(node, ast.GeneratorExp))
            case ast.Lambda(args=args, body=body):
                for default in (*args.defaults, *(d for d in args.kw_defaults if d is not None)):
                    visit(default)
                names = {a.arg for a in all_nodes(args) if isinstance(a, ast.arg)}
                self._visit(body, out, Where(True, True, True, where.bound | names))
            case ast.Await() | ast.Yield() | ast.YieldFrom():
                for child in ast.iter_child_nodes(node):
                    visit(child)
            case ast.Starred(value=value):
                visit(value)
                self._change(node, out)
            case ast.AST():
                for child in ast.iter_child_nodes(node):
                    visit(child)

    def _name(self, node: ast.Name, name: str, out: Found, where: Where) -> None:
        if name in where.bound:
            return
        if name == self.receiver:
            raise Opaque("TL307", node, "`self` is used as a value", "call a method of the program instead")
        if name in self.scope.locals:
            (out.late if where.late else out.uses).add(name)
        elif builtin_name(self.scope.name(name)) in DYNAMIC - {"getattr", "setattr", "delattr"}:
            raise Opaque("TL306", node, f"{name}() may reach anything", "write the code itself")

    def _attribute(self, node: ast.Attribute, out: Found, where: Where) -> None:
        if not self.states.is_self(node.value):
            self._visit(node.value, out, where.part())
            return
        name, spec = node.attr, self.world.spec
        if name in spec.states:
            if not plain_state(spec.states[name]):
                raise Opaque("TL303", node, f"the state self.{name} itself is used as a value",
                             f"write self.{name}[...] where it is read or written")  # fmt: skip
            out.reads.append(StateRead(name, None, node))
            return
        if name == "now":
            return
        if name in spec.params:
            if isinstance(spec.params[name].default, Resource):
                self.world.trust(node, f"self.{name}", "a resource")
            return
        found = inspect.getattr_static(self.world.cls, name, UNKNOWN)
        if isinstance(found, property) and isinstance(found.fget, types.FunctionType):
            self._analysed(node, found.fget, 0, "property", [], out, where.part())
            return
        fixed = (int, float, str, bytes, bool, tuple, frozenset, staticmethod, type, type(None))
        if isinstance(found, fixed) and not name.startswith("__"):
            return
        if isinstance(found, types.FunctionType | classmethod):
            raise Opaque(
                "TL312", node, f"the method self.{name} is used as a value", "call it where it is needed"
            )
        raise Opaque("TL306", node, f"self.{name} may reach anything", "name states and methods directly")

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, out: Found, where: Where, *,
        late: bool,
    ) -> None:  # fmt: skip
        inner = Where(True, True, where.late or late, where.bound)
        for place, part in enumerate(node.generators):
            # What the first one runs over is evaluated at once, even where the rest is late.
            self._visit(part.iter, out, inner if place else where.part())
            names = {n.id for n in all_nodes(part.target) if isinstance(n, ast.Name)}
            if place == 0:
                self._change(part, out)
            inner = inner._replace(bound=inner.bound | names)
            for test in part.ifs:
                self._visit(test, out, inner)
        for result in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self._visit(result, out, inner)

    def _call(self, node: ast.Call, out: Found, where: Where) -> None:
        operation = self.states.called(node)
        if operation is not None:
            self._state_operation(node, operation, out, where)
            return
        func = node.func
        if isinstance(func, ast.Attribute) and self.states.is_self(func.value):
            if self._method_call(node, func.attr, out, where):
                return
        elif self._is_super(func):
            assert isinstance(func, ast.Attribute)
            target = self._super_target(node, func.attr)
            self._analysed(node, target, 0, "super", children(node), out, where)
            return
        else:
            target = self.scope.resolve(func)
            position = next((i for i, a in enumerate(node.args) if self.states.is_self(a)), None)
            named = next((k.arg for k in node.keywords if self.states.is_self(k.value)), None)
            if position is not None or named is not None:
                if not isinstance(target, types.FunctionType):
                    raise Opaque("TL305", node, f"`self` is passed to {ast.unparse(func)}, which analysis cannot see",
                                 "pass the values that it needs")  # fmt: skip
                if named is not None:
                    arguments = target.__code__.co_varnames[: target.__code__.co_argcount]
                    position = arguments.index(named) if named in arguments else None
                if position is None or any(isinstance(a, ast.Starred) for a in node.args[:position]):
                    raise Opaque("TL305", node, "`self` is passed in a way that analysis cannot follow",
                                 "pass it as the first argument")  # fmt: skip
                parts = [c for c in children(node) if not self.states.is_self(c)]
                self._analysed(node, target, position, "helper", parts, out, where)
                return
            self._visit(func, out, where.part())
            self._trust(node)
        eager = self._is_eager(func)
        for child in children(node):
            if eager and isinstance(child, ast.GeneratorExp):
                self._comprehension(child, out, where, late=False)
            else:
                self._visit(child, out, where.part())
        self._change(node, out)

    def _method_call(self, node: ast.Call, name: str, out: Found, where: Where) -> bool:
        """`self.name(...)`. False when only the arguments remain to be looked at."""
        if name in ("emit", "reject"):
            if where.late:
                raise Opaque(
                    "TL304", node, f"self.{name} in a nested function", "call it in the handler itself"
                )
            sub = Found()
            for child in children(node):
                self._visit(child, sub, where.part())
            (sub.emits if name == "emit" else sub.rejects).append(node)
            self._effect(node, sub, out, where)
            return True
        if name in ("send", "cancel"):
            dated = name == "cancel" or not is_derived(node)
            if dated and PENDING not in self.world.spec.states:
                raise Opaque("TL313", node, f"self.{name} reaches into another time",
                             "leave it out where speed matters")  # fmt: skip
            if where.late:
                raise Opaque(
                    "TL304", node, f"self.{name} in a nested function", "call it in the handler itself"
                )
            if any(isinstance(a, ast.Starred) for a in node.args) or any(
                k.arg is None for k in node.keywords
            ):
                raise Opaque("TL310", node, f"the arguments of self.{name} are unpacked", "write them out")
            sub = Found()
            for child in children(node):
                self._visit(child, sub, where.part())
            if name == "send":
                told = sent_types(self.scope, node)
                at_once = not dated or not surely_later(self.scope, node)
                sub.sends.append(Send(told or self.world.spec.events, node, at_once, dated, told=bool(told)))
            if dated:
                reason = "what lies ahead is kept in the order of time"
                sub.writes.append(StateWrite(PENDING, "opaque", None, None, node, reason=reason))
            self._effect(node, sub, out, where)
            return True
        if name in self.world.spec.params:
            self._attribute(node.func, out, where)  # type: ignore[arg-type]
            self.world.trust(node, f"self.{name}", "a resource")
            return False
        found = inspect.getattr_static(self.world.cls, name, UNKNOWN)
        if isinstance(found, types.FunctionType):
            self._analysed(node, found, 0, "method", children(node), out, where)
            return True
        if isinstance(found, staticmethod) and isinstance(found.__func__, types.FunctionType):
            position = next((i for i, a in enumerate(node.args) if self.states.is_self(a)), None)
            if position is not None:
                parts = [c for c in children(node) if not self.states.is_self(c)]
                self._analysed(node, found.__func__, position, "helper", parts, out, where)
                return True
            return False
        if isinstance(found, classmethod):
            self.world.trust(node, f"self.{name}", "a class method")
            return False
        self._attribute(node.func, out, where)  # type: ignore[arg-type]  # a property, or refused
        return False

    def _is_super(self, func: ast.expr) -> bool:
        return (
            isinstance(func, ast.Attribute)
            and isinstance(func.value, ast.Call)
            and isinstance(func.value.func, ast.Name)
            and func.value.func.id == "super"
            and self.scope.name("super") is super
        )

    def _super_target(self, node: ast.Call, name: str) -> types.FunctionType:
        assert isinstance(node.func, ast.Attribute)
        assert isinstance(node.func.value, ast.Call)
        if node.func.value.args or self.owner is None or self.owner not in self.world.cls.__mro__:
            raise Opaque("TL306", node, "super() with arguments", "write super() without arguments")
        mro = self.world.cls.__mro__
        for base in mro[mro.index(self.owner) + 1 :]:
            if name in base.__dict__:
                found = base.__dict__[name]
                if isinstance(found, types.FunctionType):
                    return found
                break
        raise Opaque("TL306", node, f"super().{name} is not a plain method", "call the method by its class")

    def _is_eager(self, func: ast.expr) -> bool:
        if isinstance(func, ast.Attribute):
            return func.attr == "join" and isinstance(func.value, ast.Constant)
        return builtin_name(self.scope.resolve(func)) in EAGER

    def _state_operation(self, node: ast.Call, operation: Operation, out: Found, where: Where) -> None:
        state, op, key, value, dated = operation
        sub = Found()
        seen = node.func.value if isinstance(node.func, ast.Attribute) else node
        for child in [*filter(None, [length_of(seen)]), *children(node)]:
            self._visit(child, sub, where.part())
        if op.effect is None:
            out.merge(sub)
            out.reads.append(StateRead(state.name, key, node, op.all_keys))
            return
        if where.late:
            raise Opaque("TL304", node, f"self.{state.name} is written in a nested function",
                         "write it in the handler itself")  # fmt: skip
        if dated:
            reason = "what lies ahead is kept in the order of time"
            sub.writes.append(StateWrite(WRITES, "opaque", None, None, node, reason=reason))
            sub.reads.append(StateRead(WRITES, None, node))
            reason = (
                f"a write of {state.name} with at= takes effect later, among the others in the order of time"
            )
            sub.writes.append(StateWrite(state.name, "dated", key, value, node, reason=reason))
        else:
            sub.writes.append(StateWrite(state.name, op.effect, key, value, node))
        self._effect(node, sub, out, where)
        if op.reads and (where.used or where.conditional):
            out.reads.append(StateRead(state.name, key, node))

    def _analysed(
        self, node: ast.expr, function: types.FunctionType, receiver: int, style: str, parts: list[ast.expr],
        out: Found, where: Where,
    ) -> None:  # fmt: skip
        callee = self.world.callee(function, receiver, node)
        self.callees.append(callee)
        sub = Found()
        for part in parts:
            self._visit(part, sub, where.part())
        starred = any(isinstance(p, ast.Starred) for p in parts)
        kinds = [self.mutability.kind(p) for p in parts]
        self.world.pass_arguments(callee, None if starred else kinds)
        shared = {n for p in parts for n in self.mutability.names(p)}
        sub.weak |= self.mutability.group(shared)
        if callee.leaf:
            out.merge(sub)
            return
        if where.late:
            raise Opaque("TL304", node, f"{callee.name} is called in a nested function",
                         "call it in the handler itself")  # fmt: skip
        site = CallSite(callee, node, style, bool(shared))
        sub.calls.append(site)
        self._effect(node, sub, out, where)
        if where.used or where.conditional:
            out.results.append(site)

    def _effect(self, node: ast.expr, sub: Found, out: Found, where: Where) -> None:
        """Add an effect to what contains it; by itself too where it is always executed."""
        out.merge(sub)
        if not where.conditional:
            alone = Found()
            alone.merge(sub)
            alone.subs = []
            out.subs.append((node, alone))

    def _change(self, node: ast.AST, out: Found) -> None:
        # What is bound by a comprehension may share its object with a local: no name is left out.
        changed = self.mutability.changes(node)
        if changed:
            out.weak |= self.mutability.group(changed)

    def _trust(self, node: ast.Call) -> None:
        if not self.trusting:
            return
        from timelapse.analysis.trust import trusted_calls

        for at, what, why in trusted_calls(self.scope, node, self.mutability, self.library):
            self.world.trust(at, what, why)


def _unknown_write(state: str, node: ast.AST, key: ast.expr | None = None) -> StateWrite:
    """A write of which nothing is known but where it goes."""
    return StateWrite(state, "opaque", key, None, node, reason="it is written as one of several targets")
