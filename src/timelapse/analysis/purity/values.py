"""What kind of value an expression is, as far as hashes and set orders are concerned.

Kinds: "number" (its hash is the same in every process, and so is the order of a set of such), "text" (str and bytes,
whose hashes differ), None (not known).
"""

from __future__ import annotations

import ast
import typing
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from timelapse.code.source import all_nodes
from timelapse.model.types import ListType, OptionalType, ScalarType, TupleType, ValueType

if TYPE_CHECKING:
    from timelapse.analysis.purity.walk import Scope

Kind = Literal["number", "text", "unknown"]

_NUMBER_CALLS = frozenset(("builtins.int", "builtins.len", "builtins.float", "builtins.bool", "builtins.ord",
                           "builtins.round", "builtins.abs"))  # fmt: skip
_TEXT_CALLS = frozenset(
    ("builtins.str", "builtins.repr", "builtins.bytes", "builtins.chr", "builtins.format")
)
_TEXT_METHODS = frozenset(("lower", "upper", "strip", "lstrip", "rstrip", "join", "format", "encode", "decode", "replace",
                           "casefold", "title", "removeprefix", "removesuffix"))  # fmt: skip
_SETS = frozenset(("builtins.set", "builtins.frozenset"))
_ORDER_FREE = frozenset(
    f"builtins.{n}" for n in ("sorted", "set", "frozenset", "len", "min", "max", "any", "all")
)
_ORDERED = frozenset(
    f"builtins.{n}"
    for n in ("list", "tuple", "iter", "enumerate", "map", "zip", "filter", "sum", "str", "repr", "print")
)
_SET_METHODS = frozenset(("union", "intersection", "difference", "symmetric_difference", "copy"))


def hash_is_stable(node: ast.expr, scope: Scope) -> bool:
    """Whether hash(node) is the same in every process."""
    return kind_of(node, scope) == "number"


def kind_of(node: ast.expr, scope: Scope) -> Kind:
    """The kind of an expression's value."""
    if isinstance(node, ast.Constant):
        return _kind_of_values([node.value])
    if isinstance(node, ast.JoinedStr):
        return "text"
    if isinstance(node, ast.Tuple):
        return _all(kind_of(e, scope) for e in node.elts)
    if isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
        return "number"
    if isinstance(node, ast.UnaryOp):
        return kind_of(node.operand, scope)
    if isinstance(node, ast.BinOp):
        left, right = kind_of(node.left, scope), kind_of(node.right, scope)
        return "text" if "text" in (left, right) else "number" if left == right == "number" else "unknown"
    if isinstance(node, ast.IfExp):
        return _all((kind_of(node.body, scope), kind_of(node.orelse, scope)))
    if isinstance(node, ast.Call):
        return _kind_of_call(node, scope)
    if isinstance(node, ast.Attribute):
        return _kind_of_type(_field_type(node, scope))
    if isinstance(node, ast.Name):
        return _kind_of_name(node, scope)
    return "unknown"


def _kind_of_call(node: ast.Call, scope: Scope) -> Kind:
    found = scope.resolve(node.func)
    if found is not None and found.name in _NUMBER_CALLS:
        return "number"
    if found is not None and found.name in _TEXT_CALLS:
        return "text"
    if isinstance(node.func, ast.Attribute) and node.func.attr in _TEXT_METHODS and found is None:
        return "text"
    return "unknown"


def _kind_of_name(node: ast.Name, scope: Scope) -> Kind:
    hint = scope.unit.function.__annotations__.get(node.id)
    if hint in (int, float, bool, "int", "float", "bool"):
        return "number"
    if hint in (str, bytes, "str", "bytes"):
        return "text"
    if scope.is_local(node, node.id):
        values = _assigned(node.id, scope)
        return _all(kind_of(v, scope) for v in values if not _mentions(v, node.id)) if values else "unknown"
    found = scope.resolve(node)
    return _kind_of_values([found.value]) if found is not None and found.has_value else "unknown"


def _field_type(node: ast.Attribute, scope: Scope) -> ValueType | None:
    """The declared type of an event's field or of a parameter of the program."""
    if not isinstance(node.value, ast.Name):
        return None
    for event in scope.events.get(node.value.id, ()):
        for field in event.__fields__:
            if field.name == node.attr:
                return field.type
        if node.attr in ("ts", "seq"):
            return ScalarType("int")
    if node.value.id == scope.unit.receiver and node.attr == "now":
        return ScalarType("int")
    return None


def _kind_of_type(kind: ValueType | None) -> Kind:
    if isinstance(kind, ScalarType):
        return "text" if kind.name in ("str", "bytes") else "number"
    if isinstance(kind, TupleType):
        return _all(_kind_of_type(t) for t in kind.items)
    if isinstance(kind, OptionalType) and _kind_of_type(kind.inner) == "text":
        return (
            "text"  # the hash of None is an address before Python 3.12, so an optional number stays unknown
        )
    return "unknown"


def _kind_of_values(values: Iterable[Any]) -> Kind:
    kinds: list[Kind] = []
    for value in values:
        if isinstance(value, int | float):
            kinds.append("number")
        elif isinstance(value, str | bytes):
            kinds.append("text")
        elif isinstance(value, tuple):
            kinds.append(_kind_of_values(value))
        else:
            kinds.append("unknown")
    return _all(kinds)


def _all(kinds: Iterable[Kind]) -> Kind:
    found = set(kinds)
    return "text" if "text" in found else "unknown" if "unknown" in found else "number"


# --- sets ---------------------------------------------------------------------------------------


def set_elements(node: ast.expr, scope: Scope, depth: int = 0) -> Kind | None:
    """The kind of a set's elements; None when the expression is not known to be a set."""
    if depth > 5:
        return None
    if isinstance(node, ast.Set):
        return _all(kind_of(e, scope) for e in node.elts)
    if isinstance(node, ast.SetComp):
        return kind_of(node.elt, scope)
    if isinstance(node, ast.Call):
        found = scope.resolve(node.func)
        if found is not None and found.name in _SETS:
            return _elements(node.args[0], scope, depth + 1) if node.args else "number"
        if isinstance(node.func, ast.Attribute) and node.func.attr in _SET_METHODS:
            return _merged([node.func.value, *node.args], scope, depth)
        return None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
        return _merged([node.left, node.right], scope, depth)
    if (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == scope.unit.receiver
    ):
        known = scope.spec.params.get(node.attr)
        if known is not None and (isinstance(known.default, frozenset) or "frozenset" in known.text):
            return _kind_of_values(known.default) if known.default else "unknown"
        return None
    if isinstance(node, ast.Name) and scope.is_local(node, node.id):
        return _local_set(node, scope, depth)
    found = scope.resolve(node)
    if found is not None and found.has_value and isinstance(found.value, set | frozenset):
        return _kind_of_values(found.value)
    return None


def _merged(parts: list[ast.expr], scope: Scope, depth: int) -> Kind | None:
    kinds = [set_elements(p, scope, depth + 1) for p in parts]
    known = [k for k in kinds if k is not None]
    if not known or kinds[0] is None:
        return None
    return _all(known) if len(known) == len(kinds) else _all([*known, "unknown"])


def _local_set(node: ast.Name, scope: Scope, depth: int) -> Kind | None:
    values = [v for v in _assigned(node.id, scope) if not _mentions(v, node.id)]
    kinds = [set_elements(v, scope, depth + 1) for v in values]
    if not kinds or any(k is None for k in kinds):
        return None
    for call in scope.parents:
        if (
            isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args
            and isinstance(call.func.value, ast.Name) and call.func.value.id == node.id
        ):  # fmt: skip
            if call.func.attr == "add":
                kinds.append(kind_of(call.args[0], scope))
            elif call.func.attr == "update":
                kinds.append(_elements(call.args[0], scope, depth + 1))
    return _all(k for k in kinds if k is not None)


def _elements(node: ast.expr, scope: Scope, depth: int) -> Kind:
    """The kind of what iterating over an expression gives."""
    if isinstance(node, ast.List | ast.Tuple):
        return _all(kind_of(e, scope) for e in node.elts)
    if isinstance(node, ast.GeneratorExp | ast.ListComp):
        return kind_of(node.elt, scope)
    if isinstance(node, ast.Attribute):
        declared = _field_type(node, scope)
        declared = declared.inner if isinstance(declared, OptionalType) else declared
        if isinstance(declared, ListType):
            return _kind_of_type(declared.inner)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("split", "splitlines")
    ):
        return "text"
    if kind_of(node, scope) == "text":
        return "text"
    found = scope.resolve(node.func) if isinstance(node, ast.Call) else None
    if found is not None and found.name == "builtins.range":
        return "number"
    return set_elements(node, scope, depth) or "unknown"


def _assigned(name: str, scope: Scope) -> list[ast.expr]:
    """Everything assigned to a local, if all of it is assigned plainly; else nothing."""
    values: list[ast.expr] = []
    for node in scope.parents:
        if not (isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)):
            continue
        parent = scope.parents[node]
        if (
            isinstance(parent, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr)
            and parent.value is not None
        ):
            values.append(parent.value)
        else:
            return []
    return values


def _mentions(node: ast.expr, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in all_nodes(node))


# --- where an order shows -------------------------------------------------------------------------


def order_shows(node: ast.expr, scope: Scope) -> bool:
    """Whether the place where an expression stands goes through it in order."""
    parent = scope.parents.get(node)
    if isinstance(parent, ast.For | ast.AsyncFor):
        return parent.iter is node
    if isinstance(parent, ast.comprehension):
        holder = scope.parents[parent]
        return parent.iter is node and not _order_free(holder, scope)
    if isinstance(parent, ast.Call) and node in parent.args:
        found = scope.resolve(parent.func)
        if found is not None and found.name in _ORDERED:
            return not _order_free(parent, scope)
        return isinstance(parent.func, ast.Attribute) and parent.func.attr in ("join", "extend", "fromkeys")
    if isinstance(parent, ast.Attribute) and parent.attr == "pop":
        call = scope.parents.get(parent)
        return isinstance(call, ast.Call) and call.func is parent and not call.args
    if isinstance(parent, ast.Starred | ast.FormattedValue):
        return not isinstance(scope.parents.get(parent), ast.Set)
    return (
        isinstance(parent, ast.Assign)
        and parent.value is node
        and isinstance(parent.targets[0], ast.Tuple | ast.List)
    )


def _order_free(holder: ast.AST, scope: Scope) -> bool:
    """Whether what goes through the set gives a result without order."""
    if isinstance(holder, ast.SetComp):
        return True
    if not isinstance(holder, ast.GeneratorExp | ast.ListComp | ast.Call):
        return False
    parent = scope.parents.get(holder)
    if not (isinstance(parent, ast.Call) and holder in parent.args):
        return False
    found = scope.resolve(parent.func)
    return found is not None and found.name in _ORDER_FREE


__all__ = ["Kind", "hash_is_stable", "kind_of", "order_shows", "set_elements"]
assert typing.get_args(Kind) == ("number", "text", "unknown")
