"""The streams of a live run with their partitions: how far each was read, and what is complete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
import pyarrow as pa

from timelapse.streaming.arrivals import PLACE
from timelapse.streaming.format import Epoch
from timelapse.streaming.streams import Partition, StreamEntry, completeness


class Marks:
    """How far streams are, from the newest epoch on. `lateness`: how much later than others a row of a partition may come."""

    def __init__(self, lateness: int) -> None:
        self._lateness = lateness
        self.streams: list[StreamEntry] = []
        self.partitions: dict[tuple[int, str], Partition] = {}

    def follow(self, about: Epoch) -> None:
        """Be where an epoch is."""
        self.streams = list(about.streams)
        self.partitions = {(p.stream, p.name): msgspec.structs.replace(p) for p in about.partitions}

    @property
    def ordered(self) -> list[Partition]:
        """The partitions, as an epoch lists them."""
        return sorted(self.partitions.values(), key=lambda p: (p.stream, p.number))

    def stream(self, entry: StreamEntry) -> None:
        """A stream takes part from now on."""
        known = {s.number: s for s in self.streams} | {entry.number: entry}
        self.streams = [known[number] for number in sorted(known)]

    def entry(self, number: int) -> StreamEntry:
        """A stream by its number."""
        return next(s for s in self.streams if s.number == number)

    def partition(self, stream: int, name: str, complete: int | None) -> Partition:
        """A partition; one that was not there before appears now, when all is `complete` up to a time."""
        found = self.partitions.get((stream, name))
        if found is None:
            number = sum(p.stream == stream for p in self.partitions.values())
            found = self.partitions[stream, name] = Partition(stream, number, name, floor=complete)
        return found

    def shown(self, partition: Partition) -> str:
        """A partition for people."""
        return f"{self.entry(partition.stream).text} {partition.name}".strip()

    def count(self, duplicates: Mapping[str, pa.Table], each: int = 1) -> None:
        """Count rows that came before, by the partitions that they are of; with -1 as each, rows that count after all."""
        for table in duplicates.values():
            stream, number = (np.asarray(table.column(name)) for name in PLACE[:2])
            for partition in self.partitions.values():
                partition.duplicates += each * int(
                    ((stream == partition.stream) & (number == partition.number)).sum()
                )

    def places(self) -> list[tuple[int, str]]:
        """How far partitions were read."""
        return [(p.position, p.cursor) for p in self.partitions.values()]

    def close(self, complete: int | None) -> None:
        """No row at or before a time is accepted any more, whatever the marks say."""
        for partition in self.partitions.values():
            partition.floor = complete

    def reached(self, active: Sequence[int] | None, before: int | None) -> int | None:
        """What is complete now, by the partitions of active streams (None: all). `before`: what was."""
        own = [p for p in self.partitions.values() if active is None or p.stream in active]
        return completeness(own, self._lateness, before)

    def ended(self, before: int | None) -> int | None:
        """What is complete where nothing comes any more."""
        greatest = [p.greatest for p in self.partitions.values() if p.greatest is not None]
        return max([*greatest, *([] if before is None else [before])], default=None)

    def idle(
        self, partitions: Iterable[Partition], active: Sequence[int] | None, before: int | None
    ) -> tuple[list[str], int | None]:
        """Partitions that no longer hold the others back: what is told of them, and what is complete then.

        One after the other, those first that hold the others back: the last one has held back nobody.
        """
        told: list[str] = []
        reached = self.reached(active, before)
        for partition in sorted(partitions, key=lambda p: p.mark(self._lateness)):
            if not partition.idle:
                partition.idle = True
                told.append(f"{self.shown(partition)} is idle")
                reached = self.reached(active, reached)
        return told, reached
