"""The events at which a handler raised in the compiled function, as rows of `Run.quarantined`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from timelapse.ids import Phase
from timelapse.kernels.native.lowering.unit import REFUSED, Raised, Unit, Word
from timelapse.kernels.native.memory.strings import Interned
from timelapse.program.failure import LONGEST, Quarantined, cause_of

_CONVERSIONS: dict[int, Callable[[object], str]] = {ord("s"): str, ord("r"): repr, ord("a"): ascii}
_PLAIN = Word("int")
_NONE: Quarantined = (0, 0, 0, "", "", "", None, None)
_DIGITS = 20
"""A number has so many at most."""


def raised_rows(unit: Unit, rows: npt.NDArray[np.int64], interned: Interned) -> list[Quarantined]:
    """`rows` as the function put them out: see `REFUSED`."""
    found: list[Quarantined] = [_NONE] * len(rows)
    for number in np.unique(rows[:, 3]).tolist():
        at = np.flatnonzero(rows[:, 3] == number)
        own, place = rows[at], unit.raising[-1 - number]
        told = zip(
            own[:, 0].tolist(), own[:, 1].tolist(), _texts(place, own[:, REFUSED:], interned), strict=True
        )
        event, handler, file, line = place.event, place.handler, place.file, place.line
        made = [(ts, Phase.LOG_EVENT, seq, event, handler, text, file, line) for ts, seq, text in told]
        if len(at) == len(rows):
            return made
        for n, row in zip(at.tolist(), made, strict=True):
            found[n] = row
    return found


def _texts(place: Raised, words: npt.NDArray[np.int64], interned: Interned) -> Iterable[str]:
    """The texts of one place's errors."""
    if place.error is None or not place.words:
        return repeat(place.text if place.error is None else _text(place, iter(()), interned), len(words))
    told = list(zip(*words.T[: place.words].tolist(), strict=True))
    written = _of_numbers(place)
    if written:
        return map(written.__mod__, told)
    texts = {each: _text(place, iter(each), interned) for each in dict.fromkeys(told)}
    return map(texts.__getitem__, told)


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
