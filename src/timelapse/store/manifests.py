"""Manifests: JSON files that say what belongs together. Each is written once, holds its own checksum, and is checked
when it is read."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import msgspec

from timelapse.store.disk import DISK, Disk
from timelapse.store.parts import altered, sync, write_part

UNSEALED = "00000000"
"""What the field `seal` of a manifest holds when it is handed to `sealed`."""
_SEAL = re.compile(rb'"seal": ?"([0-9a-f]{8})"\s*\}\s*\Z')


def sealed(manifest: msgspec.Struct, indent: int) -> bytes:
    """A manifest as JSON, its field `seal` the CRC-32 of the rest. It has to be UNSEALED."""
    data = msgspec.json.format(msgspec.json.encode(manifest), indent=indent)
    place = _SEAL.search(data)
    assert place is not None, "seal is the last field"
    return data[: place.start(1)] + f"{zlib.crc32(data):08x}".encode() + data[place.end(1) :]


def check_seal(data: bytes, path: Path, remedy: str) -> bool:
    """Whether a manifest's text has a seal; those of earlier versions have none.

    Raises StorageError (TL931) where it is not that of the rest.
    """
    place = _SEAL.search(data)
    if place is None:
        return False
    if zlib.crc32(data[: place.start(1)] + UNSEALED.encode() + data[place.end(1) :]) != int(place[1], 16):
        raise altered(path, "its text does not have the checksum that it holds", remedy)
    return True


def create(path: Path, data: bytes, *, lasting: bool = True, disk: Disk = DISK) -> None:
    """Write a manifest where there is none. Raises FileExistsError for who comes second."""
    disk.write(path, data, lasting=lasting, new=True)
    if lasting:
        disk.sync(path.parent)


def replace(path: Path, data: bytes) -> None:
    """Write a manifest in place of the one before: whole or not at all, also when the power fails."""
    write_part(path, data, lasting=True)
    sync(path.parent)
