"""Value, as plain Python, and what other kinds with one value under a key share with it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from timelapse.kernels.python.flat.states import Augmented, Form, Lines, StateCode, Write
from timelapse.kernels.python.flat.types import ANY, INT64, Type, declared
from timelapse.kernels.python.flat.writes import Site, changed, drop, value_first, with_operands
from timelapse.kinds.base import StateSpec
from timelapse.kinds.value import Value

if TYPE_CHECKING:
    from timelapse.kernels.python.flat.rewrite import Rewriter


def value_of(spec: StateSpec, operation: str) -> Type:
    """The type of what a read gives, where `x[k]` gives what is stored or the default."""
    if operation == "getitem":
        return declared(spec.value)
    return INT64 if operation == "count" and spec.outer is not None else ANY


def stored(write: Callable[[StateCode, str, str, Rewriter], Lines]) -> Write:
    """`x[k] = v`, by what writes a value that was checked."""

    @with_operands(2, assigned=True)
    def value_set(site: Site, k: str, v: str) -> None:
        site.check_stored(v)
        site.lines += write(site.code, k, v, site.at)

    return value_set


def added_to(write: Callable[[StateCode, str, str, Rewriter], Lines]) -> Augmented:
    """`x[k] op= v`, by the same."""

    def augmented(
        site: Site, k: str, op: ast.operator, value: ast.expr, at: Rewriter, like: ast.AST
    ) -> list[ast.stmt]:
        code, v = site.code, at.temporary()
        kind = code.spec.value
        assert kind is not None

        def end(lines: Lines) -> None:
            at.check_value(kind, None, v, f"_tl_V_{code.name}", lines, at.after(code, op, value))
            lines += write(code, k, v, at)

        return changed(site, k, op, value, f"_tl_D_{code.name}", v, end)

    return augmented


def _put(code: StateCode, k: str, v: str, at: Rewriter) -> Lines:
    return code.put(k, v)


_set = stored(_put)
FORMS = {
    Value: Form(
        value_of,
        holds=True,
        value="_tl_g_{x}(K, _tl_D_{x})",
        or_else=True,
        writes={"setitem": _set, "set": _set, "setdefault": value_first, "delitem": drop, "discard": drop},
        augmented=added_to(_put),
    )
}
