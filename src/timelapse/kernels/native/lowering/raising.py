"""`raise` and `assert`: what they tell, where that is known here or follows from values that the function can tell (taking.py)."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from timelapse.kernels.native.lowering.code import Code
from timelapse.kernels.native.lowering.context import Context, Frame
from timelapse.kernels.native.lowering.trying import Trial
from timelapse.kernels.native.lowering.unit import Word
from timelapse.kernels.native.lowering.values import NOT_CONSTANT, Env
from timelapse.kernels.native.refused import Refused
from timelapse.program.failure import cause_of, is_reproducible
from timelapse.program.program import Rejection

if TYPE_CHECKING:
    from timelapse.kernels.native.lowering.rules import Rules

_OWN = {"__init__", "__new__", "__str__", "__repr__", "__getattribute__"}
_REWRITTEN = "@pytest_ar"
"""Among the globals of a module whose asserts pytest has rewritten: what they raise is not what the source says."""


class Raising:
    """Writes what is done where a handler raises."""

    def __init__(self, ctx: Context, code: Code, trial: Trial, rules: Rules) -> None:
        self._ctx, self._code, self._trial, self._rules = ctx, code, trial, rules
        self._taking = code.taking

    def raises(self, statement: ast.Raise, env: Env, frame: Frame) -> None:
        """`raise`."""
        without = statement.cause is None or _is_none(statement.cause)
        if statement.exc is not None and without and self._taking.possible():
            line = self._taking.at if frame.depth else statement.lineno
            self._take_out_by(statement.exc, line, env, frame)
        self._code.leave()

    def asserts(self, statement: ast.Assert, condition: str, env: Env, frame: Frame) -> None:
        """`assert`, which fails where the condition holds."""
        told = __debug__ and _REWRITTEN not in frame.function.__globals__
        if not (told and self._taking.at and self._taking.possible()):
            self._code.exit_if(condition)
            return
        made = ast.Call(
            ast.Name("AssertionError", ast.Load()), [] if statement.msg is None else [statement.msg], []
        )
        with self._code.when(condition):
            self._take_out_by(made, self._taking.at, env, frame, AssertionError)
            self._code.leave()

    def _take_out_by(
        self, made: ast.expr, line: int, env: Env, frame: Frame, cls: type[Exception] | None = None
    ) -> None:
        """Take the event out because of an error that is made so, if all can be told of it. `cls`: its class."""
        call = made if isinstance(made, ast.Call) else ast.Call(made, [], [])
        if cls is None and isinstance(call.func, ast.Name) and call.func.id not in env:
            cls = _plain(frame.names.get(call.func.id))
        if cls is None or not line or call.keywords:
            return
        if not self._ctx.final:  # it lists none
            self._taking.write(line, "")
            return
        mark, columns, words = self._trial.mark(), len(self._ctx.unit.columns), list[str]()
        try:
            args = tuple(self._argument(arg, dict(env), frame, words) for arg in call.args)
        except Refused:
            self._trial.back(mark)
            return
        # What Python computes of each event would be computed of all of them, for those that fail.
        computed = any(column.computed is not None for column in self._ctx.unit.columns[columns:])
        if computed:
            self._trial.back(mark)
        elif words:
            self._taking.write(line, "", cls, args, words)
        else:
            error = _made(cls, args)
            if error is not None:
                self._taking.write(line, cause_of(error))

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
            raise Refused("a format that is computed", self._ctx.line)
        word = self._told(node.value, env, frame, words)
        if spec and (node.conversion >= 0 or not _fits(spec, word.kind)):
            raise Refused("a format that may fail", self._ctx.line)
        return Word(word.kind, node.conversion, spec)

    def _told(self, node: ast.expr, env: Env, frame: Frame, words: list[str]) -> Word:
        value = self._code.fixed(self._rules.expr(node, env, frame))
        code = {
            "int": value.code, "str": value.code, "bytes": value.code, "bool": f"np.int64({value.code})",
            "float": f"bits({value.code})",
        }.get(value.kind)  # fmt: skip
        if code is None or (value.const is not NOT_CONSTANT and value.kind == "float"):
            raise Refused(f"the text of {value.text}", self._ctx.line)
        words.append(code)
        return Word(value.kind)


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
