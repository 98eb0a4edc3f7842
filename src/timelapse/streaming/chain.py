"""The chain of epochs: reading it, finding its end, adding to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import msgspec

from timelapse.decoding import decoded
from timelapse.errors import Place, RunError, StorageError, TimelapseError
from timelapse.store.waiting import at_most
from timelapse.streaming.format import FORMAT, NEWEST, REMEDY, RUN, Epoch, LiveRun, epoch_name
from timelapse.streaming.pack import Pack, hash_of, header
from timelapse.streaming.place import RunPlace

_PAUSES = (0.0, 0.05, 0.2, 1.0, 2.0)
"""Seconds between two attempts to put an epoch; the last one again and again."""
_BRIEF = 1.5
"""Seconds for which a store itself asks again: then it is said that the epoch waits."""


class Overtaken(TimelapseError):
    """Another process has committed this epoch: who notices stops. Nothing of its own epoch is visible."""

    code = "TL941"


def read_run(place: RunPlace) -> tuple[LiveRun, str]:
    """`live.json`, and its hash. Raises RunError."""
    try:
        data = place.read(RUN)
    except (FileNotFoundError, NotADirectoryError):
        raise RunError(
            f"this is not a live run: it has no {RUN}", place=Place(str(place)),
            hint="give the directory that `timelapse live` wrote to", code="TL940",
        ) from None  # fmt: skip
    try:
        if (version := decoded(data, dict[str, object]).get("format")) != FORMAT:
            raise RunError(
                f"the live run has format {version}; this version of Timelapse reads {FORMAT}", place=Place(f"{place}/{RUN}"),
                hint="use the version that wrote it", code="TL940",
            )  # fmt: skip
        return decoded(data, LiveRun), hash_of(data)
    except msgspec.MsgspecError as error:
        raise RunError(
            f"the live run's description is damaged: {error}", place=Place(f"{place}/{RUN}"), hint=REMEDY, code="TL940",
        ) from None  # fmt: skip


def read_epoch(place: RunPlace, number: int) -> Pack[Epoch]:
    """An epoch. Raises StorageError (TL931) where it is torn, altered or gone."""
    name = epoch_name(number)
    try:
        data = place.read(name)
    except FileNotFoundError:
        raise _gone(place, name) from None
    found = Pack(f"{place}/{name}", data, Epoch, REMEDY)
    _check_number(found.about, number, found.name)
    return found


def read_about(place: RunPlace, number: int) -> Epoch:
    """What an epoch says of itself, without its sections: one that changes the program has all states. Raises as `read_epoch` does."""
    name = epoch_name(number)
    try:
        found = header(f"{place}/{name}", place.pieces(name), Epoch, REMEDY)
    except FileNotFoundError:
        raise _gone(place, name) from None
    _check_number(found, number, f"{place}/{name}")
    return found


def _gone(place: RunPlace, name: str) -> StorageError:
    return StorageError(
        "the epoch is gone, and later ones need it",
        place=Place(f"{place}/{name}"),
        hint=REMEDY,
        code="TL931",
    )


def _check_number(about: Epoch, number: int, name: str) -> None:
    if about.number != number:
        raise StorageError(
            f"the file was altered: it has epoch {about.number}",
            place=Place(name),
            hint=REMEDY,
            code="TL931",
        )


def newest(place: RunPlace) -> int:
    """The number of the newest epoch; 0 where there is none. The chain has no gaps: it is probed in doubling steps."""
    low = 0
    try:
        hinted = int(place.read(NEWEST))
        if hinted > 0 and place.exists(epoch_name(hinted)):
            low = hinted
    except (OSError, ValueError):
        pass
    step = 1
    while place.exists(epoch_name(low + step)):
        low, step = low + step, step * 2
    high = low + step  # there is none
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if place.exists(epoch_name(middle)) else (low, middle)
    return low


def epochs(place: RunPlace, first: int, last: int) -> Iterator[Pack[Epoch]]:
    """Epochs in order, each checked to follow the one before. Raises StorageError (TL931)."""
    before = None if first == 1 else read_epoch(place, first - 1).hash
    for number in range(first, last + 1):
        found = read_epoch(place, number)
        if before is not None and found.about.previous != before:
            raise StorageError(
                "the epoch does not follow the one before it",
                place=Place(found.name),
                hint=REMEDY,
                code="TL931",
            )
        before = found.hash
        yield found


def put(place: RunPlace, number: int, data: bytes, wait: Callable[[str, float], None]) -> None:
    """Commit an epoch: the one write that counts.

    After any answer but success the place is asked what is there: the same bytes mean that it is committed; others, that
    another process was first (Overtaken); nothing, that the same bytes are put again. `wait` is called between attempts
    with what is wrong and how many seconds to wait; it raises to give up. Where the place does not say what is there, the same bytes are put again
    too: should they be there, they are found.
    """
    name, attempt = epoch_name(number), 0
    while True:
        try:
            with at_most(_BRIEF):
                place.create(name, data)
        except (OSError, StorageError) as error:
            found = _there(place, name)
            if found is None:
                wait(f"epoch {number} cannot be written: {error}", _PAUSES[min(attempt, len(_PAUSES) - 1)])
                attempt += 1
                continue
            if found != data:
                raise Overtaken(
                    f"another process has committed epoch {number}", place=Place(f"{place}/{name}"),
                    hint="one process runs a live run at a time; this one stops, and nothing of its epoch counts. With standby= (--standby) it waits until the other one is gone",
                ) from None  # fmt: skip
        with suppress(OSError, StorageError), at_most(_BRIEF):  # the end is found without it
            place.hint(NEWEST, str(number).encode())
        return


def _there(place: RunPlace, name: str) -> bytes | None:
    """What is there under a name; None where nothing is, or the place does not say."""
    with suppress(OSError, StorageError), at_most(_BRIEF):
        return place.read(name)
    return None
