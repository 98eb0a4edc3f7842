"""A function that is called with outputs: at least once, as nobody knows how far it came when the process died."""

from __future__ import annotations

from collections.abc import Callable as Function

import msgspec
import pyarrow as pa

from timelapse.decoding import decoded
from timelapse.store.place import MemoryPlace, Place
from timelapse.streaming.sinks.base import Marker


class Callback:
    """Calls `function(record, table, epoch)` with the outputs of some epochs up to `epoch`, in order. What was given and not returned from when the
    process ended is given again, with other epochs perhaps: to count once, remember (record, epoch). `name` names where it stands,
    in the run's directory."""

    def __init__(self, function: Function[[str, pa.Table, int], None], name: str = "callback") -> None:
        self._function, self._name = function, name
        self._place: Place = MemoryPlace()

    def use(self, place: Place) -> None:
        """Where the run is."""
        self._place = place

    @property
    def text(self) -> str:
        return f"the callback {self._name}"

    def open(self, run: str) -> None:
        """Nothing is opened."""

    def marker(self, record: str) -> Marker | None:
        try:
            return decoded(self._place.read(self._mark(record)), Marker)
        except FileNotFoundError:
            return None

    def put(self, record: str, table: pa.Table, before: Marker | None, now: Marker) -> None:
        self._function(record, table, now.epoch)
        self._place.rewrite(self._mark(record), msgspec.json.encode(now))

    def _mark(self, record: str) -> str:
        return f"sinks/{self._name}/{record}.json"

    def close(self) -> None:
        """Nothing is open."""
