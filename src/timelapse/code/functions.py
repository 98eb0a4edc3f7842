"""Functions made anew: from a definition that was rewritten, or from other code, with all else that the former one has."""

from __future__ import annotations

import ast
import types
from collections.abc import Mapping, Sequence


def compiled_within(
    node: ast.FunctionDef, variables: Sequence[str], function: types.FunctionType, *, owner: str | None = None
) -> types.CodeType:
    """The code of a definition, with the variables in its closure that it uses: file and qualified name are the function's.

    `owner`: the class whose name private attributes (`__x`) are spelt with.
    """
    inside: ast.stmt = node
    if owner is not None:
        inside = ast.ClassDef(owner, [], [], [node], [])
    arguments = ast.arguments([], [ast.arg(n) for n in variables], None, [], [], None, [])
    scope = ast.FunctionDef("_tl_scope", arguments, [inside], [], None, None)
    for made in (inside, scope):
        ast.copy_location(made, node)
    module = ast.fix_missing_locations(ast.Module([scope], []))
    code = compile(module, function.__code__.co_filename, "exec", dont_inherit=True)
    for _ in range(2 if owner is None else 3):
        code = next(c for c in code.co_consts if isinstance(c, types.CodeType))
    return code.replace(co_qualname=function.__qualname__)


def remade(
    function: types.FunctionType, code: types.CodeType, cells: Mapping[str, types.CellType] | None = None
) -> types.FunctionType:
    """A function of that code, with the former one's globals, defaults, closure and names. `cells`: variables that its closure lacks."""
    own = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    known = {**own, **(cells or {})}
    closure = tuple(known[n] for n in code.co_freevars)
    made = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__qualname__ = function.__qualname__
    made.__module__ = function.__module__
    return made
