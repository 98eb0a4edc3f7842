"""Steps that are done again, one after the other, because an event is taken out: those that have used what its steps wrote, and what follows from
that. Each step has copies of the rows that it looked up, from before it (`note`).

The copies of a row are linked, in the order of the steps. Each has a number; `Back.NOTES` is how many came before those at hand. A row's flags
have the number of its last copy, and so a copy's flags have that of the one before it. Its last word has that of the next one (0: none).

If a step is done again, its rows first hold what they did before it (`rewind`). Each such row is set aside: what it held last is in an entry of its
own, behind the copies. When the step is through, the next step that has used the row is due if it finds anything else there than it did (`settle`).
Otherwise the row holds again what it held last. If an earlier step becomes due meanwhile, what the row held last is not right any more: then all steps
that have used it since are done again.

`again` says which steps are due. Its first word says how many (a step may be due twice), its second how many rows the present step has used;
then come the entries of these, then the steps, as a heap.
"""

from __future__ import annotations

import numpy as np

from timelapse.kernels.native.machine.jit import primitive
from timelapse.kernels.native.memory.keeping import ROW
from timelapse.kernels.native.status import Back

_SHIFT = 24
_LAST = ((1 << 36) - 1) << _SHIFT
"""The part of a row's flags that is the number of its last copy; of a row that is set aside its entry."""
MOST_STATES = 10
"""The flags of so many states leave room for it."""
MOST_NOTES = 1 << 36
_ASIDE = 1 << 60
"""A flag of rows that are set aside; in an entry: what the row held last is not right any more."""
_NOTES, _SETTLED, _TOO_LATE, _HELD = map(int, (Back.NOTES, Back.SETTLED, Back.TOO_LATE, Back.HELD))
_STOP, _DONE, _ALLOWED = map(int, (Back.STOP, Back.DONE, Back.ALLOWED))
_FREE, _END, _MOST_ASIDE, _MOST_DUE = map(int, (Back.FREE, Back.END, Back.MOST_ASIDE, Back.MOST_DUE))
HEAD = 2
"""So many words come first in `again`."""


@primitive()
def _number(flags):  # type: ignore[no-untyped-def]
    return (flags & _LAST) >> _SHIFT


@primitive()
def _numbered(flags, number):  # type: ignore[no-untyped-def]
    return flags & ~_LAST | number << _SHIFT


@primitive()
def note(kept, noted, j, t, slots, i, words, each, before, again, back):  # type: ignore[no-untyped-def]
    """Copy row i of table t, with so many words, which step j has looked up. Each step has room for `each` copies and has made `noted[j]` of them;
    `before` came before those at hand. `kept[0, 2]` becomes 1 if one does not fit."""
    mine, flags = j * each, slots[i, 0]
    last = _number(flags) - before
    if last > mine + each or flags & _ASIDE != 0:
        note_between(kept, noted, j, t, slots, np.int64(i), again, back)
    elif last <= mine:
        if noted[j] < each:
            noted[j] += 1
            n = mine + noted[j]
            kept[n, 0] = t
            kept[n, 1] = i
            for w in range(words):
                kept[n, ROW + w] = slots[i, w]
            kept[n, kept.shape[1] - 1] = 0
            kept[max(last, 0), kept.shape[1] - 1] = n + before  # the first row's means nothing
            slots[i, 0] = _numbered(flags, n + before)
        else:
            kept[0, 2] = 1


@primitive(apart=True)
def note_between(kept, noted, j, t, slots, i, again, back):  # type: ignore[no-untyped-def]
    """The same for a row that later steps have used. It holds before what it did then."""
    each, before, link = kept[0, 1], back[_NOTES], kept.shape[1] - 1
    mine = j * each
    for m in range(mine + 1, mine + 1 + noted[j]):
        if kept[m, 1] == i and kept[m, 0] == t:
            return
    entry = _entry(kept, again, back, t, slots, i)
    following, is_moved = kept[entry, link], False
    ahead = _number(kept[following - before if following else entry, ROW])
    while ahead - before > mine:
        following, is_moved = ahead, True
        ahead = _number(kept[following - before, ROW])
    if is_moved:
        if kept[entry, link]:
            kept[entry, ROW] |= _ASIDE
        kept[entry, link] = following
        _give_back(kept, following - before, slots, i, entry)
    if noted[j] == each:
        kept[0, 2] = 1
        return
    noted[j] += 1
    n = mine + noted[j]
    kept[n, 0] = t
    kept[n, 1] = i
    for w in range(1, slots.shape[1]):
        kept[n, ROW + w] = slots[i, w]
    kept[n, ROW] = _numbered(slots[i, 0] & ~_ASIDE, ahead)
    kept[n, link] = following
    at = following - before if following else entry
    kept[at, ROW] = _numbered(kept[at, ROW], n + before)
    if ahead > before:
        kept[ahead - before, link] = n + before


@primitive()
def _entry(kept, again, back, t, slots, i):  # type: ignore[no-untyped-def]
    """The entry of a row that the present step uses; it is set aside, if it is not."""
    if slots[i, 0] & _ASIDE != 0:
        entry = _number(slots[i, 0])
    else:
        link = kept.shape[1] - 1
        entry = back[_FREE]
        if entry:
            back[_FREE] = kept[entry, link]
        else:
            entry = back[_END]
            back[_END] += 1
        kept[entry, 0] = t
        kept[entry, 1] = i
        for w in range(slots.shape[1]):
            kept[entry, ROW + w] = slots[i, w]
        kept[entry, link] = 0
        slots[i, 0] = _numbered(slots[i, 0], entry) | _ASIDE
    for n in range(HEAD, HEAD + again[1]):
        if again[n] == entry:
            return entry
    again[HEAD + again[1]] = entry
    again[1] += 1
    return entry


@primitive()
def _give_back(kept, n, slots, i, entry):  # type: ignore[no-untyped-def]
    """Have a row that is set aside hold what copy n does."""
    for w in range(1, slots.shape[1]):
        slots[i, w] = kept[n, ROW + w]
    slots[i, 0] = _numbered(kept[n, ROW], entry) | _ASIDE


@primitive()
def rewind(kept, n, slots, again, back):  # type: ignore[no-untyped-def]
    """Have a row hold what it did before the step whose copy n is, and forget that copy."""
    i, before, link = kept[n, 1], back[_NOTES], kept.shape[1] - 1
    entry = _entry(kept, again, back, kept[n, 0], slots, i)
    if kept[entry, link] != n + before:  # otherwise it does, with what has changed
        if kept[entry, link]:
            kept[entry, ROW] |= _ASIDE
        _give_back(kept, n, slots, i, entry)
    following, ahead = kept[n, link], _number(kept[n, ROW])
    kept[entry, link] = following
    at = following - before if following else entry
    kept[at, ROW] = _numbered(kept[at, ROW], ahead)
    if ahead > before:
        kept[ahead - before, link] = following


@primitive()
def settle(kept, entry, slots, again, back):  # type: ignore[no-untyped-def]
    """The present step is through with a row that is set aside."""
    i, link = kept[entry, 1], kept.shape[1] - 1
    following, flags = kept[entry, link], slots[i, 0] & ~_ASIDE
    if following:
        n = following - back[_NOTES]
        same = flags & ~_LAST == kept[n, ROW] & ~_LAST and kept[entry, ROW] & _ASIDE == 0
        for w in range(1, slots.shape[1]):
            same &= slots[i, w] == kept[n, ROW + w]
        if not same:
            put_due(again, kept, (n - 1) // kept[0, 1])
            return
        for w in range(slots.shape[1]):
            slots[i, w] = kept[entry, ROW + w]
    else:
        slots[i, 0] = _numbered(flags, _number(kept[entry, ROW]))
    kept[entry, 0] = -1
    kept[entry, link] = back[_FREE]
    back[_FREE] = entry


@primitive()
def used_row(kept, again):  # type: ignore[no-untyped-def]
    """The entry of the last row that the present step has used, which is asked for no more."""
    again[1] -= 1
    return again[HEAD + again[1]]


@primitive()
def stop_where_full(again, back):  # type: ignore[no-untyped-def]
    """One more step was done again: stop where there may be no room for the next one."""
    back[_DONE] += 1
    if back[_DONE] >= back[_ALLOWED] or back[_END] > back[_MOST_ASIDE] or again[0] > back[_MOST_DUE]:
        back[_STOP] = 1


@primitive()
def take_event_out(kept, again, latest, earlier, event, j, back):  # type: ignore[no-untyped-def]
    """Step j has failed: its event is out, and its other steps are due, of which nothing comes then."""
    step = latest[event]
    latest[event] = -1
    is_late = event < back[_SETTLED]
    while step > 0:
        place = step - back[_HELD]
        if place < 0:
            is_late, step = True, 0
        else:
            if place != j:
                put_due(again, kept, place)
            step = earlier[place]
    if is_late:
        back[_TOO_LATE] = back[_STOP] = 1


@primitive()
def put_due(again, kept, step):  # type: ignore[no-untyped-def]
    """A step is to be done again."""
    first, at = HEAD + 2 * kept[0, 1], again[0]
    again[0] += 1
    while at > 0 and again[first + (at - 1) // 2] > step:
        again[first + at] = again[first + (at - 1) // 2]
        at = (at - 1) // 2
    again[first + at] = step


@primitive()
def next_due(again, kept):  # type: ignore[no-untyped-def]
    """The first step that is due, which is not any more."""
    first = HEAD + 2 * kept[0, 1]
    step = again[first]
    while again[0] > 0 and again[first] == step:
        again[0] -= 1
        count, at = again[0], 0
        moved = again[first + count]
        while 2 * at + 1 < count:
            below = 2 * at + 1
            if below + 1 < count and again[first + below + 1] < again[first + below]:
                below += 1
            if again[first + below] >= moved:
                break
            again[first + at] = again[first + below]
            at = below
        again[first + at] = moved
    return step
