"""Going through a slice's recording: up to the first event that would not do the same on what keys hold now."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from timelapse.kernels.iterate.bounds import ABSENT_KEY, ADD, DELETE, NOTHING, PRESENT, SET

COMPILED_ROWS = 1_000_000
"""From this many rows on the sweep is worth machine code."""
ALWAYS = ABSENT_KEY + 1
"""What an event needs of a key that is to run again whatever it holds."""


def sweep(
    at: int, end: int, begins: Any, keys: Any, needs: Any, lows: Any, highs: Any, effects: Any, amounts: Any,
    words: Any, present: Any, written: Any,
) -> int:  # fmt: skip
    """Do what events `at` to before `end` did, as long as they would do the same.

    `words` and `present` are what keys hold, `written` those that were written; all three are kept up. Gives the
    first event that would not, of which nothing has been done, or `end`.
    """
    while at < end:
        begin, stop = begins[at], begins[at + 1]
        for row in range(begin, stop):
            key, need, word = keys[row], needs[row], words[keys[row]]
            if need != 0:
                if need == 3 or (present[key] != 0) != (need == 1):
                    return at
                if need == 2:
                    continue
            if word < lows[row] or word > highs[row]:
                return at
        for row in range(begin, stop):
            effect = effects[row]
            if effect != 0:
                key = keys[row]
                written[key] = 1
                if effect == 1:
                    words[key] += amounts[row]
                elif effect == 2:
                    words[key] = amounts[row]
                    present[key] = 1
                else:
                    words[key] = 0
                    present[key] = 0
        at += 1
    return at


# The numbers in it are these: machine code knows no names of other modules that could change.
assert (PRESENT, ABSENT_KEY, ALWAYS, NOTHING, ADD, SET, DELETE) == (1, 2, 3, 0, 1, 2, 3)


@functools.cache
def compiled() -> Callable[..., int]:
    """The same as machine code, over arrays of int64."""
    from timelapse.kernels.native.machine.jit import primitive

    made: Callable[..., int] = primitive()(sweep)
    return made
