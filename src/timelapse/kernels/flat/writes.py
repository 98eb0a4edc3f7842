"""What writes of each kind become, over a plain dict. The names are those of kernels/flat/states.py."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from timelapse.kernels.flat import grouped
from timelapse.kernels.flat.states import TRACKED, Lines, Parts, StateCode
from timelapse.kernels.flat.types import Type, fits
from timelapse.kinds.base import State
from timelapse.kinds.counter import Counter
from timelapse.kinds.extremum import Max, Min
from timelapse.kinds.first import First
from timelapse.kinds.grouped import GROUPS
from timelapse.kinds.listof import ListOf
from timelapse.kinds.mapof import MapOf
from timelapse.kinds.set import Set
from timelapse.kinds.setof import SetOf
from timelapse.kinds.smoothed import Decayed
from timelapse.kinds.value import Value
from timelapse.model.types import FLOAT as KIND_FLOAT
from timelapse.model.types import OptionalType, TupleType, ValueType

if TYPE_CHECKING:
    from timelapse.kernels.flat.rewrite import Rewriter

Write = Callable[[StateCode, Sequence[ast.expr], "Rewriter", ast.AST], "list[ast.stmt] | None"]
"""Writes an operation out, given its arguments, which are not rewritten yet; None where the state has to do it."""


@dataclass
class Site:
    """One write that is being written out: `lines` is what is there so far, `parts` the expressions in them."""

    code: StateCode
    args: Sequence[ast.expr]
    at: Rewriter
    like: ast.AST
    lines: Lines
    parts: Parts

    def check_value(self, kind: ValueType | None, v: str, check: str) -> None:
        """Lines that make the value, the last argument, what is stored."""
        assert kind is not None
        self.at.check_value(kind, self.args[-1], v, check, self.lines)

    def check_stored(self, v: str) -> None:
        """The same, for a value of the state's own type."""
        self.check_value(self.code.spec.value, v, f"_tl_V_{self.code.name}")

    def statements(self) -> list[ast.stmt]:
        return self.at.statements(self.lines, self.like, **self.parts)


def _begun(
    code: StateCode, args: Sequence[ast.expr], count: int, at: Rewriter, like: ast.AST, *, value_first: bool = False
) -> tuple[Site, list[str]] | None:  # fmt: skip
    """A write whose key and values are evaluated, each once and in order, and their names."""
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
    return Site(code, args, at, like, lines, parts), names


def _with_operands(count: int, *, assigned: bool = False, pair: bool = False) -> Callable[[Any], Write]:
    """Makes a `Write` of a function that is given a site and its operands' names, and adds the lines.

    `count` operands: the key, and the value if there is one. `assigned`: as an assignment the value is evaluated before
    the key. `pair`: the two arguments together are the key.
    """

    def decorate(body: Callable[..., None]) -> Write:
        def write(
            code: StateCode, args: Sequence[ast.expr], at: Rewriter, like: ast.AST
        ) -> list[ast.stmt] | None:
            if pair:
                if len(args) != 2 or any(isinstance(a, ast.Starred) for a in args):
                    return None
                args = [ast.copy_location(ast.Tuple(list(args), ast.Load()), like)]
            begun = _begun(code, args, count, at, like, value_first=assigned and isinstance(like, ast.Assign))
            if begun is None:
                return None
            site, names = begun
            body(site, *names)
            return site.statements()

        return write

    return decorate


def _in(lines: Lines) -> Lines:
    return ["    " + line for line in lines]


# --- counters ---------------------------------------------------------------------------------------


@_with_operands(2, assigned=True)
def _counter_set(site: Site, k: str, v: str) -> None:
    known = site.at.type_of(site.args[-1])
    test = "" if known in ("int64", "int") else f"_tl_type({v}) is _tl_int and "
    site.lines += [f"if {test}{v} and _tl_min <= {v} <= _tl_max:", *_in(site.code.put(k, v)), "else:",
                   f"    _tl_S_{site.code.name}._store({k}, {v})"]  # fmt: skip


def _counter_add(
    code: StateCode, args: Sequence[ast.expr], at: Rewriter, like: ast.AST
) -> list[ast.stmt] | None:
    if len(args) == 1 and code.spec.key is not None:
        args = [*args, ast.copy_location(ast.Constant(1), like)]
    if len(args) != 2:
        return None
    number = args[1]
    begun = _begun(code, args[:1] if isinstance(number, ast.Constant) else args, 2 - isinstance(number, ast.Constant), at, like)  # fmt: skip
    if begun is None:
        return None
    site, names = begun
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
        *_in(site.code.put(k, v, f"({o} or _tl_A)")),
        "else:",
        f"    _tl_S_{x}._store({k}, {v})",
    ]
    return site.statements()


# --- one value under a key ----------------------------------------------------------------------------


@_with_operands(1)
def _add_member(site: Site, k: str) -> None:
    site.lines += [f"if {k} not in _tl_d_{site.code.name}:", *_in(site.code.put(k, "True", "_tl_A"))]


@_with_operands(1)
def _drop(site: Site, k: str) -> None:
    site.lines += site.code.drop(k)


@_with_operands(2, assigned=True)
def _value_set(site: Site, k: str, v: str) -> None:
    site.check_stored(v)
    site.lines += _write_under(site.code, k, v, site.at)


@_with_operands(2)
def _value_first(site: Site, k: str, v: str) -> None:
    """`setdefault` as a statement, and First.add."""
    site.check_stored(v)
    site.lines += [f"if {k} not in _tl_d_{site.code.name}:", *_in(site.code.put(k, v, "_tl_A"))]


@_with_operands(2)
def _extremum(site: Site, k: str, v: str) -> None:
    site.check_stored(v)
    code = site.code
    x, o, sign = code.name, site.at.temporary(), ">" if issubclass(code.kind, Max) else "<"
    # NaN beats nothing, and None is no value of its own: both are refused.
    refused = f"_tl_S_{x}.add({v if code.spec.key is None else f'{k}, {v}'})"
    stored = code.spec.value
    if isinstance(stored, OptionalType):
        stored = stored.inner
        if not fits(stored, site.at.type_of(site.args[-1])):
            site.lines += [f"if {v} is None:", f"    {refused}"]
    site.lines += [f"{o} = _tl_g_{x}({k}, _tl_A)", f"if {o} is _tl_A or {v} {sign} {o}:"]
    if stored != KIND_FLOAT:
        site.lines += _in(code.put(k, v, o))
        return
    site.lines += [f"    if {v} == {v}:", *_in(_in(code.put(k, v, o))), "    else:", f"        {refused}",
                   f"elif {v} != {v}:", f"    {refused}"]  # fmt: skip


# --- several things under a key ----------------------------------------------------------------------


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


def _drop_if_there(site: Site, k: str) -> None:
    site.lines += [f"if {k} in _tl_d_{site.code.name}:", f"    _tl_S_{site.code.name}._drop({k})"]


_field_drop = _with_operands(1)(_drop_if_there)
_setof_discard = _with_operands(1, pair=True)(_drop_if_there)


def _clear(code: StateCode, args: Sequence[ast.expr], at: Rewriter, like: ast.AST) -> list[ast.stmt] | None:
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
    lines += _in([f"for {stored} in {under}.values():", *_in(code.drop(stored))])
    return at.statements(lines, like, K=key)


@_with_operands(1, pair=True)
def _setof_add(site: Site, k: str) -> None:
    x = site.code.name
    site.lines += [f"if {k} not in _tl_d_{x}:", *_in(_new(site.code, k, "True", site.at))]
    if site.code.mode == TRACKED:  # it is written all the same
        site.lines += [f"elif {k} not in _tl_b_{x}:", f"    _tl_b_{x}[{k}] = True"]


@_with_operands(2)
def _append(site: Site, k: str, v: str) -> None:
    code = site.code
    kind: Any = code.spec.value
    site.check_value(kind.inner, v, f"_tl_S_{code.name}._check_item")
    x, o, n, keep = code.name, site.at.temporary(), site.at.temporary(), code.spec.option("last")
    site.lines += [f"{o} = _tl_g_{x}({k}, _tl_u)", f"{n} = (*{o}, {v})"]
    if keep is not None:
        site.lines += [f"if _tl_len({n}) > {keep}:", f"    {n} = {n}[-{keep}:]"]
    site.lines += code.put(k, n, f"({o} or _tl_A)")


@_with_operands(2)
def _decayed_add(site: Site, k: str, v: str) -> None:
    code = site.code
    site.check_value(KIND_FLOAT, v, f"_tl_F_{code.name}")
    x, o, half = code.name, site.at.temporary(), code.spec.option("half_life")
    site.lines += [f"{o} = _tl_g_{x}({k}, _tl_A)", f"if {o} is _tl_A:"]
    site.lines += _in(code.put(k, f"(0.0 + {v}, _tl_ts)", "_tl_A"))
    faded = f"({o}[0] * 2.0 ** -((_tl_ts - {o}[1]) / {half}) + {v}, _tl_ts)"
    site.lines += ["else:", *_in(code.put(k, faded, o))]


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
    (SetOf, "delitem"): _clear,
    (MapOf, "clear"): _clear,
    (MapOf, "setitem"): _value_set,
    (MapOf, "set"): _value_set,
    (MapOf, "delitem"): _field_drop,
    (MapOf, "discard"): _field_drop,
    (ListOf, "append"): _append,
    (ListOf, "delitem"): _drop,
    (Decayed, "add"): _decayed_add,
    (Decayed, "delitem"): _drop,
    **{(kind, "add"): _extremum for kind in (Max, Min)},
    **{(kind, name): _drop for kind in (Max, Min) for name in ("delitem", "discard")},
}
"""What is written out, by kind and operation, where nothing but positional arguments are given."""


def write(
    code: StateCode, operation: str, args: Sequence[ast.expr], at: Rewriter, like: ast.AST
) -> list[ast.stmt] | None:
    """A write as statements; None where the state has to do it. `args` are not rewritten yet."""
    if code.nested and operation in grouped.WRITES:
        return grouped.write(code, operation, args, at, like)
    found = WRITES.get((code.kind, operation))
    return None if found is None else found(code, args, at, like)


def augmented(
    code: StateCode, key: ast.expr, op: ast.operator, value: ast.expr, at: Rewriter, like: ast.AST
) -> list[ast.stmt] | None:
    """`x[key] op= value` as statements."""
    begun = _begun(code, [key], 1, at, like)
    if begun is None:
        return None
    site, (k,) = begun
    if code.kind is Counter and isinstance(op, ast.Add | ast.Sub):
        sign = "+" if isinstance(op, ast.Add) else "-"
        return _counted(site, k, value, at.type_of(value), sign, augmented=True)
    if code.kind not in (Value, MapOf, Counter):
        return None
    x, v = code.name, at.temporary()
    default = "0" if code.kind is Counter else f"_tl_D_{x}"
    old = ast.copy_location(ast.Name(v, ast.Store()), like)
    change = ast.copy_location(ast.AugAssign(old, op, at.rewritten(value)), like)
    site.lines.append(f"{v} = _tl_g_{x}({k}, {default})")
    lines: Lines = []
    if code.kind is Counter:
        lines.append(f"_tl_S_{x}._store({k}, {v})")
    else:
        assert code.spec.value is not None
        at.check_value(code.spec.value, None, v, f"_tl_V_{x}", lines, at.after(code, op, value))
        lines += _write_under(code, k, v, at)
    return [*site.statements(), change, *at.statements(lines, like)]
