"""What SetOf and MapOf share as plain Python: what is written goes into the index, if there is one."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from timelapse.kernels.python.flat.states import Lines, StateCode
from timelapse.kernels.python.flat.writes import Site, indented
from timelapse.kinds.grouped import GROUPS
from timelapse.model.types import TupleType

if TYPE_CHECKING:
    from timelapse.kernels.python.flat.rewrite import Rewriter


def new(code: StateCode, k: str, v: str, at: Rewriter) -> Lines:
    """Lines that write what was not there into a grouped state, and into its index if there is one."""
    x = code.name
    if code.journal:
        return [f"_tl_S_{x}._put({k}, {v})"]
    groups, outer, inner, under = (at.temporary() for _ in range(4))
    return [
        *code.put(k, v, "_tl_A"),
        f"{groups} = _tl_o_{x}.get({GROUPS!r})",
        f"if {groups} is not None:",
        f"    {outer}, {inner} = {k}",
        f"    {under} = {groups}.get({outer})",
        f"    if {under} is None:",
        f"        {groups}[{outer}] = {{{inner}: {k}}}",
        "    else:",
        f"        {under}[{inner}] = {k}",
    ]


def drop_if_there(site: Site, k: str) -> None:
    site.lines += [f"if {k} in _tl_d_{site.code.name}:", f"    _tl_S_{site.code.name}._drop({k})"]


def clear(code: StateCode, args: Sequence[ast.expr], at: Rewriter, like: ast.AST) -> list[ast.stmt] | None:
    """Everything under a key goes, and its part of the index."""
    outer = code.spec.outer
    if (
        code.journal
        or len(args) != 1
        or outer is None
        or isinstance(outer, TupleType)
        or not at.index_of(code)
    ):
        return None
    under, stored = at.temporary(), at.temporary()
    key = at.checked(args[0], outer, f"_tl_O_{code.name}")
    if code.nested:
        return at.statements([f"_tl_i_{code.name}.pop(K, None)"], like, K=key)
    lines = [f"{under} = _tl_i_{code.name}.pop(K, None)", f"if {under} is not None:"]
    lines += indented([f"for {stored} in {under}.values():", *indented(code.drop(stored))])
    return at.statements(lines, like, K=key)
