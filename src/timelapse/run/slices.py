"""How many slices a log is cut into where nobody says."""

from __future__ import annotations

from timelapse.analysis.result import PassProgram
from timelapse.env.machine import state_memory
from timelapse.kernels.choose import choice
from timelapse.model.program import Program, spec_of

_INTERPRETED_EVENTS = 1_000_000
"""Events per slice whose handlers run as Python: what it puts out is Python objects until its end."""

_COMPILED_EVENTS = 4_000_000
"""Events per slice of a compiled pass: at each slice's end, the keys that it wrote are sorted and written out."""

_KEY_BYTES = 128
"""What an event may add to each state's table at most, if it touches one key of it: a row, half of the rows free."""


def least_slices(program: Program, final: PassProgram, events: int, memory: int | None) -> int:
    """So many slices that none is too large to hold.

    The keys that a slice touches stay in memory until its end, so there are at most so many of them as fit
    into `memory` bytes (None: what this machine has for a task's states), whatever the size of the whole state.
    """
    most = max(
        1,
        (state_memory() if memory is None else memory) // (_KEY_BYTES * max(1, len(spec_of(program).states))),
    )
    if events <= min(most, _INTERPRETED_EVENTS):
        return 1
    usual = _COMPILED_EVENTS if choice(program, final, final=True).compiled else _INTERPRETED_EVENTS
    return -(-events // min(usual, most))
