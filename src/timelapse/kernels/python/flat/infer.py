"""Types of a function's expressions, from the types of its arguments."""

from __future__ import annotations

import ast
import builtins
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from timelapse.code.source import FunctionNode, all_nodes, function_source
from timelapse.kernels.python.flat.types import (
    ANY,
    BOOL,
    CLEAN,
    FLOAT,
    INT,
    INT64,
    INTEGERS,
    NONE,
    NUMBERS,
    SCALARS,
    Type,
    join,
    of_value,
)

MISSING: Any = object()
_DEPTH = 4
_ROUNDS = 6
_SAME_ELEMENTS = (sorted, set, list, tuple, reversed, frozenset)

Attribute = Callable[[str], Type]
"""The type of `self.name`, or of a field of the event."""
StateRead = Callable[[ast.expr, "Scope"], Type | None]
"""The type of an expression that reads a state; None for every other expression."""


def tree_of(function: types.FunctionType) -> FunctionNode | None:
    """A function's definition, where it is known to be what runs."""
    kept: FunctionNode | None = function.__dict__.get("__tl_tree__")
    return function_source(function).node if kept is None else kept


def bound_names(tree: ast.AST) -> list[str]:
    """Names that something in a tree binds, once for each place."""
    found: list[str] = []
    for node in all_nodes(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                found.append(name)
            case ast.arg(arg=name) | ast.MatchStar(name=str(name)) | ast.MatchAs(name=str(name)):
                found.append(name)
            case ast.ExceptHandler(name=str(name)) | ast.MatchMapping(rest=str(name)):
                found.append(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.append(name)
            case ast.alias(name=name, asname=other):
                found.append(other or name.partition(".")[0])
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                found += names
    return found


class Scope:
    """One function: its names and their types."""

    def __init__(
        self, function: types.FunctionType, tree: FunctionNode, arguments: Mapping[str, Type], *,
        receiver: str | None = None, event: str | None = None, member: Attribute = lambda name: ANY,
        field: Attribute = lambda name: ANY, read: StateRead = lambda node, scope: None, depth: int = 0,
    ) -> None:  # fmt: skip
        self.function, self.tree = function, tree
        self.receiver, self.event = receiver, event
        self._member, self._field, self._read, self._depth = member, field, read, depth
        self.locals = set(bound_names(ast.Module(list(tree.body), []))) | {
            a.arg for a in all_nodes(tree.args) if isinstance(a, ast.arg)
        }
        self._free = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        self._types: dict[str, Type | None] = {}
        self._settle(arguments)

    def value_of(self, name: str) -> Any:
        """What a name that is not local stands for now; MISSING where there is nothing."""
        if name in self.locals:
            return MISSING
        if name in self._free:
            try:
                return self._free[name].cell_contents
            except ValueError:
                return MISSING
        found = self.function.__globals__.get(name, MISSING)
        return getattr(builtins, name, MISSING) if found is MISSING else found

    def _settle(self, arguments: Mapping[str, Type]) -> None:
        """The types of locals: from the bottom up, until nothing changes."""
        counts: dict[str, int] = {}
        for name in bound_names(ast.Module(list(self.tree.body), [])):
            counts[name] = counts.get(name, 0) + 1
        given = dict(arguments)
        assigned: dict[str, list[Callable[[], Type | None]]] = {}
        for node in self._statements():
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    assigned.setdefault(name, []).append(lambda v=value: self.of(v))  # type: ignore[misc]
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    assigned.setdefault(name, []).append(lambda v=value: self.of(v))  # type: ignore[misc]
                case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                    assigned.setdefault(name, []).append(
                        lambda n=name, o=op, v=value: self._operation(o, self._types.get(n), self.of(v), v)  # type: ignore[misc]
                    )
                case ast.For(target=ast.Name(id=name), iter=value):
                    assigned.setdefault(name, []).append(lambda v=value: self._element(v))  # type: ignore[misc]
        for name in self.locals:
            if counts.get(name, 0) != len(assigned.get(name, ())):
                self._types[name] = ANY
            else:
                self._types[name] = given.get(name, ANY) if name in self._arguments() else None
        for _ in range(_ROUNDS):
            changed = False
            for name, ways in assigned.items():
                if self._types.get(name) == ANY:
                    continue
                found = self._types.get(name)
                for way in ways:
                    found = join(found, way())
                if found != self._types.get(name):
                    self._types[name], changed = found, True
            if not changed:
                return
        for name in assigned:
            self._types[name] = ANY

    def _arguments(self) -> set[str]:
        return {a.arg for a in all_nodes(self.tree.args) if isinstance(a, ast.arg)}

    def _statements(self) -> list[ast.AST]:
        """All statements but those of functions defined inside: their locals are their own."""
        found: list[ast.AST] = []
        todo: list[ast.AST] = list(self.tree.body)
        while todo:
            node = todo.pop()
            if isinstance(node, FunctionNode | ast.Lambda | ast.ClassDef):
                continue
            found.append(node)
            todo += ast.iter_child_nodes(node)
        return found

    def returned(self) -> Type | None:
        """The type of what the function returns."""
        found: Type | None = None
        for node in self._statements():
            if isinstance(node, ast.Return):
                found = join(found, NONE if node.value is None else self.of(node.value))
        if not _always_returns(self.tree.body):
            found = join(found, NONE)
        return found

    # --- expressions ------------------------------------------------------------------------------

    def of(self, node: ast.expr) -> Type:
        """The type of an expression; ANY where nothing is known."""
        found = self._of(node)
        return ANY if found is None else found

    def _of(self, node: ast.expr) -> Type | None:
        read = self._read(node, self)
        if read is not None:
            return read
        match node:
            case ast.Constant(value=value):
                return of_value(value)
            case ast.Name(id=name):
                if name in self.locals:
                    return self._types.get(name, ANY)
                return of_value(self.value_of(name)) if self.value_of(name) is not MISSING else ANY
            case ast.Attribute(value=ast.Name(id=base), attr=name) if base in self.locals:
                if base == self.receiver:
                    return self._member(name)
                return self._field(name) if base == self.event else ANY
            case ast.Tuple(elts=elts) if not any(isinstance(e, ast.Starred) for e in elts):
                return ("tuple", tuple(self.of(e) for e in elts))
            case ast.IfExp(body=yes, orelse=no):
                return join(self._of(yes), self._of(no))
            case ast.BoolOp(values=values):
                found: Type | None = None
                for value in values:
                    found = join(found, self._of(value))
                return found
            case ast.NamedExpr(value=value):
                return self._of(value)
            case ast.Compare(left=left, ops=ops, comparators=rights):
                plain = all(self.of(e) in SCALARS for e in (left, *rights))
                either = all(isinstance(o, ast.In | ast.NotIn | ast.Is | ast.IsNot) for o in ops)
                return BOOL if plain or either else ANY
            case ast.UnaryOp(op=ast.Not()):
                return BOOL
            case ast.UnaryOp(operand=operand):
                inner = self.of(operand)
                return FLOAT if inner == FLOAT else INT if inner in (*INTEGERS, BOOL) else ANY
            case ast.BinOp(left=left, op=op, right=right):
                return self._operation(op, self._of(left), self.of(right), right)
            case ast.Subscript(value=value, slice=ast.Constant(value=int(place))):
                inner = self.of(value)
                if inner[0] == "tuple" and -len(inner[1]) <= place < len(inner[1]):
                    return inner[1][place]
                return inner[1] if inner[0] == "list" else ANY
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self._call(self.value_of(name), args)
        return ANY

    def _element(self, node: ast.expr) -> Type:
        """The type of what an expression yields when it is iterated over."""
        match node:
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if args:
                called = self.value_of(name)
                if called is range:
                    return INT
                if any(called is same for same in _SAME_ELEMENTS) and len(args) == 1:
                    return self._element(args[0])
        inner = self.of(node)
        if inner[0] == "tuple":
            found: Type | None = None
            for item in inner[1]:
                found = join(found, item)
            return ANY if found is None else found
        return inner[1] if inner[0] == "list" else ANY

    def _operation(self, op: ast.operator, left: Type | None, right: Type, node: ast.expr) -> Type | None:
        if left is None:
            return None
        numbers = left in NUMBERS and right in NUMBERS
        if isinstance(op, ast.Div):
            return FLOAT if numbers else ANY
        if isinstance(op, ast.Add) and left == right == CLEAN:
            return CLEAN
        if not numbers or isinstance(op, ast.Pow | ast.MatMult | ast.LShift | ast.RShift):
            return ANY
        if isinstance(op, ast.BitAnd | ast.BitOr | ast.BitXor):
            if FLOAT in (left, right):
                return ANY
            return BOOL if left == right == BOOL else INT
        if FLOAT in (left, right):
            return FLOAT
        modulus = isinstance(op, ast.Mod) and isinstance(node, ast.Constant) and type(node.value) is int
        return INT64 if modulus and 0 < node.value < 2**63 else INT  # type: ignore[attr-defined]

    def _call(self, called: Any, args: Sequence[ast.expr]) -> Type | None:
        if called is MISSING or any(isinstance(a, ast.Starred) for a in args):
            return ANY
        if called is len:
            return INT64
        if called is float:
            return FLOAT
        if called is int:
            return INT
        if called is bool or called is isinstance or called is any or called is all:
            return BOOL
        if called is abs and len(args) == 1:
            inner = self.of(args[0])
            return FLOAT if inner == FLOAT else INT if inner in (*INTEGERS, BOOL) else ANY
        if (called is min or called is max) and len(args) > 1:
            found: Type | None = None
            for arg in args:
                found = join(found, self._of(arg))
            return found if found in SCALARS else ANY
        if isinstance(called, types.FunctionType) and self._depth < _DEPTH:
            inner_scope = called_scope(called, [self.of(a) for a in args], self._depth + 1)
            return ANY if inner_scope is None else inner_scope.returned()
        return ANY


def called_scope(called: types.FunctionType, args: Sequence[Type], depth: int) -> Scope | None:
    """A plain function called with so many positional arguments of these types."""
    tree = tree_of(called)
    if not isinstance(tree, ast.FunctionDef) or tree.decorator_list or not plain_arguments(tree, len(args)):
        return None
    if any(isinstance(n, ast.Yield | ast.YieldFrom) for n in all_nodes(tree)):
        return None
    return Scope(called, tree, dict(zip([a.arg for a in tree.args.args], args, strict=True)), depth=depth)


def plain_arguments(tree: FunctionNode, count: int) -> bool:
    """Whether a function takes just so many arguments by position, and nothing else."""
    a = tree.args
    return len(a.args) == count and not (a.posonlyargs or a.kwonlyargs or a.vararg or a.kwarg)


def _always_returns(body: Sequence[ast.stmt]) -> bool:
    """Whether no way through a block goes on behind it."""
    for statement in body:
        match statement:
            case ast.Return() | ast.Raise():
                return True
            case ast.If(body=yes, orelse=no) if _always_returns(yes) and _always_returns(no):
                return True
    return False


__all__ = ["MISSING", "Scope", "bound_names", "called_scope", "plain_arguments", "tree_of"]
