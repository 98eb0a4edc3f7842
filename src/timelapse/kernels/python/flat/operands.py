"""Keys, values and types of a function that is being rewritten: what operations of states are written with."""

from __future__ import annotations

import ast
import types
from collections.abc import Mapping, Sequence
from typing import Any

from timelapse.code.source import FunctionNode, all_nodes
from timelapse.kernels.python.flat.functions import Pass
from timelapse.kernels.python.flat.infer import Scope, called_scope
from timelapse.kernels.python.flat.states import StateCode, read_type
from timelapse.kernels.python.flat.text import expression, statements
from timelapse.kernels.python.flat.types import ANY, INT64, Type, declared, guard, of_value
from timelapse.kinds.grouped import Grouped
from timelapse.model.types import FLOAT, TupleType, ValueType


class Operands:
    """The part of a rewriter (rewrite.py) that states ask."""

    def __init__(
        self, work: Pass, function: types.FunctionType, tree: FunctionNode, known: Mapping[str, Type],
        receiver: str, event: str | None, fields: Mapping[str, Type],
    ) -> None:  # fmt: skip
        self.work, self._function = work, function
        self._receiver, self._event, self._types = receiver, event, fields
        self.fields: set[str] = set()
        self.whole = False
        """Whether the event itself is used, not only its fields."""
        self.nonlocals: set[str] = set()
        self.handler = ""
        """The name of the handler that is being rewritten; empty for methods."""
        self.guarded = 0
        """In how many statements that something may have to pass on its way out what is being rewritten stands."""
        self.refuses = False
        """Whether it returns True where it has rejected the event."""
        self.nested = 0
        """In how many comprehensions and functions of its own what is being rewritten stands."""
        self._unsafe = any(isinstance(n, ast.NamedExpr) for n in all_nodes(tree))
        self._scope = Scope(
            function, tree, known, receiver=receiver, event=event, member=self._member_type,
            field=lambda name: INT64 if name in ("ts", "seq") else fields.get(name, ANY), read=self._read_type,
        )  # fmt: skip

    # --- what states.py asks for ------------------------------------------------------------------

    def temporary(self) -> str:
        """A name for a local of the rewritten function: none of those that analysis/desugar.py gives."""
        return f"_tl_own{next(self.work.counter)}"

    def value_of(self, name: str) -> Any:
        """What a name of the function's module stands for; MISSING where that is not certain."""
        return self._scope.value_of(name)

    def type_of(self, node: ast.expr) -> Type:
        return self._scope.of(node)

    def after(self, code: StateCode, op: ast.operator, value: ast.expr) -> Type:
        """The type of what is stored under a key, changed by an operation."""
        found = self._scope._operation(op, declared(code.spec.value), self.type_of(value), value)
        return ANY if found is None else found

    def rewritten(self, node: ast.expr) -> ast.expr:
        raise TypeError("abstract")

    def expression(self, text: str, like: ast.AST, **parts: ast.expr) -> ast.expr:
        return expression(text, like, **parts)

    def statements(self, lines: Sequence[str], like: ast.AST, **parts: ast.expr) -> list[ast.stmt]:
        return statements("\n".join(lines), like, **parts)

    def index_of(self, code: StateCode) -> bool:
        """Whether the index of a grouped state may be used."""
        return code.name in self.work.indexed

    def can_key(self, code: StateCode, node: ast.expr) -> bool:
        """Whether a key as it is written is the stored key, once it is checked."""
        spec = code.spec
        if spec.key is None:
            return isinstance(node, ast.Tuple) and not node.elts
        if issubclass(spec.kind, Grouped):
            return not isinstance(spec.outer, TupleType) and not isinstance(spec.inner, TupleType)
        return True

    def key(self, code: StateCode, node: ast.expr) -> ast.expr | None:
        """A checked key as an expression."""
        if not self.can_key(code, node):
            return None
        if code.spec.key is None:
            return expression("_tl_u", node)
        return self.checked(node, code.spec.key, f"_tl_C_{code.name}")

    def checked(self, node: ast.expr, kind: ValueType, check: str) -> ast.expr:
        """An expression whose value is checked."""
        name = self.temporary()
        test = guard(kind, self.type_of(node), name)
        value = self.rewritten(node)
        if test is None:
            return value
        if self.nested or test == "False":
            return expression(f"{check}(K)", node, K=value)
        before, _, after = test.partition(name)  # where it is named first it is set
        return expression(f"({name} if {before}({name} := K){after} else {check}({name}))", node, K=value)

    def place_key(self, code: StateCode, node: ast.expr, lines: list[str], parts: dict[str, ast.expr]) -> str:
        """The name under which a key stands, after lines that may be added."""
        if code.spec.key is None:
            return "_tl_u"
        value = self.rewritten(node)
        plain = isinstance(value, ast.Name) and not self._unsafe
        if plain and guard(code.spec.key, self.type_of(node), "k") is None:
            return value.id  # type: ignore[attr-defined, no-any-return]
        name = self.temporary()
        lines.append(f"{name} = {name}K")
        parts[f"{name}K"] = value
        return name

    def check_key(self, code: StateCode, node: ast.expr, name: str, lines: list[str]) -> None:
        """Add the lines that check a key which stands under a name."""
        if code.spec.key is not None:
            self.check_value(code.spec.key, node, name, f"_tl_C_{code.name}", lines)

    def check_value(
        self,
        kind: ValueType,
        node: ast.expr | None,
        name: str,
        check: str,
        lines: list[str],
        known: Type = ANY,
    ) -> None:
        """Add the lines that make a value what is stored."""
        if node is not None:
            known = self.type_of(node)
        test = guard(kind, known, name)
        if test is None:
            return
        if kind == FLOAT and known == INT64:
            lines.append(f"{name} = _tl_float({name})")
        elif test == "False":
            lines.append(f"{name} = {check}({name})")
        else:
            lines += [f"if not ({test}):", f"    {name} = {check}({name})"]

    # --- types ------------------------------------------------------------------------------------

    def _member_type(self, name: str) -> Type:
        if name == "now":
            return INT64
        code = self.work.states.get(name)
        if code is not None:
            return read_type(code, "getitem") if code.attribute else ANY
        return of_value(self.work.params[name]) if name in self.work.params else ANY

    def _read_type(self, node: ast.expr, scope: Scope) -> Type | None:
        match node:
            case ast.Subscript(value=base):
                code = self._state(base)
                return None if code is None else read_type(code, "getitem")
            case ast.Call(func=ast.Attribute(value=base, attr=name), args=args, keywords=[]):
                code = self._state(base)
                if code is not None:
                    return read_type(code, name)
                if self._is_self(base):
                    return self._returned(name, args, scope)
        return None

    def _returned(self, name: str, args: Sequence[ast.expr], at: Scope) -> Type:
        """The type of what a method gives that does not use the program."""
        found = self.work.member(name)
        if isinstance(found, staticmethod) and isinstance(found.__func__, types.FunctionType):
            scope = called_scope(found.__func__, [at.of(a) for a in args], 1)
            returned = None if scope is None else scope.returned()
            return ANY if returned is None else returned
        return ANY

    # --- recognising ------------------------------------------------------------------------------

    def _is_self(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id == self._receiver

    def _state(self, node: ast.AST) -> StateCode | None:
        """The state that `self.name` is, where its values are at hand."""
        if isinstance(node, ast.Attribute) and self._is_self(node.value):
            return self.work.states.get(node.attr)
        return None

    def _total(self, node: ast.AST) -> StateCode | None:
        """The same for a state that is used as an attribute."""
        code = self._state(node)
        return code if code is not None and code.attribute else None
