"""What `tl.replay` asks the cache: is there anything to start from, and what is worth keeping."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from timelapse.analysis import Analysis
from timelapse.analysis.outputs import output_part
from timelapse.cache import reads, states
from timelapse.cache.key import CoreKey, core_key
from timelapse.cache.reads import OutputDriver, Reads
from timelapse.cache.states import KeptStates
from timelapse.cache.store import Store, open_store
from timelapse.engine.driver import Driver, Outcome
from timelapse.engine.executor import Executor, suitable
from timelapse.engine.job import Job
from timelapse.engine.progress import Progress
from timelapse.errors import HandlerError
from timelapse.kernels.interpreted import RECORDER
from timelapse.model.fingerprint import Unsure
from timelapse.model.program import Program, spec_of
from timelapse.plan import Plan

MIN_EVENTS = 50_000
"""Logs below this size are replayed as fast as anything could be looked up."""


@dataclass
class Reuse:
    """One replay's view of the cache."""

    store: Store | None
    key: CoreKey
    reason: str = ""
    """Why nothing is looked up or kept."""
    reads: Reads | None = None
    reads_reason: str = ""
    """Why the output part needs the states."""
    kept: KeptStates | None = None
    """What the run started from."""
    what: str = ""
    alone: bool = False
    """Whether the output part ran alone."""
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
        if key.reason:
            return cls.none(key.reason)
        part = output_part(analysis)
        if part.reason:
            return cls(store, key, reads_reason=part.reason)
        try:
            return cls(store, key, reads=Reads.of(program, key, part))
        except (Unsure, RecursionError) as unsure:
            return cls(store, key, reads_reason=f"its reads depend on what cannot be hashed: {unsure}")

    # --- running ------------------------------------------------------------------------------------

    def run(self, job: Job, plan: Plan, executor: Executor, progress: Progress, lead: int) -> Outcome:
        """Run the job with what there is; `lead` as for the driver. Raises what the driver raises."""
        here = suitable(executor, staged=plan.mode == "staged" and job.slices > 1)
        if self.store is None:
            return _drive(Driver(job, plan, here, progress, lead=lead), job, here)
        outcome = self._outputs(job, plan, executor, progress)
        if outcome is not None:
            return outcome
        self._lease(job)
        known = None if self.kept is None else self.kept.moved
        if known is None:
            executor = here
        recording = self._recording(job, chained=known is None and plan.mode == "chain")
        if recording is not None:
            try:
                return _drive(
                    Driver(recording, plan, executor, progress, lead=lead, known=known), recording, executor
                )
            except HandlerError as error:
                if error.handler != RECORDER:
                    raise
                reads.remove(job.out)  # a key that cannot be computed for every event
                shutil.rmtree(job.out / "state", ignore_errors=True)
                self.reads_reason, self.reads = error.message, None
        return _drive(Driver(job, plan, executor, progress, lead=lead, known=known), job, executor)

    def _outputs(self, job: Job, plan: Plan, executor: Executor, progress: Progress) -> Outcome | None:
        """Run the output part alone, if all its reads are kept."""
        if self.reads is None or self.store is None:
            return None
        if self.store.head(states.states_key(self.key)) is None or self.reads.missing(self.store):
            return None
        names = list(spec_of(job.program).states)
        alone = self.reads.job(self.store, job)
        kept = None if alone is None else states.changes(self.store, self.key, names, job.scratch, job.out)
        if alone is None or kept is None:
            return None
        driver = OutputDriver(alone, plan, executor, progress)
        executor.start(alone)
        try:
            outcome = driver.outputs(kept.moved, kept.content)
        finally:
            executor.close()
        if outcome is None:
            shutil.rmtree(job.out / "state", ignore_errors=True)
            return None
        self.kept, self.what, self.alone = kept, "states and what is read of them", True
        return outcome

    def _lease(self, job: Job) -> None:
        """Put kept start states in the job's place, if there are any."""
        if self.store is not None and job.slices > 1:
            names = list(spec_of(job.program).states)
            self.kept = states.lease(self.store, self.key, names, job.scratch)
            self.what = "states" if self.kept is not None else ""

    def _recording(self, job: Job, *, chained: bool) -> Job | None:
        """The job with a final pass that records, where that is worth it."""
        if self.reads is None or self.store is None or not self.reads.missing(self.store):
            return None
        first = self.store.head(states.states_key(self.key)) is None
        if first and not self.reads.small:
            return None  # as long as nobody has edited anything
        final = self.reads.recording(job, first=first, chained=chained)
        return None if final is None else dataclasses.replace(job, passes=(*job.passes[:-1], final))

    # --- keeping ------------------------------------------------------------------------------------

    def keep(self, job: Job, outcome: Outcome, about: dict[str, str], origin: dict[str, Any]) -> None:
        """Keep what a run found and nothing had to be repaired."""
        if self.store is None:
            return
        if outcome.fallback is None and (job.out / reads.FOLDER).is_dir() and self.reads is not None:
            self._note(self.reads.keep(self.store, job, about))
        reads.remove(job.out)
        if self.kept is not None or outcome.fallback is not None:
            return
        seconds = sum(s for name, s in outcome.timings.items() if not name.startswith("final"))
        origin = {**origin, "seconds": seconds, "validated_slices": outcome.validated}
        head = self.store.head(states.states_key(self.key))
        if head is None or (not head.data.get("starts") and (job.scratch / "starts").is_dir()):
            self._note(states.save(self.store, self.key, job, outcome.reports, about, origin))

    def _note(self, why: str | None) -> None:
        if why is not None:
            self.notes.append(why)

    def certificate(self, seconds: float) -> dict[str, Any] | None:
        """What a run of so many seconds took from the cache, and what validated that; None where it took nothing."""
        if self.kept is None:
            return None
        proved = "the final pass changed the states exactly as the cache says"
        saved = self.kept.seconds
        if self.alone:
            proved = "by the run that found them: the states were not needed again"
            saved = max(0.0, float(self.kept.origin.get("run_seconds", 0.0)) - seconds)
        return {
            "what": self.what,
            "key": self.key.text,
            "saved": saved,
            "found_by": self.kept.origin,
            "validated": proved,
        }


def _drive(driver: Driver, job: Job, executor: Executor) -> Outcome:
    began = time.perf_counter()
    executor.start(job)
    shipped = time.perf_counter() - began
    try:
        outcome = driver.run()
    finally:
        executor.close()
    outcome.account.add("plan", shipped)
    return outcome
