"""Table functions for keys of more words than `primitives` has functions for, as source."""

from __future__ import annotations

WIDTHS = 3
"""Keys of up to so many words have their functions in `primitives`."""


def wide(width: int) -> str:
    """The source of `find` and `claim` for keys of this many words."""
    names = [f"k{n}" for n in range(width)]
    keys = ", ".join(names)
    folded = "k0"
    for name in names[1:]:
        folded = f"fold({folded}, {name})"
    other = " or ".join(f"slots[i, {n + 1}] != {name}" for n, name in enumerate(names))
    own = "".join(f"        slots[i, {n + 1}] = {name}\n" for n, name in enumerate(names))
    return f"""
@nb.njit(nogil=True, _nrt=False, pipeline_class=Pipeline)
def find{width}(slots, mask, {keys}):
    i = mix({folded}) & mask
    while slots[i, 0] != 0 and ({other}):
        i = (i + ONE) & mask
    return i


@nb.njit(nogil=True, _nrt=False, pipeline_class=Pipeline)
def claim{width}(slots, mask, counts, t, {keys}):
    i = find{width}(slots, mask, {keys})
    if slots[i, 0] == 0:
        slots[i, 0] = 1
{own}        counts[t] += 1
    return i
"""
