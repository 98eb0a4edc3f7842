"""A key's row is looked up once: later look-ups of the same key in an event use the row that is known.

Worked out on the generated code itself, in which a name keeps its value on each way (but for what loops carry). A row
that is occupied stays where it is until the function is left. The row that a look-up gives for a key that is
not there stays free until another key takes a row in that table; after that it is looked up again.

States write `look` for `find`, and `own` for `claim`, where the key may be in a mapped start state (touch.py). What is
left of them is written out here: as functions they are not inlined, and handing all that describes their arrays over
takes longer than they do.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

_PROBE = re.compile(r"(find|look|claim|own)(\d+)$")
_SHORT = re.compile(r"\s*(\w+) = (look|own|occupy)(\d+)\(")
_TAKES = ("look", "claim", "own")
"""Those that may take a free row. A `find` never does."""
_MAKES = ("claim", "own")
"""Those after which the key has a row."""


@dataclass(frozen=True)
class _Known:
    """The row of a key: its name, the names that its key is made of, whether it is occupied for certain."""

    row: str
    names: frozenset[str]
    occupied: bool


@dataclass(frozen=True)
class _Probe:
    what: str
    width: int
    table: str
    index: str
    key: tuple[str, ...]
    names: frozenset[str]

    @property
    def place(self) -> tuple[str, ...]:
        return (self.table, *self.key)


_Rows = dict[tuple[str, ...], _Known]


def share_rows(body: Sequence[str]) -> list[str]:
    """An event's code in which no key is looked up again whose row is known."""
    source = textwrap.dedent("\n".join(body))
    sharing = _Sharing(body)
    sharing.block(ast.parse(source).body, {})
    lines = list(body)
    for number, text in sharing.changed.items():
        lines[number - 1] = _indent(lines[number - 1]) + text
    return [
        text
        for number, line in enumerate(lines, 1)
        for text in (*_written(line), *sharing.added.get(number, ()))
    ]


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _written(line: str) -> list[str]:
    """A line, with what `look`, `own` and `occupy` stand for."""
    short = _SHORT.match(line)
    if short is None:
        return [line]
    row, what, width = short[1], short[2], int(short[3])
    call = ast.parse(line.strip(), mode="exec").body[0].value  # type: ignore[attr-defined]
    words = [ast.unparse(a) for a in call.args]
    given, key = words[:-width], words[-width:]
    put = [f"    {given[0]}[{row}, {w}] = {word}" for w, word in enumerate(key, 1)]
    if what == "occupy":
        table, index, known = given
        free, count = f"if {table}[{row}, 0] == 0:", f"    counts[{index}] += 1"
        made = [f"{row} = {known}", free, f"    {table}[{row}, 0] = 1", *put, count]
    elif what == "look":
        table, mask, start, base, index = given
        made = [
            f"{row} = find{width}({table}, {mask}, {', '.join(key)})",
            f"if {start}.shape[0] != 0 and {table}[{row}, 0] == 0:",
            *put,
            f"    counts[{index}] += take({start}, {table}, {base}, {row}, N{width})",
        ]
    else:
        table, mask, start, base, index = given
        made = [
            f"{row}_n = counts[{index}]",
            f"{row} = claim{width}({table}, {mask}, counts, {index}, {', '.join(key)})",
            f"if {start}.shape[0] != 0 and counts[{index}] != {row}_n:",
            f"    take({start}, {table}, {base}, {row}, N{width})",
        ]
    return [_indent(line) + text for text in made]


class _Sharing:
    """Follows what is known through one body. `changed`: lines (from 1) with their new texts; `added`: what comes after."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self.changed: dict[int, str] = {}
        self.added: dict[int, list[str]] = {}

    def block(self, statements: Sequence[ast.stmt], known: _Rows) -> _Rows | None:
        """What is known after these statements; None where they never end."""
        for statement in statements:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    probe = _probe(value)
                    if probe is None:
                        known = _without(known, {name})
                    else:
                        known = self._meet(statement.lineno, name, probe, known)
                case ast.If(body=yes, orelse=no):
                    a, b = self.block(yes, dict(known)), self.block(no, dict(known))
                    if a is None or b is None:
                        if a is None and b is None:
                            return None
                        known = a if b is None else b  # type: ignore[assignment]
                    else:
                        known = self._merged(yes, no, a, b)
                case ast.While(body=inner) | ast.For(body=inner):
                    # What no round takes away holds in every round, and wherever the loop is left.
                    known = _without(known, set(_assigned(statement)))
                    for probe in _probes(statement):
                        if probe.what in _TAKES:
                            known = _taken(known, probe.table)
                    self.block(inner, dict(known))
                case ast.Return() | ast.Break() | ast.Continue() | ast.Raise():
                    return None
                case _:
                    known = _without(known, set(_assigned(statement)))
        return known

    def _merged(self, yes: list[ast.stmt], no: list[ast.stmt], a: _Rows, b: _Rows) -> _Rows:
        """What is known where two ways meet. A row that each has under a name of its own gets one for both."""
        merged: _Rows = {}
        for place, row in a.items():
            if place not in b:
                continue
            other, name = b[place], row.row
            if other.row != name:
                if not no or self._lines[no[0].lineno - 1].lstrip().startswith("elif "):
                    continue
                name = f"{row.row}_{other.row}"
                for branch, own in ((yes, row), (no, other)):
                    text = f"{_indent(self._lines[branch[0].lineno - 1])}{name} = {own.row}"
                    self.added.setdefault(branch[-1].end_lineno or 0, []).append(text)
            merged[place] = replace(row, row=name, occupied=row.occupied and other.occupied)
        return merged

    def _meet(self, line: int, name: str, probe: _Probe, known: _Rows) -> _Rows:
        """A look-up, assigned to a name."""
        found = known.get(probe.place)
        known = _without(known, {name})
        makes = probe.what in _MAKES
        if found is None:
            if probe.what in _TAKES:
                known = _taken(known, probe.table)
        elif found.occupied or not makes:
            self.changed[line] = f"{name} = {found.row}"
        else:
            key = ", ".join(probe.key)
            self.changed[line] = (
                f"{name} = occupy{probe.width}({probe.table}, {probe.index}, {found.row}, {key})"
            )
            known = _taken(known, probe.table)
        row = name if found is None else found.row
        occupied = makes or (found is not None and found.occupied)
        return {**known, probe.place: _Known(row, probe.names, occupied)}


def _probe(node: ast.expr) -> _Probe | None:
    match node:
        case ast.Call(func=ast.Name(id=name), args=[ast.Name(id=table), *rest]) if found := _PROBE.match(
            name
        ):
            width = int(found[2])
            keys = rest[-width:]
            names = {n.id for key in keys for n in ast.walk(key) if isinstance(n, ast.Name)}
            index = "N" + table.removeprefix("t")  # as where a row is claimed: `Lowering` counts by it
            return _Probe(found[1], width, table, index, tuple(map(ast.unparse, keys)), frozenset(names))
    return None


def _probes(node: ast.AST) -> Iterator[_Probe]:
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and (probe := _probe(part)) is not None:
            yield probe


def _without(known: _Rows, names: set[str]) -> _Rows:
    """Without what is made of names that are assigned now."""
    return {p: row for p, row in known.items() if row.row not in names and not row.names & names}


def _taken(known: _Rows, table: str) -> _Rows:
    """After some key may have taken a free row of the table."""
    return {p: row for p, row in known.items() if row.occupied or p[0] != table}


def _assigned(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            yield part.id
