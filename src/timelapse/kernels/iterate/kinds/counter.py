"""Counter, traced: sums stay integers that remember what was decided with them."""

from __future__ import annotations

from typing import Any

from timelapse.ids import INT64_MAX, INT64_MIN
from timelapse.kernels.iterate.bounds import ADD, SET, Int, Read
from timelapse.kernels.iterate.tracer import Form, TracedStore
from timelapse.kinds.base import StateSpec
from timelapse.kinds.counter import Counter


class TracedCounter(Counter):
    """A count of 0 needs no other treatment here: the store takes it for a missing key. What handlers do most is
    written out here once more, in one function each."""

    __slots__ = ("_reads", "_traced")

    def __init__(self, spec: StateSpec, store: Any) -> None:
        super().__init__(spec, store)
        self._reads: dict[Any, Read] = {}
        if isinstance(store, TracedStore):
            self._reads, self._traced = store.reads, store

    def __getitem__(self, key: Any) -> Any:
        read = self._reads.get(key) if type(key) is int else None
        if read is None or self._traced.exact or read.effect == SET:
            return self._get(self._check_key(key), 0)
        return Int(read, 1, read.amount if read.effect == ADD else 0)

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(value) is Int and type(key) is int:
            read = self._reads.get(key)
            if read is value.read and value.factor == 1 and INT64_MIN <= value.value <= INT64_MAX:
                read.effect, read.amount = ADD, value.plus
                return
        self._store(self._check_key(key), value)

    def _store(self, key: Any, value: Any) -> None:
        if type(value) is not int:
            value = self._check_value(value)
        if type(value) is int and not INT64_MIN <= value <= INT64_MAX:
            super()._store(key, value)  # raises
        self._put(key, value)


FORMS = {Counter: Form(TracedCounter, counts=True)}
