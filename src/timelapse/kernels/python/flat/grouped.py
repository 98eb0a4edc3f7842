"""A SetOf whose members are kept by key while a slice runs, and nowhere else.

Where a pass asks for all members of a key, the index has everything: to keep the pairs beside it would take as long
again. So it is where the pass does nothing but what is written out here, and nothing has to be undone (calls.py).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from timelapse.kernels.python.flat.types import guard
from timelapse.kinds.base import StateSpec
from timelapse.model.types import INT, ValueType

if TYPE_CHECKING:
    from timelapse.kernels.python.flat.rewrite import Rewriter
    from timelapse.kernels.python.flat.states import StateCode

WRITES = ("add", "discard")
Nested = dict[Any, dict[Any, bool]]
"""By key the members, each with True."""


def contains(code: StateCode, args: Sequence[ast.expr], at: Rewriter, like: ast.AST) -> ast.expr | None:
    """`(k, m) in x`; None where more than two names would be evaluated, whose order would matter."""
    match args:
        case [ast.Tuple(elts=[key, member])]:
            assert code.spec.outer is not None
            assert code.spec.inner is not None
            parts = [at.rewritten(part) for part in (key, member)]
            kinds = zip((code.spec.outer, code.spec.inner), (key, member), strict=True)
            sure = all(guard(kind, at.type_of(part), "k") is None for kind, part in kinds)
            if sure and all(isinstance(part, ast.Name | ast.Constant) for part in parts):
                text = f"(M in _tl_i_{code.name}.get(K, _tl_u))"
                return at.expression(text, like, K=parts[0], M=parts[1])
    return None


def write(
    code: StateCode, operation: str, args: Sequence[ast.expr], at: Rewriter, like: ast.AST
) -> list[ast.stmt] | None:
    """`add` and `discard`; None for a call that is written in another way."""
    if len(args) != 2 or any(isinstance(a, ast.Starred) for a in args):
        return None
    x, (k, m, under) = code.name, (at.temporary() for _ in range(3))
    lines, tests = [], []
    for name, kind, given in zip((k, m), (code.spec.outer, code.spec.inner), args, strict=True):
        assert kind is not None
        lines.append(f"{name} = {name}V")
        test = guard(kind, at.type_of(given), name)
        tests += [] if test is None else [f"({test})"]
    if tests:
        lines += [f"if not ({' and '.join(tests)}):", f"    {k}, {m} = _tl_C_{x}(({k}, {m}))"]
    lines.append(f"{under} = _tl_i_{x}.get({k})")
    if operation == "add":
        lines += [
            f"if {under} is None:",
            f"    _tl_i_{x}[{k}] = {{{m}: True}}",
            "else:",
            f"    {under}[{m}] = True",
        ]
    else:
        lines += [
            f"if {under} is not None and {m} in {under}:",
            f"    del {under}[{m}]",
            f"    if not {under}:",
            f"        del _tl_i_{x}[{k}]",
        ]
    return at.statements(lines, like, **{f"{k}V": at.rewritten(args[0]), f"{m}V": at.rewritten(args[1])})


def nested(stored: Iterable[tuple[Any, Any]]) -> Nested:
    """The members by key, of stored pairs."""
    found: Nested = {}
    for key, member in stored:
        found.setdefault(key, {})[member] = True
    return found


def pairs(members: Nested) -> Iterable[tuple[Any, Any]]:
    """The stored pairs."""
    return chain.from_iterable(zip(repeat(key), under) for key, under in members.items())


def key_columns(spec: StateSpec, members: Nested) -> list[pa.Array]:
    """The parts of the stored pairs as columns."""
    assert spec.outer is not None
    assert spec.inner is not None
    sizes = np.fromiter(map(len, members.values()), np.int64, len(members))
    if spec.outer == INT:
        keys = pa.array(np.repeat(np.fromiter(members, np.int64, len(members)), sizes))
    else:
        each = pa.array(np.repeat(np.arange(len(members)), sizes))
        keys = pa.array(list(members), spec.outer.arrow).take(each)
    return [
        keys,
        _array(chain.from_iterable(members.values()), spec.inner, int(sizes.sum())),
    ]


def _array(values: Iterable[Any], kind: ValueType, count: int) -> pa.Array:
    """So many values as a column."""
    if kind == INT:  # members are checked: they lie in int64
        return pa.array(np.fromiter(values, np.int64, count))
    return pa.array(list(values), kind.arrow)
