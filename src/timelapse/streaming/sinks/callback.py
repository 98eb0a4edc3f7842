"""A function that is called with outputs: at least once, as nobody knows how far it came when the process died."""

from __future__ import annotations

from collections.abc import Callable as Function
from pathlib import Path

import msgspec
import pyarrow as pa

from timelapse.store.parts import sync, write_part
from timelapse.streaming.sinks.base import Marker


class Callback:
    """Calls `function(record, table, epoch)` with the outputs of some epochs up to `epoch`, in order. What was given and not returned from when the
    process ended is given again, with other epochs perhaps: to count once, remember (record, epoch). `name` names where it stands,
    in the run's directory."""

    def __init__(self, function: Function[[str, pa.Table, int], None], name: str = "callback") -> None:
        self._function, self._name = function, name
        self._folder = Path()

    def use(self, out: Path) -> None:
        """Where the run is."""
        self._folder = out / "sinks" / self._name

    @property
    def text(self) -> str:
        return f"the callback {self._name}"

    def open(self, run: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)

    def marker(self, record: str) -> Marker | None:
        try:
            return msgspec.json.decode((self._folder / f"{record}.json").read_bytes(), type=Marker)
        except FileNotFoundError:
            return None

    def put(self, record: str, table: pa.Table, before: Marker | None, now: Marker) -> None:
        self._function(record, table, now.epoch)
        write_part(self._folder / f"{record}.json", msgspec.json.encode(now), lasting=True)
        sync(self._folder)

    def close(self) -> None:
        """Nothing is open."""
