"""The rows of a log's sources that are no events: where they stood, why they were left out, their text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from timelapse.segments.manifest import REMEDY, IngestEntry, Manifest, SourceEntry
from timelapse.store.parts import CheckedFile, Part, PartWriter, sync

FOLDER = "quarantine"
FORGOTTEN = "forgotten"
"""In place of a bad row's text and reason."""
CUT = "..."
"""The end of a text of which the rest was not kept."""
NOT_KEPT = "(not kept: fields of this source are private)"
"""In place of the text of a row of a private source."""
QUARANTINE = pa.schema(
    [
        pa.field("file", pa.string()), pa.field("line", pa.int64()), pa.field("type", pa.string()),
        pa.field("reason", pa.string()), pa.field("raw", pa.string()),
    ]
)  # fmt: skip
EVENT = pa.field("event", pa.binary(16))
"""Beside them is a hash of the event, of rows that are one which another was taken instead of (ingest/unique.py)."""
TAKEN = ""
"""In place of a file: the row says that an event was taken after all, so earlier rows of the same hash do not count."""
KEPT = pa.schema([*QUARANTINE, EVENT])


def replaced_later(ingests: Sequence[IngestEntry]) -> list[set[tuple[str, str]]]:
    """For each ingest the files, by type and path, that a later one took in again because they were corrected."""
    found: list[set[tuple[str, str]]] = []
    later: set[tuple[str, str]] = set()
    for entry in reversed(ingests):
        found.append(set(later))
        later |= {(s.type, path) for s in entry.sources for path in entry.replaced}
    return found[::-1]


def still_told(ingests: Sequence[IngestEntry]) -> list[list[SourceEntry]]:
    """For each ingest its sources of which something is in the log as it was taken in: not all of their files were corrected since."""
    return [
        [s for s in entry.sources if not s.taken or any((s.type, path) not in gone for path in s.taken)]
        for entry, gone in zip(ingests, replaced_later(ingests), strict=True)
    ]


def count_bad(ingests: Sequence[IngestEntry]) -> int:
    """The bad rows of a log's files as they were taken in last."""
    return sum(
        source.bad - sum(n for path, n in source.bad_in.items() if (source.type, path) in gone)
        for entry, gone in zip(ingests, replaced_later(ingests), strict=True)
        for source in entry.sources
    )


def bad_days(ingests: Sequence[IngestEntry], type_: str) -> Counter[int]:
    """The bad rows of a type whose time could be read, by day (days since 1970, UTC), of files as they were taken in last."""
    found: Counter[int] = Counter()
    for entry, gone in zip(ingests, replaced_later(ingests), strict=True):
        for source in (s for s in entry.sources if s.type == type_):
            for path, days in source.bad_days.items():
                found.update({} if (type_, path) in gone else days)
    return found


def bad_rows(path: Path, manifest: Manifest) -> pa.Table:
    """The quarantine of the log at `path`, in the order of its ingests; without the rows of files that were corrected since.

    Raises StorageError (TL931) for a file that was altered.
    """
    return _told(path, manifest, set()).select(QUARANTINE.names)


def beaten_in(
    path: Path, manifest: Manifest, gone: AbstractSet[tuple[str, str]]
) -> dict[str, frozenset[bytes]]:
    """By type the hashes of events in the quarantine that another was taken instead of. `gone`: files by type whose rows do not count.

    Raises StorageError (TL931) for a file that was altered.
    """
    table = _told(path, manifest, gone)
    table = table.filter(table["event"].is_valid())
    found: dict[str, set[bytes]] = {}
    for type_, event in zip(table["type"].to_pylist(), table["event"].to_pylist(), strict=True):
        found.setdefault(type_, set()).add(event)
    return {type_: frozenset(events) for type_, events in found.items()}


def _told(path: Path, manifest: Manifest, gone: AbstractSet[tuple[str, str]]) -> pa.Table:
    """The rows that count, with the hashes of events."""
    tables: list[pa.Table] = []
    for entry, later in zip(manifest.ingests, replaced_later(manifest.ingests), strict=True):
        if not entry.quarantine:
            continue
        table = pa.concat_tables(
            [_read(path / FOLDER / name, entry.parts.get(name)) for name in entry.quarantine]
        )
        taken = pc.equal(table["file"], TAKEN)
        if pc.any(taken).as_py():
            events = table["event"].filter(taken)
            table = table.filter(pc.invert(taken))
            # hashes are of the type, too
            tables = [
                t.filter(pc.invert(pc.is_in(t["event"], value_set=events.combine_chunks()))) for t in tables
            ]
        if later or gone:
            places = zip(table["type"].to_pylist(), table["file"].to_pylist(), strict=True)
            table = table.filter(
                pa.array([one not in later and one not in gone for one in places], pa.bool_())
            )
        tables.append(table)
    return pa.concat_tables(tables) if tables else KEPT.empty_table()


def _read(path: Path, part: Part | None) -> pa.Table:
    # a version that kept no checksums wrote it, or one that kept no hashes
    source = path if part is None else pa.BufferReader(CheckedFile(path, part, REMEDY).whole())
    table = pq.read_table(source)
    return (
        table
        if EVENT.name in table.column_names
        else table.append_column(EVENT, pa.nulls(len(table), EVENT.type))
    )


def hide(
    log: Path, folder: Path, ingests: Sequence[IngestEntry], values: Sequence[tuple[str, bool]]
) -> tuple[list[IngestEntry], int]:
    """The ingests of `log` with quarantine files, written anew below `folder`, in which no row tells any of these values; and how many rows did.

    Such rows keep their place and number: text, reason and hash are taken out. A value that is True is looked for as a whole word, else as
    a part of one, so rows of others that happen to hold it lose their text too. It is found as CSV, JSON and Python write it, and where a text was cut within it.
    A hash tells an event to who guesses it. So it goes, too, where no text was kept that tells whose event it is; where a part of it was kept, hash and text go.
    Raises StorageError (TL931) for a file that was altered.
    """
    if not values:
        return list(ingests), 0
    sought = _Sought(values)
    read = {
        name: _read(log / FOLDER / name, entry.parts.get(name)).to_pylist()
        for entry in ingests
        for name in entry.quarantine
    }
    rows = [row for own in read.values() for row in own]
    known = [row for row in rows if row["file"] != TAKEN]
    whole = {id(row) for row in known if row["event"] is not None}
    told = {
        id(row)
        for row in rows
        if sought.told(row["raw"] or "")
        or sought.told(row["reason"] or "")
        or (id(row) in whole and row["raw"].endswith(CUT))
    }
    unclear = {id(row) for row in known if id(row) in whole and row["raw"] == NOT_KEPT}
    hashes = {row["event"] for row in known if id(row) not in told and id(row) not in unclear}
    taken = {row["event"] for row in rows if row["file"] == TAKEN}

    def left(row: dict[str, Any]) -> dict[str, Any] | None:
        """What stays of a row."""
        event = row["event"]
        # what was taken after all does not count, and what says so is of no use without its hash
        if event is not None and event not in hashes and event in taken:
            return None
        if id(row) in told:
            return row | {"raw": FORGOTTEN, "reason": FORGOTTEN, "event": None}
        return row | {"event": None} if id(row) in unclear else row

    made: list[IngestEntry] = []
    for entry in ingests:
        names, parts = [], dict(entry.parts)
        for name in entry.quarantine:
            kept = [new for row in read[name] if (new := left(row)) is not None]
            if kept != read[name]:
                parts.pop(name, None)
                name = f"{name.partition('-')[0]}-{uuid4().hex[:12]}.parquet"
                (folder / FOLDER).mkdir(exist_ok=True)
                with PartWriter(folder / FOLDER / name, lasting=True) as file:
                    pq.write_table(pa.Table.from_pylist(kept, schema=KEPT), file, compression="zstd")
                parts[name] = file.part()
            names.append(name)
        made.append(msgspec.structs.replace(entry, quarantine=names, parts=parts))
    if any(one.quarantine != entry.quarantine for one, entry in zip(made, ingests, strict=True)):
        sync(folder / FOLDER)
    return made, len(told)


class _Sought:
    """Values that bad rows are searched for."""

    def __init__(self, values: Sequence[tuple[str, bool]]) -> None:
        self._values = values
        self._pattern = re.compile(
            "|".join(
                rf"(?<![0-9A-Za-z]){re.escape(v)}(?![0-9A-Za-z])" if whole else re.escape(v)
                for v, whole in values
            )
        )

    def told(self, text: str) -> bool:
        """Whether a text holds one of the values, however it is written."""
        return any(self._pattern.search(one) or self._cut_within(one) for one in _read_as(text))

    def _cut_within(self, text: str) -> bool:
        """Whether a text that was cut ends with the beginning of a value."""
        if not text.endswith(CUT):
            return False
        kept = text.removesuffix(CUT)
        return any(
            kept.endswith(value[:n]) and not (whole and kept[:-n][-1:].isalnum())
            for value, whole in self._values
            for n in range(1, len(value))
        )


_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|x([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_DOUBLED = re.compile(r"(['\"])\1")


def _read_as(text: str) -> Iterator[str]:
    """A text as it stands, and as readers of CSV (a doubled quote is one), of JSON and of Python's texts (escapes) take it."""
    yield text
    plain = _DOUBLED.sub(r"\1", text)
    if plain != text:
        yield plain
    for one in dict.fromkeys([text, plain]):
        if "\\" in one:
            yield _unescaped(one)


def _unescaped(text: str) -> str:
    def of(found: re.Match[str]) -> str:
        code = found[1] or found[2] or found[3]
        if code is None:
            return _CONTROL.get(found[4], found[4])
        return chr(int(code, 16)) if int(code, 16) <= 0x10FFFF else found[0]

    # JSON writes what is beyond 16 bits as two halves
    return _ESCAPE.sub(of, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
