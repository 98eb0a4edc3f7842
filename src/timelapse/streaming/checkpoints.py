"""Checkpoints: where a program stood, in files. A live run goes on from the newest one that is whole, and from the journal
after it.

A checkpoint has what was done to states since the one before; from time to time they are put together into a whole one,
which may be done by any process: it only reads what is there and adds a file of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from timelapse.errors import StorageError
from timelapse.kernels.base import PassResult
from timelapse.program.program import Program
from timelapse.store.parts import DAMAGED
from timelapse.streaming.chain import epochs, newest, read_epoch
from timelapse.streaming.format import CHECKPOINTS, REMEDY, Checkpoint, checkpoint_name
from timelapse.streaming.pack import Pack, packed
from timelapse.streaming.place import RunPlace
from timelapse.streaming.stand import Seen, Stand
from timelapse.streaming.versions import valid


def write_changes(place: RunPlace, about: Checkpoint, changes: PassResult) -> tuple[str, int]:
    """Write what was done to states since `about.parent`. Returns its name and its bytes."""
    changes.settle()
    tables = {f"effects/{name}": table for name, table in changes.effects.items() if table.num_rows}
    tables |= {f"rows/{form}/{name}": table for (name, form), table in changes.rows.items()}
    return _write(place, about, tables)


def write_whole(place: RunPlace, about: Checkpoint, stand: Stand) -> tuple[str, int]:
    """Write where a program stands. Returns the checkpoint's name and its bytes."""
    return _write(place, about, sections_of(stand))


def sections_of(stand: Stand) -> dict[str, pa.Table]:
    """Where a program stands, as sections of a pack."""
    tables: dict[str, pa.Table] = {f"states/{name}": table for name, table in stand.states.items()}
    tables |= {f"stood/{name}": table for name, table in stand.stood.items()}
    for number, part in enumerate(stand.seen):
        tables |= {f"seen/{number}/effects/{name}": table for name, table in part.effects.items()}
        tables |= {f"seen/{number}/rows/{form}/{name}": table for (name, form), table in part.rows.items()}
    return tables


def _write(place: RunPlace, about: Checkpoint, tables: dict[str, pa.Table]) -> tuple[str, int]:
    data, _ = packed(about, tables)
    name = checkpoint_name(about.epoch, uuid.uuid4().hex)
    place.create(name, data)
    return name, len(data)


class Found:
    """A checkpoint that can be gone on from, with the whole one that it stands on and all between."""

    def __init__(self, packs: list[Pack[Checkpoint]], names: list[str]) -> None:
        self._packs, self.names = packs, names

    @property
    def about(self) -> Checkpoint:
        return self._packs[0].about

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def noted(self) -> tuple[int, list[tuple[int, str]]]:
        """What sources have noted up to some epoch, and that epoch."""
        first = self._packs[-1].about
        return (first.epoch, first.notes) if first.whole and first.noted else (0, [])

    @property
    def changes(self) -> int:
        """How many checkpoints there are since a whole one."""
        return sum(not pack.about.whole for pack in self._packs)

    def stand(self, program: Program, base: Callable[[], Stand]) -> Stand:
        """Where the program stood. `base`: where it stood before the journal began. Raises StorageError (TL931)."""
        found = Stand() if self._packs[-1].about.whole else base()
        for pack in reversed(self._packs):
            if pack.about.whole:
                found = stand_in(pack, pack.about.seen, pack.about.complete)
                continue
            found = found.then(program, _changes(pack), pack.about.complete)
        return found


def stand_in(pack: Pack[Any], ends: Sequence[int], complete: int | None) -> Stand:
    """Where a program stands, from a pack's sections. `ends`: of the parts whose rows windows may still see."""
    states = {name: pack.table(f"states/{name}") for name in pack.names("states")}
    stood = {name: pack.table(f"stood/{name}") for name in pack.names("stood")}
    seen = []
    for number, end in enumerate(ends):
        prefix = f"seen/{number}"
        effects = {n: pack.table(f"{prefix}/effects/{n}") for n in pack.names(f"{prefix}/effects")}
        seen.append(Seen(end, _rows(pack, f"{prefix}/rows"), effects))
    return Stand(states, tuple(seen), stood, complete)


def _changes(pack: Pack[Checkpoint]) -> PassResult:
    effects = {name: pack.table(f"effects/{name}") for name in pack.names("effects")}
    return PassResult(effects=effects, rows=_rows(pack, "rows"))


def _rows(pack: Pack[Any], prefix: str) -> dict[tuple[str, str], pa.Table]:
    found = {}
    for name in pack.names(prefix):
        form, _, state = name.partition("/")
        found[state, form] = pack.table(f"{prefix}/{name}")
    return found


def candidates(place: RunPlace, upto: int) -> Iterator[str]:
    """The names of checkpoints of epochs up to one, newest first."""
    names = [n for n in place.names(CHECKPOINTS) if int(n.partition("-")[0]) <= upto]
    return (f"{CHECKPOINTS}/{name}" for name in sorted(names, reverse=True))


def newest_whole(
    place: RunPlace, upto: int, problems: list[str], counts: Callable[[Checkpoint], bool]
) -> Found | None:
    """The newest checkpoint that can be gone on from, of those that count. What is torn, altered or gone is told in `problems`."""
    for name in candidates(place, upto):
        try:
            if counts(_read(place, name).about):
                return load(place, name)
        except StorageError as error:
            if error.code != DAMAGED:
                raise
            problems.append(str(error))
    return None


def load(place: RunPlace, name: str) -> Found:
    """A checkpoint with all that it stands on, every byte checked; where there is a whole one of the same epoch, that.

    Raises StorageError (TL931).
    """
    there = list(place.names(CHECKPOINTS))
    packs: list[Pack[Checkpoint]] = []
    names: list[str] = []
    while name:
        pack = _read(place, name)
        if not pack.about.whole:
            beside = _whole_beside(place, name, pack.about, there)
            if beside is not None:
                name, pack = beside
        if read_epoch(place, pack.about.epoch).hash != pack.about.hash:
            raise StorageError(
                f"the checkpoint {name} is of another epoch {pack.about.epoch}", hint=REMEDY, code="TL931"
            )
        packs.append(pack)
        names.append(name)
        name = "" if pack.about.whole else pack.about.parent
    return Found(packs, names)


def _read(place: RunPlace, name: str) -> Pack[Checkpoint]:
    try:
        pack = Pack(f"{place}/{name}", place.read(name), Checkpoint, REMEDY)
    except FileNotFoundError:
        raise StorageError(f"the checkpoint {name} is gone", hint=REMEDY, code="TL931") from None
    pack.check()
    return pack


def _whole_beside(
    place: RunPlace, name: str, about: Checkpoint, there: Sequence[str]
) -> tuple[str, Pack[Checkpoint]] | None:
    """A whole checkpoint of the same epoch: others follow the changes that it was made of, and do not name it."""
    prefix = name.removeprefix(f"{CHECKPOINTS}/").partition("-")[0] + "-"
    for other in there:
        if other.startswith(prefix) and not name.endswith(other):
            try:
                pack = _read(place, f"{CHECKPOINTS}/{other}")
            except StorageError as error:
                if error.code != DAMAGED:
                    raise
                continue
            if pack.about.whole and pack.about.hash == about.hash:
                return f"{CHECKPOINTS}/{other}", pack
    return None


def compact(place: RunPlace, program: Program, base: Callable[[], Stand] = Stand) -> str | None:
    """Put checkpoints together into a whole one, which any process may do. `base` as in `Found.stand`.

    Returns its name; None where there is nothing to do.
    """
    last = newest(place)
    found = newest_whole(place, last, [], valid(place, read_epoch(place, last).about if last else None))
    if found is None or found.about.whole:
        return None
    stand = found.stand(program, base).trimmed(program)
    before, notes = found.noted
    about = msgspec.structs.replace(
        found.about, whole=True, parent="", seen=[part.end for part in stand.seen],
        notes=[*notes, *noted(place, before + 1, found.about.epoch)], noted=True,
    )  # fmt: skip
    name, _ = write_whole(place, about, stand)
    return name


def noted(place: RunPlace, first: int, last: int) -> list[tuple[int, str]]:
    """What sources have noted in some epochs: the stream's number, and the text."""
    return [note for pack in epochs(place, first, last) for note in pack.about.notes]
