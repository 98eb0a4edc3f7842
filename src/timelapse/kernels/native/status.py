"""What compiled functions tell: why they return, and how far they went back."""

from __future__ import annotations

from enum import IntEnum

LEAVE, ROOM, SPENT, ABROAD, HOPELESS, LISTS, SENDS, LINKS, PAUSED = 1, 2, 3, 4, 5, 6, 7, 8, 9
"""Why the function returns before it is through: Python must handle the event, a buffer is full, the event has
spent its budget of rounds (budget.py), or it uses a key that is not under its own (shared.py); or the whole pass has to run as Python. In these three
cases nothing is undone. LISTS, SENDS, LINKS: what it lists takes more room, what it sends, or the members of SetOfs. PAUSED: it was
to stop between two of the events that it sends (within.py).

It returns 0 at the end, else the event's index * 2^32 + entries of the undo log * 16 + the reason.
"""


def left(status: int) -> tuple[int, int, int]:
    """The event's index, the entries of the undo log, the reason."""
    return status >> 32, (status >> 4) & 0xFFFFFFF, status & 15


class Back(IntEnum):
    """Places in the array `back`, with which a function is told how far it may go back, and tells how far it has (decider.py)."""

    BASE = 0
    """The seq that `latest` begins with."""
    SETTLED = 1
    """How many events from that seq on are settled."""
    TOO_LATE = 2
    """Whether an event would have to be taken out that is settled, or of which a step is not held any more."""
    HELD = 3
    """The number of the first step that is held, counted from 1."""
    NOTES = 4
    """How many copies of rows came before those of the steps that are held (memory/again.py)."""
    AT = 5
    """The step that the function has come to."""
    STOP = 6
    """Whether it is to return before the next step."""
    DONE = 7
    """How many steps were done again."""
    ALLOWED = 8
    """How many may be until it returns."""
    END = 9
    """The end of the entries of rows that are set aside."""
    FREE = 10
    """One that is not in use, before that end; 0: none."""
    MOST_ASIDE = 11
    """It returns if they end behind this place,"""
    MOST_DUE = 12
    """or if more steps than so many are due."""
