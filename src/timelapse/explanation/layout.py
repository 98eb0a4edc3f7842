"""Placing boxes in columns so that the lines between them are short and cross little (after Sugiyama et al., 1981).

An edge that skips columns gets a thin item in each of them, so that lines pass between boxes, never behind them.
Everything is deterministic: ties keep the order in which items were added.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

LANE = 10.0
"""Height of the thin items."""
GAP = 14.0
"""Vertical distance between items."""
_SWEEPS = 12


@dataclass(eq=False)
class Item:
    """A box, or the place where a line crosses a column. `y` is its centre."""

    column: int
    height: float
    name: str | None = None
    y: float = 0.0
    before: list[Item] = field(default_factory=list)
    after: list[Item] = field(default_factory=list)

    @property
    def top(self) -> float:
        return self.y - self.height / 2

    @property
    def bottom(self) -> float:
        return self.y + self.height / 2


@dataclass
class Layout:
    """Items by column, from top to bottom, and the chain of items of each edge."""

    columns: list[list[Item]]
    chains: dict[tuple[str, str], list[Item]]
    height: float = 0.0

    def item(self, name: str) -> Item:
        """The box with this name."""
        return next(i for column in self.columns for i in column if i.name == name)


def lay_out(boxes: Sequence[tuple[str, int, float]], edges: Sequence[tuple[str, str]]) -> Layout:
    """Place boxes (name, column, height) with edges between names; an edge leads to a later column."""
    count = 1 + max((column for _, column, _ in boxes), default=0)
    layout = Layout([[] for _ in range(count)], {})
    known = {name: Item(column, height, name) for name, column, height in boxes}
    for item in known.values():
        layout.columns[item.column].append(item)
    for source, target in edges:
        chain = [known[source]]
        for column in range(known[source].column + 1, known[target].column):
            lane = Item(column, LANE)
            layout.columns[column].append(lane)
            chain.append(lane)
        chain.append(known[target])
        for a, b in itertools.pairwise(chain):
            a.after.append(b)
            b.before.append(a)
        layout.chains[source, target] = chain
    _order(layout)
    _place(layout)
    return layout


def _order(layout: Layout) -> None:
    """Order each column by the mean place of what its items are joined to; the order with the fewest crossings wins."""
    best = [list(column) for column in layout.columns]
    fewest = _crossings(layout)
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        for column in layout.columns if forward else reversed(layout.columns):
            place = {id(i): n for c in layout.columns for n, i in enumerate(c)}
            keyed = {
                id(i): _mean([place[id(o)] for o in (i.before if forward else i.after)], place[id(i)])
                for i in column
            }
            column.sort(key=lambda i, keyed=keyed: keyed[id(i)])  # type: ignore[misc]
        now = _crossings(layout)
        if now < fewest:
            fewest, best = now, [list(column) for column in layout.columns]
    layout.columns = best


def _mean(values: list[int], default: float) -> float:
    return sum(values) / len(values) if values else default


def _crossings(layout: Layout) -> int:
    total = 0
    for column, following in zip(layout.columns, layout.columns[1:], strict=False):
        place = {id(i): n for n, i in enumerate(following)}
        ends = [(n, place[id(t)]) for n, i in enumerate(column) for t in i.after]
        total += sum(1 for k, (a, b) in enumerate(ends) for c, d in ends[:k] if (a - c) * (b - d) < 0)
    return total


def _place(layout: Layout) -> None:
    """Heights: first stacked, then drawn towards what they are joined to, never overlapping."""
    for column in layout.columns:
        at = 0.0
        for item in column:
            item.y = at + item.height / 2
            at += item.height + GAP
        for item in column:
            item.y -= (at - GAP) / 2
    for sweep in range(_SWEEPS):
        for column in layout.columns if sweep % 2 == 0 else reversed(layout.columns):
            _pull(column)
    top = min((i.top for c in layout.columns for i in c), default=0.0)
    for column in layout.columns:
        for item in column:
            item.y -= top
    layout.height = max((i.bottom for c in layout.columns for i in c), default=0.0)


def _pull(column: list[Item]) -> None:
    """Move items to the mean height of their neighbours, keeping order and distance.

    Items that would overlap form a block, which moves to the mean of its members' wishes.
    """
    blocks: list[tuple[list[Item], float, float]] = []  # members, centre of the block, its height
    for item in column:
        near = [*item.before, *item.after]
        wish = sum(o.y for o in near) / len(near) if near else item.y
        members, centre, height = [item], wish, item.height
        while blocks and blocks[-1][1] + blocks[-1][2] / 2 + GAP > centre - height / 2:
            above, other, tall = blocks.pop()
            total = len(above) + len(members)
            # Each part wishes its own centre where it is; joined, they wish the weighted mean.
            joined = tall + GAP + height
            wish_above = other + (joined - tall) / 2
            wish_below = centre - (joined - height) / 2
            centre = (wish_above * len(above) + wish_below * len(members)) / total
            members, height = [*above, *members], joined
        blocks.append((members, centre, height))
    for members, centre, height in blocks:
        at = centre - height / 2
        for item in members:
            item.y = at + item.height / 2
            at += item.height + GAP
