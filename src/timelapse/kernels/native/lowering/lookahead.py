"""Which rows an event soon to come will look up: found in the generated code itself.

A key that is computed from the event's columns alone can be computed for a later event as well. What is
written here only asks for memory (`fetch.py`). It decides nothing: a key that is not understood, or on a
way that the later event does not take, costs time and changes no result.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Sequence

from timelapse.kernels.native.lowering.form import (
    Assign,
    Break,
    Continue,
    Do,
    If,
    Leave,
    Look,
    Node,
    Return,
    assigned_in,
    parsed,
)
from timelapse.kernels.native.lowering.values import number_of
from timelapse.kernels.native.lowering.wide import WIDTHS

_ROWS, _LEAST = 16, 3
"""About so many rows are on their way at a time, and of so many events of the same type ahead at least. On large tables that takes
half the time that none takes; with one look-up per event 16 events ahead take a quarter less than three."""
_NUMBERS = {"int64", "uint64", "float64"}
_PLAIN = (
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.BitAnd,
    ast.BitOr,
    ast.BitXor,
)  # what cannot fail, whatever the operands
_MOST_NODES = 80
_MOST_KEYS = 12

Env = dict[str, ast.expr]


def distance(fetches: int) -> int:
    """How many events ahead rows are asked for, so many for each event."""
    return max(_LEAST, _ROWS // fetches)


def look_ahead(body: Sequence[Node], event: int, *, shared: bool = False) -> list[Node]:
    """Statements to stand before an event type's body, which ask for the rows of a later event of this type.

    `shared`: of one that is this worker's, which is only known if it is of this type.
    """
    finder = Finder(f"q{event}")
    finder.block(body, {})
    fetches: list[Node] = [Do(text) for text in list(finder.found)[:_MOST_KEYS]]
    if not fetches:
        return []
    ahead = distance(len(fetches))
    if shared:
        soon = f"turn + {ahead} < turns and kind[mine[turn + {ahead}, 0]] == {event}"
        return [If(soon, [Assign("later", f"np.uint64(mine[turn + {ahead}, 1])"), *fetches])]
    later = Assign("later", f"q{event} + np.uint64({ahead})")
    return [later, If(f"later < np.uint64(len(ts{event}))", fetches)]


class Finder:
    """Follows the values of variables through one body, as far as they come from columns alone."""

    def __init__(self, row: str) -> None:
        self._row = row
        self.found: dict[str, None] = {}

    def block(self, body: Iterable[Node], env: Env) -> Env | None:
        """What is known after these statements; None where they never end."""
        for node in body:
            match node:
                case Look():
                    self._look(node, env)
                    env.pop(node.row, None)
                case Assign(target=name, code=code, op="=") if node.assigned:
                    known = self.value(parsed(code), env)
                    env.pop(name, None)
                    if known is not None:
                        env[name] = known
                case If():
                    merged = self._branches(node, env)
                    if merged is None:
                        return None
                    env = merged
                case Leave() | Return() | Break() | Continue():
                    return None
                case _:  # loops and whatever else: what they assign is not known, nor what they look up
                    for name in assigned_in([node]):
                        env.pop(name, None)
        return env

    def _branches(self, node: If, env: Env) -> Env | None:
        a, b = self.block(node.body, dict(env)), self.block(node.orelse or [], dict(env))
        if a is None or b is None:
            return a if b is None else b
        condition = self.value(parsed(node.test), env)
        merged = {}
        for name in a.keys() & b.keys():
            if a[name] is b[name]:
                merged[name] = a[name]
            elif condition is not None:
                choice = ast.IfExp(condition, a[name], b[name])
                if _small(choice):
                    merged[name] = choice
        return {name: merged[name] for name in sorted(merged)}

    def _look(self, look: Look, env: Env) -> None:
        """Note a look-up whose key is known."""
        if len(look.key) > WIDTHS:
            return
        keys = [self.value(parsed(word), env) for word in look.key]
        if all(key is not None for key in keys):
            words = ", ".join(ast.unparse(key) for key in keys if key is not None)
            self.found.setdefault(f"fetch{len(keys)}(t{look.table}, m{look.table}, {words})")

    def value(self, node: ast.expr, env: Env) -> ast.expr | None:
        """The expression for the later event in terms of columns and parameters, or None."""
        made = self._substituted(node, env)
        return made if made is not None and _small(made) else None

    def _substituted(self, node: ast.expr, env: Env) -> ast.expr | None:
        match node:
            case ast.Constant(value=bool() | int() | float()):
                return node
            case ast.Name(id=name):
                return env.get(name, node if _is_known(name) else None)
            case ast.Subscript(value=ast.Name(), slice=ast.Name(id=row)) if row == self._row:
                return ast.Subscript(node.value, ast.Name("later", ast.Load()), ast.Load())
            case ast.BinOp(op=op) if isinstance(op, _PLAIN):
                pass
            case ast.UnaryOp() | ast.Compare() | ast.BoolOp() | ast.IfExp():
                pass
            case ast.Call(func=ast.Attribute(value=ast.Name(id="np"), attr=kind)) if kind in _NUMBERS:
                pass
            case _:
                return None
        made = copy.copy(node)
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.expr) and field != "func":
                new: object = self.value(value, env)
                if new is None:
                    return None
            elif isinstance(value, list) and value and isinstance(value[0], ast.expr):
                new = [self.value(v, env) for v in value]
                if None in new:
                    return None
            else:
                continue
            setattr(made, field, new)
        return made


def _is_known(name: str) -> bool:
    """Whether a name stands for the same value all through the function."""
    return name.startswith("p_") or name in ("ONE", "INT64_MIN") or number_of(name) is not None


def _small(node: ast.expr) -> bool:
    return sum(1 for _ in zip(ast.walk(node), range(_MOST_NODES + 1), strict=False)) <= _MOST_NODES
