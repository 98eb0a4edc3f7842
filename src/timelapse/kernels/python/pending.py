"""What lies ahead, while a slice runs: heaps over the entries of the pending states, and which events are timers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Any

from timelapse.kinds.base import ABSENT, StateSpec, Store
from timelapse.model.events import Event
from timelapse.model.types import OptionalType, TupleType
from timelapse.program.pending import (
    DatedWrite,
    Place,
    WritePlace,
    kind_of,
    pack,
    pack_write,
    timer_code,
    unpack,
    unpack_write,
)
from timelapse.program.times import timer_of


class _Numbers:
    """Numbers what is issued at one time by what stems from one log event: from 0, wherever a slice begins."""

    def __init__(self) -> None:
        self._last: tuple[int, int] | None = None  # no time and root stand for none: a tick may be at 0
        self._number = 0

    def __call__(self, now: int, root: int) -> int:
        self._number = self._number + 1 if self._last == (now, root) else 0
        self._last = (now, root)
        return self._number


class Writes:
    """The dated writes of one pass. The store is the truth, as in `Pending`."""

    def __init__(self, store: Store, entries: Iterable[tuple[Any, bytes]]) -> None:
        self._store = store
        self._heap = [WritePlace(*key) for key, _ in entries]
        heapify(self._heap)
        self._number = _Numbers()

    def date(self, write: DatedWrite, due: int, now: int, root: int) -> None:
        """A write is to take effect at a later time."""
        place = WritePlace(due, now, root, self._number(now, root))
        self._store.put(tuple(place), pack_write(write))
        heappush(self._heap, place)

    def first(self) -> WritePlace | None:
        """Where the next one stands. To be asked between two transactions."""
        heap = self._heap
        while heap and self._store.get(tuple(heap[0]), ABSENT) is ABSENT:
            heappop(heap)
        return heap[0] if heap else None

    def take(self) -> DatedWrite:
        """The next one, which is pending no more: `first` says whether there is one."""
        place = tuple(heappop(self._heap))
        write = unpack_write(self._store.get(place, ABSENT))
        self._store.drop(place)
        return write

    def counted(self) -> Counter[str]:
        """How many are pending, by state."""
        return Counter(unpack_write(v).state for _, v in self._store.items() if v is not ABSENT)


_MANY = 64
"""So many places that are empty by now do no harm."""


class Pending:
    """The pending events of one pass. The store is the truth and is undone with the transaction; the heap may have
    places that are empty by now."""

    def __init__(
        self, store: Store, entries: Iterable[tuple[Any, bytes]], kinds: tuple[type[Event], ...]
    ) -> None:
        self._store, self._kinds = store, kinds
        self._numbers = {cls: number for number, cls in enumerate(kinds)}
        self._heap: list[Place] = []
        self._timers: dict[Any, Place] = {}
        for key, value in entries:
            place = Place(*key)
            self._heap.append(place)
            timer, event = unpack(value, kinds, place.due, place.root)
            if timer is not None:
                self._timers[type(event), timer] = place
        heapify(self._heap)
        self._number = _Numbers()
        self._dead = 0
        """So many places in the heap were given up, or a few less."""

    def date(self, event: Event, due: int, now: int, root: int, key: Any) -> None:
        """An event is to happen at a later time. With a key it takes the place of the timer that there is."""
        timer = None if key is None else _timer(type(event), key)
        if timer is not None:
            self._take_back((type(event), timer))
        place = Place(due, root, now, self._number(now, root))
        self._store.put(tuple(place), pack(self._numbers[type(event)], timer, event))
        heappush(self._heap, place)
        if timer is not None:
            self._store.side(self._timers, (type(event), timer), place)

    def disarm(self, event: type[Event], key: Any) -> None:
        """Take back a timer, if it is pending."""
        self._take_back((event, _timer(event, key)))

    def _take_back(self, timer: tuple[type[Event], bytes]) -> None:
        place = self._timers.get(timer)
        if place is not None:
            self._store.drop(tuple(place))
            self._store.side(self._timers, timer, ABSENT)
            self._dead += 1

    def first(self) -> Place | None:
        """Where the next pending event stands. To be asked between two transactions."""
        if self._dead > _MANY and 2 * self._dead > len(self._heap):
            self._heap = [p for p in self._heap if self._store.get(tuple(p), ABSENT) is not ABSENT]
            heapify(self._heap)
            self._dead = 0
        heap = self._heap
        while heap and self._store.get(tuple(heap[0]), ABSENT) is ABSENT:
            heappop(heap)
        return heap[0] if heap else None

    def take(self) -> Event:
        """The next pending event, which is pending no more: `first` says whether there is one."""
        place = heappop(self._heap)
        timer, event = unpack(self._store.get(tuple(place), ABSENT), self._kinds, place.due, place.root)
        self._store.drop(tuple(place))
        if timer is not None and self._timers.get((type(event), timer)) == place:
            del self._timers[type(event), timer]
        return event

    def counted(self) -> Counter[str]:
        """How many events are pending, by type."""
        return Counter(kind_of(v, self._kinds).__name__ for _, v in self._store.items() if v is not ABSENT)


def _timer(event: type[Event], key: Any) -> bytes:
    return timer_code(timer_of(event, key)[1])


def as_given(spec: StateSpec, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a dated write as they were issued: with a NamedTuple that entries do not tell from a tuple."""
    kind = spec.value.inner if isinstance(spec.value, OptionalType) else spec.value
    if len(arguments) == 2 and isinstance(kind, TupleType) and isinstance(arguments[1], tuple):
        return arguments[0], kind.checker("it")(arguments[1])
    return arguments
