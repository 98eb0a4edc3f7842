"""A live run as it stood after one of its epochs, in another place: on another machine or disk, or before something went wrong.

Every file is checked as it is copied, and `live.json`, which makes a place a live run, is put last. So a copy that was not finished
is none, and the same command again goes on with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from timelapse.errors import Place, RunError, StorageError
from timelapse.moments import time_text
from timelapse.streaming import chain
from timelapse.streaming.checkpoints import candidates, load
from timelapse.streaming.format import CHECKPOINTS, EPOCHS, NEWEST, RUN, VERSIONS, Epoch, epoch_name
from timelapse.streaming.place import LivePlace, live_place
from timelapse.streaming.sources.push import SEGMENTS
from timelapse.streaming.sources.sent_ids import FOLDER as IDS

_OURS = {EPOCHS, CHECKPOINTS, VERSIONS, SEGMENTS, IDS, NEWEST}
"""What a copy that was not finished has left."""


@dataclass
class Restored:
    """What was copied.

    `epoch`: the last one, with `complete`, the time up to which all has happened; `left`: epochs after it that were left out.
    `checkpoints`, `segments`: of how many files of states, and of rows that were sent. `start_from`: the run that it goes on from, which
    has to be there as well. `problems`: checkpoints that were damaged, and left out: the journal has all that they had.
    """

    epoch: int
    complete: int | None
    left: int
    checkpoints: int = 0
    segments: int = 0
    bytes: int = 0
    start_from: str | None = None
    problems: list[str] = field(default_factory=list)


def restore(
    out: str | Path, into: str | Path, *, epoch: int | None = None, at: int | None = None,
) -> Restored:  # fmt: skip
    """Copy a live run as it stood after an epoch to a place where none is: the newest one, number `epoch`, or the last one by whose end nothing
    at or after `at` (microseconds) had happened. Both places may be folders or in object stores. The run may be running.

    Raises RunError (TL940) where there is no such run, place or epoch, StorageError (TL931) for a file that was altered.
    """
    source, target = live_place(out), live_place(into)
    run, digest = chain.read_run(source)
    newest = chain.newest(source)
    if target.exists(RUN):
        raise RunError(
            "there is a live run already", place=Place(str(target)), code="TL940", hint="give a place of its own, or remove what is there"
        )  # fmt: skip
    if target.path.is_file() or set(target.names("")) - _OURS:
        raise RunError(
            "there is already something at the place for the copy", place=Place(str(target)), code="TL940", hint="give an empty or new directory"
        )  # fmt: skip
    last = _last(source, newest, epoch, at)
    about = chain.read_about(source, last)
    done = Restored(last, about.complete, newest - last, start_from=run.start_from)

    def put(name: str, data: bytes) -> None:
        done.bytes += len(data)
        try:
            target.create(name, data)
        except FileExistsError:
            if target.read(name) != data:
                raise _other(target, name) from None

    previous = digest
    for number in range(1, last + 1):
        pack = chain.read_epoch(source, number)
        pack.check()
        if pack.about.previous != previous:
            raise StorageError(
                "the epoch does not follow the one before it", place=Place(pack.name), code="TL931",
                hint="give an epoch before it (--epoch)",
            )  # fmt: skip
        previous = pack.hash
        put(epoch_name(number), pack.data)
    if target.exists(epoch_name(last + 1)):
        raise _other(target, epoch_name(last + 1))
    for name in candidates(source, last):
        try:
            load(source, name)
            data = source.read(name)
        except FileNotFoundError:  # collected meanwhile
            continue
        except StorageError as error:
            if error.code != "TL931":
                raise
            done.problems.append(str(error))
            continue
        put(name, data)
        done.checkpoints += 1
    for folder in (VERSIONS, SEGMENTS, IDS):
        for one in source.files(folder):
            try:
                data = source.read(one.name)
            except FileNotFoundError:  # of ids that need not be known any more
                if folder != IDS:
                    raise
                continue
            put(one.name, data)
            done.segments += folder == SEGMENTS
    target.hint(NEWEST, str(last).encode())
    put(RUN, source.read(RUN))
    return done


def _last(place: LivePlace, newest: int, epoch: int | None, at: int | None) -> int:
    """The number of the epoch that is meant."""
    if newest == 0:
        raise RunError(
            "the live run has no epoch yet",
            place=Place(str(place)),
            code="TL940",
            hint="wait for its first one",
        )
    if epoch is not None:
        if not 1 <= epoch <= newest:
            raise RunError(
                f"the live run has no epoch {epoch:,}", place=Place(str(place)), code="TL940", hint=f"it has epochs 1 to {newest:,}"
            )  # fmt: skip
        return epoch
    if at is None:
        return newest

    def before(about: Epoch) -> bool:
        return about.complete is None or about.complete < at

    low, high = 0, newest + 1  # completeness only rises
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if before(chain.read_about(place, middle)) else (low, middle)
    if low == 0:
        raise RunError(
            f"the first epoch goes beyond {time_text(at)}", place=Place(str(place)), code="TL940",
            hint="begin a new run: there is nothing before that time",
        )  # fmt: skip
    return low


def _other(place: LivePlace, name: str) -> RunError:
    return RunError(
        f"the place is not empty: {name} is of another run, or of another copy", place=Place(str(place)), code="TL940",
        hint="give an empty place, or remove what is there",
    )  # fmt: skip


__all__ = ["Restored", "restore"]
