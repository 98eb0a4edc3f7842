"""What reads of each kind become, over a plain dict; what writes become stands in kernels/flat/writes.py.

An operation is written out for values of the usual types; all others, and every operation that is not listed
here, go to the state itself (`_tl_S_name`), which stands on the same dict and has the kind's own code. So a rule that
would have to be told twice is told once, and every error is the kind's.

Names, for a state x: `_tl_d_x` its dict, `_tl_g_x` that dict's `get`, `_tl_b_x` what keys held at the start of the
slice, `_tl_C_x` and `_tl_V_x` the kind's checks of keys and values, `_tl_D_x` the default, `_tl_i_x` the index of a
grouped state, `_tl_o_x` what holds it, `_tl_S_x` the state. `_tl_A` is ABSENT,
`_tl_u` the key of a state without one, `_tl_j` appends to the journal.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from timelapse.kernels.flat import grouped
from timelapse.kernels.flat.types import ANY, FLOAT, INT64, Type, declared
from timelapse.kinds.base import State, StateSpec
from timelapse.kinds.counter import Counter
from timelapse.kinds.extremum import Extremum
from timelapse.kinds.first import First
from timelapse.kinds.listof import ListOf
from timelapse.kinds.mapof import MapOf
from timelapse.kinds.set import Set
from timelapse.kinds.setof import SetOf
from timelapse.kinds.smoothed import Decayed
from timelapse.kinds.sum import Sum, amount_type
from timelapse.kinds.value import Value
from timelapse.model.types import TupleType

if TYPE_CHECKING:
    from timelapse.kernels.flat.rewrite import Rewriter

Lines = list[str]
Parts = dict[str, ast.expr]
PLAIN = "plain"
"""Nobody collects what changes, or it is found by comparing at the end of the slice."""
TRACKED = "tracked"
"""What a key held at the start of the slice is kept when it is first written."""


@dataclass(frozen=True)
class StateCode:
    """One state of a pass whose values are in a dict."""

    spec: StateSpec
    mode: str
    journal: bool
    nested: bool = False
    """A SetOf of which the index is all there is while the slice runs: `_tl_i_name`, by key the members (grouped.py)."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def kind(self) -> type[State]:
        return self.spec.kind

    @property
    def attribute(self) -> bool:
        """Whether it is used as `self.total`, without a key."""
        return self.spec.key is None and self.kind.attribute_style

    def put(self, k: str, v: str, old: str = "") -> Lines:
        """Lines that write; `old` is what was there, if that is known (ABSENT for nothing)."""
        x = self.name
        before = old or f"_tl_g_{x}({k}, _tl_A)"
        lines = []
        if self.mode == TRACKED:
            lines += [f"if {k} not in _tl_b_{x}:", f"    _tl_b_{x}[{k}] = {before}"]
        if self.journal:
            lines.append(f"_tl_j((_tl_d_{x}, {k}, {before}))")
        return [*lines, f"_tl_d_{x}[{k}] = {v}"]

    def drop(self, k: str) -> Lines:
        """Lines that remove a key if it is there."""
        x = self.name
        lines = [f"if {k} in _tl_d_{x}:"]
        if self.mode == TRACKED:
            lines += [f"    if {k} not in _tl_b_{x}:", f"        _tl_b_{x}[{k}] = _tl_d_{x}[{k}]"]
        if self.journal:
            lines.append(f"    _tl_j((_tl_d_{x}, {k}, _tl_d_{x}[{k}]))")
        return [*lines, f"    del _tl_d_{x}[{k}]"]


def read_type(code: StateCode, operation: str) -> Type:
    """The type of what a read gives."""
    if operation == "contains":
        return "bool"
    if code.kind is Sum:
        return declared(amount_type(code.spec)) if operation in ("getitem", "get") else ANY
    if issubclass(code.kind, Counter):
        return INT64
    if operation in ("getitem", "get"):
        if code.kind in (Value, MapOf, First) or issubclass(code.kind, Extremum):
            return declared(code.spec.value) if operation == "getitem" else ANY
        if code.kind is ListOf:
            return declared(code.spec.value)
        if code.kind is Decayed:
            return FLOAT
        if code.kind is SetOf and operation == "getitem" and code.spec.inner is not None:
            return ("list", declared(code.spec.inner))
    return INT64 if operation == "count" and code.kind in (SetOf, ListOf, MapOf) else ANY


# --- reads ----------------------------------------------------------------------------------------


_UNDER: dict[tuple[type[State], str], str] = {
    (SetOf, "count"): "_tl_len({under})",
    (SetOf, "getitem"): "_tl_tuple(_tl_sorted({under}))",
    (MapOf, "count"): "_tl_len({under})",
    (MapOf, "fields"): "_tl_fields({under}, {data})",
}
"""Reads of all that is under a key, given what the index has there."""


def fields(under: Any, data: dict[Any, Any]) -> tuple[tuple[Any, Any], ...]:
    """`MapOf.fields`, given a key's part of the index (or nothing)."""
    return tuple([(field, data[stored]) for field, stored in sorted(under.items())]) if under else ()


def read(
    code: StateCode, operation: str, args: Sequence[ast.expr], at: Rewriter, like: ast.AST
) -> ast.expr | None:
    """A read as an expression; None where the state has to be asked. `args` are not rewritten yet."""
    x = code.name
    if not args and code.spec.key is None and operation in ("getitem", "get", "count"):
        args = [ast.copy_location(ast.Tuple([], ast.Load()), like)]
    if code.nested and operation == "contains":
        return grouped.contains(code, args, at, like)
    if (code.kind, operation) in _UNDER and len(args) == 1:
        outer = code.spec.outer
        if outer is None or isinstance(outer, TupleType) or not at.index_of(code):
            return None
        key = at.checked(args[0], outer, f"_tl_O_{x}")
        under = f"_tl_i_{x}.get(K, _tl_u)"
        return at.expression(_UNDER[code.kind, operation].format(under=under, data=f"_tl_d_{x}"), like, K=key)
    if operation not in ("getitem", "get", "contains", "count") or not 1 <= len(args) <= 2:
        return None
    if len(args) == 2 and (operation != "get" or code.kind not in (Value, MapOf)):
        return None
    key_ = at.key(code, args[0])
    if key_ is None:
        return None
    parts: Parts = {"K": key_}
    if operation == "contains":
        found = code.kind in (Counter, Set, SetOf, Value, MapOf, First, ListOf, Decayed) or issubclass(
            code.kind, Extremum
        )
        return at.expression(f"(K in _tl_d_{x})", like, **parts) if found else None
    if code.kind is Counter and operation != "count":
        return at.expression(f"_tl_g_{x}(K, 0)", like, **parts)
    if code.kind is ListOf:
        text = f"_tl_g_{x}(K, _tl_u)"
        return at.expression(f"_tl_len({text})" if operation == "count" else text, like, **parts)
    if operation == "count":
        return None
    if code.kind in (Value, MapOf, First) or issubclass(code.kind, Extremum):
        if len(args) == 2:
            return at.expression(f"_tl_g_{x}(K, D)", like, **parts, D=at.rewritten(args[1]))
        return at.expression(f"_tl_g_{x}(K, _tl_D_{x})", like, **parts)
    if code.kind is Decayed and not at.nested:
        o = at.temporary()
        return at.expression(
            f"(0.0 if ({o} := _tl_g_{x}(K, None)) is None else "
            f"{o}[0] * 2.0 ** -((_tl_ts - {o}[1]) / {code.spec.option('half_life')}))", like, **parts,
        )  # fmt: skip
    return None
