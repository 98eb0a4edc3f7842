"""Which files a log has taken in, and whether they are still what they were.

A file is known by its size, the time at which it was changed, and a hash: of all bytes where it is small, of blocks
spread over it where it is large. One that has the size and the time that it had is the same. Of another time, a small file
is the same if its hash is; a large one counts as changed, since not all of it was hashed. Where times are whole seconds,
that of a file that was taken in right after it was changed is not kept, as it may be changed again at that time.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.display import many
from timelapse.errors import IngestError, LogError, Place
from timelapse.ids import INT64_MAX, INT64_MIN
from timelapse.ingest.files import SourceFile
from timelapse.segments.beside import FILE, files_of
from timelapse.segments.manifest import IngestEntry, Manifest
from timelapse.segments.reader import LogReader

if TYPE_CHECKING:
    from timelapse.ingest.prepare import Prepared

WHOLE = 1 << 20
"""Files up to so many bytes are hashed as a whole."""
_BLOCKS, _BLOCK = 16, 64 << 10
_SECOND = 1_000_000_000
_SETTLED = 2 * _SECOND
"""Object stores tell whole seconds: a file that was changed within so many nanoseconds can be changed again at the same time."""


def print_of(file: SourceFile) -> str:
    """When a file was changed, and its hash: what the manifest keeps of it."""
    if file.part is not None:
        return file.mark
    digest = hashlib.blake2b(digest_size=16)
    try:
        system, path = file.locate()
        with system.open_input_file(path) as stream:
            if file.size <= WHOLE:
                digest.update(stream.read())
            else:
                for n in range(_BLOCKS):
                    stream.seek((file.size - _BLOCK) * n // (_BLOCKS - 1))
                    digest.update(stream.read(_BLOCK))
    except (OSError, pa.ArrowInvalid):
        return ""  # whoever reads it says what is wrong with it
    return f"{_settled(file.modified)} {digest.hexdigest()}"


def take_prints(prepared: Sequence[Prepared]) -> None:
    """What tells each file from what it may be later."""
    for one in prepared:
        if one.source.is_files:
            one.prints = {file.path: print_of(file) for file in one.files}


def _settled(modified: int | None) -> int:
    """The time at which a file was changed, or 0 where a later change may have the same time."""
    if modified is None or (modified % _SECOND == 0 and time.time_ns() - modified <= _SETTLED):
        return 0
    return modified


def is_same(file: SourceFile, size: int, print_: str | None) -> bool:
    """Whether a file is what it was when it had this size and print (None: none was kept)."""
    if file.size != size or not print_:
        return file.size == size
    if file.part is not None:
        return file.mark == print_
    when, _, digest = print_.partition(" ")
    if file.modified is not None and when == str(file.modified):
        return True
    return file.size <= WHOLE and print_of(file).partition(" ")[2] == digest


def _hash(print_: str | None) -> str:
    """The hash of a file's print, or the mark of a table's part."""
    return (print_ or "").rpartition(" ")[2]


Window = tuple[int | None, int | None]
"""The first time, and that before which all are; None for no bound."""


def _span(since: int | None, before: int | None) -> tuple[int, int]:
    return INT64_MIN if since is None else since, INT64_MAX if before is None else before


def hull(windows: Iterable[Window]) -> Window:
    """The first time of some windows, and that before which all are."""
    spans = [_span(*one) for one in windows]
    low, high = min(start for start, _ in spans), max(end for _, end in spans)
    return None if low == INT64_MIN else low, None if high == INT64_MAX else high


def lies_in(window: Window, other: Window) -> bool:
    """Whether the other one has all times of a window."""
    (low, high), (since, before) = _span(*window), _span(*other)
    return since <= low and high <= before


class Taken:
    """The files that a log has, by type and path, with their sizes and prints."""

    def __init__(self, ingests: Sequence[IngestEntry]) -> None:
        self.files: dict[tuple[str, str], tuple[int, str | None]] = {}
        self._positions: dict[tuple[str, str], int] = {}
        self._spans: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self._left_out: dict[str, int] = {}
        self.ranges: set[tuple[str, str]] = set()
        """Those that are ranges of a query to PostgreSQL."""
        for entry in ingests:
            gone = {path for path in entry.replaced if not any(path in s.taken for s in entry.sources)}
            for key in [key for key in self.files if key[1] in gone]:
                del self.files[key]  # its table does not have it any more
            for source in entry.sources:
                span = _span(source.source.get("since"), source.source.get("before"))
                for path, size in source.taken.items():
                    now = size, source.prints.get(path)
                    if not self.same((source.type, path), now):
                        self._spans[source.type, path] = []
                    self._spans[source.type, path].append(span)
                    self.files[source.type, path] = now
                    self._positions[source.type, path] = source.position
                    if "query" in source.source:
                        self.ranges.add((source.type, path))
                left = source.duplicates + source.conflicts
                self._left_out[source.type] = self._left_out.get(source.type, 0) + left

    def paths(self, type_: str, position: int | None = None) -> list[str]:
        """The files of a type, or of one of its sources."""
        return [
            path for name, path in self.files
            if name == type_ and position in (None, self._positions[name, path])
        ]  # fmt: skip

    def has_times(self, key: tuple[str, str], *windows: Window) -> bool:
        """Whether all rows of these times were taken from a file, by type and path, as it was at last."""
        spans = sorted(self._spans[key])
        for low, high in (_span(*one) for one in windows):
            for start, end in spans:
                if start <= low < end:
                    low = end
            if low < high:
                return False
        return True

    def times(self, key: tuple[str, str]) -> list[Window]:
        """Of which times rows were taken from a file, as it was at last."""
        return [
            (None if low == INT64_MIN else low, None if high == INT64_MAX else high)
            for low, high in self._spans[key] if low < high
        ]  # fmt: skip

    def counted(self) -> str:
        """How many files and ranges there are, as "the file is" or "all 3 files and 2 ranges are"."""
        files, ranges = len({p for _, p in self.files.keys() - self.ranges}), len(self.ranges)
        both = [many(n, one, f"{one}s") for n, one in ((files, "file"), (ranges, "range")) if n]
        if files + ranges == 1:
            return "the file is" if files else "the range is"
        return f"all {' and '.join(both)} are"

    def same(self, key: tuple[str, str], now: tuple[int, str | None]) -> bool:
        """Whether a file, by type and path, was taken in with this size and hash."""
        size, print_ = self.files.get(key, (-1, None))
        return size == now[0] and _hash(print_) == _hash(now[1])

    def all_again(self, type_: str) -> bool:
        """Whether a correction needs all files of the type: where rows of others were left out as duplicates, of events that may go."""
        return self._left_out.get(type_, 0) > 0


def gone_with(
    reader: LogReader, manifest: Manifest, replaced: Mapping[str, Sequence[str]]
) -> tuple[tuple[int, ...], dict[str, int]]:
    """The events of a log that come from some files, by type: their seqs, rising, and how many each file has.

    Raises LogError (TL417) where the log does not know which file its events come from.
    """
    files = files_of(manifest.ingests)
    numbers = {
        kind: np.asarray([n for n, (t, _, path) in enumerate(files) if t == kind and path in set(paths)])
        for kind, paths in replaced.items()
    }
    types = [t.name for t in manifest.types]
    for segment in manifest.segments:
        for file in segment.files:
            if types[file.type] in numbers and FILE not in file.beside:
                raise LogError(
                    "an earlier version of Timelapse made this log, which does not know the files of its events", code="TL417",
                    place=Place(reader.root), hint="--overwrite makes the log again from all files",
                )  # fmt: skip
    found: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
    counts: dict[str, int] = {path: 0 for paths in replaced.values() for path in paths}
    for chunk in reader.chunks(0, reader.count, dict.fromkeys(numbers, ())):
        for kind, table in chunk.tables.items():
            own = table[FILE].to_numpy()
            gone = np.isin(own, numbers[kind])
            found.append(table["seq"].to_numpy()[gone])
            for number, count in zip(*np.unique(own[gone], return_counts=True), strict=True):
                counts[files[number][2]] += int(count)
    return tuple(np.sort(np.concatenate(found)).tolist()), counts


def refuse_gone(type_: str, missing: Sequence[str], changed: str) -> None:
    """Raise IngestError (TL417) where a correction needs files that are not there any more."""
    if missing:
        raise IngestError(
            f"the file was corrected, and {type_} is unique: rows of other files that were left out may count now, and {len(missing):,} of these "
            f"are not there any more, such as {missing[0]}",
            place=Place(changed), code="TL417", hint="bring them back; --overwrite makes the log from the files that are there",
        )  # fmt: skip
