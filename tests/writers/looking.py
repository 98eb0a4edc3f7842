"""Random programs that look back: views put into the text of programs that do not."""

from __future__ import annotations

import ast
import inspect
import random
import re

from timelapse.kinds.registry import kinds

_VIEWS = ("last", "ago")
_READS = frozenset(
    name
    for kind in kinds().values()
    for name, op in kind.ops.items()
    if op.effect is None and hasattr(kind, name)
)
"""Methods that only read."""

HISTORY = 6
"""How far back `get(at=)` goes."""


def looking(rng: random.Random, text: str, *, chance: float = 0.5, dated: float = 0.0) -> str:
    """A random program's source with some of its reads of keyed states turned into reads of the past.

    Some states keep a history, and are read at times that the event gives. With `dated`, so large a share of the writes
    that can be dated takes effect later, or at once after all.
    """
    keyed: dict[str, tuple[str, ...]] = {}
    named: dict[str, str] = {}
    lines = []
    for line in text.splitlines():
        found = re.fullmatch(r"    (s\d): tl\.(\w+)\[(.*?)\](?: = tl\.state\((.*)\))?", line)
        if found and _has_a_past(found[2], found[3]):
            keyed[found[1]], named[found[1]] = _VIEWS, found[2]
            if _has_moments(found[2]) and rng.random() < 0.5:
                keyed[found[1]] = (*_VIEWS, "past", "past")
                more = f", {found[4]}" if found[4] else ""
                line = f"    {found[1]}: tl.{found[2]}[{found[3]}] = tl.state(history={HISTORY}{more})"
        lines.append(line)
    module = ast.parse("\n".join(lines) + "\n")
    if dated:
        module = _Dating(rng, named, dated).visit(module)
    return ast.unparse(_Looking(rng, keyed, chance).visit(module)) + "\n"


def _has_a_past(name: str, arguments: str) -> bool:
    """Whether a state so declared can be looked back on: not where handlers use it as a plain value."""
    kind = kinds()[name]
    return "," in arguments or not (kind.has_value and kind.attribute_style)


def _has_moments(name: str) -> bool:
    """Whether `x[k]` has the form `x.get(k, at=t)`, too."""
    ops, get = kinds()[name].ops, getattr(kinds()[name], "get", None)
    return "getitem" in ops and get is not None and "at" in inspect.signature(get).parameters


class _Looking(ast.NodeTransformer):
    def __init__(self, rng: random.Random, states: dict[str, tuple[str, ...]], chance: float) -> None:
        self._rng, self._states, self._chance = rng, states, chance

    def _view(self, node: ast.expr) -> ast.expr:
        if (
            not isinstance(node, ast.Attribute)
            or node.attr not in self._states
            or not isinstance(node.value, ast.Name)
            or node.value.id != "self"
            or self._rng.random() > self._chance
        ):
            return node
        how = self._rng.choice([h for h in self._states[node.attr] if h != "past"])
        length = self._rng.choice(["1", "2", "5", "6", "12", "self.limit", "4 * self.limit"])
        return ast.parse(f"{ast.unparse(node)}.{how}({length})", mode="eval").body

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            return node
        state = node.value
        if (
            isinstance(state, ast.Attribute)
            and "past" in self._states.get(state.attr, ())
            and self._rng.random() < self._chance
        ):
            back = self._rng.choice(["0", "1", "2", "5", str(HISTORY), f"small({ast.unparse(node.slice)})"])
            read = f"{ast.unparse(state)}.get({ast.unparse(node.slice)}, at=self.now - {back})"
            return ast.parse(read, mode="eval").body
        node.value = self._view(node.value)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        node.comparators = [
            self._view(c) if isinstance(op, ast.In | ast.NotIn) else c
            for op, c in zip(node.ops, node.comparators, strict=True)
        ]
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _READS:
            node.func.value = self._view(node.func.value)
        return node


class _Dating(ast.NodeTransformer):
    """Gives writes a date."""

    def __init__(self, rng: random.Random, kinds: dict[str, str], chance: float) -> None:
        self._rng, self._kinds, self._chance = rng, kinds, chance

    def _state(self, node: ast.expr) -> str:
        """The kind of the keyed state that this names, if some writes of it take a date."""
        named = (
            isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
        )
        kind = self._kinds.get(node.attr, "") if named and isinstance(node, ast.Attribute) else ""
        return kind if self._rng.random() < self._chance else ""

    def _write(self, state: ast.expr, method: str, arguments: list[ast.expr], old: ast.stmt) -> ast.stmt:
        later = self._rng.choice(["0", "1", "2", "5", "e.b", "self.limit * 3"])
        given = ", ".join(map(ast.unparse, arguments))
        made = ast.parse(f"{ast.unparse(state)}.{method}({given}, at=self.now + {later})").body[0]
        return ast.copy_location(made, old)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if "e" in (a.arg for a in node.args.args):  # dates may name it
            self.generic_visit(node)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        call = node.value
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)) or call.keywords:
            return node
        if call.func.attr not in ("add", "discard", "remove", "append", "set"):
            return node
        if not self._state(call.func.value):
            return node
        return self._write(call.func.value, call.func.attr, call.args, node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        target = node.target
        if not isinstance(target, ast.Subscript) or not isinstance(node.op, ast.Add):
            return node
        if self._state(target.value) != "Counter":
            return node
        return self._write(target.value, "add", [target.slice, node.value], node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        target = node.targets[0]
        if len(node.targets) > 1 or not isinstance(target, ast.Subscript):
            return node
        if self._state(target.value) not in ("Counter", "Value", "MapOf"):
            return node
        return self._write(target.value, "set", [target.slice, node.value], node)
