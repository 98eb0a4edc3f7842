"""What stands under a key of a SetOf or MapOf, where a pass lists it: for each key a list through all pairs that were ever there.

A node of it has the next node's number (0: there is none), then the pair's words. Nodes are only ever added: a pair that is taken
out stays where it is, and is passed over. The flag LINKED of a pair's row says that it is in the list, a hidden state where
the list of a key begins; both are undone with the event, and what it has added is in no list then. Rows may move.
"""

from __future__ import annotations

from timelapse.kernels.native.machine.jit import primitive
from timelapse.kernels.native.memory.layout import LINKED
from timelapse.kernels.native.memory.primitives import IN_ROW, row_of

NEXT, DROPPED = 0, 1
"""Of an index's marks: the number of the next node, and whether any pair was ever taken out."""


@primitive()
def link(nodes, marks, heads, head, place, slots, i, width):  # type: ignore[no-untyped-def]
    """Put a pair's row into its key's list, which begins at `place` in a row of `heads`."""
    n = marks[NEXT]
    nodes[n, 0] = heads[head, place]
    for w in range(1, width + 1):
        nodes[n, w] = slots[i, w]
    heads[head, place] = n
    slots[i, 0] |= LINKED
    marks[NEXT] = n + 1


@primitive()
def link_rows(nodes, marks, heads, mask, place, slots, rows, width, outer):  # type: ignore[no-untyped-def]
    """Put these rows in. Their keys have rows in `heads`."""
    for n in range(rows.shape[0]):
        head = row_of(heads, mask, slots, rows[n], IN_ROW, outer)
        link(nodes, marks, heads, head, place, slots, rows[n], width)


@primitive()
def list_members(listed, first, nodes, marks, node, slots, mask, outer, inner, flag, place, size):  # type: ignore[no-untyped-def]
    """List what stands under the key whose list begins at a node, in no order, with `size` words of its value from `place` on. What
    does not fit is counted only."""
    n = first
    while node != 0:
        there = True
        if marks[DROPPED] != 0 or size != 0:
            i = row_of(slots, mask, nodes, node, IN_ROW, outer + inner)
            there = slots[i, 0] & flag != 0
            if there and n < listed.shape[0]:
                for w in range(size):
                    listed[n, inner + w] = slots[i, place + w]
        if there:
            if n < listed.shape[0]:
                for w in range(inner):
                    listed[n, w] = nodes[node, 1 + outer + w]
            n += 1
        node = nodes[node, 0]
    return n - first
