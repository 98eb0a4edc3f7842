"""Questions about statements: what they assign, whether they always leave."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from timelapse.kernels.native.refused import Refused


def assigned(node: ast.AST) -> set[str]:
    """Names that a statement assigns or deletes."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}


def leaves_always(body: Sequence[ast.stmt]) -> bool | None:
    """True where no way through a block goes on behind it by returning or raising; else None."""
    for statement in body:
        if isinstance(statement, ast.Return | ast.Raise):
            return True
        if (
            isinstance(statement, ast.If)
            and leaves_always(statement.body)
            and leaves_always(statement.orelse)
        ):
            return True
    return None


def _returns(statement: ast.AST) -> bool:
    return any(isinstance(n, ast.Return) for n in ast.walk(statement))


def returns_in_place(body: Sequence[ast.stmt], depth: int = 0) -> bool:
    """Whether nothing would follow any `return`, where the rest of a block goes into the `if` branch
    that does not leave."""
    for place, statement in enumerate(body):
        if isinstance(statement, ast.Return | ast.Raise):
            return True
        if not _returns(statement):
            continue
        if not isinstance(statement, ast.If) or depth > 10:
            return False
        rest = body[place + 1 :]
        yes, no = list(statement.body), list(statement.orelse)
        if rest:
            if leaves_always(yes):
                no += rest
            elif leaves_always(no):
                yes += rest
            else:
                return False
        return returns_in_place(yes, depth + 1) and returns_in_place(no, depth + 1)
    return True


def pattern_test(pattern: ast.pattern, subject: str) -> ast.expr | None:
    """The test of a name that a pattern stands for; None: it always holds. Raises Refused."""
    name = ast.Name(subject, ast.Load())
    match pattern:
        case ast.MatchAs(pattern=None):
            return None
        case ast.MatchValue(value=value):
            return ast.copy_location(ast.Compare(name, [ast.Eq()], [value]), pattern)
        case ast.MatchSingleton(value=value):
            return ast.copy_location(ast.Compare(name, [ast.Is()], [ast.Constant(value)]), pattern)
        case ast.MatchOr(patterns=patterns):
            tests = [pattern_test(p, subject) for p in patterns]
            if all(tests):
                return ast.copy_location(ast.BoolOp(ast.Or(), [t for t in tests if t]), pattern)
    raise Refused("this `case`", pattern.lineno)
