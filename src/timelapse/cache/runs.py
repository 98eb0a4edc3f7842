"""Which run the last replay of a program over a log made: a replay over another version of the log goes on from it (run/remembered.py).

Nothing of the run is kept here but its place, and the seal of its manifest, which tells whether it is still the one that was made.
"""

from __future__ import annotations

from dataclasses import dataclass

from timelapse.cache.store import Store

KIND = "run"


@dataclass(frozen=True)
class LastRun:
    """`place`: its folder. `seal`: of its manifest. `log_id`: the log's that it is over, as it was read."""

    place: str
    seal: str
    log_id: str


def remember(store: Store, key: str, run: LastRun, about: dict[str, str]) -> None:
    """Say that this is what the last replay of a program made."""
    data = {"place": run.place, "seal": run.seal, "log_id": run.log_id}
    store.publish(key, KIND, {}, about, data, replace=True)


def last_run(store: Store, key: str) -> LastRun | None:
    """What the last replay made; None where nobody knows."""
    head = store.head(key)
    if head is None or head.kind != KIND:
        return None
    try:
        return LastRun(*(str(head.data[name]) for name in ("place", "seal", "log_id")))
    except KeyError:
        return None
