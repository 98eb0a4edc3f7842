"""What reads and writes of each kind become, over a plain dict.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from timelapse.kernels.flat.types import ANY, FLOAT, INT64, Type, declared
from timelapse.kinds.base import State, StateSpec
from timelapse.kinds.counter import Counter
from timelapse.kinds.extremum import Extremum, Max
from timelapse.kinds.first import First
from timelapse.kinds.grouped import GROUPS
from timelapse.kinds.listof import ListOf
from timelapse.kinds.mapof import MapOf
from timelapse.kinds.set import Set
from timelapse.kinds.setof import SetOf
from timelapse.kinds.smoothed import Decayed
from timelapse.kinds.value import Value
from timelapse.model.types import FLOAT as KIND_FLOAT
from timelapse.model.types import OptionalType, TupleType

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
    if issubclass(code.kind, Counter):
        return INT64
    if operation in ("getitem", "get"):
        if code.kind in (Value, MapOf, First) or issubclass(code.kind, Extremum):
            return declared(code.spec.value) if operation == "getitem" else ANY
        if code.kind is ListOf:
            return declared(code.spec.value)
        if code.kind is Decayed:
            return FLOAT
    return INT64 if operation == "count" and code.kind in (SetOf, ListOf, MapOf) else ANY


# --- reads ----------------------------------------------------------------------------------------


def read(
    code: StateCode, operation: str, args: Sequence[ast.expr], at: Rewriter, like: ast.AST
) -> ast.expr | None:
    """A read as an expression; None where the state has to be asked. `args` are not rewritten yet."""
    x = code.name
    if not args and code.spec.key is None and operation in ("getitem", "get", "count"):
        args = [ast.copy_location(ast.Tuple([], ast.Load()), like)]
    if operation == "count" and code.kind is SetOf and len(args) == 1:
        outer = code.spec.outer
        if outer is None or isinstance(outer, TupleType) or not at.index_of(code):
            return None
        key = at.checked(args[0], outer, f"_tl_S_{x}._outer")
        return at.expression(f"_tl_len(_tl_i_{x}.get(K, _tl_u))", like, K=key)
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


# --- writes ---------------------------------------------------------------------------------------

Write = Callable[[StateCode, Sequence[ast.expr], "Rewriter", ast.AST], "list[ast.stmt] | None"]


def _counted(
    code: StateCode, k: str, number: ast.expr, known: Type, sign: str, at: Rewriter, like: ast.AST, lines: Lines,
    parts: Parts,
) -> list[ast.stmt]:  # fmt: skip
    """Adding to a count: `number`, of a known type, is evaluated after the count was read."""
    x, o, v = code.name, at.temporary(), at.temporary()
    fixed = number.value if isinstance(number, ast.Constant) and type(number.value) is int else 0
    parts["N"] = at.rewritten(number)
    lines += [f"{o} = _tl_g_{x}({k}, 0)", f"{v} = {o} {sign} N"]
    if (fixed > 0 and sign == "+") or (fixed < 0 and sign == "-"):
        test = f"0 < {v} <= _tl_max"
    elif known in ("int64", "int", "bool"):
        test = f"{v} and _tl_min <= {v} <= _tl_max"
    else:
        test = f"_tl_type({v}) is _tl_int and {v} and _tl_min <= {v} <= _tl_max"
    lines += [
        f"if {test}:",
        *_in(code.put(k, v, f"({o} or _tl_A)")),
        "else:",
        f"    _tl_S_{x}._store({k}, {v})",
    ]
    return at.statements(lines, like, **parts)


def _in(lines: Lines) -> Lines:
    return ["    " + line for line in lines]


def _operands(
    code: StateCode, args: Sequence[ast.expr], count: int, at: Rewriter, *, value_first: bool = False
) -> tuple[list[str], Lines, Parts] | None:
    """Key and values of a write, each evaluated once and in order: their names and the lines for that."""
    given = list(args)
    if code.spec.key is None and len(given) == count - 1:
        given.insert(
            0, ast.copy_location(ast.Tuple([], ast.Load()), given[0] if given else ast.Constant(None))
        )
    if len(given) != count or any(isinstance(a, ast.Starred) for a in given):
        return None
    if not at.can_key(code, given[0]):
        return None
    lines: Lines = []
    parts: Parts = {}
    order = [1, 0] if value_first and count == 2 else list(range(count))
    names = [""] * count
    for place in order:
        if place:
            names[place] = at.temporary()
            lines.append(f"{names[place]} = N{place}")
            parts[f"N{place}"] = at.rewritten(given[place])
        else:
            names[0] = at.place_key(code, given[0], lines, parts)
    at.check_key(code, given[0], names[0], lines)
    return names, lines, parts


def _check_value(code: StateCode, node: ast.expr, v: str, at: Rewriter, lines: Lines) -> None:
    """Lines that make the value what is stored."""
    assert code.spec.value is not None
    at.check_value(code.spec.value, node, v, f"_tl_V_{code.name}", lines)


def _counter_set(
    code: StateCode, args: Sequence[ast.expr], at: Rewriter, like: ast.AST
) -> list[ast.stmt] | None:
    found = _operands(code, args, 2, at, value_first=isinstance(like, ast.Assign))
    if found is None:
        return None
    (k, v), lines, parts = found
    known = at.type_of(args[-1])
    test = "" if known in ("int64", "int") else f"_tl_type({v}) is _tl_int and "
    lines += [f"if {test}{v} and _tl_min <= {v} <= _tl_max:", *_in(code.put(k, v)), "else:",
              f"    _tl_S_{code.name}._store({k}, {v})"]  # fmt: skip
    return at.statements(lines, like, **parts)


def _counter_add(
    code: StateCode, args: Sequence[ast.expr], at: Rewriter, like: ast.AST
) -> list[ast.stmt] | None:
    if len(args) == 1 and code.spec.key is not None:
        args = [*args, ast.copy_location(ast.Constant(1), like)]
    if len(args) != 2:
        return None
    if isinstance(args[1], ast.Constant):
        found = _operands(code, args[:1], 1, at)
        if found is None:
            return None
        (k,), lines, parts = found
        return _counted(code, k, args[1], at.type_of(args[1]), "+", at, like, lines, parts)
    found = _operands(code, args, 2, at)
    if found is None:
        return None
    (k, n), lines, parts = found
    number = ast.copy_location(ast.Name(n, ast.Load()), like)
    return _counted(code, k, number, at.type_of(args[1]), "+", at, like, lines, parts)


def _add_member(
    code: StateCode, args: Sequence[ast.expr], at: Rewriter, like: ast.AST
) -> list[ast.stmt] | None:
    found = _operands(code, args, 1, at)
    if found is None:
        return None
    (k,), lines, parts = found
    lines += [f"if {k} not in _tl_d_{code.name}:", *_in(code.put(k, "True", "_tl_A"))]
    return at.statements(lines, like, **parts)


def _drop(code: StateCode, args: Sequence[ast.expr], at: Rewriter, like: ast.AST) -> list[ast.stmt] | None:
    found = _operands(code, args, 1, at)
    if found is None:
        return None
    (k,), lines, parts = found
    if code.kind is MapOf:
        lines += [f"if {k} in _tl_d_{code.name}:", f"    _tl_S_{code.name}._drop({k})"]
    else:
        lines += code.drop(k)
    return at.statements(lines, like, **parts)


def _value_set(
    code: StateCode, args: Sequence[ast.expr], at: Rewriter, like: ast.AST
) -> list[ast.stmt] | None:
    found = _operands(code, args, 2, at, value_first=isinstance(like, ast.Assign))
    if found is None:
        return None
    (k, v), lines, parts = found
    _check_value(code, args[-1], v, at, lines)
    lines += _write_under(code, k, v, at)
    return at.statements(lines, like, **parts)


def _write_under(code: StateCode, k: str, v: str, at: Rewriter) -> Lines:
    if code.kind is not MapOf:
        return code.put(k, v)
    # A new field has to go into the index, if there is one.
    x = code.name
    return [f"if {k} in _tl_d_{x}:", *_in(code.put(k, v)), "else:", *_in(_new(code, k, v, at))]


def _new(code: StateCode, k: str, v: str, at: Rewriter) -> Lines:
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


def _value_first(
    code: StateCode, args: Sequence[ast.expr], at: Rewriter, like: ast.AST
) -> list[ast.stmt] | None:
    """`setdefault` as a statement, and First.add."""
    if code.kind is MapOf:
        return None
    found = _operands(code, args, 2, at)
    if found is None:
        return None
    (k, v), lines, parts = found
    _check_value(code, args[-1], v, at, lines)
    lines += [f"if {k} not in _tl_d_{code.name}:", *_in(code.put(k, v, "_tl_A"))]
    return at.statements(lines, like, **parts)


def _extremum_add(
    code: StateCode, args: Sequence[ast.expr], at: Rewriter, like: ast.AST
) -> list[ast.stmt] | None:
    if isinstance(code.spec.value, OptionalType):
        return None
    found = _operands(code, args, 2, at)
    if found is None:
        return None
    (k, v), lines, parts = found
    _check_value(code, args[-1], v, at, lines)
    x, o, sign = code.name, at.temporary(), ">" if issubclass(code.kind, Max) else "<"
    lines += [f"{o} = _tl_g_{x}({k}, _tl_A)", f"if {o} is _tl_A or {v} {sign} {o}:"]
    if code.spec.value != KIND_FLOAT:
        lines += _in(code.put(k, v, o))
    else:  # NaN beats nothing, but is refused
        lines += [f"    if {v} == {v}:", *_in(_in(code.put(k, v, o))), "    else:", f"        _tl_S_{x}.add({_given(code, k, v)})",
                  f"elif {v} != {v}:", f"    _tl_S_{x}.add({_given(code, k, v)})"]  # fmt: skip
    return at.statements(lines, like, **parts)


def _given(code: StateCode, k: str, v: str) -> str:
    return v if code.spec.key is None else f"{k}, {v}"


def _setof_add(
    code: StateCode, args: Sequence[ast.expr], at: Rewriter, like: ast.AST
) -> list[ast.stmt] | None:
    found = _pair_operands(code, args, at, like)
    if found is None:
        return None
    k, lines, parts = found
    lines += [f"if {k} not in _tl_d_{code.name}:", *_in(_new(code, k, "True", at))]
    if code.mode == TRACKED:  # it is written all the same
        lines += [f"elif {k} not in _tl_b_{code.name}:", f"    _tl_b_{code.name}[{k}] = True"]
    return at.statements(lines, like, **parts)


def _setof_discard(
    code: StateCode, args: Sequence[ast.expr], at: Rewriter, like: ast.AST
) -> list[ast.stmt] | None:
    found = _pair_operands(code, args, at, like)
    if found is None:
        return None
    k, lines, parts = found
    lines += [f"if {k} in _tl_d_{code.name}:", f"    _tl_S_{code.name}._drop({k})"]
    return at.statements(lines, like, **parts)


def _pair_operands(
    code: StateCode, args: Sequence[ast.expr], at: Rewriter, like: ast.AST
) -> tuple[str, Lines, Parts] | None:
    if len(args) != 2 or any(isinstance(a, ast.Starred) for a in args):
        return None
    pair = ast.copy_location(ast.Tuple(list(args), ast.Load()), like)
    found = _operands(code, [pair], 1, at)
    return None if found is None else (found[0][0], found[1], found[2])


def _append(code: StateCode, args: Sequence[ast.expr], at: Rewriter, like: ast.AST) -> list[ast.stmt] | None:
    found = _operands(code, args, 2, at)
    if found is None:
        return None
    (k, v), lines, parts = found
    kind: Any = code.spec.value
    at.check_value(kind.inner, args[-1], v, f"_tl_S_{code.name}._check_item", lines)
    x, o, n, keep = code.name, at.temporary(), at.temporary(), code.spec.option("last")
    lines += [f"{o} = _tl_g_{x}({k}, _tl_u)", f"{n} = (*{o}, {v})"]
    if keep is not None:
        lines += [f"if _tl_len({n}) > {keep}:", f"    {n} = {n}[-{keep}:]"]
    lines += code.put(k, n, f"({o} or _tl_A)")
    return at.statements(lines, like, **parts)


def _decayed_add(
    code: StateCode, args: Sequence[ast.expr], at: Rewriter, like: ast.AST
) -> list[ast.stmt] | None:
    found = _operands(code, args, 2, at)
    if found is None:
        return None
    (k, v), lines, parts = found
    at.check_value(KIND_FLOAT, args[-1], v, f"_tl_F_{code.name}", lines)
    x, o = code.name, at.temporary()
    lines += [f"{o} = _tl_g_{x}({k}, _tl_A)", f"if {o} is _tl_A:"]
    lines += _in(code.put(k, f"(0.0 + {v}, _tl_ts)", "_tl_A"))
    half = code.spec.option("half_life")
    lines += ["else:", *_in(code.put(k, f"({o}[0] * 2.0 ** -((_tl_ts - {o}[1]) / {half}) + {v}, _tl_ts)", o))]
    return at.statements(lines, like, **parts)


WRITES: dict[tuple[type[State], str], Write] = {
    (Counter, "setitem"): _counter_set,
    (Counter, "set"): _counter_set,
    (Counter, "add"): _counter_add,
    (Counter, "delitem"): _drop,
    (Counter, "discard"): _drop,
    (Set, "add"): _add_member,
    (Set, "discard"): _drop,
    (Value, "setitem"): _value_set,
    (Value, "set"): _value_set,
    (Value, "setdefault"): _value_first,
    (Value, "delitem"): _drop,
    (Value, "discard"): _drop,
    (First, "add"): _value_first,
    (SetOf, "add"): _setof_add,
    (SetOf, "discard"): _setof_discard,
    (MapOf, "setitem"): _value_set,
    (MapOf, "delitem"): _drop,
    (ListOf, "append"): _append,
    (ListOf, "delitem"): _drop,
    (Decayed, "add"): _decayed_add,
    (Decayed, "delitem"): _drop,
}
"""What is written out, by kind and operation, where nothing but positional arguments are given."""


def write(
    code: StateCode, operation: str, args: Sequence[ast.expr], at: Rewriter, like: ast.AST
) -> list[ast.stmt] | None:
    """A write as statements; None where the state has to do it. `args` are not rewritten yet."""
    if operation == "add" and issubclass(code.kind, Extremum):
        return _extremum_add(code, args, at, like)
    if operation in ("delitem", "discard") and issubclass(code.kind, Extremum):
        return _drop(code, args, at, like)
    found = WRITES.get((code.kind, operation))
    return None if found is None else found(code, args, at, like)


def augmented(
    code: StateCode, key: ast.expr, op: ast.operator, value: ast.expr, at: Rewriter, like: ast.AST
) -> list[ast.stmt] | None:
    """`x[key] op= value` as statements."""
    found = _operands(code, [key], 1, at)
    if found is None:
        return None
    (k,), lines, parts = found
    if code.kind is Counter and isinstance(op, ast.Add | ast.Sub):
        sign = "+" if isinstance(op, ast.Add) else "-"
        return _counted(code, k, value, at.type_of(value), sign, at, like, lines, parts)
    if code.kind not in (Value, MapOf, Counter):
        return None
    x, v = code.name, at.temporary()
    default = "0" if code.kind is Counter else f"_tl_D_{x}"
    old = ast.copy_location(ast.Name(v, ast.Store()), like)
    change = ast.copy_location(ast.AugAssign(old, op, at.rewritten(value)), like)
    first = at.statements([*lines, f"{v} = _tl_g_{x}({k}, {default})"], like, **parts)
    lines = []
    if code.kind is Counter:
        lines.append(f"_tl_S_{x}._store({k}, {v})")
    else:
        assert code.spec.value is not None
        at.check_value(code.spec.value, None, v, f"_tl_V_{x}", lines, at.after(code, op, value))
        lines += _write_under(code, k, v, at)
    return [*first, change, *at.statements(lines, like)]
