"""Compiled output parts that run beside a compiled pass (kernels/companions.py), in a thread of their own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping, Sequence
from typing import NoReturn

import numpy as np
import pyarrow as pa

from timelapse.kernels.base import PassResult
from timelapse.kernels.companions import Companion
from timelapse.kernels.native.decode import Array
from timelapse.kernels.native.kernel import NativeKernel
from timelapse.kernels.native.lowering.unit import Unit
from timelapse.kernels.native.outputs import ReadColumns
from timelapse.kernels.tuning import NativeTuning
from timelapse.segments.reader import Chunk

_WAITING = 2
"""Chunks that wait at most: this bounds the memory."""


class Companions:
    """The output parts beside one pass. One that fails, or that had better run as Python, is given up: its program is
    replayed by itself then, which finds out why."""

    def __init__(
        self, companions: Sequence[Companion], units: Sequence[Unit], *, events: int, tuning: NativeTuning
    ) -> None:
        self._parts = [_Part(c, u, events, tuning) for c, u in zip(companions, units, strict=True)]
        self._chunks: queue.Queue[tuple[Chunk, ReadColumns] | None] = queue.Queue(_WAITING)
        self._thread: threading.Thread | None = None
        self._stopped = False

    def begin(self) -> None:
        """A slice begins."""
        for part in self._parts:
            part.begin()
        self._stopped = False
        self._thread = threading.Thread(target=self._follow, name="timelapse-beside", daemon=True)
        self._thread.start()

    def take(self, chunk: Chunk, reads: ReadColumns) -> None:
        """The next events, with what was read for each. Waits for room."""
        self._chunks.put((chunk, reads))

    def close(self) -> None:
        """There are no more in this slice."""
        self._chunks.put(None)

    def end(self) -> list[PassResult | None]:
        """After `close`: what each output part has put out; None where it was given up."""
        self._join()
        return [part.end() for part in self._parts]

    def stop(self) -> None:
        """Leave the slice where it is, if it has not ended."""
        if self._thread is not None:
            self._stopped = True
            self._chunks.put(None)
            self._join()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        while not self._chunks.empty():
            self._chunks.get_nowait()

    def _follow(self) -> None:
        while (item := self._chunks.get()) is not None:
            chunk, reads = item
            if not self._stopped:
                columns = {
                    event: {name: _column(*one) for name, one in own.items()} for event, own in reads.items()
                }
                for part in self._parts:
                    part.feed(chunk, columns)


class _Part:
    """One output part."""

    def __init__(self, companion: Companion, unit: Unit, events: int, tuning: NativeTuning) -> None:
        self._columns = companion.columns
        self._events = [cls.__name__ for cls in unit.events]
        self._kernel = NativeKernel(
            companion.program, companion.work, unit, {}, final=True, events=events, tuning=tuning
        )
        self._fields = [
            [f for f in cls.__fields__ if (cls.__name__, f.name) in self._columns] for cls in unit.events
        ]
        self._given_up = False

    def begin(self) -> None:
        if not self._given_up:
            self._kernel.begin()

    def feed(self, chunk: Chunk, reads: Mapping[str, Mapping[str, pa.Array]]) -> None:
        if self._given_up:
            return
        try:
            tables = {}
            for event, fields in zip(self._events, self._fields, strict=True):
                table = chunk.tables.get(event)
                if table is None:
                    continue
                for f in fields:  # raises where there is not one entry for each event
                    values = reads[event][self._columns[event, f.name]]
                    column = pa.field(f.name, f.type.arrow, nullable=f.type.nullable)
                    table = table.append_column(column, values)
                tables[event] = table
            batch = self._kernel.decoder.decode(Chunk(chunk.seq_lo, chunk.seq_hi, tables))
            self._kernel.feed(batch, _untold, _unseen)
        except Exception:
            self._given_up = True

    def end(self) -> PassResult | None:
        if self._given_up:
            return None
        result = PassResult()
        self._kernel.finish(result)
        return None if result.quarantined else result


def _column(parts: Sequence[Array], kind: pa.DataType, held: Sequence[Array] | None) -> pa.Array:
    mask = None if held is None else ~np.concatenate(held)
    return pa.array(parts[0] if len(parts) == 1 else np.concatenate(parts), mask=mask).cast(kind)


def _untold(events: int) -> None:
    """Nobody watches."""


def _unseen(seq: int) -> NoReturn:
    raise LookupError(seq)
