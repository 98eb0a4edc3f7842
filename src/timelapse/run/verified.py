"""What verifications of a stored run found, kept beside it: `verified.json`. A report names it."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from timelapse.errors import StorageError
from timelapse.store.drafts import change
from timelapse.store.parts import write_part
from timelapse.store.remote import RemotePath

if TYPE_CHECKING:
    from timelapse.run.run import Run
    from timelapse.run.verify import Verification

NAME = "verified.json"


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


def read_verified(run: Run) -> Verified | None:
    """The verification that went furthest (or found a difference); None where there is none of this result."""
    if run.path is None:
        return None
    try:
        found = msgspec.json.decode((run.path / NAME).read_bytes(), type=Verified)
    except (OSError, msgspec.MsgspecError):
        return None
    return found if found.digest == run.digest else None


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
    )  # fmt: skip
    data = msgspec.json.format(msgspec.json.encode(found), indent=2)
    with suppress(OSError, StorageError):
        if isinstance(run.path, RemotePath):
            with change(run.path, (), "verified") as (_, folder):
                (folder / NAME).write_bytes(data)
        else:
            write_part(run.path / NAME, data)
