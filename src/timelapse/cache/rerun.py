"""What `tl.replay` asks the cache: is there anything to start from, and what is worth keeping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from timelapse.analysis import Analysis
from timelapse.cache import states
from timelapse.cache.key import CoreKey, core_key
from timelapse.cache.states import KeptStates
from timelapse.cache.store import Store, open_store
from timelapse.engine.driver import Outcome
from timelapse.engine.job import Job
from timelapse.model.program import Program, spec_of

MIN_EVENTS = 50_000
"""Logs below this size are replayed as fast as anything could be looked up."""


@dataclass
class Reuse:
    """One replay's view of the cache. `reason` says why nothing is looked up or kept."""

    store: Store | None
    key: CoreKey
    reason: str = ""
    states: KeptStates | None = None
    notes: list[str] = field(default_factory=list)

    @classmethod
    def none(cls, reason: str) -> Reuse:
        """No cache."""
        return cls(None, CoreKey(reason=reason), reason)

    @classmethod
    def of(
        cls, program: Program, analysis: Analysis, log_id: str | None, events: int, cuts: Sequence[int]
    ) -> Reuse:
        """The cache for one program over a log that is cut in this way."""
        store = open_store()
        if store is None:
            return cls.none("the cache is switched off")
        if events < MIN_EVENTS:
            return cls.none(f"the log has fewer than {MIN_EVENTS:,} events")
        key = core_key(program, analysis, log_id, cuts)
        return cls(None if key.reason else store, key, key.reason)

    def lease(self, job: Job) -> KeptStates | None:
        """Put kept start states in the job's place, if there are any."""
        if self.store is not None and job.slices > 1:
            names = list(spec_of(job.program).states)
            self.states = states.lease(self.store, self.key, names, job.scratch)
        return self.states

    def keep(self, job: Job, outcome: Outcome, about: dict[str, str], origin: dict[str, Any]) -> None:
        """Keep what a run found, if that was not from the cache and nothing had to be repaired."""
        if self.store is None or self.states is not None or outcome.fallback is not None:
            return
        found = sum(s for name, s in outcome.timings.items() if not name.startswith("final"))
        origin = {**origin, "seconds": found, "validated_slices": outcome.validated}
        head = self.store.head(states.states_key(self.key))
        if head is not None and (head.data.get("starts") or not (job.scratch / "starts").is_dir()):
            return
        why = states.save(self.store, self.key, outcome.reports, job.scratch, job.out, about, origin)
        if why is not None:
            self.notes.append(why)

    def certificate(self) -> dict[str, Any] | None:
        """What a run took from the cache, and what validated that; None where it took nothing."""
        if self.states is None:
            return None
        return {
            "what": "states",
            "key": self.key.text,
            "saved": self.states.seconds,
            "found_by": self.states.origin,
            "validated": "the final pass changed the states exactly as the cache predicted",
        }
