"""Removing checkpoints that nothing needs any more.

A run goes on from the newest checkpoint, and from the whole one before the newest where that is damaged: what is older than the second newest
whole one is removed. Where late rows are put into their places, whole ones from before are needed too: of these the older ones lie further and
further apart, so that a correction goes back at most about twice as far as its first row lies, and they are few. All are
below the journal, which stays: without any checkpoint the run begins anew from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from timelapse.errors import StorageError
from timelapse.store.parts import DAMAGED
from timelapse.streaming.chain import newest, read_epoch
from timelapse.streaming.format import CHECKPOINTS, REMEDY, Checkpoint
from timelapse.streaming.pack import header
from timelapse.streaming.place import RunPlace
from timelapse.streaming.versions import valid

KEPT = 2
"""So many of the newest whole checkpoints stay, and all behind the older one of them."""


def collect(
    place: RunPlace, *, corrected: bool, horizon: int | None = None, needed: Callable[[], str] = lambda: ""
) -> list[str]:
    """Remove checkpoints that nothing needs any more, which any process may do. Returns their names.

    `corrected`: late rows are put into their places, those that are less than `horizon` behind (microseconds; None: all). `needed` gives the name of one that stays,
    with all that it stands on: that of which a further one is being written. A checkpoint that
    cannot be read stays: it is told of where it is of use. Raises OSError, StorageError.
    """
    last = newest(place)
    if not last:
        return []
    about = read_epoch(place, last).about
    counts = valid(place, about)
    found = [
        (f"{CHECKPOINTS}/{name}", _header(place, f"{CHECKPOINTS}/{name}"))
        for name in place.names(CHECKPOINTS)
    ]
    whole = sorted(
        (
            (name, one)
            for name, one in found
            if one is not None and one.whole and one.epoch <= last and counts(one)
        ),
        key=lambda at: -at[1].epoch,
    )
    if len(whole) < KEPT:
        return []
    first = whole[KEPT - 1][1].epoch
    kept = set[str]()
    if corrected and about.complete is not None:
        ages = [(name, about.complete - one.complete) for name, one in whole]
        kept = set(_spread(ages, horizon))
    parents, name = {name: one.parent for name, one in found if one is not None}, needed()
    while name and name not in kept:
        kept.add(name)
        name = parents.get(name, "")
    gone = [name for name, one in found if one is not None and one.epoch < first and name not in kept]
    place.remove(gone)
    return gone


def _header(place: RunPlace, name: str) -> Checkpoint | None:
    """What a checkpoint says of itself; None where it cannot be read."""
    try:
        return header(f"{place}/{name}", place.pieces(name), Checkpoint, REMEDY)
    except FileNotFoundError:
        return None
    except StorageError as error:
        if error.code != DAMAGED:
            raise
        return None


def _spread(ages: Sequence[tuple[str, int]], horizon: int | None) -> list[str]:
    """Of checkpoints with their ages, by rising age, those that stay: each is at most twice as old as the one before, as far as there are such, and of
    any three the last is more than that. The first one beyond the horizon is the last. What is taken from what was left before is so, too, since
    ages come nearer to each other in proportion."""
    kept: list[tuple[str, int]] = []
    for place, (name, age) in enumerate(ages):
        beyond = horizon is not None and age >= horizon
        if beyond or not kept or place + 1 == len(ages) or ages[place + 1][1] > 2 * kept[-1][1]:
            kept.append((name, age))
        if beyond:
            break
    return [name for name, _ in kept]
