"""Ids of what was sent to a stream, so that what is sent again counts once: in memory, and in files that spare a restart the segments."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

import msgspec

from timelapse.errors import StorageError
from timelapse.streaming.pack import Pack, packed
from timelapse.streaming.place import LivePlace

FOLDER = "push-ids"
REMEMBERED = 1_000_000
"""So many ids are remembered, the newest."""
SEGMENTS = 512
IDS = 50_000
"""A file has the ids of so many segments, or so many ids, about."""
_READ = 1000
"""At most so many segments are read where no file has their ids: those of an earlier version."""

Known = tuple[str, int | None]
"""An id, with a hash of its rows where there is one."""


class _File(msgspec.Struct, frozen=True):
    ids: list[Known]


class SentIds:
    """The ids that a stream's segments have. Segments are numbered from 1, and taken in their order."""

    def __init__(self, place: LivePlace, stream: int) -> None:
        self._place, self._stream = place, stream
        self._known: dict[str, int | None] = {}
        self._files: deque[tuple[str, int]] = deque()
        """Those there are, with the number of their ids; the oldest first."""
        self._filed = 0
        """The last segment whose ids are in a file."""
        self._next: list[Known] = []
        """Ids of the segments behind it."""

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def __getitem__(self, name: str) -> int | None:
        return self._known[name]

    def load(self, last: int, ids_of: Callable[[int], Sequence[Known]]) -> None:
        """Remember the ids of the segments up to the last one. Raises StorageError (TL931) for a file that was altered."""
        mine = f"{self._stream:04d}-"
        names = [f"{FOLDER}/{n}" for n in self._place.names(FOLDER) if n.startswith(mine)]
        parts: list[list[Known]] = []
        count = 0
        while names and count < REMEMBERED:
            name = names.pop()
            parts.append(self._read(name))
            count += len(parts[-1])
            self._files.appendleft((name, len(parts[-1])))
        self._place.remove(names)
        if self._files:
            self._filed = int(self._files[-1][0][-16:])
        for part in reversed(parts):
            self._remember(part)
        first = self._filed if self._files else max(0, last - _READ)
        for number in range(first + 1, last + 1):
            ids = ids_of(number)
            self._next += ids
            self._remember(ids)

    def _read(self, name: str) -> list[Known]:
        remedy = (
            "restore it from a copy; without it, what was sent before may count twice when it is sent again"
        )
        return Pack(name, self._place.read(name), _File, remedy).about.ids

    def add(self, segment: int, ids: Sequence[Known]) -> None:
        """A segment was written."""
        self._next += ids
        self._remember(ids)
        if self._next and (segment - self._filed >= SEGMENTS or len(self._next) >= IDS):
            self._file(segment)

    def _file(self, segment: int) -> None:
        name = f"{FOLDER}/{self._stream:04d}-{segment:016d}"
        try:
            self._place.create(name, packed(_File(self._next), {})[0])
        except FileExistsError:  # of a process that ran before: segments say what is in it
            pass
        except (OSError, StorageError):  # the segments have them: the next one tries again
            return
        self._files.append((name, len(self._next)))
        self._filed, self._next = segment, []
        count = sum(n for _, n in self._files)
        old = []
        while count - self._files[0][1] >= REMEMBERED:
            name, ids = self._files.popleft()
            count -= ids
            old.append(name)
        try:
            self._place.remove(old)
        except (OSError, StorageError):
            return  # the next start removes them

    def _remember(self, ids: Iterable[Known]) -> None:
        self._known.update(ids)
        while len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]
