"""Numba's inference of types, with less work done twice.

Numba goes through all statements until no type changes, four times for most passes. Each time it looks up every operator among all its
meanings. Here a statement is looked at again only if a type that it reads or writes has changed. The meaning of an operator for given types
is looked up once in a process.

This depends on Numba's internals. With versions that were not tried (`is_tried`) Numba does all of it itself, for the same results.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

import numba
import numba.core.types
from numba.core import errors, interpreter, transforms, typeinfer
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NopythonTypeInference
from numba.core.untyped_passes import IRProcessing, TranslateByteCode

types: Any = numba.core.types
numbas_errors: Any = errors
"""Those that its stubs do not name, too."""
_TRIED = ("0.68.",)
"""The versions of Numba whose internals this was tried with: how their numbers begin."""
_OPERATORS = ("_operator", "builtins")
"""Where functions stand whose meaning follows from the types alone: nothing is compiled or noted when it is found."""


def is_tried() -> bool:
    """Whether this was tried with the internals of this version of Numba, and on this kind of machine."""
    return numba.__version__.startswith(_TRIED) and sys.maxsize > 2**32


@register_pass(mutates_CFG=True, analysis_only=False)
class Reading(TranslateByteCode):  # type: ignore[misc, unused-ignore]
    """Numba's reading of bytecode, for generated source: in it are no `with`, no `*`, no `**` and no dictionaries to look for."""

    _name = "timelapse_reading"

    def run_pass(self, state: Any) -> bool:
        if not is_tried():
            return bool(super().run_pass(state))
        state["func_ir"] = _Interpreter(state["func_id"]).interpret(state["bc"])
        return True


class _Interpreter(interpreter.Interpreter):  # type: ignore[misc, unused-ignore]
    def post_process(self, peepholes: Any, func_ir: Any) -> Any:
        return func_ir


@register_pass(mutates_CFG=True, analysis_only=False)
class Blocks(IRProcessing):  # type: ignore[misc, unused-ignore]
    """Puts blocks into their usual form. Numba also finds where each variable is alive, which only generators, `with` and counts of
    references ask for."""

    _name = "timelapse_blocks"

    def run_pass(self, state: Any) -> bool:
        if not is_tried() or state.func_ir.is_generator or state.flags.nrt:
            return bool(super().run_pass(state))
        state.func_ir.blocks = transforms.canonicalize_cfg(state.func_ir.blocks)
        state.func_ir.generator_info = None
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class Types(NopythonTypeInference):  # type: ignore[misc, unused-ignore]
    """Numba's inference of types, for functions that return numbers."""

    _name = "timelapse_types"

    def run_pass(self, state: Any) -> bool:
        if not is_tried() or state.return_type is not None or state.locals:
            return bool(super().run_pass(state))
        typing, read = state.typingctx, state.func_ir
        warnings = numbas_errors.WarningsFixer(errors.NumbaWarning)
        infer = typeinfer.TypeInferer(typing, read, warnings)
        infer.constraints = _Statements()
        with typing.callstack.register(state.targetctx.target, infer, read.func_id, state.args), warnings:
            for n, (name, kind) in enumerate(zip(read.arg_names, state.args, strict=True)):
                infer.seed_argument(name, n, kind)
            infer.build_constraint()
            infer.propagate()
            state.typemap, result, state.calltypes = infer.unify()
        if not isinstance(types.unliteral(result), types.Number | types.Boolean):
            return bool(super().run_pass(state))  # Numba has rules for other results
        state.return_type = result
        return True


class _Statements:
    """Numba's constraints of a function's types, one for each statement."""

    def __init__(self) -> None:
        self._all: list[Any] = []
        self._done: dict[int, Any] = {}

    def append(self, constraint: Any) -> None:
        """Add one."""
        self._all.append(constraint)

    def propagate(self, infer: Any) -> list[Any]:
        """Look at each whose types have changed since it was looked at. Returns errors: more may be known the next time."""
        raised: list[Any] = []
        where = infer.func_ir.loc
        with infer.warnings.catch_warnings(filename=where.filename, lineno=where.line):
            for n, constraint in enumerate(self._all):
                error = self._look_at(n, constraint, infer)
                if error is not None:
                    raised.append(error)
        return raised

    def _look_at(self, n: int, constraint: Any, infer: Any) -> Any:
        names, kinds = _names_of(constraint), infer.typevars
        if names is not None and self._done.get(n) == [kinds[name].type for name in names]:
            return None
        self._done.pop(n, None)
        try:
            constraint(infer)
        except errors.TypingError as error:
            return error
        if names is not None:
            self._done[n] = [kinds[name].type for name in names]
        return None


def _names_of(constraint: Any) -> list[str] | None:
    """The variables on whose types alone it depends what a constraint does; None where that is not known."""
    if type(constraint) is typeinfer.Propagate:
        return [constraint.src, constraint.dst]
    if isinstance(constraint, typeinfer.CallConstraint) and constraint.vararg is None and not constraint.kws:
        names = [constraint.target, *(given.name for given in constraint.args)]
        return [*names, constraint.func] if type(constraint) is typeinfer.CallConstraint else names
    return None


class Resolved:
    """Numba's typing context, which finds the same call of the same types once.

    A function of hundreds of statements has few different ones, and Numba looks through all that an operator can mean.
    """

    def __init__(self, context: Any) -> None:
        self._context = context
        self._found: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def resolve_function_type(self, function: Any, given: Any, named: Any) -> Any:
        """The signature with which a function is called."""
        if not named and _is_operator(function):
            return signature_of(self._context, function, tuple(given))
        key = (function, tuple(given), tuple(sorted(named.items())))
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._context.resolve_function_type(function, given, named)
        return found


def _is_operator(function: Any) -> bool:
    is_own = (
        isinstance(function, types.Function)
        and getattr(function.typing_key, "__module__", None) in _OPERATORS
    )
    return (is_own or isinstance(function, types.NumberClass)) and is_tried()


@lru_cache(maxsize=4096)
def signature_of(context: Any, function: Any, given: tuple[Any, ...]) -> Any:
    """What an operator, or the making of a number, is for given types: Numba's signature, or None."""
    return context.resolve_function_type(function, given, {})
