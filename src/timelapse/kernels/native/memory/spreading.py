"""What the finding of failing events (together.py) calls: which events of a log have to do with each other, by the rows that each step can touch."""

from __future__ import annotations

import numpy as np

from timelapse.kernels.native.machine.jit import primitive

_U = np.uint64
AT_ONCE, LATE = 1, 2
"""How a step fails: with its event, or long after it."""


@primitive()
def number(keys, found, numbers, into):  # type: ignore[no-untyped-def]
    """Number keys by the order in which they come first; 0 is none, and gets -1. `found` and `numbers`: a hash table, empty."""
    mask, count = _U(len(found) - 1), 0
    for n in range(len(keys)):
        key = keys[n]
        if key == 0:
            into[n] = -1
            continue
        at = (key ^ (key >> _U(32))) & mask
        while found[at] != 0 and found[at] != key:
            at = (at + _U(1)) & mask
        if found[at] == 0:
            found[at] = key
            numbers[at] = count
            count += 1
        into[n] = numbers[at]
    return count


@primitive()
def group_of(parents, n):  # type: ignore[no-untyped-def]
    """The group of a node."""
    while parents[n] != n:
        parents[n] = parents[parents[n]]
        n = parents[n]
    return n


@primitive()
def spread(events, kinds, cells, writes, failing, tied, parents, holds, failed, decided, certain):  # type: ignore[no-untyped-def]
    """Put those events into groups that can have to do with each other, up to each step; say which failures are certain.

    `tied`: the events that belong to a group from their first step on; each that touches what one of a group may have written is to. False where
    there were more of these than was known: then it has to be done again. The node of event n is n + 1.
    """
    whole = True
    for s in range(len(events)):
        event, kind, group = events[s], kinds[s], 0
        if tied[event]:
            group = group_of(parents, event + 1)
        for j in range(cells.shape[1]):
            cell = cells[s, j]
            if cell >= 0 and holds[cell] != 0:
                other = group_of(parents, holds[cell])
                if group == 0:
                    group = other
                elif group != other:
                    parents[other] = group
                    failed[group] |= failed[other]
        if group != 0:
            if not tied[event]:
                tied[event] = True
                whole = False
                parents[group_of(parents, event + 1)] = group
            for j in range(cells.shape[1]):
                if cells[s, j] >= 0 and writes[kind, j]:
                    holds[cells[s, j]] = group
        if failing[s] == AT_ONCE:
            certain[s] = group == 0 or not failed[group]
        elif failing[s] == LATE and not decided[event]:
            decided[event] = True
            certain[s] = not failed[group]
            failed[group] = True
    return whole


@primitive()
def needed(events, kinds, cells, writes, tied, parents, failed, read, found):  # type: ignore[no-untyped-def]
    """The steps of groups of which an event has failed, and those that it takes to know what they find in rows."""
    for s in range(len(events) - 1, -1, -1):
        kind, event = kinds[s], events[s]
        is_needed = tied[event] and failed[group_of(parents, event + 1)]
        for j in range(cells.shape[1]):
            if not is_needed and cells[s, j] >= 0 and writes[kind, j]:
                is_needed = read[cells[s, j]]
        if is_needed:
            found[s] = True
            for j in range(cells.shape[1]):
                if cells[s, j] >= 0:
                    read[cells[s, j]] = True
