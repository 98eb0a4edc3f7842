"""The events at which a handler raised in the compiled function, as rows of `Run.quarantined`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from timelapse.ids import Phase
from timelapse.kernels.native.memory.strings import Interned
from timelapse.kernels.native.unit import Raised, Unit, Word
from timelapse.model.failure import LONGEST, Quarantined, cause_of

_CONVERSIONS: dict[int, Callable[[object], str]] = {ord("s"): str, ord("r"): repr, ord("a"): ascii}
_PLAIN = Word("int")
_DIGITS = 20
"""A number has so many at most."""


def raised_rows(unit: Unit, rows: npt.NDArray[np.int64], interned: Interned) -> list[Quarantined]:
    """`rows` as the function put them out: see `REFUSED`."""
    found, texts = list[Quarantined](), dict[tuple[int, ...], str]()
    counts = {-1 - n: place.words for n, place in enumerate(unit.raising)}
    numbers = {-1 - n: written for n, place in enumerate(unit.raising) if (written := _of_numbers(place))}
    for ts, seq, _, number, _, *words in rows.tolist():
        place = unit.raising[-1 - number]
        text = place.text
        if number in numbers:
            text = numbers[number] % tuple(words[: counts[number]])
        elif place.error is not None:
            told = (number, *words[: counts[number]])
            if told not in texts:
                texts[told] = _text(place, iter(words), interned)
            text = texts[told]
        found.append((ts, Phase.LOG_EVENT, seq, place.event, place.handler, text, place.file, place.line))
    return found


def _of_numbers(place: Raised) -> str:
    """What is to be formatted with a place's words to give its text, where these are whole numbers as they are, between texts; else nothing."""
    error, parts = place.error, place.args[0] if len(place.args) == 1 else ()
    if error is None or error.__str__ is not BaseException.__str__ or not isinstance(parts, list):
        return ""
    if any(isinstance(part, Word) and part != _PLAIN for part in parts):
        return ""
    told = ["%d" if isinstance(part, Word) else str(part).replace("%", "%%") for part in parts]
    text = f"{error.__name__}: {''.join(told)}"
    return text if text.isascii() and len(text) + _DIGITS * len(parts) < LONGEST else ""


def _text(place: Raised, words: Iterator[int], interned: Interned) -> str:
    assert place.error is not None
    try:
        error: Exception = place.error(*(_argument(arg, words, interned) for arg in place.args))
    except Exception as other:  # Python raises that one instead
        error = other
    return cause_of(error)


def _argument(arg: Any, words: Iterator[int], interned: Interned) -> Any:
    if isinstance(arg, list):
        return "".join(_formatted(part, words, interned) for part in arg)
    return _value(arg, next(words), interned) if isinstance(arg, Word) else arg


def _formatted(part: Any, words: Iterator[int], interned: Interned) -> str:
    if not isinstance(part, Word):
        return str(part)
    code = next(words)
    if part == _PLAIN:  # nearly all are
        return str(code)
    value = _value(part, code, interned)
    if part.conversion in _CONVERSIONS:
        value = _CONVERSIONS[part.conversion](value)
    return format(value, part.spec)


def _value(word: Word, code: int, interned: Interned) -> Any:
    """What a word stands for."""
    if word.kind in ("str", "bytes"):
        return interned.value(code)
    if word.kind == "float":
        return float(np.int64(code).view(np.float64))
    return bool(code) if word.kind == "bool" else code
