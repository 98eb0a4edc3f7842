"""Conditions on a diff's figures, for CI: `precision < .7 or recall < recall_a - .02`.

An expression has numbers, names of figures, `+ - * /`, comparisons, `and`, `or`, `not` and brackets; nothing else is
evaluated. `Spam.new` is the figure of one record type.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from timelapse.errors import UsageError, meant

if TYPE_CHECKING:
    from timelapse.compare.differences import Diff
    from timelapse.compare.records import EntityDiff
    from timelapse.compare.score import Judgement

Figures = Mapping[str, float | None]
"""Figures by name; None where there is none (a precision of nothing)."""

_ARITHMETIC: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
_COMPARISONS: dict[type[ast.AST], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip
_LONGEST = 1000
_NOT_ALWAYS = {
    **{f"{name}{side}": "--labels" for name in ("precision", "recall", "f1") for side in ("", "_a")},
    "freed": "--by", "hit": "--by", "good": "--by and --labels", "good_a": "--by and --labels",
}  # fmt: skip
"""Figures that are there only with an option, and it."""


class Condition:
    """A parsed condition. Raises UsageError (TL819) for what is not one."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        if len(self.text) > _LONGEST:
            raise _bad(self.text[:40] + "...", f"it is longer than {_LONGEST} characters")
        try:
            self._node = ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise _bad(self.text, "it does not parse") from None
        self.names = sorted(_check(self._node, self.text, truth=True))
        """The figures that it needs."""

    def check(self, known: Collection[str]) -> None:
        """Raises UsageError (TL819) for a figure that is not among those known."""
        for name in self.names:
            if name not in known:
                others = [figure for figure in _NOT_ALWAYS if figure not in known]
                hint = _needs(name) or meant(name, [*known, *others])
                hint += "".join(_needs(figure) for figure in others if hint == f"did you mean {figure}? ")
                raise _bad(self.text, f"there is no figure {name!r}", f"{hint}figures: {', '.join(known)}")

    def holds(self, figures: Figures) -> bool:
        """Whether it holds. Raises UsageError (TL819) for a figure that is not there or not known."""
        self.check(figures)
        for name in self.names:
            if figures[name] is None:
                raise _bad(
                    self.text, f"{name} is not known: nothing was judged", "give labels that cover the log"
                )
        try:
            return bool(_value(self._node, figures))
        except (ZeroDivisionError, OverflowError) as error:
            raise _bad(self.text, str(error)) from None


def _needs(name: str) -> str:
    """What a figure needs that is not always there, as the beginning of a hint; else empty."""
    option = _NOT_ALWAYS.get(name)
    return f"{name.removesuffix('_a')} needs {option}; " if option else ""


def _name(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return None


def _check(node: ast.expr, text: str, *, truth: bool) -> set[str]:
    """The names in a node that must be a condition (`truth`) or a number."""
    match node:
        case ast.BoolOp(values=values) if truth:
            return set().union(*(_check(v, text, truth=True) for v in values))
        case ast.UnaryOp(op=ast.Not(), operand=operand) if truth:
            return _check(operand, text, truth=True)
        case ast.Compare(left=left, ops=ops, comparators=others) if truth and all(
            type(o) in _COMPARISONS for o in ops
        ):
            return set().union(*(_check(v, text, truth=False) for v in (left, *others)))
        case ast.Constant(value=value) if not truth and type(value) in (int, float):
            return set()
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand) if not truth:
            return _check(operand, text, truth=False)
        case ast.BinOp(left=left, op=op, right=right) if not truth and type(op) in _ARITHMETIC:
            return _check(left, text, truth=False) | _check(right, text, truth=False)
    name = None if truth else _name(node)
    if name is None:
        wanted = "a comparison" if truth else "a number or a figure"
        raise _bad(text, f"{wanted} is needed where it has {ast.unparse(node)[:60]!r}")
    return {name}


def _value(node: ast.expr, figures: Figures) -> Any:
    match node:
        case ast.BoolOp(op=op, values=values):
            return (all if isinstance(op, ast.And) else any)(_value(v, figures) for v in values)
        case ast.UnaryOp(op=op, operand=operand):
            value = _value(operand, figures)
            return not value if isinstance(op, ast.Not) else -value if isinstance(op, ast.USub) else value
        case ast.Compare(left=left, ops=ops, comparators=others):
            values = [_value(v, figures) for v in (left, *others)]
            return all(_COMPARISONS[type(o)](x, y) for o, x, y in zip(ops, values, values[1:], strict=False))
        case ast.BinOp(left=left, op=op, right=right):
            return _ARITHMETIC[type(op)](_value(left, figures), _value(right, figures))
        case ast.Constant(value=value):
            return value
    return figures[_name(node) or ""]


def _bad(text: str, reason: str, hint: str = "") -> UsageError:
    return UsageError(
        f"--fail-if {text!r}: {reason}", hint=hint or "write 'precision < .7', 'new > 100 or gone > 0.1 * a'",
        code="TL819",
    )  # fmt: skip


def figures_of(
    diff: Diff, judged: Judgement | None = None, entities: Sequence[tuple[str, EntityDiff]] = ()
) -> dict[str, float | None]:
    """The figures of a diff by name.

    `a`, `b`, `gone`, `new`, `changed`: outputs, over all record types, and `Spam.gone` of one; `rejected_a` and
    `rejected_b`. With entities `(record, diff)`, `freed` and `hit`: distinct values of the first. With labels
    `precision`, `recall`, `f1`, `good` of B, and `precision_a` and so on of A.
    """
    figures: dict[str, float | None] = dict.fromkeys(("a", "b", "gone", "new", "changed"), 0)
    for name, record in diff.records.items():
        for figure, count in record.counts.items():
            figures[figure] = (figures[figure] or 0) + count
            figures[f"{name}.{figure}"] = count
    figures["rejected_a"] = diff.rejected.counts["a"]
    figures["rejected_b"] = diff.rejected.counts["b"]
    for name, entity in reversed(entities):
        for prefix in ("", f"{name}."):
            figures[f"{prefix}freed"], figures[f"{prefix}hit"] = len(entity.freed), len(entity.hit)
    if judged is not None:
        for side, score in (("_a", judged.total.a), ("", judged.total.b)):
            figures[f"precision{side}"] = score.precision
            figures[f"recall{side}"] = score.recall
            figures[f"f1{side}"] = score.f1
        for good in list(judged.good.values())[:1]:
            figures["good_a"], figures["good"] = good
    return figures
