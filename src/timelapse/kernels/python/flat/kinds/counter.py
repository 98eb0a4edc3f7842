"""Counter, as plain Python: 0 where a key is not there."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from timelapse.kernels.python.flat.states import Form, StateCode
from timelapse.kernels.python.flat.types import INT64, Type
from timelapse.kernels.python.flat.writes import Site, begun, changed, drop, indented, with_operands
from timelapse.kinds.counter import Counter

if TYPE_CHECKING:
    from timelapse.kernels.python.flat.rewrite import Rewriter


@with_operands(2, assigned=True)
def _set(site: Site, k: str, v: str) -> None:
    known = site.at.type_of(site.args[-1])
    test = "" if known in ("int64", "int") else f"_tl_type({v}) is _tl_int and "
    site.lines += [f"if {test}{v} and _tl_min <= {v} <= _tl_max:", *indented(site.code.put(k, v)), "else:",
                   f"    _tl_S_{site.code.name}._store({k}, {v})"]  # fmt: skip


def _add(code: StateCode, args: Sequence[ast.expr], at: Rewriter, like: ast.AST) -> list[ast.stmt] | None:
    if len(args) == 1 and code.spec.key is not None:
        args = [*args, ast.copy_location(ast.Constant(1), like)]
    if len(args) != 2:
        return None
    number = args[1]
    started = begun(code, args[:1] if isinstance(number, ast.Constant) else args, 2 - isinstance(number, ast.Constant), at, like)  # fmt: skip
    if started is None:
        return None
    site, names = started
    known = at.type_of(number)
    if len(names) == 2:
        number = ast.copy_location(ast.Name(names[1], ast.Load()), like)
    return _counted(site, names[0], number, known, "+")


def _counted(
    site: Site, k: str, number: ast.expr, known: Type, sign: str, *, augmented: bool = False
) -> list[ast.stmt]:
    """Adding to a count: `number`, of a known type, is evaluated after the count was read.

    `augmented`: it was written so, which shows in what Python says of a number that is none.
    """
    x, o, v = site.code.name, site.at.temporary(), site.at.temporary()
    fixed = number.value if isinstance(number, ast.Constant) and type(number.value) is int else 0
    site.parts["N"] = site.at.rewritten(number)
    site.lines.append(f"{o} = _tl_g_{x}({k}, 0)")
    plain = known in ("int64", "int", "bool") or not augmented
    site.lines += [f"{v} = {o} {sign} N"] if plain else [f"{v} = {o}", f"{v} {sign}= N"]
    if (fixed > 0 and sign == "+") or (fixed < 0 and sign == "-"):
        test = f"0 < {v} <= _tl_max"
    elif known in ("int64", "int", "bool"):
        test = f"{v} and _tl_min <= {v} <= _tl_max"
    else:
        test = f"_tl_type({v}) is _tl_int and {v} and _tl_min <= {v} <= _tl_max"
    site.lines += [
        f"if {test}:",
        *indented(site.code.put(k, v, f"({o} or _tl_A)")),
        "else:",
        f"    _tl_S_{x}._store({k}, {v})",
    ]
    return site.statements()


def _augmented(
    site: Site, k: str, op: ast.operator, value: ast.expr, at: Rewriter, like: ast.AST
) -> list[ast.stmt]:
    if isinstance(op, ast.Add | ast.Sub):
        sign = "+" if isinstance(op, ast.Add) else "-"
        return _counted(site, k, value, at.type_of(value), sign, augmented=True)
    x, v = site.code.name, at.temporary()
    return changed(site, k, op, value, "0", v, lambda lines: lines.append(f"_tl_S_{x}._store({k}, {v})"))


FORMS = {
    Counter: Form(
        lambda spec, operation: INT64,
        holds=True,
        value="_tl_g_{x}(K, 0)",
        writes={"setitem": _set, "set": _set, "add": _add, "delitem": drop, "discard": drop},
        augmented=_augmented,
    )
}
