"""States of one moment in an open format: Parquet files by range of a hash of the key, and a manifest in JSON.

Any reader of Parquet takes the files; the manifest says what they are, with sizes and checksums. A key's rows are in one part, which depends on the key and
the number of parts alone; so a snapshot is laid out anew for another number of readers without asking the program (SEEP's checkpoint and
partition of operator state: Fernandez et al., SIGMOD 2013, section 3).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from timelapse.decoding import decoded
from timelapse.errors import Place, StorageError, UsageError
from timelapse.store.folders import whole_folder
from timelapse.store.parts import CheckedFile, Part, PartWriter, write_part
from timelapse.store.places import absolute_path
from timelapse.tables.rowhash import both_lanes, one_array

NAME = "snapshot.json"
FORMAT = 1
MOST_PARTS = 4096
REMEDY = "make the snapshot again"
_SEED = 0x736E617073686F74


class StateEntry(msgspec.Struct, frozen=True):
    """A state's files. `keys`: the columns that say which part a row is in; none for a state without a key."""

    name: str
    kind: str
    keys: tuple[str, ...]
    rows: int
    files: dict[str, Part]


class Snapshot(msgspec.Struct, frozen=True):
    """What a snapshot's manifest says. `moment`: of which run and when its states are."""

    format: int
    program: str
    params: dict[str, str]
    fingerprint: str
    moment: dict[str, Any]
    parts: int
    states: tuple[StateEntry, ...]


def write_snapshot(
    place: str | Path, tables: Mapping[str, tuple[str, pa.Table]], *, program: str, params: Mapping[str, str], fingerprint: str,
    moment: Mapping[str, Any], parts: int = 1, overwrite: bool = False,
) -> Snapshot:  # fmt: skip
    """Write states, each as its kind and its table as users see it. Whole or not at all.

    Raises UsageError (TL950) for a number of parts below 1 or above 4,096, StorageError where nothing can be written.
    """
    if not 1 <= parts <= MOST_PARTS:
        raise UsageError(f"{parts:,} parts", hint=f"from 1 to {MOST_PARTS:,}", code="TL950")
    target = absolute_path(place, "snapshot")
    with whole_folder(
        target, lambda: _check_free(target, overwrite=overwrite), lambda why: _refused(target, why)
    ) as folder:
        states = [_write(folder, name, kind, table, parts) for name, (kind, table) in tables.items()]
        found = Snapshot(FORMAT, program, dict(params), fingerprint, dict(moment), parts, tuple(states))
        write_part(folder / NAME, msgspec.json.format(msgspec.json.encode(found)), lasting=True)
    return found


def _write(folder: Path, name: str, kind: str, table: pa.Table, parts: int) -> StateEntry:
    keys = tuple(n for n in ("key",) if n in table.column_names)
    where = _part_of(table, keys, parts)
    (folder / name).mkdir()
    files = {}
    for number in range(parts):
        path = folder / name / f"part-{number:05d}-of-{parts:05d}.parquet"
        rows = table if parts == 1 else table.take(pa.array(np.flatnonzero(where == number)))
        with PartWriter(path, lasting=True) as file:
            pq.write_table(rows, file, compression="zstd")
        files[path.relative_to(folder).as_posix()] = file.part()
    return StateEntry(name, kind, keys, table.num_rows, files)


def _part_of(table: pa.Table, keys: tuple[str, ...], parts: int) -> npt.NDArray[np.uint64]:
    """The part of each row: a range of the key's hash. What has no key is in the first."""
    if not keys or parts == 1 or not table.num_rows:
        return np.zeros(table.num_rows, np.uint64)
    columns = [column for name in keys for column in _flat(one_array(table.column(name)))]
    low, _ = both_lanes(columns, table.num_rows, _SEED)
    # 32 bits of the hash are as many as this many parts need, and their product fits 64.
    return ((np.asarray(low, np.uint64) >> np.uint64(32)) * np.uint64(parts)) >> np.uint64(32)


def _flat(column: pa.Array) -> list[pa.Array]:
    """A key's columns, in the types in which hashes are defined: keys of several parts are structs."""
    if pa.types.is_struct(column.type):
        return [leaf for child in column.flatten() for leaf in _flat(child)]
    if pa.types.is_timestamp(column.type):
        return [column.cast(pa.int64())]
    if pa.types.is_string(column.type):
        return [column.cast(pa.large_string())]
    return [column.cast(pa.large_binary()) if pa.types.is_binary(column.type) else column]


def read_manifest(place: str | Path) -> Snapshot:
    """What a snapshot is. Raises StorageError (TL950) where there is none, or of a format that is not known."""
    path = absolute_path(place, "snapshot") / NAME
    try:
        found = decoded(path.read_bytes(), Snapshot)
    except FileNotFoundError:
        raise StorageError(
            "there is no snapshot", place=Place(str(path)), code="TL950", hint="timelapse state checkpoint RUN FOLDER makes one"
        ) from None  # fmt: skip
    except msgspec.MsgspecError as error:
        raise StorageError(
            f"the manifest is damaged: {error}", place=Place(str(path)), code="TL950", hint=REMEDY
        ) from None
    if found.format != FORMAT:
        raise StorageError(
            f"the snapshot has format {found.format}, and this version reads {FORMAT}", place=Place(str(path)), code="TL950", hint=REMEDY
        )  # fmt: skip
    return found


def read_state(place: str | Path, name: str) -> pa.Table:
    """A state's rows, of all parts; every byte is checked. Raises StorageError (TL950, TL931), UsageError (TL950) for a name that is none."""
    found, folder = read_manifest(place), absolute_path(place, "snapshot")
    entry = next((s for s in found.states if s.name == name), None)
    if entry is None:
        raise UsageError(
            f"the snapshot has no state {name!r}", hint=f"states: {', '.join(s.name for s in found.states)}", code="TL950"
        )  # fmt: skip
    tables = [
        pq.read_table(pa.BufferReader(CheckedFile(folder / file, part, REMEDY).whole()))
        for file, part in entry.files.items()
    ]
    return pa.concat_tables(tables)


def repartition(place: str | Path, into: str | Path, parts: int, *, overwrite: bool = False) -> Snapshot:
    """The same snapshot in another number of parts, at another place. Raises as reading and writing do."""
    found = read_manifest(place)
    tables = {s.name: (s.kind, _sorted(read_state(place, s.name), s.keys)) for s in found.states}
    return write_snapshot(
        into, tables, program=found.program, params=found.params, fingerprint=found.fingerprint, moment=found.moment,
        parts=parts, overwrite=overwrite,
    )  # fmt: skip


def _sorted(table: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """Rows by key, so that their order does not depend on how they were laid out before."""
    if not keys or not table.num_rows:
        return table
    columns = [leaf for name in keys for leaf in _flat(one_array(table.column(name)))]
    order = pa.table(columns, [f"k{n}" for n in range(len(columns))])
    rows = pc.sort_indices(order, sort_keys=[(n, "ascending") for n in order.column_names])
    return table.take(rows)


def _check_free(path: Path, *, overwrite: bool) -> None:
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not (path / NAME).is_file():
        raise StorageError(
            "there is something here that is no snapshot", place=Place(str(path)), code="TL950", hint="choose another folder"
        )  # fmt: skip
    if not overwrite:
        raise StorageError(
            "there is a snapshot here already", place=Place(str(path)), code="TL950", hint="--overwrite replaces it"
        )  # fmt: skip


def _refused(path: Path, why: str) -> StorageError:
    return StorageError(
        f"the snapshot cannot be written here: {why}", place=Place(str(path)), code="TL950", hint="choose another folder"
    )  # fmt: skip
