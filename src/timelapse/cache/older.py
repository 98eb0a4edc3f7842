"""Start states that were kept of another version of the same log: those at cuts before which both versions have the same events.

Beside each entry of start states stands a second one, under a key without the log's id: over which version of the log at a place states
of this core were kept last, and where. A replay of another version looks there. What it takes is proven twice: that the events are the
same, by hashes (segments/changed.py), before it begins; and what each slice changes of each state, by its own final pass, as ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from timelapse.cache import states
from timelapse.cache.key import CoreKey
from timelapse.cache.states import KeptStates, boundaries_in, known_of, states_key
from timelapse.cache.store import Store
from timelapse.engine.boundary import Boundary
from timelapse.engine.job import Job, change_path
from timelapse.errors import TimelapseError
from timelapse.program.program import spec_of
from timelapse.segments.changed import first_changed, same_events
from timelapse.segments.joined import version_with
from timelapse.segments.without import base_of, read_as
from timelapse.store.moves import move
from timelapse.store.remote import place_path
from timelapse.tables import merge
from timelapse.tables.apply import empty
from timelapse.tables.table import read_table

KIND = "version"


@dataclass(frozen=True)
class Older:
    """States that hold. `key`: of their entry, with all of its cuts. `version`: the log's that they were found over; `changed`: the first
    seq from which the log has other events than that; None: it has more behind them. `cuts`: where slices begin whose events are the
    same, and where the last of these ends."""

    key: CoreKey
    version: int
    changed: int | None
    cuts: tuple[int, ...]

    @property
    def slices(self) -> int:
        return len(self.cuts) - 1

    def first_of(self, cuts: Sequence[int]) -> Older:
        """So many of these slices as `cuts` begins with."""
        alike = sum(1 for one, other in zip(self.cuts, cuts, strict=False) if one == other)
        return replace(self, cuts=self.cuts[:alike])

    def describe(self) -> dict[str, Any]:
        """For certificates and `explain`."""
        return {
            "version": self.version, "changed_from": self.changed, "slices": self.slices, "of": len(self.key.cuts) - 1,
            "end_seq": self.cuts[-1], "of_seq": self.key.cuts[-1],
        }  # fmt: skip


def remember(store: Store, key: CoreKey, log: str | None, log_id: str | None, about: dict[str, str]) -> None:
    """Say that states of this core were kept over this version of a log at a place."""
    if log is not None and log_id is not None:
        data = {"log_id": log_id, "key": key.text, "cuts": list(key.cuts)}
        store.publish(_key(key, log, log_id), KIND, {}, about, data, replace=True)


def _key(key: CoreKey, log: str, log_id: str) -> str:
    return key.anywhere(KIND, log, read_as(log_id))


def find(store: Store, key: CoreKey, log: str, log_id: str, *, to_end: bool) -> Older | None:
    """What holds of the states that were kept over another version of a log; None where nothing does.

    `to_end`: whether also what they are behind the log's last event is what a slice that follows begins with.
    """
    head = store.head(_key(key, log, log_id))
    try:
        other, text = (str(head.data[name]) for name in ("log_id", "key")) if head is not None else ("", "")
        cuts = tuple(int(cut) for cut in head.data["cuts"]) if head is not None else ()
    except (KeyError, TypeError, ValueError):
        return None
    found = CoreKey(text, "", cuts)
    if len(cuts) < 2 or base_of(other) == base_of(log_id) or store.head(states_key(found)) is None:
        return None
    try:
        path = place_path(log, "log")
        before, now = (version_with(path, base_of(name)) for name in (other, log_id))
    except (TimelapseError, OSError):
        return None
    if before is None or now is None:
        return None
    changed = first_changed(*sorted((before, now), key=lambda m: m.version))
    end = min(before.count, now.count) if changed is None else changed
    within = [cut for cut in cuts[: None if to_end else -1] if cut <= end]
    if len(within) < 2 or not same_events(path, before, now, within[-1]):
        return None
    return Older(found, before.version, changed, tuple(within))


def has_starts(store: Store, older: Older) -> bool:
    """Whether the states at starts of slices were kept, and not only what slices changed."""
    head = store.head(states_key(older.key))
    return head is not None and states.has_starts(head)


def lease(store: Store, older: Older, job: Job) -> KeptStates | None:
    """Put states at the starts of these slices, and behind the last of them, into a job's scratch, with the rows that are looked back
    on from there; None where the entry does not have them."""
    place, spec, slices = job.scratch / "older", spec_of(job.program), older.slices
    head = store.lease(states_key(older.key), place)
    known = None if head is None else known_of(head, list(spec.states))
    if head is None or known is None:
        return None
    wanted = [Boundary.of(job, cut) for cut in range(1, slices + 1)]
    if any(not one.goes_on_as(other) for one, other in zip(boundaries_in(head), wanted, strict=False)):
        return None
    names = {name for boundary in wanted for name in boundary.names()}
    starts = {
        job.start_path(cut, name).relative_to(job.scratch).as_posix()
        for cut in range(1, slices + 1)
        for name in spec.states
    }
    if not names - starts <= head.files.keys():
        return None
    for name in sorted(names & head.files.keys()):
        target = job.scratch / name
        target.parent.mkdir(exist_ok=True)
        move([(place / name, target)])
    for cut in range(1, slices + 1):
        for name, state in spec.states.items():
            target = job.start_path(cut, name)
            if not target.exists():  # the entry has what slices changed: its run had no need of their starts
                target.parent.mkdir(exist_ok=True)
                start = empty(state) if cut == 1 else read_table(job.start_path(cut - 1, name))
                changes = [path for path in (change_path(place, cut - 1, name),) if path.exists()]
                merge.fold_to(state, start, [read_table(path) for path in changes], target, job.memory)
    return KeptStates(_first(known.moved, slices), _first(known.content, slices), known.origin)


def _first(rows: dict[tuple[str, int], Any], slices: int) -> dict[tuple[str, int], Any]:
    return {(name, at): row for (name, at), row in rows.items() if at < slices}


def older_text(found: Mapping[str, Any]) -> str:
    """What holds of states that were found over another version of the log, for people, as `Older.describe` has it."""
    text = f"{found['slices']} of {found['of']} slices that were found over version {found['version']} of the log hold"
    if found["changed_from"] is None:
        return f"{text}; events have come behind its end, event {found['of_seq']:,}"
    return f"{text}; it has changed since, from event {found['changed_from']:,} on"
