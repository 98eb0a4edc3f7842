"""What keys held when which step began, and which steps read or wrote them (kernels/takeout/steplog.py)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from timelapse.ids import INT64_MIN
from timelapse.kinds.base import ABSENT

if TYPE_CHECKING:
    from timelapse.kernels.takeout.steplog import Step

Written = tuple[dict[Any, Any], Any, Any]
"""A write as steps keep it: into which dict, under which key, and what that held before."""


class Index:
    """Which steps touch what: a number, or some in rising order. Most keys are touched by one step only."""

    __slots__ = ("found", "writers")

    def __init__(self, writers: Index | None = None) -> None:
        self.found: dict[Any, int | list[int]] = {}
        self.writers = None if writers is None else writers.found
        """Of readers: who writes the key. A step that does both need not be among its readers."""

    def numbers(self, key: Any) -> Sequence[int]:
        """The steps that touch it."""
        found = self.found.get(key)
        return () if found is None else found if type(found) is list else (found,)  # type: ignore[return-value]

    def add(self, key: Any, number: int) -> None:
        """A step touches it."""
        numbers = self._list(key)
        place = bisect_left(numbers, number)
        if place == len(numbers) or numbers[place] != number:
            numbers.insert(place, number)

    def remove(self, key: Any, number: int) -> None:
        """A step does not touch it any more."""
        if key in self.found:
            numbers = self._list(key)
            place = bisect_left(numbers, number)
            if place < len(numbers) and numbers[place] == number:
                del numbers[place]
            if not numbers:
                del self.found[key]

    def _list(self, key: Any) -> list[int]:
        found = self.found.get(key)
        if type(found) is not list:
            found = self.found[key] = [] if found is None else [found]  # type: ignore[list-item]
        return found


class Cells:
    """The keys of one state, or the timers; `data`: what they hold now. Steps have what each key held before they wrote it.

    `steps`: those that are kept, by number. `under_way`: what the step has written that is not kept yet. `width`: where there are
    keys that are read by their first parts, so many. `keep`: how far back anybody looks, in microseconds.
    """

    def __init__(
        self, data: dict[Any, Any], steps: Mapping[int, Step], under_way: Sequence[Written], width: int = 0, keep: int = 0
    ) -> None:  # fmt: skip
        self.data, self.keep = data, keep
        self.writers = Index()
        self.readers = Index(self.writers)
        self.wide, self.back = Index(), Index()
        """Who read all keys (None), or all that begin in some way; who looked back on a key."""
        self._steps, self._under_way, self._width = steps, under_way, width
        self._past: dict[Any, tuple[list[int], list[Any]]] = {}
        """Where anybody looks back: what keys held from when on, by steps that are not kept any more."""
        self._stored: dict[Any, set[Any]] | None = None
        """Keys by their first parts, perhaps some that are not there any more."""

    @property
    def indexes(self) -> tuple[Index, ...]:
        return self.writers, self.readers, self.wide, self.back

    # --- what a key held --------------------------------------------------------------------------

    def before(self, key: Any, number: int) -> Any:
        """What it held when that step began."""
        writers = self.writers.numbers(key)
        return self._at_place(key, writers, bisect_left(writers, number))

    def found_by(self, step: Step, key: Any) -> Any:
        """What it held when a step began that is kept, or is to be."""
        own = self.data
        for data, written, old in step.wrote:
            if data is own and written == key:
                return old
        return self.before(key, step.number)

    def after(self, key: Any, number: int) -> Any:
        """What it held when that step was over."""
        writers = self.writers.numbers(key)
        return self._at_place(key, writers, bisect_right(writers, number))

    def _at_place(self, key: Any, writers: Sequence[int], place: int) -> Any:
        """What it held when the writer at that place began: behind the last one, what it holds now."""
        return self.old(self._steps[writers[place]], key) if place < len(writers) else self._now(key)

    def old(self, step: Step, key: Any) -> Any:
        """What it held before a step that wrote it."""
        for data, written, old in step.wrote:
            if data is self.data and written == key:
                return old
        raise KeyError(key)

    def _now(self, key: Any) -> Any:
        """What it held before the step under way."""
        for data, written, old in self._under_way:
            if data is self.data and written == key:
                return old
        return self.data.get(key, ABSENT)

    def at(self, key: Any, number: int, ts: int, before: bool) -> Any:
        """What it held, as that step sees it, after everything at a time, or before it."""
        writers, steps = self.writers.numbers(key), self._steps
        bisect = bisect_left if before else bisect_right
        place = bisect(writers, ts, 0, bisect_left(writers, number), key=lambda n: steps[n].key[0])
        past = self._past.get(key)
        if place or past is None:
            return self._at_place(key, writers, place)
        times, values = past
        return values[bisect(times, ts) - 1]

    # --- what is done again -----------------------------------------------------------------------

    def unwrite(self, step: Step, key: Any) -> tuple[Any, Any]:
        """A step has not written it after all: what it held after the step until now, and holds from now on."""
        old = self.old(step, key)
        step.wrote = [w for w in step.wrote if w[0] is not self.data or w[1] != key]
        self.writers.remove(key, step.number)
        writers = self.writers.numbers(key)
        return self._leave(writers, bisect_left(writers, step.number), key, old), old

    def rewrite(self, step: Step, key: Any, value: Any) -> Any:
        """A step has left something else in it: what it held after the step until now."""
        number = step.number
        writers = self.writers.numbers(key)
        place = bisect_left(writers, number)
        if place == len(writers) or writers[place] != number:
            step.wrote = [*step.wrote, (self.data, key, self._at_place(key, writers, place))]
            self.writers.add(key, number)
            self.met(key)
            writers = self.writers.numbers(key)
        return self._leave(writers, place + 1, key, value)

    def _leave(self, writers: Sequence[int], place: int, key: Any, value: Any) -> Any:
        """Have it hold something when the writer at that place begins (behind the last one: now): what it held then until now."""
        if place == len(writers):
            was = self._now(key)
            if value is ABSENT:
                self.data.pop(key, None)
            else:
                self.data[key] = value
            return was
        step = self._steps[writers[place]]
        for at, (data, written, old) in enumerate(step.wrote):
            if data is self.data and written == key:
                if old is not value:
                    step.wrote = [*step.wrote]
                    step.wrote[at] = (data, written, value)
                return old
        raise KeyError(key)

    def next_writer(self, key: Any, number: int) -> int | None:
        """The step that writes it next."""
        writers = self.writers.numbers(key)
        place = bisect_right(writers, number)
        return writers[place] if place < len(writers) else None

    def reads(self, step: Step, key: Any) -> bool:
        """Whether a step reads it."""
        parts, readers = iter(step.reads), self.readers
        for index in parts:
            read = next(parts)
            if index is readers and read == key:
                return True
        return False

    # --- several keys -----------------------------------------------------------------------------

    def known(self) -> Iterable[Any]:
        """All keys that are there at any of the steps kept or that can be looked back on, and perhaps more."""
        under_way = (
            key for data, key, _ in self._under_way if data is self.data
        )  # perhaps gone, and looked back on
        return {**self.data, **self.writers.found, **self._past, **dict.fromkeys(under_way)}

    def met(self, key: Any) -> None:
        """A key may be there from now on."""
        if self._stored is not None:
            self._stored.setdefault(key[: self._width], set()).add(key)

    def stored_under(self, head: tuple[Any, ...]) -> Iterable[Any]:
        """Keys that begin so: all that are there at any of the steps kept, and perhaps more."""
        if self._stored is None:
            self._stored = {}
            for key in self.known():
                self._stored.setdefault(key[: self._width], set()).add(key)
        found = self._stored.get(head, set())
        if len(found) > 64:
            gone = [key for key in found if key not in self.data and key not in self.writers.found]
            found.difference_update(gone if len(gone) * 2 > len(found) else ())
        return found

    def read_wide(self, key: Any) -> Iterator[tuple[Index, Any]]:
        """How a key may have been read together with others."""
        yield self.wide, None
        if self._width:
            yield self.wide, key[: self._width]
        yield self.back, key

    # --- forgetting -------------------------------------------------------------------------------

    def remember(self, step: Step, key: Any) -> None:
        """Before a step is forgotten that wrote it: what can be looked back on."""
        past = self._past.get(key)
        if past is None:
            past = self._past[key] = ([INT64_MIN], [self.old(step, key)])
        past[0].append(step.key[0])
        past[1].append(self.after(key, step.number))

    def forget_past(self, ts: int) -> None:
        """Forget what nobody can look back on from a time on."""
        for key, (times, values) in list(self._past.items()):
            last = bisect_left(times, ts - self.keep) - 1
            if last == len(times) - 1:  # what it holds now, or held before the first step kept that wrote it
                del self._past[key]
            elif last > 0:
                del times[:last], values[:last]
                times[0] = INT64_MIN
