"""Compiled loops for together.py: which events of a log can affect each other, by the rows that each step can touch."""

from __future__ import annotations

import numpy as np

from timelapse.kernels.native.machine.jit import primitive

_U = np.uint64
AT_ONCE, LATE = 1, 2
"""How a step fails: with its event, or long after it."""


_AHEAD = 64
"""So many places of the table are fetched at a time: waiting for one after the other takes several times as long."""


@primitive()
def number(keys, slots, count, into):  # type: ignore[no-untyped-def]
    """Number keys by the order in which they come first, from `count` on; 0 is none, and gets -1. `slots`: a hash table of keys and their
    numbers. Returns how many there are then, and what is of no use: without it the compiler would not fetch ahead."""
    mask, fetched = _U(len(slots) - 1), _U(0)
    for begin in range(0, len(keys), _AHEAD):
        end = min(begin + _AHEAD, len(keys))
        for n in range(begin, end):
            fetched ^= slots[(keys[n] ^ (keys[n] >> _U(32))) & mask, 0]
        for n in range(begin, end):
            key = keys[n]
            if key == 0:
                into[n] = -1
                continue
            at = (key ^ (key >> _U(32))) & mask
            while slots[at, 0] != 0 and slots[at, 0] != key:
                at = (at + _U(1)) & mask
            if slots[at, 0] == 0:
                slots[at, 0] = key
                slots[at, 1] = count
                count += 1
            into[n] = slots[at, 1]
    return count, fetched


@primitive()
def number_again(numbers, keep, known, into):  # type: ignore[no-untyped-def]
    """Number anew what is left of rows of numbers, -1 being none. `known`: -1 for each number. Returns how many there are then."""
    count, to = 0, 0
    for n in range(len(numbers)):
        if keep[n]:
            for j in range(numbers.shape[1]):
                old = numbers[n, j]
                if old < 0:
                    into[to, j] = -1
                    continue
                if known[old] < 0:
                    known[old] = count
                    count += 1
                into[to, j] = known[old]
            to += 1
    return count


@primitive()
def by_kind(kinds, marks, places, into):  # type: ignore[no-untyped-def]
    """The marks of steps one kind after the other. `places`: where those of each begin."""
    for n in range(len(kinds)):
        into[places[kinds[n]]] = marks[n]
        places[kinds[n]] += 1


@primitive()
def group_of(parents, n):  # type: ignore[no-untyped-def]
    """The group of a node."""
    while parents[n] != n:
        parents[n] = parents[parents[n]]
        n = parents[n]
    return n


@primitive()
def spread(events, kinds, cells, writes, failing, tied, parents, holds, failed, decided, certain):  # type: ignore[no-untyped-def]
    """Put events that can affect each other into groups, step by step; say which failures are certain.

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
    """The steps of groups in which an event has failed, and those that write the rows which these steps read."""
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
