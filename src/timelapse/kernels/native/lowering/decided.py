"""Finds out from the generated code whether each event alone decides if its steps fail, whatever states hold.

One question about states is allowed: whether a sum leaves int64. If the absolute values of all that is ever added to a table's states
add up to less than that, no sum leaves int64, whichever events there are. So a `Decision` lists what is added.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from timelapse.kernels.native.lowering.form import (
    Assign,
    Break,
    Do,
    If,
    Keep,
    Leave,
    Look,
    Node,
    Occupy,
    Return,
    Room,
    Save,
    names_in,
    names_used,
    parsed,
)
from timelapse.kernels.native.lowering.lookahead import Env
from timelapse.kernels.native.lowering.touches import AsArrays, Keys, Unknown, is_numbered, numbered
from timelapse.kernels.native.lowering.unit import Touch
from timelapse.kernels.native.lowering.values import number_of


def decided(bodies: Sequence[Sequence[Node]], told: Collection[str]) -> tuple[Decision, ...] | str:
    """For each event type what decides whether its steps fail; or why states may decide it. `told`: the variables with words of errors' texts.
    Columns still have to get their final numbers (touches.py)."""
    finders = [Events(event, told) for event in range(len(bodies))]
    try:
        for finder, body in zip(finders, bodies, strict=True):
            finder.follow(body)
    except Undecided as why:
        return str(why)
    summed = set[int]().union(*(finder.summed for finder in finders))
    if summed & others_of(finders):
        return "a sum may leave int64"
    return tuple(
        Decision(
            tuple(a for a in finder.added if a.table in summed),
            _deciding(body, set(), told, finder.impossible)[0],
        )
        for finder, body in zip(finders, bodies, strict=True)
    )


def others_of(finders: Sequence[Events]) -> set[int]:
    """The tables that are written in other ways than by sums of known values."""
    pushed = set[int]().union(*(finder.pushed for finder in finders))
    left = set[int]().union(*(finder.left for finder in finders))
    return set[int]().union(left - pushed, *(finder.others for finder in finders))


def numbered_decisions(
    found: tuple[Decision, ...] | str, used: Sequence[int], events: int
) -> tuple[Decision, ...] | str:
    """The same with the places of columns. `used`: the columns that there are, by their old numbers."""
    if isinstance(found, str):
        return found
    adds = numbered(tuple(decision.adds for decision in found), used, events)
    assert not isinstance(adds, str)
    places = {f"col{number}": at for at, number in enumerate(used)}
    return tuple(
        decision._replace(
            adds=own, columns={n: places[n] for n in sorted(names_used(decision.code)) if n in places}
        )
        for decision, own in zip(found, adds, strict=True)
    )


def _deciding(
    body: Sequence[Node], wanted: set[str], told: Collection[str], impossible: Collection[int]
) -> tuple[list[Node], set[str]]:
    """The part of statements that decides whether and how they leave the event, and what `wanted` variables hold after them; and the variables
    whose values before the statements it needs."""
    kept = list[Node]()
    for node in reversed(body):
        match node:
            case Assign(target=name, code=code, op=op) if node.assigned:
                if name in wanted:
                    kept.append(replace(node))
                    wanted = (wanted if op != "=" else wanted - {name}) | names_in(code)
            case If() if id(node) not in impossible:
                a, before = _deciding(node.body, wanted, told, impossible)
                b, otherwise = _deciding(node.orelse or [], wanted, told, impossible)
                if a or b:
                    kept.append(If(node.test, a, b))
                    wanted = before | otherwise | names_in(node.test)
            case Break():
                kept, wanted = [replace(node)], {"rejected", "handler", *told}
            case Leave() | Return():
                kept, wanted = [replace(node)], set[str]()
    kept.reverse()
    return kept, wanted


class Decision(NamedTuple):
    """What decides whether the steps of an event type fail.

    `adds`: what is added to tables whose sums are compared with int64. `code`: the part of the type's code that decides where a step is left,
    as if no sum left int64. `columns`: the numbers of the columns that the code reads, by their names in it.
    """

    adds: tuple[Touch, ...]
    code: list[Node]
    columns: dict[str, int] = {}


class Undecided(Exception):
    """Events alone do not decide it, or that is not known; the message says why."""


class _Sum(NamedTuple):
    """A variable holds a word of a table, or that and what was added. `base`: to which variable a constant was added last; `rises`: one that is not negative."""

    table: int
    word: int
    base: str = ""
    rises: bool = False


class _Known(NamedTuple):
    """The variables that follow from the event, how some of them are computed from columns, and those that hold sums."""

    names: set[str]
    values: Env
    sums: dict[str, _Sum]

    def copy(self) -> _Known:
        return _Known(set(self.names), dict(self.values), dict(self.sums))

    def forget(self, name: str) -> None:
        self.names.discard(name)
        self.values.pop(name, None)
        self.sums.pop(name, None)
        for other in [n for n, found in self.sums.items() if found.base == name]:
            self.sums[other] = self.sums[other]._replace(base="")

    def both(self, other: _Known) -> _Known:
        """What is known on either way."""
        sums = {name: found for name, found in self.sums.items() if other.sums.get(name) == found}
        values = {name: found for name, found in self.values.items() if other.values.get(name) is found}
        return _Known(self.names & other.names, values, sums)


class Events:
    """Follows one type's code. `added`: what it adds to tables. `summed`: the tables whose sums it compares with int64. `others`: the tables
    that it writes in other ways."""

    def __init__(self, event: int, told: Collection[str], *, asks: bool = True) -> None:
        """`told`: as above. `asks`: whether what depends on states raises Undecided."""
        self._row, self._told, self._asks = f"q{event}", told, asks
        self._columns = Keys(self._row)
        self.added, self.summed, self.others = list[Touch](), set[int](), set[int]()
        self.pushed, self.left = set[int](), set[int]()
        """Tables whose changes go to a log for windows; tables where the code asks whether a sum leaves int64 as what has left a window is taken from it."""
        self.impossible = dict[int, int]()
        """The branches that are taken only if a sum leaves int64: the sum's table, by the identity of the branch."""

    def follow(self, body: Iterable[Node]) -> None:
        """Follow all of it. Raises Undecided."""
        self._block(body, _Known(set(), {}, {}), is_sure=True)

    def _block(self, body: Iterable[Node], known: _Known, *, is_sure: bool) -> _Known | None:
        """What is known after statements; None where they never end. `is_sure`: whether they are reached follows from the event. Raises Undecided."""
        for node in body:
            match node:
                case Assign(target=name, code=code, op=op) if node.assigned:
                    follows = is_sure and self._follows(code, known)
                    follows &= op == "=" or name in known.names
                    found = self._sum(parsed(code), known) if op == "=" and not follows else None
                    value = self._columns.value(parsed(code), known.values) if op == "=" and follows else None
                    if self._asks and not follows and name in self._told:
                        raise Undecided("what an error says depends on what states hold")
                    known.forget(name)
                    if follows:
                        known.names.add(name)
                        if value is not None:
                            known.values[name] = value
                    elif found is not None and found.base != name:
                        known.sums[name] = found
                case Assign(target=target):
                    self.others |= set(_tables(target))
                case Look() | Occupy() | Save():
                    for name in node.assigned:
                        known.forget(name)
                case Do(code=code):
                    self._do(parsed(code), known)
                case If():
                    table = self._never_holds(node, known)
                    if table is not None:
                        self.impossible[id(node)] = table
                        continue
                    sure = is_sure and self._follows(node.test, known)
                    a = self._block(node.body, known.copy(), is_sure=sure)
                    b = self._block(node.orelse or [], known.copy(), is_sure=sure)
                    if a is None and b is None:
                        return None
                    known = a.both(b) if a is not None and b is not None else a or b or known
                case Leave() | Break() | Return():
                    if self._asks and not is_sure:
                        raise Undecided("whether a step fails depends on what states hold")
                    return None
                case Keep() | Room():
                    pass  # a step that finds no room is done again
                case _:
                    raise Undecided("a handler has a loop")
        return known

    def _follows(self, code: str, known: _Known) -> bool:
        """Whether a value follows from the event."""
        functions = {
            node.func.id
            for node in ast.walk(parsed(code))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        return all(
            name in known.names or name in functions or name == self._row or _is_given(name)
            for name in names_in(code)
        )

    def _sum(self, node: ast.expr, known: _Known) -> _Sum | None:
        match node:
            case ast.Name(id=name):
                return known.sums.get(name)
            case ast.Subscript(value=ast.Name(id=table), slice=ast.Tuple(elts=[_, ast.Name(id=word)])) if (
                is_numbered(table, "t") and number_of(word) is not None
            ):
                return _Sum(int(table[1:]), number_of(word) or 0)
            case ast.Subscript(
                value=ast.Name(id=table), slice=ast.Tuple(elts=[_, ast.Constant(value=int(place))])
            ) if is_numbered(table, "t"):
                return _Sum(int(table[1:]), place)
            case ast.Call(func=ast.Name(id="plus" | "minus" as how), args=[a, b]):
                if how == "plus" and not self._is_sum(a, known):
                    a, b = b, a
                found = self._sum(a, known)
                if found is None or not self._adds(found.table, b, known):
                    return None
                number = number_of(b.id) if isinstance(b, ast.Name) else None
                if number is None or not isinstance(a, ast.Name):
                    return found._replace(base="")
                return found._replace(base=a.id, rises=(number >= 0) == (how == "plus") or not number)
        return None

    def _is_sum(self, node: ast.expr, known: _Known) -> bool:
        return isinstance(node, ast.Name) and node.id in known.sums

    def _adds(self, table: int, node: ast.expr, known: _Known) -> bool:
        """Note that a value is added to a table. Whether it can be computed from columns alone."""
        value = self._columns.value(node, known.values)
        if value is None:
            return False
        try:
            self.added.append(Touch(table, (ast.unparse(AsArrays().visit(value)),), True, {}))
        except Unknown:
            return False
        return True

    def _never_holds(self, node: If, known: _Known) -> int | None:
        """The table of the sum, where a branch leaves where a sum leaves int64, and does nothing else."""
        if node.orelse or not all(isinstance(n, Leave) for n in node.body):
            return None
        match parsed(node.test):
            case ast.Call(
                func=ast.Name(id="plus_left" | "minus_left" as how), args=[ast.Name(id=total), a, b]
            ):
                found = known.sums.get(total)
                sides = [known.sums[n.id] for n in (a, b) if isinstance(n, ast.Name) and n.id in known.sums]
                fits = found is not None and len(sides) == 1
                fits = fits and found is not None and sides[0][:2] == found[:2]
                same = len(sides) == 2 and sides[0].table == sides[1].table
                if how == "minus_left" and found is None and same:
                    found, fits = sides[0], True  # each was the sum at some time: half of int64, at most
                    self.left.add(found.table)
            case ast.Compare(
                left=ast.Name(id=total), ops=[ast.Lt() | ast.Gt() as op], comparators=[ast.Name(id=old)]
            ):
                found = known.sums.get(total)
                fits = found is not None and found.base == old and found.rises == isinstance(op, ast.Lt)
            case _:
                return None
        if found is None or not fits:
            return None
        self.summed.add(found.table)
        return found.table

    def _do(self, node: ast.expr, known: _Known) -> None:
        match node:
            case ast.Call(
                func=ast.Name(id="put"), args=[ast.Name(id=table), _, ast.Name(id=word), value, _, _]
            ):
                own = int(table[1:])
                found = self._sum(value, known) if isinstance(value, ast.Name) else None
                is_sum = found is not None and found[:2] == (own, number_of(word))
                if not is_sum and not self._adds(own, value, known):
                    self.others.add(own)
            case ast.Call(
                func=ast.Name(id="push"),
                args=[
                    _,
                    _,
                    _,
                    _,
                    ast.Call(func=ast.Name(id="minus"), args=[_, ast.Subscript(value=ast.Name(id=table))]),
                ],
            ):
                self.pushed.add(int(table[1:]))
            case ast.Call(func=ast.Name(id="mark" | "drop")):
                pass  # a row's flags; zeros
            case _:
                self.others |= set(_tables(ast.unparse(node)))


def _tables(code: str) -> Iterator[int]:
    """The tables that an expression mentions."""
    return (int(name[1:]) for name in names_in(code) if is_numbered(name, "t"))


def _is_given(name: str) -> bool:
    """Whether a name is that of a constant, of a parameter, of a column, or of what says that events may be taken out."""
    return (
        name.startswith("p_") or number_of(name) is not None or is_numbered(name, "col", "ts", "seq")
        or name in ("ONE", "TRUE", "FALSE", "INT64_MIN", "takes", "np")
    )  # fmt: skip
