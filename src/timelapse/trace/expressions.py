"""Expressions of handlers as text: as written, with the keys filled in, with the values filled in."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from timelapse.analysis.views import is_view, viewed
from timelapse.depth import roomy
from timelapse.trace.instrument import Sites
from timelapse.trace.steps import brief
from timelapse.trace.views import length

_OPERATORS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.In: "in",
    ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not",
}  # fmt: skip

Values = Mapping[int, Any]
"""What expressions gave (`recorder.Value`), by the identity of their node."""


@dataclass(frozen=True)
class Shown:
    """See `steps.Condition`."""

    source: str
    text: str
    full: str


@dataclass(frozen=True)
class Comparison:
    """What was compared, as far as it came to it: `values` has one more than `operators`."""

    values: tuple[Any, ...]
    operators: tuple[str, ...]
    text: str


@roomy
def shown(node: ast.AST, values: Values, sites: Sites) -> Shown:
    """An expression as text."""
    text = _unparsed(_Shown(values, sites, keys=True).visit(copy.copy(node)))
    full = _unparsed(_Shown(values, sites, keys=True, full=True).visit(copy.copy(node)))
    return Shown(written(node, sites), text, full)


@roomy
def written(node: ast.AST, sites: Sites) -> str:
    """An expression as it stands in the program."""
    return _unparsed(_Shown({}, sites, keys=False).visit(copy.copy(node)))


def comparison(node: ast.AST, values: Values, sites: Sites) -> Comparison | None:
    """The operands of a comparison. One that was not evaluated ends it."""
    if not isinstance(node, ast.Compare):
        return None
    operands: list[Any] = []
    texts: list[str] = []
    operators = []
    for index, operand in enumerate([node.left, *node.comparators]):
        known = _value_of(operand, values)
        if known is None:
            if not _is_container(node, index):
                break
            texts.append(_unparsed(_Shown(values, sites, keys=True).visit(operand)))
            operands.append(None)
        else:
            operands.append(known[0])
            texts.append(brief(known[0]))
        if index:
            operators.append(_OPERATORS[type(node.ops[index - 1])])
    if len(operands) < 2:
        return None
    text = texts[0] + "".join(f" {op} {t}" for op, t in zip(operators, texts[1:], strict=True))
    return Comparison(tuple(operands), tuple(operators), text)


def _is_container(node: ast.Compare, index: int) -> bool:
    """A state stands there: `k in self.friends`."""
    return index > 0 and isinstance(node.ops[index - 1], ast.In | ast.NotIn)


def _value_of(node: ast.expr, values: Values) -> tuple[Any] | None:
    if isinstance(node, ast.Constant):
        return (node.value,)
    if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
        try:
            return (ast.literal_eval(node),)
        except ValueError:
            return None
    found = values.get(id(node))
    return None if found is None else (found.value,)


def _unparsed(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


class _Shown(ast.NodeTransformer):
    """Fills in keys and values; `self.` goes."""

    def __init__(self, values: Values, sites: Sites, *, keys: bool, full: bool = False) -> None:
        self._values, self._sites = values, sites
        self._keys, self._full = keys, full

    def _with(self, node: ast.expr, text: str) -> ast.expr:
        """The text, and what it gave."""
        found = self._values.get(id(node))
        return _name(f"{text}={brief(found.value)}" if found is not None and self._full else text)

    def visit(self, node: ast.AST) -> Any:
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                return self._with(node, name)
            case ast.Attribute() | ast.Name() if isinstance(node.ctx, ast.Load):
                return self._with(node, ast.unparse(node))
            case ast.Subscript(value=ast.Attribute(value=ast.Name(id="self"), attr=name), slice=key):
                return self._with(node, f"{name}[{self._key(key)}]")
            case ast.Subscript(value=view, slice=key) if self._is_view(view):
                return self._with(node, f"{self._view(view)}[{self._key(key)}]")
            case ast.Call(func=ast.Attribute(value=view, attr=method), args=given) if self._is_view(view):
                return self._with(node, f"{self._view(view)}.{method}({', '.join(map(self._key, given))})")
            case ast.Call() if self._is_view(node):
                return self._with(node, self._view(node))
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(value=ast.Name(id="self"), attr=name), attr=method)
            ):
                args = ", ".join(self._key(a) for a in node.args)
                return self._with(node, f"{name}.{method}({args})")
            case ast.Call():
                return self._with(node, _unparsed(_Shown({}, self._sites, keys=False).visit_parts(node)))
            case ast.Compare(
                left=left, comparators=[ast.Attribute(value=ast.Name(id="self"), attr=name)]
            ) if self._keys and name in self._sites.objects:
                made = copy.copy(node)
                made.left, made.comparators = _name(self._key(left)), [_name(name)]
                return made
            case ast.Compare(left=left, comparators=[view]) if self._keys and self._is_view(view):
                made = copy.copy(node)
                made.left, made.comparators = _name(self._key(left)), [_name(self._view(view))]
                return made
        return self.visit_parts(node)

    def visit_parts(self, node: ast.AST) -> Any:
        """A copy with its parts visited."""
        made = copy.copy(node)
        for name, inner in ast.iter_fields(node):
            if isinstance(inner, list):
                setattr(made, name, [self.visit(i) if isinstance(i, ast.AST) else i for i in inner])
            elif isinstance(inner, ast.expr):
                setattr(made, name, self.visit(inner))
        return made

    def _is_view(self, node: ast.expr) -> bool:
        match viewed(node):
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                return is_view(node) and name in self._sites.viewed
        return False

    def _view(self, node: Any) -> str:
        """`sent.last(7)`."""
        known = _value_of(node.args[0], self._values) if self._keys else None
        way = self._key(node.args[0]) if known is None or type(known[0]) is not int else length(known[0])
        return f"{node.func.value.attr}.{node.func.attr}({way})"

    def _key(self, node: ast.expr) -> str:
        """A key's value, where keys are filled in and it is known."""
        known = _value_of(node, self._values) if self._keys else None
        if known is not None:
            return brief(known[0])
        return _unparsed(_Shown({}, self._sites, keys=False).visit(node))


def _name(text: str) -> ast.expr:
    """A text that stands in an expression."""
    return ast.Name(text, ast.Load())
