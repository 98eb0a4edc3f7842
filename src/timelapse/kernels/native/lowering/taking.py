"""Where Python would raise: an event that is to be taken out of the log then is undone in the compiled function itself.

It is left as by a reject, and listed with the place that raised (`Unit.raising`). That is done where the error's text and its
line are known here, or follow from values that the function can tell: a `raise` of a class without code of its own, an
`assert`, a zero divisor (raising.py). Anything else leaves to Python, which finds out.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from timelapse.kernels.native.lowering.context import Context, Frame
from timelapse.kernels.native.lowering.flow import Rejected
from timelapse.kernels.native.lowering.unit import LATE, Raised
from timelapse.program.failure import cause_of

if TYPE_CHECKING:
    from timelapse.kernels.native.lowering.code import Code


def line_of(statement: ast.stmt) -> int:
    """The line that an error has at whatever is evaluated by a statement itself; 0 where it may be one of several."""
    part: ast.AST = statement
    if isinstance(statement, ast.If):
        part = statement.test
    elif isinstance(statement, ast.While | ast.For | ast.Match):
        return 0
    first, last = getattr(part, "lineno", 0), getattr(part, "end_lineno", None)
    return first if first == last else 0


class TakingOut:
    """Writes what takes an event out, and knows where that can be done."""

    def __init__(self, ctx: Context, code: Code) -> None:
        self._ctx, self._code = ctx, code
        self._handler_file: str | None = None
        """The file of the handler whose code is being written."""
        self.at = 0
        """The line of it that an error has now; 0 where that is not known."""

    @contextmanager
    def within(self, handler: types.FunctionType) -> Iterator[None]:
        """Write a handler's code, in which an event that fails may be taken out."""
        self._handler_file = handler.__code__.co_filename
        try:
            yield
        finally:
            self._handler_file = None

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Write statements within one: after them an error has that one's line again."""
        at = self.at
        try:
            yield
        finally:
            self.at = at

    def stand_at(self, statement: ast.stmt, frame: Frame) -> None:
        """A statement begins. Within a helper an error has the line at which the handler calls it."""
        if not frame.depth:
            self.at = line_of(statement)

    def raises_if(self, condition: str, error: Exception) -> bool:
        """Take the event out where the condition holds, as Python would raise this error. False: that cannot be done here,
        and nothing is written."""
        if not self.at or not self.possible():
            return False
        with self._code.when(condition):
            self.write(self.at, cause_of(error))
            self._code.leave()
        return True

    def possible(self) -> bool:
        """Whether an event that fails at this place can be taken out here."""
        ctx = self._ctx
        if not ctx.work.takes_out or self._handler_file is None:
            return False
        if ctx.ticks or (ctx.late and not ctx.work.finds_late):
            return False  # there is no event, or it has had effects before
        return not self._code.in_plain_loop

    def write(
        self, line: int, text: str, error: type[Exception] | None = None, args: tuple[Any, ...] = (),
        words: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Take the event out, if one more may be: undo it where its code ends."""
        ctx, code, file = self._ctx, self._code, self._handler_file
        assert file is not None
        unit, handler = ctx.unit, ctx.unit.handlers[ctx.handler]
        unit.raising.append(Raised(ctx.source_event.__name__, handler, file, line, text, error, args))
        number = len(ctx.rejections)
        names = [f"j{number}_{i}" for i in range(len(words))]
        ctx.rejections.append(Rejected(ctx.event, None, names, raises=True))
        first = f" and takes[1] != {ctx.now}" if unit.steps else ""
        with code.when(f"takes[{LATE}] > 0" if ctx.late else f"takes[0] > 0{first}"):
            if not ctx.late:
                code.assign("takes[0]", "1", "-=")
            for name, word in zip(names, words, strict=True):
                code.assign(name, word)
            code.assign("rejected", f"{number + 1}")
            code.assign("handler", f"-{len(unit.raising)}")
            code.assign("reason", "1" if ctx.late else "0")
            code.reject()
