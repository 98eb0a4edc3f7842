"""Kept start states: what the final pass of a program with the same core needs to run on all slices at once.

An entry holds the changes of every slice (`state/...`, laid out as in a run), the start states at the
cuts where the run had to find them (`starts/...`, as in a job's scratch folder), and the hashes of
what each slice changed. The hashes are what proves a run that uses the entry: its final pass must
change exactly that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timelapse.cache.key import CoreKey
from timelapse.cache.store import Head, Store, take
from timelapse.engine.job import Job, SliceReport, SumRow
from timelapse.model.program import spec_of

KIND = "states"
CUTS = "cuts"


@dataclass(frozen=True)
class KeptStates:
    """What is known of a core's run, its files in place."""

    moved: dict[tuple[str, int], SumRow]
    content: dict[tuple[str, int], SumRow]
    origin: dict[str, Any]
    """The run that found them: when, how long it took, how it was validated."""

    @property
    def seconds(self) -> float:
        """How long it took to find the start states."""
        return float(self.origin.get("seconds", 0.0))


def lease(store: Store, key: CoreKey, states: list[str], scratch: Path) -> KeptStates | None:
    """Put the start states of an entry into a job's scratch folder; None where there are none to use."""
    head = store.head(states_key(key))
    if head is None or not head.data.get("starts"):
        return None
    place = scratch / "kept"
    taken = store.lease(states_key(key), place)
    if taken is None:
        return None
    if (place / "starts").is_dir():
        (place / "starts").rename(scratch / "starts")
    return _known(taken, states)


def changes(store: Store, key: CoreKey, names: list[str], scratch: Path, out: Path) -> KeptStates | None:
    """Put what each slice changed into a run's folder, for a run that makes no changes of its own."""
    place = scratch / "changes"
    head = store.lease(states_key(key), place)
    known = None if head is None else _known(head, names)
    if known is not None and (place / "state").is_dir():
        (place / "state").rename(out / "state")
    return known


def hold(job: Job, reports: list[SliceReport], origin: Mapping[str, Any], folder: Path) -> KeptStates:
    """What a run found, its files linked into a folder of this process's own: for runs that follow at once."""
    for path in _files(job.out / "state"):
        take(path, folder / path.relative_to(job.out / "state"))
    names = list(spec_of(job.program).states)
    moved = {(n, r.slice): r.moved[n] for n in names for r in reports}
    content = {(n, r.slice): r.content[n] for n in names for r in reports}
    return KeptStates(moved, content, dict(origin))


def put_back(folder: Path, out: Path) -> None:
    """Put what is held into a run's folder."""
    for path in _files(folder):
        take(path, out / "state" / path.relative_to(folder))


def states_key(key: CoreKey) -> str:
    """The entry's key."""
    return key.of(KIND)


def _known(head: Head, states: list[str]) -> KeptStates | None:
    moved, content = {}, {}
    try:
        for name in states:
            for number, (changed, held) in enumerate(
                zip(head.data["moved"][name], head.data["content"][name], strict=True)
            ):
                moved[name, number] = SumRow(*changed)
                content[name, number] = SumRow(*held)
        return KeptStates(moved, content, dict(head.data["origin"]))
    except (KeyError, TypeError, ValueError):
        return None


def save(
    store: Store, key: CoreKey, job: Job, reports: list[SliceReport], about: dict[str, str],
    origin: Mapping[str, Any],
) -> str | None:  # fmt: skip
    """Keep what a run found. Returns None, or why it is not kept."""
    files = {f"state/{p.relative_to(job.out / 'state')}": p for p in _files(job.out / "state")}
    names = list(spec_of(job.program).states)
    starts = [job.start_path(cut, name) for cut in range(1, job.slices) for name in names]
    complete = all(path.is_file() for path in starts)
    if complete:
        files |= {f"starts/{p.relative_to(job.scratch / 'starts')}": p for p in starts}
    data = {
        "starts": complete,
        "moved": {n: [_row(r.moved[n]) for r in reports] for n in names},
        "content": {n: [_row(r.content[n]) for r in reports] for n in names},
        "origin": dict(origin),
    }
    why = store.publish(states_key(key), KIND, files, about, data, replace=True)
    if why is None:
        why = store.publish(_cuts_key(key), CUTS, {}, about, {"cuts": list(key.cuts)}, replace=True)
    return why


def _cuts_key(key: CoreKey) -> str:
    return key.at(()).of(CUTS)


def known_cuts(store: Store, key: CoreKey) -> tuple[int, ...] | None:
    """Where the log was cut when states of this core were kept last: an edit may have led to another plan."""
    head = store.head(_cuts_key(key))
    cuts = None if head is None else head.data.get("cuts")
    if not isinstance(cuts, list) or store.head(states_key(key.at(cuts))) is None:
        return None
    return tuple(cuts)


def _row(total: SumRow) -> list[int]:
    return [total.low, total.high, total.rows]


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file()) if folder.is_dir() else []
