"""Handlers, rewritten for one pass: the same statements, with states as dicts and the event's fields as arguments.

What is not recognised stays as it is written and works on the program that handlers see (`_tl_self`), with its state
objects, over the same dicts. So a rewritten handler may mix both, and nothing has to be refused as a whole but
functions whose text is not at hand, or that bind `self` or the event anew.

Each function is compiled with the user's file and lines and with the user's own globals.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Sequence
from typing import Any

from timelapse.code.source import FunctionNode, all_nodes
from timelapse.kernels.python.flat import refusals, rows, states, writes
from timelapse.kernels.python.flat.functions import Made, Pass, Unrewritable, can_be_rewritten, compiled
from timelapse.kernels.python.flat.infer import called_scope, plain_arguments, tree_of
from timelapse.kernels.python.flat.operands import Operands
from timelapse.kernels.python.flat.text import expression
from timelapse.kernels.python.flat.types import SCALARS, Type, declared
from timelapse.model.events import Event

_MOST_VARIANTS = 8


def handler(work: Pass, function: types.FunctionType, event: type[Event], called: str) -> Made | None:
    """A handler for one type of event, under the name by which it is known; None where it has to stay as it is."""
    tree = tree_of(function)
    if tree is None or not plain_arguments(tree, 2) or function.__defaults__:
        return None
    receiver, name = (a.arg for a in tree.args.args)
    if receiver == name or not can_be_rewritten(tree, {receiver, name}):
        return None
    types_of = {f.name: declared(f.type) for f in event.__fields__}
    try:
        writer = Rewriter(work, function, tree, {}, receiver, name, types_of)
        writer.handler = called
        body = writer.block(tree.body)
    except Unrewritable:
        return None
    fields = tuple(f for f in types_of if f in writer.fields)
    arguments = [f"_tl_f_{f}" for f in fields] + ([name] if writer.whole else [])
    made = compiled(function, tree, arguments, body, writer.nonlocals)
    return Made(made, function, fields, writer.whole, writer.refuses)


def method(work: Pass, function: types.FunctionType, given: tuple[Type, ...]) -> str | None:
    """The name of a rewritten method for arguments of these types; None where it has to stay as it is."""
    key = (function, given)
    if key in work.functions:
        return work.functions[key] or None
    tree = tree_of(function)
    work.functions[key] = ""
    if tree is None or not tree.args.args or tree.args.posonlyargs:
        return None
    if len([k for k in work.functions if k[0] is function]) > _MOST_VARIANTS and given:
        return None
    receiver = tree.args.args[0].arg
    rest = [a.arg for a in tree.args.args[1:]]
    if not can_be_rewritten(tree, {receiver}) or len(function.__defaults__ or ()) > len(rest):
        return None
    name = work.functions[key] = f"_tl_m_{function.__name__}_{next(work.counter)}"
    known = dict(zip(rest, given, strict=False)) if plain_arguments(tree, len(given) + 1) else {}
    try:
        writer = Rewriter(work, function, tree, known, receiver, None, {})
        body = writer.block(tree.body)
    except Unrewritable:
        work.functions[key] = ""
        work.kept[name] = function  # where it calls itself in a roundabout way, somebody has the name
        return None
    work.made[name] = Made(compiled(function, tree, None, body, writer.nonlocals), function)
    return name


class Rewriter(Operands):
    """Rewrites one function."""

    def rewritten(self, node: ast.expr) -> ast.expr:
        found: ast.expr = self.expr(node)
        return found

    # --- statements -------------------------------------------------------------------------------

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        return [made for statement in body for made in self._statement(statement)]

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        if not self.nested:
            made = self._refused(node) if self.handler else None
            if made is None:
                made = self._written(node)
            if made is not None:
                return made
        # What is in there may catch a Rejection, or has to be left by one.
        guarded = isinstance(node, ast.Try | ast.TryStar | ast.With | ast.AsyncWith)
        self.guarded += guarded
        copied = self._copied(node)
        self.guarded -= guarded
        return [copied]

    def _refused(self, node: ast.stmt) -> list[ast.stmt] | None:
        """In a handler: a reject, and a return, whose value is nobody's; None for all others."""
        match node:
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(value=base, attr="reject"), args=args, keywords=[])
            ) if self._is_self(base) and self.work.rejects and not self.guarded:
                made = refusals.reject(self, args, self.handler, node)
                self.refuses = self.refuses or made is not None
                return made
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                return [
                    ast.copy_location(ast.Expr(self.expr(value)), node),
                    ast.copy_location(ast.Return(None), node),
                ]
            case ast.Return():
                return [ast.copy_location(ast.Return(None), node)]
        return None

    def _written(self, node: ast.stmt) -> list[ast.stmt] | None:
        """A statement that writes a state, puts out a record or sends an event; None for all others."""
        unit = ast.Tuple([], ast.Load())
        match node:
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(value=base, attr=name), args=args, keywords=named) as call
            ):
                if self._is_self(base) and name in ("emit", "send") and len(args) == 1 and not named:
                    return (rows.emit if name == "emit" else rows.send)(self, args[0], node)
                code = self._state(base)
                if code is not None and not named and name != "get":
                    return writes.write(code, name, args, self, call)
            case ast.AugAssign(target=ast.Subscript(value=base, slice=key), op=op, value=value):
                code = self._state(base)
                return None if code is None else writes.augmented(code, key, op, value, self, node)
            case ast.AugAssign(target=ast.Attribute() as base, op=op, value=value):
                code = self._total(base)
                key = ast.copy_location(unit, node)
                return None if code is None else writes.augmented(code, key, op, value, self, node)
            case ast.Assign(targets=[ast.Subscript(value=base, slice=key)], value=value):
                code = self._state(base)
                return None if code is None else writes.write(code, "setitem", [key, value], self, node)
            case ast.Assign(targets=[ast.Attribute() as base], value=value):
                code = self._total(base)
                key = ast.copy_location(unit, node)
                return None if code is None else writes.write(code, "setitem", [key, value], self, node)
            case ast.For():
                return self._loop(node)
            case ast.Delete(targets=[ast.Subscript(value=base, slice=key)]):
                code = self._state(base)
                return None if code is None else writes.write(code, "delitem", [key], self, node)
        return None

    def _loop(self, node: ast.For) -> list[ast.stmt] | None:
        """A loop over all members of a key of a SetOf, which goes through the sorted list itself; None for others."""
        match self.expr(node.iter) if isinstance(node.iter, ast.Subscript) else None:
            case ast.Call(
                func=ast.Name(id="_tl_tuple"), args=[ast.Call(func=ast.Name(id="_tl_sorted")) as members]
            ):
                target, body, orelse = (self._copied(part) for part in (node.target, node.body, node.orelse))
                return [ast.copy_location(ast.For(target, members, body, orelse), node)]
        return None

    # --- expressions ------------------------------------------------------------------------------

    def expr(self, node: Any) -> Any:
        """A rewritten copy of an expression."""
        match node:
            case ast.Attribute(value=base, attr=name, ctx=ast.Load()) if self._is_self(base):
                return self._attribute(node, name)
            case ast.Attribute(value=ast.Name(id=base), attr=name, ctx=ast.Load()) if base == self._event:
                if name in ("ts", "seq"):
                    return expression(f"_tl_{name}", node)
                if name in self._types:
                    self.fields.add(name)
                    return expression(f"_tl_f_{name}", node)
            case ast.Name(id=name):
                if name == self._receiver:
                    return expression("_tl_self", node)
                self.whole = self.whole or name == self._event
            case ast.Subscript(value=base, slice=key, ctx=ast.Load()):
                code = self._state(base)
                if code is not None:
                    found = states.read(code, "getitem", [key], self, node)
                    if found is not None:
                        return found
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[base]):
                code = self._state(base)
                if code is not None:
                    found = states.read(code, "contains", [left], self, node)
                    if found is not None:
                        is_in = isinstance(node.ops[0], ast.In)
                        return found if is_in else ast.copy_location(ast.UnaryOp(ast.Not(), found), node)
            case ast.Call():
                found = self._call(node)
                if found is not None:
                    return found
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp() | ast.Lambda():
                self.nested += 1
                found = self._copied(node)
                self.nested -= 1
                return found
        return self._copied(node)

    def _attribute(self, node: ast.Attribute, name: str) -> ast.expr:
        if name == "now":
            return expression("_tl_ts", node)
        code = self.work.states.get(name)
        if code is not None:
            found = states.read(code, "getitem", [], self, node) if code.attribute else None
            return found or (self._bound(node) if code.attribute else expression(f"_tl_S_{name}", node))
        if name in self.work.params:
            return expression(f"_tl_p_{name}", node)
        member = self.work.member(name)
        if isinstance(member, property) and isinstance(member.fget, types.FunctionType):
            made = method(self.work, member.fget, ())
            if made is not None:
                return expression(f"{made}()", node)
        return self._bound(node)

    def _bound(self, node: ast.Attribute) -> ast.expr:
        return expression(f"_tl_self.{node.attr}", node)

    def _call(self, node: ast.Call) -> ast.expr | None:
        match node:
            case ast.Call(func=ast.Attribute(value=base, attr=name), args=args, keywords=named) if (
                code := self._state(base)
            ) is not None:
                return None if named else states.read(code, name, args, self, node)
            case ast.Call(func=ast.Attribute(value=base, attr=name)) if self._is_self(base):
                found = self.work.member(name)
                if isinstance(found, types.FunctionType):
                    return self._method(found, node)
            case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super"), args=[]), attr=name)):
                owner = self._scope.value_of("__class__")
                mro = list(self.work.classes)
                if owner not in mro:
                    return None
                found = next((vars(c)[name] for c in mro[mro.index(owner) + 1 :] if name in vars(c)), None)
                if isinstance(found, types.FunctionType):
                    return self._method(found, node)
                raise Unrewritable
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                if name == "super":
                    raise Unrewritable
                called = self._scope.value_of(name)
                if isinstance(called, types.FunctionType):
                    return self._inlined(called, args)
        return None

    def _method(self, function: types.FunctionType, node: ast.Call) -> ast.expr | None:
        plain = not node.keywords and not any(isinstance(a, ast.Starred) for a in node.args)
        made = method(self.work, function, tuple(self.type_of(a) for a in node.args) if plain else ())
        if made is None:
            if isinstance(node.func, ast.Attribute) and self._is_self(node.func.value):
                return None
            raise Unrewritable  # super(), whose first argument is no more
        call = ast.Call(
            ast.Name(made, ast.Load()),
            [self.expr(a) for a in node.args],
            [self._copied(k) for k in node.keywords],
        )
        ast.copy_location(call.func, node)
        return ast.copy_location(call, node)

    def _inlined(self, called: types.FunctionType, args: Sequence[ast.expr]) -> ast.expr | None:
        """A helper that is one expression over its arguments, written in place: it can neither fail nor be seen."""
        if not all(isinstance(a, ast.Name | ast.Constant | ast.Attribute) for a in args):
            return None  # nothing else becomes a name or a constant, and looking into calls within calls takes long
        tree = tree_of(called)
        if not isinstance(tree, ast.FunctionDef) or len(tree.body) != 1 or called.__closure__:
            return None
        body = tree.body[0]
        known = [self.type_of(a) for a in args]
        if not isinstance(body, ast.Return) or body.value is None or not all(k in SCALARS for k in known):
            return None
        scope = called_scope(called, known, 1)
        given = [self.rewritten(a) for a in args]
        if scope is None or not all(isinstance(g, ast.Name | ast.Constant) for g in given):
            return None
        for part in all_nodes(body.value):
            if isinstance(part, ast.Name) and part.id not in scope.locals:
                return None
            if (
                isinstance(part, ast.Compare)
                and len({_family(scope.of(e)) for e in (part.left, *part.comparators)}) > 1
            ):
                return None
            if isinstance(part, ast.expr) and not isinstance(
                part, ast.Name | ast.Constant | ast.Tuple | ast.IfExp | ast.Compare | ast.BoolOp
            ):
                return None
        names = [a.arg for a in tree.args.args]
        text = ast.unparse(body.value)
        return expression(
            f"({text})", args[0] if args else body.value, **dict(zip(names, given, strict=True))
        )

    def _copied(self, node: Any) -> Any:
        """A copy of a tree with all that is in it rewritten."""
        if isinstance(node, list):
            if node and isinstance(node[0], ast.stmt):
                return self.block(node)
            return [self.expr(n) if isinstance(n, ast.expr) else self._copied(n) for n in node]
        if not isinstance(node, ast.AST):
            return node
        inner = isinstance(node, FunctionNode | ast.ClassDef)
        self.nested += inner
        made = type(node)(**{
            name: self.expr(value) if isinstance(value, ast.expr) else self._copied(value)
            for name, value in ast.iter_fields(node)
        })  # fmt: skip
        self.nested -= inner
        return ast.copy_location(made, node) if "lineno" in node._attributes else made


def _family(known: Type) -> Type:
    return (
        "number"
        if known in ("int64", "int", "float", "bool")
        else "text"
        if known in ("clean", "str")
        else known
    )
