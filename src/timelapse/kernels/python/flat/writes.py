"""What writes of each kind become, over a plain dict. The names are those of kernels/python/flat/states.py."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from timelapse.kernels.python.flat import grouped
from timelapse.kernels.python.flat.states import Lines, Parts, StateCode, Write
from timelapse.model.types import ValueType

if TYPE_CHECKING:
    from timelapse.kernels.python.flat.rewrite import Rewriter


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


def begun(
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


def with_operands(count: int, *, assigned: bool = False, pair: bool = False) -> Callable[[Any], Write]:
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
            started = begun(
                code, args, count, at, like, value_first=assigned and isinstance(like, ast.Assign)
            )
            if started is None:
                return None
            site, names = started
            body(site, *names)
            return site.statements()

        return write

    return decorate


def indented(lines: Lines) -> Lines:
    """The lines of a block."""
    return ["    " + line for line in lines]


@with_operands(1)
def drop(site: Site, k: str) -> None:
    """`del x[k]`."""
    site.lines += site.code.drop(k)


@with_operands(2)
def value_first(site: Site, k: str, v: str) -> None:
    """A write that changes nothing where something is there."""
    site.check_stored(v)
    site.lines += [f"if {k} not in _tl_d_{site.code.name}:", *indented(site.code.put(k, v, "_tl_A"))]


def changed(
    site: Site, k: str, op: ast.operator, value: ast.expr, missing: str, v: str, end: Callable[[Lines], None]
) -> list[ast.stmt]:
    """`x[k] op= value`, as Python does it with the name `v`, and then as `end` says."""
    old = ast.copy_location(ast.Name(v, ast.Store()), site.like)
    change = ast.copy_location(ast.AugAssign(old, op, site.at.rewritten(value)), site.like)
    site.lines.append(f"{v} = _tl_g_{site.code.name}({k}, {missing})")
    lines: Lines = []
    end(lines)
    return [*site.statements(), change, *site.at.statements(lines, site.like)]


def write(
    code: StateCode, operation: str, args: Sequence[ast.expr], at: Rewriter, like: ast.AST
) -> list[ast.stmt] | None:
    """A write as statements; None where the state has to do it. `args` are not rewritten yet."""
    if code.nested and operation in grouped.WRITES:
        return grouped.write(code, operation, args, at, like)
    found = code.form.writes.get(operation)
    return None if found is None else found(code, args, at, like)


def augmented(
    code: StateCode, key: ast.expr, op: ast.operator, value: ast.expr, at: Rewriter, like: ast.AST
) -> list[ast.stmt] | None:
    """`x[key] op= value` as statements."""
    how, started = code.form.augmented, begun(code, [key], 1, at, like)
    if how is None or started is None:
        return None
    site, (k,) = started
    return how(site, k, op, value, at, like)
