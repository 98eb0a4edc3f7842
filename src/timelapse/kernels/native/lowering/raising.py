"""Where Python would raise: an event that is to be taken out of the log then is undone in the compiled function itself.

It is left as by a reject, and listed with the place that raised (`Unit.raising`). That is done where the error's text and its
line are known here, or follow from values that the function can tell: a `raise` of a class without code of its own, an
`assert`, a zero divisor. Anything else leaves to Python, which finds out.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from timelapse.kernels.native.lowering.emitter import REJECT, Frame
from timelapse.kernels.native.lowering.flow import Moves, Rejected
from timelapse.kernels.native.lowering.records import Records
from timelapse.kernels.native.lowering.values import NOT_CONSTANT, Env, Refused
from timelapse.kernels.native.unit import Raised, Word
from timelapse.model.events import Event
from timelapse.model.failure import cause_of, is_reproducible
from timelapse.model.program import Rejection

_OWN = {"__init__", "__new__", "__str__", "__repr__", "__getattribute__"}
_REWRITTEN = "@pytest_ar"
"""Among the globals of a module whose asserts pytest has rewritten: what they raise is not what the source says."""


def line_of(statement: ast.stmt) -> int:
    """The line that an error has at whatever is evaluated by a statement itself; 0 where it may be one of several."""
    part: ast.AST = statement
    if isinstance(statement, ast.If):
        part = statement.test
    elif isinstance(statement, ast.While | ast.For | ast.Match):
        return 0
    first, last = getattr(part, "lineno", 0), getattr(part, "end_lineno", None)
    return first if first == last else 0


class Raising(Records):
    """Writes what is done where Python would raise."""

    _raised_in: str | None = None
    """The file of the handler whose code is being written."""
    _at = 0
    """The line of it that an error has now; 0 where that is not known."""
    _derived: type[Event] | None = None
    """The type of the derived event whose code is being written."""

    @contextmanager
    def _raising_in(self, handler: types.FunctionType) -> Iterator[None]:
        """Write a handler's code, in which an event that fails may be taken out."""
        self._raised_in = handler.__code__.co_filename
        try:
            yield
        finally:
            self._raised_in = None

    @contextmanager
    def _standing(self) -> Iterator[None]:
        """Write statements within one: after them an error has that one's line again."""
        at = self._at
        try:
            yield
        finally:
            self._at = at

    def _stand_at(self, statement: ast.stmt, frame: Frame) -> None:
        """A statement begins. Within a helper an error has the line at which the handler calls it."""
        if not frame.depth:
            self._at = line_of(statement)

    def raises_if(self, condition: str, error: Exception, also: str = "") -> None:
        """Where the condition holds Python raises this error. `also`: where Python handles the event in any case."""
        if not self._at or not self._may_take_out():
            super().raises_if(condition, error, also)
            return
        with self.block(f"if {condition}:"):
            self._take_out(self._at, cause_of(error))
            self.leave()
        if also:
            self.exit_if(also)

    def _raise(self, statement: ast.Raise, env: Env, frame: Frame) -> None:
        without = statement.cause is None or _is_none(statement.cause)
        if statement.exc is not None and without and self._may_take_out():
            line = self._at if frame.depth else statement.lineno
            self._take_out_by(statement.exc, line, env, frame)
        self.leave()

    def _assert(self, statement: ast.Assert, condition: str, env: Env, frame: Frame) -> None:
        """`assert`, which fails where the condition holds."""
        told = __debug__ and _REWRITTEN not in frame.function.__globals__
        if not (told and self._at and self._may_take_out()):
            self.exit_if(condition)
            return
        made = ast.Call(
            ast.Name("AssertionError", ast.Load()), [] if statement.msg is None else [statement.msg], []
        )
        with self.block(f"if {condition}:"):
            self._take_out_by(made, self._at, env, frame, AssertionError)
            self.leave()

    def _may_take_out(self) -> bool:
        """Whether an event that fails at this place can be taken out here."""
        unit = self.unit
        if not self._work.takes_out or self._raised_in is None:
            return False
        if self._event in unit.later or self._event in unit.ticking:
            return False  # it has had effects before, or there is none
        return not self._in_plain_loop()

    def _in_plain_loop(self) -> bool:
        """Whether what is written now stands in a loop that `_leave` knows nothing of."""
        indent = self._indent
        for line in reversed(self._lines):
            if isinstance(line, Moves):
                continue
            own = (len(line) - len(line.lstrip())) // 4
            if own < indent:
                if line.lstrip().startswith("for "):
                    return True
                indent = own
        return False

    def _take_out_by(
        self, made: ast.expr, line: int, env: Env, frame: Frame, cls: type[Exception] | None = None
    ) -> None:
        """Take the event out because of an error that is made so, if all can be told of it. `cls`: its class."""
        call = made if isinstance(made, ast.Call) else ast.Call(made, [], [])
        if cls is None and isinstance(call.func, ast.Name) and call.func.id not in env:
            cls = _plain(frame.names.get(call.func.id))
        if cls is None or not line or call.keywords:
            return
        if not self._final:  # it lists none
            self._take_out(line, "")
            return
        mark, columns, words = self._mark(), len(self.unit.columns), list[str]()
        try:
            args = tuple(self._argument(arg, dict(env), frame, words) for arg in call.args)
        except Refused:
            self._rollback(mark)
            return
        # What Python computes of each event would be computed of all of them, for those that fail.
        computed = any(column.computed is not None for column in self.unit.columns[columns:])
        if computed:
            self._rollback(mark)
        elif words:
            self._take_out(line, "", cls, args, words)
        else:
            error = _made(cls, args)
            if error is not None:
                self._take_out(line, cause_of(error))

    def _argument(self, node: ast.expr, env: Env, frame: Frame, words: list[str]) -> Any:
        """A constant, a word, or the parts of an f-string. The words' codes go to `words`. Raises Refused."""
        if isinstance(node, ast.JoinedStr):
            return [self._text_part(part, env, frame, words) for part in node.values]
        if isinstance(node, ast.Constant):
            return node.value
        return self._told(node, env, frame, words)

    def _text_part(self, node: ast.expr, env: Env, frame: Frame, words: list[str]) -> str | Word:
        if isinstance(node, ast.Constant):
            return str(node.value)
        assert isinstance(node, ast.FormattedValue)
        spec = "" if node.format_spec is None else _constant(node.format_spec)
        if spec is None:
            raise Refused("a format that is computed", self._line)
        word = self._told(node.value, env, frame, words)
        if spec and (node.conversion >= 0 or not _fits(spec, word.kind)):
            raise Refused("a format that may fail", self._line)
        return Word(word.kind, node.conversion, spec)

    def _told(self, node: ast.expr, env: Env, frame: Frame, words: list[str]) -> Word:
        value = self._fixed(self._expr(node, env, frame))
        code = {
            "int": value.code, "str": value.code, "bytes": value.code, "bool": f"np.int64({value.code})",
            "float": f"bits({value.code})",
        }.get(value.kind)  # fmt: skip
        if code is None or (value.const is not NOT_CONSTANT and value.kind == "float"):
            raise Refused(f"the text of {value.text}", self._line)
        words.append(code)
        return Word(value.kind)

    def _take_out(
        self, line: int, text: str, error: type[Exception] | None = None, args: tuple[Any, ...] = (),
        words: list[str] | None = None,
    ) -> None:  # fmt: skip
        """Take the event out, if one more may be: undo it where its code ends."""
        unit, file = self.unit, self._raised_in
        assert file is not None
        event = self._derived or unit.events[self._event]
        handler = unit.handlers[self._handler]
        unit.raising.append(Raised(event.__name__, handler, file, line, text, error, args))
        number = len(self._rejections)
        names = [f"j{number}_{i}" for i in range(len(words or ()))]
        self._rejections.append(Rejected(self._event, None, names, raises=True))
        first = f" and takes[1] != {self.now}" if unit.steps else ""
        with self.block(f"if takes[0] > 0{first}:"):
            self.line("takes[0] -= 1")
            for name, word in zip(names, words or (), strict=True):
                self.line(f"{name} = {word}")
            self.line(f"rejected = {number + 1}")
            self.line(f"handler = -{len(unit.raising)}")
            self.line("reason = 0")
            self._leave(self._levels[0], REJECT)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _plain(cls: Any) -> type[Exception] | None:
    """An exception's class, if making one runs no code of the user's and makes an event fail everywhere."""
    if type(cls) is not type or not issubclass(cls, Exception):
        return None
    if issubclass(cls, Rejection | MemoryError | RecursionError):
        return None
    user = [c for c in cls.__mro__ if c.__module__ != "builtins"]
    return None if any(_OWN & vars(c).keys() for c in user) else cls


def _made(cls: type[Exception], args: tuple[Any, ...]) -> Exception | None:
    """The error of constant arguments."""
    try:
        error = cls(*("".join(a) if isinstance(a, list) else a for a in args))
    except Exception:
        return None
    return error if is_reproducible(error) else None


def _fits(spec: str, kind: str) -> bool:
    """Whether a format is one for all values of a kind: where it fails, that is the error, on a line of its own."""
    example = {"int": 1, "float": 1.5, "bool": True, "str": "text"}.get(kind)
    try:
        return example is not None and not spec.endswith("c") and bool(format(example, spec))
    except ValueError:
        return False


def _constant(spec: ast.expr) -> str | None:
    """A format that is a constant."""
    if not isinstance(spec, ast.JoinedStr):
        return None
    texts = [str(part.value) for part in spec.values if isinstance(part, ast.Constant)]
    return "".join(texts) if len(texts) == len(spec.values) else None
