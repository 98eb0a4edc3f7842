"""A key's row is looked up once: later look-ups of the same key in an event use the row that is known.

A variable keeps its value on each way (but for what loops carry). A row that is occupied stays where it is until the function is
left. The row that a look-up gives for a key that is not there stays free until another key takes a row in that table; after that
it is looked up again.

States write `look` for `find`, and `own` for `claim`, where the key may be in a mapped start state (touch.py). What is
left of them is written out here: as functions they are not inlined, and handing all that describes their arrays over
takes longer than they do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from timelapse.kernels.native.lowering.form import (
    Assign,
    Break,
    Continue,
    Do,
    For,
    If,
    Key,
    Leave,
    Look,
    Node,
    Occupy,
    Return,
    While,
    assigned_in,
    names_in,
    walk,
)


@dataclass(frozen=True)
class _Known:
    """The row of a key: its name, the names that its key is made of, whether it is occupied for certain."""

    row: str
    names: frozenset[str]
    occupied: bool


_Rows = dict[tuple[int, Key], _Known]
"""What is known, by table and key."""


def share_rows(body: Sequence[Node]) -> list[Node]:
    """An event's code in which no key is looked up again whose row is known."""
    return _Sharing().block(body, {})[0]


def written_out(body: Sequence[Node]) -> list[Node]:
    """Code with what `look`, `own` and `occupy` stand for."""
    found: list[Node] = []
    for node in body:
        for block in node.blocks:
            block[:] = written_out(block)
        found += _written_out(node)
    return found


def _written_out(node: Node) -> Iterator[Node]:
    match node:
        case Occupy(row=row, known=known, table=t, key=key):
            yield Assign(row, known)
            taken = [Assign(f"t{t}[{row}, 0]", "1"), *_put(t, row, key), Assign(f"counts[N{t}]", "1", "+=")]
            yield If(f"t{t}[{row}, 0] == 0", taken)
        case Look(row=row, what="look", table=t, key=key):
            yield replace(node, what="find")
            take = Assign(f"counts[N{t}]", _take(t, row, key), "+=")
            yield If(f"s{t}.shape[0] != 0 and t{t}[{row}, 0] == 0", [*_put(t, row, key), take])
        case Look(row=row, what="own", table=t, key=key):
            yield Assign(f"{row}_n", f"counts[N{t}]")
            yield replace(node, what="claim")
            yield If(f"s{t}.shape[0] != 0 and counts[N{t}] != {row}_n", [Do(_take(t, row, key))])
        case _:
            yield node


def _put(table: int, row: str, key: Sequence[str]) -> list[Node]:
    return [Assign(f"t{table}[{row}, {w}]", word) for w, word in enumerate(key, 1)]


def _take(table: int, row: str, key: Sequence[str]) -> str:
    """The call that takes a row over from the start state; how many it took."""
    return f"take(s{table}, t{table}, b{table}, {row}, N{len(key)})"


class _Sharing:
    """Follows what is known through one body."""

    def block(self, body: Sequence[Node], known: _Rows) -> tuple[list[Node], _Rows | None]:
        """The statements made anew, and what is known after them; None where they never end."""
        made: list[Node] = []
        for node in body:
            match node:
                case Look():
                    node, known = self._meet(node, known)
                case If(body=yes, orelse=no):
                    node.body, a = self.block(yes, dict(known))
                    b: _Rows | None = dict(known)
                    if no is not None:
                        node.orelse, b = self.block(no, dict(known))
                    if a is None or b is None:
                        if a is None and b is None:
                            return [*made, node], None
                        known = (a if b is None else b) or {}
                    else:
                        known = self._merged(node, a, b)
                case While(body=inner) | For(body=inner):
                    # What no round takes away holds in every round, and wherever the loop is left.
                    known = _without(known, assigned_in([node]))
                    for look in walk(inner):
                        if isinstance(look, Look) and look.takes:
                            known = _taken(known, look.table)
                    node.body = self.block(inner, dict(known))[0]
                case Leave() | Return() | Break() | Continue():
                    return [*made, node], None
                case _:
                    known = _without(known, {*node.assigned})
            made.append(node)
        return made, known

    def _merged(self, node: If, a: _Rows, b: _Rows) -> _Rows:
        """What is known where two ways meet. A row that each has under a name of its own gets one for both."""
        merged: _Rows = {}
        for place, row in a.items():
            if place not in b:
                continue
            other, name = b[place], row.row
            if other.row != name:
                if node.orelse is None or node.chained:
                    continue
                name = f"{row.row}_{other.row}"
                node.body.append(Assign(name, row.row))
                node.orelse.append(Assign(name, other.row))
            merged[place] = replace(row, row=name, occupied=row.occupied and other.occupied)
        return merged

    def _meet(self, look: Look, known: _Rows) -> tuple[Node, _Rows]:
        """A look-up: what stands in its place, and what is known after it."""
        place = look.place
        found, made = known.get(place), look
        known = _without(known, {look.row})
        if found is None:
            if look.takes:
                known = _taken(known, look.table)
        elif found.occupied or not look.makes:
            made = Assign(look.row, found.row)  # type: ignore[assignment]
        else:
            made = Occupy(look.row, found.row, look.table, look.key)  # type: ignore[assignment]
            known = _taken(known, look.table)
        row = look.row if found is None else found.row
        names = frozenset().union(*map(names_in, look.key))
        occupied = look.makes or (found is not None and found.occupied)
        return made, {**known, place: _Known(row, names, occupied)}


def _without(known: _Rows, names: set[str]) -> _Rows:
    """Without what is made of names that are assigned now."""
    return {p: row for p, row in known.items() if row.row not in names and not row.names & names}


def _taken(known: _Rows, table: int) -> _Rows:
    """After some key may have taken a free row of the table."""
    return {p: row for p, row in known.items() if row.occupied or p[0] != table}
