"""Keys that are looked for, told so that it is seen where they were looked for before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple


class Sought(NamedTuple):
    """Keys, and where each part of them may come from: the parts in an `order` that is the same for (a, b) and for (b, a)."""

    type: str
    parts: tuple[Any, ...]
    kinds: tuple[str, ...]
    keys: frozenset[tuple[Any, ...]]
    order: Sequence[int]

    def same(self, other: Sought) -> bool:
        """Whether others are these keys."""
        return self[:3] == other[:3] and self.keys == other.keys

    def like(self, other: Sought, spare: float) -> bool:
        """Whether others are most of these keys, and few besides."""
        if self[:3] != other[:3]:
            return False
        common = len(self.keys & other.keys)
        return 5 * common >= 4 * len(self.keys) and len(other.keys) - common <= spare * len(self.keys)

    def ordered(self, keys: Iterable[tuple[Any, ...]]) -> Iterable[tuple[Any, ...]]:
        """Keys with their parts in this order."""
        return map(itemgetter(*self.order), keys) if len(self.order) > 1 else keys


def sought_of(
    type_: str, sides: Sequence[Any], keys: Iterable[tuple[Any, ...]], kinds: Sequence[str]
) -> Sought:
    """Keys of an event type. `sides`: from where their parts come; `kinds`: the types of these."""

    def name(place: int) -> str:
        part = sides[place]
        return "" if part is None else f"{sorted(part.fields)} {part.constants!r}"

    order = sorted(range(len(sides)), key=name)
    parts, own = tuple(sides[n] for n in order), tuple(kinds[n] for n in order)
    empty = Sought(type_, parts, own, frozenset(), order)
    return empty._replace(keys=frozenset(empty.ordered(keys)))


__all__ = ["Sought", "sought_of"]
