"""Kept start states: what the final pass of a program with the same core needs to run on all slices at once.

An entry holds the changes of every slice (`state/...`, laid out as in a run), what is known at the cuts where the run had
to find that (engine/boundary.py: `starts/...`, and `rows/...` of states that are looked back on, as in a job's scratch
folder), and the hashes of what each slice changed. The hashes are what proves a run that uses the entry: its final pass
must change exactly that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from timelapse.cache.key import CoreKey
from timelapse.cache.store import Head, Store, take
from timelapse.engine.boundary import Boundary, boundaries, files_of
from timelapse.engine.job import ROWS, STARTS, Job, SliceReport, SumRow
from timelapse.kernels.python.steps import calls_ahead
from timelapse.kernels.source import Source
from timelapse.program.program import spec_of
from timelapse.store.moves import move
from timelapse.store.parts import Part

KIND = "states"
CUTS = "cuts"


@dataclass(frozen=True)
class KeptStates:
    """What is known of a core's run, its files in place."""

    moved: dict[tuple[str, int], SumRow]
    content: dict[tuple[str, int], SumRow]
    origin: dict[str, Any]
    """The run that found them: when, how long it took, how it was validated."""
    pending: dict[str, int] = field(default_factory=dict)
    """What lies ahead at the end, calls of `after=` handlers not counted: by state and event type."""
    parts: dict[str, Part] = field(default_factory=dict)
    """Sizes and checksums of the files, by their paths in a run, as far as they are known."""

    @property
    def seconds(self) -> float:
        """How long it took to find the start states."""
        return float(self.origin.get("seconds", 0.0))


def lease(store: Store, key: CoreKey, job: Job) -> KeptStates | None:
    """Put what an entry knows at a job's cuts into its scratch folder; None where it does not know all that the job's slices
    begin with."""
    head = store.head(states_key(key))
    if head is None or not _has(head, boundaries(job)):
        return None
    place = job.scratch / "kept"
    taken = store.lease(states_key(key), place)
    if taken is None:
        return None
    for folder in (STARTS, ROWS):
        if (place / folder).is_dir():
            move([(place / folder, job.scratch / folder)])
    return known_of(taken, list(spec_of(job.program).states))


def _has(head: Head, wanted: Sequence[Boundary]) -> bool:
    """Whether an entry has boundaries at the same cuts, with all that is wanted of them. A view that looks back further than
    those of the program that was kept may still find its rows there."""
    found = boundaries_in(head)
    if not found or len(found) != len(wanted):
        return False
    if not all(one.goes_on_as(other) for one, other in zip(found, wanted, strict=True)):
        return False
    return all(name in head.files for boundary in wanted for name in boundary.names())


def boundaries_in(head: Head) -> list[Boundary]:
    """The boundaries that an entry has; none where it has nothing but what slices changed."""
    try:
        return [Boundary.from_json(text) for text in head.data.get("boundaries", ())]
    except (TypeError, ValueError):
        return []


def changes(store: Store, key: CoreKey, names: list[str], scratch: Path, out: Path) -> KeptStates | None:
    """Put what each slice changed into a run's folder, for a run that makes no changes of its own."""
    place = scratch / "changes"
    head = store.lease(states_key(key), place)
    known = None if head is None else known_of(head, names)
    if known is not None and (place / "state").is_dir():
        move([(place / "state", out / "state")])
    return known


def hold(job: Job, reports: list[SliceReport], origin: Mapping[str, Any], folder: Path) -> KeptStates:
    """What a run found, its files linked into a folder of this process's own: for runs that follow at once."""
    for path in _files(job.out / "state"):
        take(path, folder / path.relative_to(job.out / "state"))
    names = list(spec_of(job.program).states)
    moved = {(n, r.slice): r.moved[n] for n in names for r in reports}
    content = {(n, r.slice): r.content[n] for n in names for r in reports}
    return KeptStates(moved, content, dict(origin), _pending(job, reports), _parts(reports))


def _parts(reports: Sequence[SliceReport]) -> dict[str, Part]:
    return {name: part for r in reports for name, part in r.parts.items() if name.startswith("state/")}


def _pending(job: Job, reports: Sequence[SliceReport]) -> dict[str, int]:
    """What lies ahead at the end, beside calls of `after=` handlers: these follow from the log."""
    found = Counter(reports[-1].pending)
    found.subtract(_calls_at_end(job))
    return {name: count for name, count in sorted(found.items()) if count}


def pending_at_end(job: Job, kept: KeptStates) -> dict[str, int]:
    """What lies ahead at the end of a run that finds these states."""
    return dict(sorted((Counter(kept.pending) + Counter(_calls_at_end(job))).items()))


def _calls_at_end(job: Job) -> dict[str, int]:
    """How many calls of `after=` handlers lie beyond the end, by handler."""
    end = job.end_of(job.slices - 1)
    classes = job.classes
    columns: dict[str, tuple[str, ...]] = dict.fromkeys(classes, ())
    source = Source(job.reader, job.cuts[0], job.cuts[-1], classes, columns, end=end, is_last=True)
    return calls_ahead(job.program, spec_of(job.program).handlers, source)


def put_back(folder: Path, out: Path) -> None:
    """Put what is held into a run's folder."""
    for path in _files(folder):
        take(path, out / "state" / path.relative_to(folder))


def states_key(key: CoreKey) -> str:
    """The entry's key."""
    return key.of(KIND)


def known_of(head: Head, states: list[str]) -> KeptStates | None:
    """What an entry says that slices change; None where it does not say it."""
    moved, content = {}, {}
    try:
        for name in states:
            for number, (changed, held) in enumerate(
                zip(head.data["moved"][name], head.data["content"][name], strict=True)
            ):
                moved[name, number] = SumRow(*changed)
                content[name, number] = SumRow(*held)
        parts = {name: Part(*part) for name, part in head.data.get("parts", {}).items()}
        return KeptStates(moved, content, dict(head.data["origin"]), dict(head.data["pending"]), parts)
    except (KeyError, TypeError, ValueError):
        return None


def save(
    store: Store, key: CoreKey, job: Job, reports: list[SliceReport], about: dict[str, str],
    origin: Mapping[str, Any],
) -> str | None:  # fmt: skip
    """Keep what a run found. Returns None, or why it is not kept."""
    files = {f"state/{p.relative_to(job.out / 'state')}": p for p in _files(job.out / "state")}
    names = list(spec_of(job.program).states)
    found = boundaries(job)
    known = files_of(found, job.scratch)
    files |= known or {}
    data = {
        "boundaries": [] if known is None else [boundary.to_json().decode() for boundary in found],
        "pending": _pending(job, reports),
        "moved": {n: [_row(r.moved[n]) for r in reports] for n in names},
        "content": {n: [_row(r.content[n]) for r in reports] for n in names},
        "origin": dict(origin),
        "parts": {name: [part.bytes, part.crc32] for name, part in _parts(reports).items()},
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


def has_starts(head: Head) -> bool:
    """Whether an entry has more than what slices changed."""
    return bool(head.data.get("boundaries"))


def _row(total: SumRow) -> list[int]:
    return [total.low, total.high, total.rows]


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file()) if folder.is_dir() else []
