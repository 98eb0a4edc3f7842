"""Which states share a table: those that a pass uses under the same keys.

An event that uses a sender's three counters then looks the sender up once, and waits for one line of memory. What is
decided here costs time where it is wrong, and changes no result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from timelapse.kernels.native.memory.layout import Layout, beside, can_be_mapped
from timelapse.kinds.base import StateSpec
from timelapse.tables.table import key_types

Keys = frozenset[tuple[str, ...]]


def together(
    states: Sequence[str], specs: Mapping[str, StateSpec], layouts: Mapping[str, Layout],
    used: Sequence[Mapping[str, Keys]],
) -> list[tuple[str, ...]]:  # fmt: skip
    """The states of each table, from the layouts that they have alone. `used`: for each type of event each state's keys,
    as generated code spells them."""

    def fit(a: str, b: str, *, views: bool) -> bool:
        both = [(keys[a], keys[b]) for keys in used if a in keys and b in keys]
        alike = bool(both) and all(one == other for one, other in both)
        one, other = specs[a], specs[b]
        # Beside a state with views none is mapped.
        mapped = views or can_be_mapped(one, layouts[a]) is can_be_mapped(other, layouts[b])
        return alike and mapped and key_types(one) == key_types(other)

    tables: list[tuple[str, ...]] = []
    for name in states:
        for place, table in enumerate(tables):
            joined = (*table, name)
            views = any(layouts[n].extra for n in joined)
            if (
                all(fit(name, other, views=views) for other in table)
                and beside([layouts[n] for n in joined]) is not None
            ):
                tables[place] = joined
                break
        else:
            tables.append((name,))
    return tables
