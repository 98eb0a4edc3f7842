"""Guesses who wrote a key that a handler reads from another state: `self.alerts[self.user[e.process]] += 1`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from timelapse.analysis.origins import Origins
from timelapse.kinds.grouped import Grouped
from timelapse.model.events import Event
from timelapse.model.types import INT, STR
from timelapse.trace.columns import Columns, Pattern, Seqs, contained
from timelapse.trace.knowledge import Key
from timelapse.trace.lookup import merged
from timelapse.trace.wanted import Mask

if TYPE_CHECKING:
    from timelapse.trace.moments import Past

_MOST, _JOINED = 1 << 12, 1 << 17
"""Events that hold the key, and events that write or ask for what these wrote to: of more it is not worth guessing."""
_BACK = (1 << 62, 1 << 20, 1 << 16)
"""How far back the writers are looked for: less far where there are more of them."""


def joined(past: Past, state: str, key: Any, hi: int) -> Seqs:
    """Events seq < `hi` that may have written a key of a state, ascending: the newest of those that ask another state under a key to
    which the last event before that wrote it has given this key. None, where nothing is to be guessed so. Raises Unfocused."""
    known = past.stepwise
    kind, types = known.spec.states[state].key, {cls.__name__: cls for cls in past.spec.events}
    logged = {t.name for t in past.reader.types}
    found: list[Seqs] = []
    if kind not in (INT, STR):
        return merged(found)
    own = known.part(frozenset({state}))
    for pattern in known.writers_of(state):
        if pattern.type not in logged or any(pattern.parts):
            continue
        for asked in own.asks.get(types[pattern.type], ()):
            if asked.plain is None or len(asked.plain) != 1 or issubclass(asked.spec.kind, Grouped):
                continue
            wanted = {pattern.type: set(asked.plain)}
            givers = list(_givers(past, asked, kind, types, logged))
            for giver in givers:
                wanted.setdefault(giver.type, set()).update(*(part.fields for part in giver.parts if part))
            columns = past.columns_of(0, hi, wanted) if givers else None
            for giver in givers:
                assert columns is not None
                found.append(_of(columns, giver, key, pattern.type, asked.plain[0], hi))
    return merged(found)


def _givers(
    past: Past, asked: Key, kind: Any, types: dict[str, type[Event]], logged: set[str]
) -> Iterator[Pattern]:
    """The events that write what is asked for: the field that the key is made of, and one that may be what is written."""
    for pattern in past.stepwise.writers_of(asked.spec.name):
        part = pattern.parts[0]
        if len(pattern.parts) != 1 or part is None or len(part.fields) != 1 or pattern.type not in logged:
            continue
        for field in types[pattern.type].__fields__:
            if field.type == kind and field.name not in part.fields:
                yield Pattern(pattern.type, (part, _part(field.name)))


def _of(columns: Columns, giver: Pattern, key: Any, kind: str, field: str, hi: int) -> Seqs:
    """The newest events of a type that have in a field what the last giver had before them that has the same in its own."""
    own, value = giver.parts
    assert own is not None
    nothing = merged(())
    held = columns.holding(Pattern(giver.type, (value,)), [(key,)], 0, hi, _MOST)
    if held is None or not len(held):
        return nothing
    (name,) = own.fields
    (values,) = columns.values(giver.type, held, [name])
    keys = [(v,) for v in values]
    given = columns.holding(Pattern(giver.type, (own,)), keys, 0, hi, _JOINED)
    if given is None:
        return nothing
    for back in _BACK:
        asking = columns.holding(Pattern(kind, (_part(field),)), keys, max(0, hi - back), hi, _JOINED)
        if asking is not None:
            own_keys = [*columns.column(giver.type, given, name), *columns.column(kind, asking, field)]
            return _under_held(given, contained(given, held), asking, own_keys)
    return nothing


def _under_held(given: Seqs, held: Mask, asking: Seqs, keys: Sequence[Any]) -> Seqs:
    """Of the events that ask those before which the last one with the same key that gave it something is one of the `held`. `keys`: of those
    that give, then of those that ask."""
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    codes = np.fromiter(map(places.__getitem__, keys), np.int64, len(keys))
    seqs, gives = np.concatenate([given, asking]), np.arange(len(keys)) < len(given)
    order = np.lexsort((gives, seqs, codes))  # what an event gives is asked for by later ones
    last = np.maximum.accumulate(np.where(gives[order], np.arange(len(keys)), 0))
    fits = ~gives[order] & gives[order][last] & (codes[order][last] == codes[order])
    holds = np.append(held, np.zeros(len(asking), np.bool_))[order][last]
    return np.sort(seqs[order][fits & holds])


def _part(field: str) -> Origins:
    return Origins(frozenset({field}))


__all__ = ["joined"]
