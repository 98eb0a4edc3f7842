"""Which rows the events of each type can look up at most, on whatever way they take: found in the generated code itself.

Where the keys of all look-ups of a pass are computed from columns of the event alone, it is known without running anything which events can
have to do with each other. Where one is not, or rows are gone through without being looked up, nothing is known.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator, Sequence

from timelapse.kernels.native.lowering.form import (
    Assign,
    Do,
    For,
    Keep,
    Look,
    Node,
    Occupy,
    While,
    names_in,
    parsed,
    walk,
)
from timelapse.kernels.native.lowering.lookahead import Finder
from timelapse.kernels.native.lowering.unit import Touch

_WRAPPING = {"plus": ast.Add, "minus": ast.Sub, "times": ast.Mult}


def touches(bodies: Sequence[Sequence[Node]]) -> tuple[tuple[Touch, ...], ...] | str:
    """By event type what its code looks up; or why that is not known. The columns are to be numbered (`numbered`)."""
    try:
        return tuple(tuple(_touches(body, event)) for event, body in enumerate(bodies))
    except Unknown as why:
        return str(why)


def numbered(
    found: tuple[tuple[Touch, ...], ...] | str, used: Sequence[int], events: int
) -> tuple[tuple[Touch, ...], ...] | str:
    """The same with the places of columns among a batch's arrays. `used`: the columns that there are, by their old numbers."""
    if isinstance(found, str):
        return found
    places = {f"col{number}": 2 * events + at for at, number in enumerate(used)}
    places |= {f"{name}{n}": 2 * n + at for n in range(events) for at, name in enumerate(("ts", "seq"))}
    return tuple(
        tuple(t._replace(columns={n: places[n] for n in _columns(t.key)}) for t in own) for own in found
    )


class Unknown(Exception):
    """Why the rows are not known."""


def _touches(body: Sequence[Node], event: int) -> Iterator[Touch]:
    nodes = list(walk(body))
    if any(isinstance(node, For | While) for node in nodes):
        raise Unknown("a handler has a loop")
    rows: dict[str, set[str]] = {}
    """The variables that stand for rows, with those that they may come from."""
    for node in nodes:
        if isinstance(node, Look | Occupy):
            own = rows.setdefault(node.row, set())
            own.add(node.row)
            if isinstance(node, Occupy):
                own |= rows.get(node.known, set())
        elif isinstance(node, Assign) and node.code in rows:
            rows.setdefault(node.target, set()).update(rows[node.code])
    written: set[str] = set()
    for node in nodes:
        if isinstance(node, Keep):
            if node.row not in rows:
                raise Unknown("a handler goes through a state")
            written |= rows[node.row]
        for code in node.codes:
            names = names_in(code)
            known = names & rows.keys()
            if isinstance(node, Do) and node.log is not None:
                written |= {name for row in known for name in rows[row]}
            is_look = isinstance(node, Look | Occupy | Keep)
            if any(is_numbered(name, "t") for name in names) and not known and not is_look:
                raise Unknown("a handler goes through a state")
    finder = Keys(f"q{event}")
    finder.block(body, {})
    for node in nodes:
        if isinstance(node, Look):
            key = finder.keys.get(id(node))
            if key is None:
                raise Unknown("a key of a state depends on what states hold")
            yield Touch(node.table, key, node.row in written, {})


class Keys(Finder):
    """Follows what look-ups' keys are computed from."""

    def __init__(self, row: str) -> None:
        super().__init__(row)
        self.keys: dict[int, tuple[str, ...]] = {}

    def _look(self, look: Look, env: dict[str, ast.expr]) -> None:
        words = []
        for word in look.key:
            value = self.value(parsed(word), env)
            if value is None:
                return
            words.append(value)
        try:
            self.keys[id(look)] = tuple(ast.unparse(AsArrays().visit(copy.deepcopy(word))) for word in words)
        except Unknown:
            return

    def _substituted(self, node: ast.expr, env: dict[str, ast.expr]) -> ast.expr | None:
        match node:
            case ast.Call(func=ast.Name(id=name), args=[a, b]) if (
                name in _WRAPPING
            ):  # they wrap around, as arrays do
                return super()._substituted(ast.BinOp(a, _WRAPPING[name](), b), env)
        return super()._substituted(node, env)


class AsArrays(ast.NodeTransformer):
    """Has an expression over one event be one over arrays."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return node.value

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        return _call("where", [node.test, node.body, node.orelse])

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        if len(node.ops) > 1:
            raise Unknown
        self.generic_visit(node)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        raise Unknown

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return _call("logical_not", [node.operand]) if isinstance(node.op, ast.Not) else node


def _call(name: str, args: Iterable[ast.expr]) -> ast.expr:
    return ast.Call(ast.Attribute(ast.Name("np", ast.Load()), name, ast.Load()), list(args), [])


def _columns(key: Iterable[str]) -> set[str]:
    return {name for word in key for name in names_in(word) if is_numbered(name, "col", "ts", "seq")}


def is_numbered(name: str, *kinds: str) -> bool:
    """Whether a name is that of an array of such a kind, with its number."""
    return name.rstrip("0123456789") in kinds and name not in kinds
