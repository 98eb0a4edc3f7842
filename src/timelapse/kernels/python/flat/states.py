"""What reads of each kind become, over a plain dict; what writes become stands in kernels/python/flat/writes.py.

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
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from timelapse.kernels.python.flat import grouped
from timelapse.kernels.python.flat.types import ANY, Type
from timelapse.kinds.base import State, StateSpec
from timelapse.kinds.registry import forms
from timelapse.model.types import TupleType

if TYPE_CHECKING:
    from timelapse.kernels.python.flat.rewrite import Rewriter
    from timelapse.kernels.python.flat.writes import Site

Lines = list[str]
Parts = dict[str, ast.expr]
PLAIN = "plain"
"""Nobody collects what changes, or it is found by comparing at the end of the slice."""
TRACKED = "tracked"
"""What a key held at the start of the slice is kept when it is first written."""


Write = Callable[["StateCode", Sequence[ast.expr], "Rewriter", ast.AST], "list[ast.stmt] | None"]
"""Writes an operation out, given its arguments, which are not rewritten yet; None where the state has to do it."""
Augmented = Callable[["Site", str, ast.operator, ast.expr, "Rewriter", ast.AST], "list[ast.stmt]"]
"""The same for `x[k] op= value`, given the site with the key's name."""


def _any(spec: StateSpec, operation: str) -> Type:
    return ANY


@dataclass(frozen=True)
class Form:
    """How operations of a kind are written out (flat/kinds/). In code `{x}` stands for the state's name, K for the key."""

    type_of: Callable[[StateSpec, str], Type] = _any
    """The type of what a read gives, by operation."""
    holds: bool = False
    """Whether `k in x` asks if the key is there."""
    value: str = ""
    """What `x[k]` and `get(k)` become."""
    computed: Callable[[StateSpec, str], str] | None = None
    """The same, given a free name; not within a function of its own."""
    or_else: bool = False
    """Whether `get(k, default)` gives what is there or the default."""
    reads: Mapping[str, str] = field(default_factory=dict)
    """What other reads of a key become."""
    under: Mapping[str, str] = field(default_factory=dict)
    """What reads of all that is under a key become, given what the index has there: `{under}`, and the dict: `{data}`."""
    nests: bool = False
    """Whether the members may be kept by key while a slice runs, and nowhere else (grouped.py)."""
    writes: Mapping[str, Write] = field(default_factory=dict)
    """What writes become where nothing but positional arguments are given."""
    augmented: Augmented | None = None
    names: Mapping[str, Any] = field(default_factory=dict)
    """What its code uses beside the names above."""


_NONE = Form()


@functools.cache
def _all() -> dict[type[State], Form]:
    return forms("timelapse.kernels.python.flat.kinds")


def form_of(kind: type[State]) -> Form:
    """How operations of a kind are written out: none of those of a kind that has no form."""
    return _all().get(kind, _NONE)


def names() -> dict[str, Any]:
    """What the code of all kinds uses beside the names above."""
    return {name: value for form in _all().values() for name, value in form.names.items()}


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
    def form(self) -> Form:
        """How its operations are written out."""
        return form_of(self.kind)

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
    return "bool" if operation == "contains" else code.form.type_of(code.spec, operation)


# --- reads ----------------------------------------------------------------------------------------


def read(
    code: StateCode, operation: str, args: Sequence[ast.expr], at: Rewriter, like: ast.AST
) -> ast.expr | None:
    """A read as an expression; None where the state has to be asked. `args` are not rewritten yet."""
    x, form = code.name, code.form
    if not args and code.spec.key is None and operation in ("getitem", "get", "count"):
        args = [ast.copy_location(ast.Tuple([], ast.Load()), like)]
    if code.nested and operation == "contains":
        return grouped.contains(code, args, at, like)
    if operation in form.under and len(args) == 1:
        outer = code.spec.outer
        if outer is None or isinstance(outer, TupleType) or not at.index_of(code):
            return None
        key = at.checked(args[0], outer, f"_tl_O_{x}")
        under = f"_tl_i_{x}.get(K, _tl_u)"
        return at.expression(form.under[operation].format(under=under, data=f"_tl_d_{x}"), like, K=key)
    if operation not in ("getitem", "get", "contains", "count") or not 1 <= len(args) <= 2:
        return None
    if len(args) == 2 and (operation != "get" or not form.or_else):
        return None
    key_ = at.key(code, args[0])
    if key_ is None:
        return None
    if operation == "contains":
        return at.expression(f"(K in _tl_d_{x})", like, K=key_) if form.holds else None
    if operation in form.reads:
        return at.expression(form.reads[operation].format(x=x), like, K=key_)
    if operation == "count":
        return None
    if len(args) == 2:
        return at.expression(f"_tl_g_{x}(K, D)", like, K=key_, D=at.rewritten(args[1]))
    if form.value:
        return at.expression(form.value.format(x=x), like, K=key_)
    if form.computed is not None and not at.nested:
        return at.expression(form.computed(code.spec, at.temporary()), like, K=key_)
    return None
