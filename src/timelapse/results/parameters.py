"""Parameters as texts, as a run's manifest has them, and back."""

from __future__ import annotations

import ast
from typing import Any

from timelapse.display import written
from timelapse.model.decimals import of_text
from timelapse.program.program import Program, params_of


def params_text(program: Program) -> dict[str, str]:
    """Parameter values as Python literals, for the manifest: `parameter` reads them."""
    return {name: text_of(value) for name, value in params_of(program).items()}


def text_of(value: Any) -> str:
    """One parameter value as a Python literal (a resource as its path and fingerprint)."""
    return repr(_plain(value))


def shown_text(text: str) -> str:
    """A parameter's text for people: amounts as numbers."""
    if "Decimal(" not in text:
        return text
    try:
        return written(parameter(text))
    except (ValueError, SyntaxError):
        return text


def _plain(value: Any) -> Any:
    """NamedTuples as tuples, which a parameter of their type takes as well."""
    return tuple([_plain(v) for v in value]) if isinstance(value, tuple) else value


def parameter(text: str) -> Any:
    """A parameter's value from its text: a literal, `inf`, `nan`, `frozenset(...)`. Raises ValueError."""
    return _value(ast.parse(text, mode="eval").body)


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Name(id="inf" | "nan" as name):
            return float(name)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Name(id="inf")):
            return float("-inf")
        case ast.Tuple(elts=elts):
            return tuple([_value(e) for e in elts])
        case ast.Call(func=ast.Name(id="Decimal"), args=[ast.Constant(value=str(text))], keywords=[]):
            return of_text(text)
        case ast.Call(func=ast.Name(id="frozenset"), args=args, keywords=[]) if len(args) < 2:
            items = args[0].elts if args and isinstance(args[0], ast.Set) else []
            return frozenset([_value(e) for e in items])
    return ast.literal_eval(node)
