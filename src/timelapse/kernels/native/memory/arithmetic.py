"""Arithmetic on words of 64 bits, as machine instructions in the code of whoever uses it.

A compiled function would have to be typed, linked and optimised once more in each pass and each function that calls it,
and these are most of the calls in generated code. Each is given twice: as what it means, which Python can call, and
as LLVM's instructions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.extending import _Intrinsic

_WORD, _DOUBLE = ir.IntType(64), ir.DoubleType()
_STEP = 0x9E3779B97F4A7C15
_FACTORS = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53
_LIMIT = 9.2e18
_MASK = 2**64 - 1


class _Operation(_Intrinsic):  # type: ignore[misc, unused-ignore]
    """What Numba takes for instructions, and Python can call."""

    meaning: Callable[..., Any]

    def __call__(self, *given: Any) -> Any:
        return self.meaning(*given)


def _operation(instructions: Callable[..., Any], result: Any, *given: Any) -> Callable[[Any], Any]:
    """A decorator for the meaning. `instructions` are made by an IRBuilder of operands of the types `given`.

    What it is called with becomes those types: integers keep their bits.
    """

    def decorate(meaning: Any) -> Any:
        def define(typing: Any, *_: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
                return instructions(builder, *values)

            return result(*given), generate

        first = inspect.Parameter("typing", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        rest = inspect.signature(meaning).parameters.values()
        vars(define)["__signature__"] = inspect.Signature([first, *rest])
        define.__name__, define.__qualname__ = meaning.__name__, meaning.__qualname__
        define.__module__, define.__doc__ = meaning.__module__, meaning.__doc__
        made = _Operation(meaning.__name__, define)
        made.meaning = meaning
        made._register()
        return made

    return decorate


_I, _U, _F, _B = types.int64, types.uint64, types.float64, types.boolean


def _int64(value: int) -> np.int64:
    """Modulo 2^64."""
    return np.int64(((value + 2**63) & _MASK) - 2**63)


@_operation(lambda b, x, y: b.add(x, y), _I, _I, _I)
def plus(a: Any, b: Any) -> np.int64:
    """`a + b` modulo 2^64. Numba's own addition promises LLVM that it never leaves int64."""
    return _int64(int(a) + int(b))


@_operation(lambda b, x, y: b.sub(x, y), _I, _I, _I)
def minus(a: Any, b: Any) -> np.int64:
    """`a - b` modulo 2^64."""
    return _int64(int(a) - int(b))


def _negative(builder: Any, word: Any) -> Any:
    return builder.icmp_signed("<", word, _WORD(0))


@_operation(lambda b, t, x, y: _negative(b, b.and_(b.xor(t, x), b.xor(t, y))), _B, _I, _I, _I)
def plus_left(total: Any, a: Any, b: Any) -> bool:
    """Whether the sum of a and b, modulo 2^64, is not their sum."""
    return int(total) != int(a) + int(b)


@_operation(lambda b, t, x, y: _negative(b, b.and_(b.xor(x, y), b.xor(t, x))), _B, _I, _I, _I)
def minus_left(total: Any, a: Any, b: Any) -> bool:
    """Whether a - b, modulo 2^64, is not a - b."""
    return int(total) != int(a) - int(b)


def _times_left(builder: Any, a: Any, b: Any) -> Any:
    product = builder.fmul(builder.sitofp(a, _DOUBLE), builder.sitofp(b, _DOUBLE))
    above = builder.fcmp_ordered(">", product, _DOUBLE(-_LIMIT))
    return builder.not_(builder.and_(above, builder.fcmp_ordered("<", product, _DOUBLE(_LIMIT))))


@_operation(_times_left, _B, _I, _I)
def times_left(a: Any, b: Any) -> bool:
    """Whether the product of a and b may lie outside of int64."""
    return not -_LIMIT < float(int(a)) * float(int(b)) < _LIMIT


def _left(builder: Any, j: Any, u: Any, why: Any) -> Any:
    return builder.or_(builder.or_(builder.shl(j, _WORD(32)), builder.shl(u, _WORD(4))), why)


@_operation(_left, _I, _I, _I, _I)
def left(j: Any, u: Any, why: Any) -> np.int64:
    """What a pass returns that is left at event j (see `unit.left`)."""
    return _int64(int(j) << 32 | int(u) << 4 | int(why))


@_operation(lambda b, x: b.bitcast(x, _WORD), _I, _F)
def bits(x: Any) -> np.int64:
    """The word of a float."""
    found: np.int64 = np.float64(x).view(np.int64)
    return found


@_operation(lambda b, word: b.bitcast(word, _DOUBLE), _F, _I)
def unbits(word: Any) -> np.float64:
    """The float of a word."""
    found: np.float64 = np.int64(word).view(np.float64)
    return found


def _mix(builder: Any, x: Any) -> Any:
    for factor in _FACTORS:
        x = builder.mul(builder.xor(x, builder.lshr(x, _WORD(33))), _WORD(factor))
    return builder.xor(x, builder.lshr(x, _WORD(33)))


@_operation(_mix, _U, _U)
def mix(x: Any) -> np.uint64:
    """The finaliser of MurmurHash3."""
    word = int(x) & _MASK
    for factor in _FACTORS:
        word = (word ^ word >> 33) * factor & _MASK
    return np.uint64(word ^ word >> 33)


@_operation(lambda b, h, word: b.add(b.mul(h, _WORD(_STEP)), word), _U, _U, _U)
def fold(h: Any, word: Any) -> np.uint64:
    """A key's words so far and the next one, before `mix`."""
    return np.uint64((int(h) * _STEP + int(word)) & _MASK)
