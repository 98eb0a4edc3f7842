"""What verifications of a stored run found, kept beside it: `verified.json`. A report names it."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from timelapse.decoding import decoded
from timelapse.errors import StorageError
from timelapse.store.drafts import change
from timelapse.store.manifests import UNSEALED, check_seal, sealed
from timelapse.store.parts import altered, write_part
from timelapse.store.remote import RemotePath

if TYPE_CHECKING:
    from timelapse.run.run import Run
    from timelapse.run.verify import Verification

NAME = "verified.json"
REMEDY = "remove the file and verify the run again"
"""What to do about one that was altered."""


class Verified(msgspec.Struct, frozen=True):
    """One verification: the run's digest at the time, how far it went, what it found. `when` is UTC, ISO 8601."""

    digest: str
    ok: bool
    events: int
    total: int
    boundaries: int
    outputs: int
    seconds: float
    when: str
    divergence: str | None = None
    seal: str | None = None
    """The checksum of the file as it is stored (store/manifests.py)."""


def read_verified(run: Run) -> Verified | None:
    """The verification that went furthest (or found a difference); None where there is none of this result, or its file
    was altered."""
    if run.path is None:
        return None
    try:
        data = (run.path / NAME).read_bytes()
        check_seal(data, run.path / NAME, REMEDY)
        found = decoded(data, Verified)
    except (OSError, msgspec.MsgspecError, StorageError):
        return None
    return found if found.digest == run.digest else None


def altered_verified(path: Path) -> StorageError | None:
    """The error for a run's `verified.json` that is not what was written; None where it is, or is not there."""
    try:
        data = (path / NAME).read_bytes()
        check_seal(data, path / NAME, REMEDY)
        decoded(data, Verified)
    except FileNotFoundError:
        return None
    except StorageError as error:
        return error
    except (OSError, msgspec.MsgspecError) as error:
        return altered(path / NAME, f"it cannot be read ({error})", REMEDY)
    return None


def keep_verified(run: Run, proof: Verification) -> None:
    """Keep a verification beside its run, unless one that says more is there. A run that cannot be written stays as it is."""
    if run.path is None:
        return
    before = read_verified(run)
    if before is not None and proof.ok and (not before.ok or before.events > proof.events):
        return
    found = Verified(
        run.digest, proof.ok, proof.events, proof.total, proof.boundaries, proof.outputs, proof.seconds,
        datetime.now(UTC).isoformat(timespec="seconds"), None if proof.divergence is None else proof.divergence.text,
        UNSEALED,
    )  # fmt: skip
    data = sealed(found, indent=2)
    with suppress(OSError, StorageError):
        if isinstance(run.path, RemotePath):
            with change(run.path, (), "verified") as (_, folder):
                (folder / NAME).write_bytes(data)
        else:
            write_part(run.path / NAME, data)
