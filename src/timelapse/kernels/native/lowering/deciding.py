"""Cuts the generated code of a pass down to the part that decides which steps fail.

That part has the statements that leave a step, what leads there, the tables that this depends on, and all writes to these. If the code asks
whether sums of other tables leave int64, what is added to them is listed instead (decided.py).
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from timelapse.kernels.native.lowering.decided import Events, Undecided, others_of
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
    Save,
    names_in,
    names_used,
    parsed,
    walk,
)
from timelapse.kernels.native.lowering.touches import is_numbered
from timelapse.kernels.native.lowering.unit import Deciding

_APART = ("w", "k", "nodes", "linked")
"""Names of what states are kept in besides tables."""


class Slice(NamedTuple):
    """For each event type the part of its code that decides; and what is known of it. Columns still have to get their final numbers (touches.py)."""

    bodies: list[list[Node]]
    about: Deciding


def deciding(
    bodies: Sequence[Sequence[Node]], told: Collection[str], raising: Mapping[int, int]
) -> Slice | str:
    """What decides, or why that is not known. `told`: the variables with words of errors' texts. `raising`: the places at which compiled code itself
    takes events out, as `rejected` numbers them, with their event types."""
    finders = [Events(event, told, asks=False) for event in range(len(bodies))]
    try:
        for finder, body in zip(finders, bodies, strict=True):
            finder.follow(body)
    except Undecided as why:
        return str(why)
    others = others_of(finders)
    bounded = {node: t for finder in finders for node, t in finder.impossible.items() if t not in others}
    fails = {
        event
        for event, body in enumerate(bodies)
        if event in raising.values() or any(isinstance(n, Leave) for n in _possible(body, bounded))
    }
    cut, tables = _Cut(told, raising.keys(), bounded), set[int]()
    while True:
        cut.tables = frozenset(tables)
        found = [
            cut.body(body) if event in fails or cut.writes(body) else [] for event, body in enumerate(bodies)
        ]
        more = {table for body in found for table in _tables(body)}
        if more <= tables:
            break
        tables |= more
    if any(is_numbered(name, *_APART) for body in found for name in names_used(body)):
        return "it depends on windows, or on members by key"
    summed = set(bounded.values())
    adds = tuple(tuple(a for a in finder.added if a.table in summed) for finder in finders)
    return Slice(
        found,
        Deciding(
            frozenset(tables),
            frozenset(event for event, body in enumerate(found) if body),
            frozenset(event for event, body in enumerate(found) if cut.writes(body)),
            frozenset(fails),
            adds,
        ),
    )


def _possible(body: Iterable[Node], bounded: Collection[int]) -> Iterable[Node]:
    """All statements but those in branches that are never taken."""
    for node in body:
        if id(node) in bounded:
            continue
        yield node
        for block in node.blocks:
            yield from _possible(block, bounded)


def _tables(body: Iterable[Node]) -> set[int]:
    """The tables that statements use."""
    found = set[int]()
    for node in walk(body):
        if isinstance(node, Look | Occupy | Save):
            found.add(node.table)
        for code in node.codes:
            found |= _mentioned(code)
    return found


def _mentioned(code: str) -> set[int]:
    return {int(name[1:]) for name in names_in(code) if is_numbered(name, "t")}


class _Cut:
    """Cuts one type's code. `bounded`: the branches that are never taken, by identity. `tables`: those that are known to be needed."""

    def __init__(self, told: Collection[str], raising: Collection[int], bounded: Collection[int]) -> None:
        self._told, self._raising, self._bounded = told, raising, bounded
        self.tables: frozenset[int] = frozenset()

    def body(self, body: Sequence[Node]) -> list[Node]:
        """What is left of a type's code."""
        return self._block(body, set(), undoes=self.writes(body))[0]

    def _block(self, body: Sequence[Node], wanted: set[str], *, undoes: bool) -> tuple[list[Node], set[str]]:
        """What is left of statements, behind which the values of `wanted` variables are needed; and of which variables those before them are.
        `undoes`: whether a reject changes anything: something of what is left comes after them, or may have been written."""
        kept = list[Node]()
        for node in reversed(body):
            match node:
                case If():
                    if id(node) in self._bounded:
                        continue
                    more = undoes or bool(kept)
                    a, before = self._block(node.body, wanted, undoes=more)
                    b, otherwise = self._block(node.orelse or [], wanted, undoes=more)
                    if a or b:
                        kept.append(replace(node, body=a, orelse=b or None, chained=node.chained and bool(b)))
                        wanted = before | otherwise | names_in(node.test)
                case Break() if not undoes and not self._raises(body):
                    kept, wanted = [], set[str]()
                case Break():
                    kept, wanted = [replace(node)], {"rejected", "handler", "reason", *self._told}
                case Leave() | Return():
                    kept, wanted = [replace(node)], set[str]()
                case _:
                    if self._changes(node) or wanted.intersection(node.assigned):
                        kept.append(replace(node))
                        adds_to = isinstance(node, Assign) and node.op != "="
                        if not adds_to:
                            wanted = wanted - set(node.assigned)
                        wanted = wanted.union(*map(names_in, node.codes))
        kept.reverse()
        return kept, wanted

    def _raises(self, block: Sequence[Node]) -> bool:
        """Whether a block that ends with a break does so because a handler raises."""
        return any(
            isinstance(n, Assign) and n.target == "rejected" and int(n.code) in self._raising for n in block
        )

    def writes(self, body: Iterable[Node]) -> bool:
        """Whether statements may write a table that is needed."""
        return any(self._changes(node) for node in walk(body))

    def _changes(self, node: Node) -> bool:
        """Whether a statement may change a table that is needed, or what is kept of it for undoing that."""
        match node:
            case Occupy(table=table) | Save(table=table) | Keep(table=table):
                return table in self.tables
            case Do(code=code):
                return not self.tables.isdisjoint(_mentioned(code))
            case Assign(target=target, code=code):
                base = set[int]() if node.assigned else _mentioned(target)
                return not self.tables.isdisjoint(base | _handed_over(code))
        return False


def _handed_over(code: str) -> set[int]:
    """The tables that calls in an expression are given."""
    return {
        int(arg.id[1:])
        for call in ast.walk(parsed(code))
        if isinstance(call, ast.Call)
        for arg in call.args
        if isinstance(arg, ast.Name) and is_numbered(arg.id, "t")
    }
