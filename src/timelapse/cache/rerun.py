"""What `tl.replay` asks the cache: is there anything to start from, and what is worth keeping."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from timelapse.analysis import Analysis
from timelapse.analysis.outputs import output_part
from timelapse.cache import older, reads, states
from timelapse.cache.group import Group
from timelapse.cache.key import CoreKey, core_key
from timelapse.cache.older import Older, older_text
from timelapse.cache.reads import OutputDriver, Reads
from timelapse.cache.states import KeptStates
from timelapse.cache.store import Store, open_store
from timelapse.engine.driver import Driver
from timelapse.engine.executor import Executor, LocalExecutor, suitable
from timelapse.engine.job import STARTS, Job
from timelapse.engine.outcome import Outcome
from timelapse.engine.world import REAL, World
from timelapse.errors import HandlerError
from timelapse.kernels.choose import leaves_lock, share_of
from timelapse.kernels.python.interpreted import RECORDER
from timelapse.plan import Plan
from timelapse.plan.plan import Stage
from timelapse.plan.strategy import Strategy
from timelapse.program.fingerprint import Unsure
from timelapse.program.program import Program, spec_of
from timelapse.progress import Progress

Behind = Callable[[tuple[int, ...], bool], Sequence[int] | None]
"""Says how a log is cut whose first slices are given, by where they begin and where the last of them ends, and whether their starts
were kept; None: not with these."""


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
    log_id: str | None = None
    several: bool = False
    """Whether other replays follow that may differ in their output parts only."""
    group: Group | None = None
    """These others, where they are known."""
    beside: bool = False
    """Whether their output parts have run beside this one."""
    decoded: Path | None = None
    """Where these share what they have read."""
    log: str | None = None
    """The place of the log."""
    older: Older | None = None
    """What holds of states that were kept of another version of the log."""
    begun: KeptStates | None = None
    """What the run took of these."""

    @classmethod
    def none(cls, reason: str) -> Reuse:
        """No cache."""
        return cls(None, CoreKey(reason=reason), reason)

    @classmethod
    def of(
        cls, program: Program, analysis: Analysis, log_id: str | None, events: int, cuts: Sequence[int],
        *, least: int | None = None, several: bool = False, decoded: Path | None = None,
        group: Group | None = None, until: int | None = None, log: str | None = None,
        behind: Behind | None = None,
    ) -> Reuse:  # fmt: skip
        """The cache for one program over a log that is cut in this way, or in any other of `least` slices or more; the
        clock goes on to `until`.

        `log`: where it is. `behind`: how it is cut where states hold that were kept of another version of it.
        """
        store = open_store()
        if store is None:
            return cls.none("the cache is switched off")
        if events < store.tuning.least_events:
            return cls.none(f"the log has fewer than {store.tuning.least_events:,} events")
        key = core_key(program, analysis, log_id, cuts, until)
        if key.reason:
            return cls.none(key.reason)
        other = None if least is None else states.known_cuts(store, key)
        if least is not None and other is not None and len(other) > least:
            key = key.at(other)
        made = cls(store, key, log_id=log_id, log=log)
        if log is not None and log_id is not None and behind is not None:
            made._look_for_older(behind, to_end=not analysis.spec.times)
            key = made.key
        part = output_part(analysis)
        made.reads_reason = part.reason
        if part.reason:
            return made
        try:
            made.reads = Reads.of(program, key, part)
        except (Unsure, RecursionError) as unsure:
            made.reads_reason = f"its reads depend on what cannot be hashed: {unsure}"
            return made
        made.several, made.decoded, made.group = several, decoded, group
        return made

    def _look_for_older(self, behind: Behind, *, to_end: bool) -> None:
        """Where nothing is kept of this version of the log: what holds of another one's states, and the cuts with which it does."""
        assert self.store is not None
        assert self.log is not None
        assert self.log_id is not None
        if self.store.head(states.states_key(self.key)) is not None:
            return
        found = older.find(self.store, self.key, self.log, self.log_id, to_end=to_end)
        if found is None:
            return
        cut = behind(found.cuts, older.has_starts(self.store, found))
        if cut is not None:
            self.older, self.key = found.first_of(cut), self.key.at(cut)

    def cuts(self, planned: Sequence[int]) -> tuple[int, ...]:
        """Where the log is cut: where kept states know their way, else as planned."""
        return self.key.cuts or tuple(planned)

    def describe(self) -> dict[str, Any]:
        """What `timelapse explain` says: what is kept, or why it cannot be."""
        if self.store is None:
            return {"states": False, "reads": False, "reason": self.reason, "reads_reason": "", "older": None}
        kept = self.store.head(states.states_key(self.key)) is not None
        reads_kept = kept and self.reads is not None and not self.reads.missing(self.store)
        return {
            "states": kept, "reads": reads_kept, "reason": "", "reads_reason": self.reads_reason,
            "older": None if self.older is None else self.older.describe(),
        }  # fmt: skip

    # --- running ------------------------------------------------------------------------------------

    def run(
        self, job: Job, plan: Plan, executor: Executor, progress: Progress, lead: int,
        compiling: Callable[[Job], AbstractContextManager[None]], world: World = REAL,
    ) -> Outcome:  # fmt: skip
        """Run the job with what there is. Raises what the driver raises.

        `lead` is the driver's; `compiling` makes what machine code a job lacks, while it runs or for the next run.
        """
        if self.store is not None:
            outcome = self._outputs(job, plan, executor, progress, compiling)
            if outcome is not None:
                return outcome
            self._lease(job)
        if self.older is not None and self.begun is not None:
            progress.note(f"start states are taken from the cache: {older_text(self.older.describe())}")
        known = next((found.moved for found in (self.kept, self.begun) if found is not None), None)
        recording, wanted = self._recording(job, chained=known is None and plan.mode != "staged")

        staged = job.slices - job.given > 1 and (known is not None or plan.mode == "staged")
        stages = [] if self.kept is not None else plan.stages
        here = suitable(
            executor, staged=staged, unlocked=staged and _leaves_lock(job, stages, executor.threads)
        )

        def drive(what: Job) -> Outcome:
            if (
                what is recording
                and self.group is not None
                and here.threads > 1
                and (isinstance(here, LocalExecutor) or plan.mode != "staged")
            ):
                return drive_with_others(what, self.group)
            return drive_alone(what)

        def drive_with_others(what: Job, group: Group) -> Outcome:
            assert self.reads is not None
            assert self.store is not None
            most = self.store.tuning.most_beside
            outcome, self.beside = group.beside(what, self.reads, self.key, self.log_id, most, drive_alone)
            return outcome

        def drive_alone(what: Job) -> Outcome:
            driver = Driver(what, plan, here, progress, lead=lead, known=known, world=world)
            with compiling(what if wanted is None else wanted), _started(here, what):
                return driver.run()

        if recording is not None:
            try:
                return drive(recording)
            except HandlerError as error:
                if error.handler != RECORDER:
                    raise
                reads.remove(job.out)  # a key that cannot be computed for every event
                shutil.rmtree(job.out / "state", ignore_errors=True)
                self.reads_reason, self.reads, wanted = error.message, None, None
        return drive(job)

    def _outputs(
        self, job: Job, plan: Plan, executor: Executor, progress: Progress,
        compiling: Callable[[Job], AbstractContextManager[None]],
    ) -> Outcome | None:  # fmt: skip
        """Run the output part alone, if all its reads are kept; or it has run already, beside another."""
        if self.reads is None or self.store is None:
            return None
        taken = None if self.group is None else self.group.take(job)
        if taken is not None:
            made, self.kept = taken
            self.what, self.alone = "states and what is read of them", True
            driver = OutputDriver(job, plan, LocalExecutor(), progress)
            return self._with_pending(job, driver.known({r.slice: r for r in made.reports}, self.kept))
        if self.store.head(states.states_key(self.key)) is None or self.reads.missing(self.store):
            return None
        names = list(spec_of(job.program).states)
        alone = self.reads.job(self.store, job, self.decoded)
        kept = None if alone is None else states.changes(self.store, self.key, names, job.scratch, job.out)
        if alone is None or kept is None:
            return None
        if not reads.worth_it(job, alone):
            shutil.rmtree(job.out / "state", ignore_errors=True)
            with compiling(alone):  # for the next run
                return None
        here = suitable(executor, staged=job.slices > 1)
        driver = OutputDriver(alone, plan, here, progress)
        with _started(here, alone):
            outcome = driver.outputs(kept)
        if outcome is None:
            shutil.rmtree(job.out / "state", ignore_errors=True)
            return None
        self.kept, self.what, self.alone = kept, "states and what is read of them", True
        return self._with_pending(job, outcome)

    def _with_pending(self, job: Job, outcome: Outcome) -> Outcome:
        """The outcome of an output part, with what lies ahead at the end of the whole program."""
        assert self.kept is not None
        outcome.pending = states.pending_at_end(job, self.kept)
        return outcome

    def _lease(self, job: Job) -> None:
        """Put kept start states in the job's place, if there are any."""
        if self.store is not None and job.slices > 1:
            self.kept = states.lease(self.store, self.key, job)
            self.what = "states" if self.kept is not None else ""
        if self.store is not None and self.kept is None and self.older is not None:
            self.begun = older.lease(self.store, self.older, job)

    def _recording(self, job: Job, *, chained: bool) -> tuple[Job | None, Job | None]:
        """The job with a final pass that records, where that is worth it; and where it would be, once compiled."""
        if self.reads is None or self.store is None or not self.reads.missing(self.store):
            return None, None
        if job.passes[-1].by_key is not None:
            return None, None  # what is read for the record need not be under the event's key
        first = self.store.head(states.states_key(self.key)) is None
        first = first and not self.several
        if first and not self.reads.small:
            return None, None  # as long as nobody has edited anything
        final, now = self.reads.recording(job, first=first, chained=chained)
        made = dataclasses.replace(job, passes=(*job.passes[:-1], final))
        return (made if now else None), (None if first and not now else made)

    # --- keeping ------------------------------------------------------------------------------------

    def keep(self, job: Job, outcome: Outcome, about: dict[str, str], origin: dict[str, Any]) -> None:
        """Keep what a run found and nothing had to be repaired."""
        if self.store is None:
            return
        recorded = self.reads is not None and not self.beside  # else to those beside it
        if (
            outcome.fallback is None
            and (job.out / reads.FOLDER).is_dir()
            and self.reads is not None
            and recorded
        ):
            self._note(self.reads.keep(self.store, job, about))
        reads.remove(job.out)
        if self.kept is not None or outcome.fallback is not None:
            return
        seconds = sum(s for name, s in outcome.timings.items() if not name.startswith("final"))
        seconds += 0.0 if self.begun is None else self._saved()
        origin = {**origin, "seconds": seconds, "validated_slices": outcome.validated}
        if self.beside and self.group is not None:
            self.group.hold(job, outcome.reports, origin)
        head = self.store.head(states.states_key(self.key))
        if head is None or (not states.has_starts(head) and (job.scratch / STARTS).is_dir()):
            why = states.save(self.store, self.key, job, outcome.reports, about, origin)
            self._note(why)
            if why is None:
                older.remember(self.store, self.key, self.log, self.log_id, about)

    def _saved(self) -> float:
        """How long it took to find the states of another version that hold."""
        assert self.begun is not None
        assert self.older is not None
        return self.begun.seconds * self.older.cuts[-1] / max(1, self.older.key.cuts[-1])

    def _note(self, why: str | None) -> None:
        if why is not None:
            self.notes.append(why)

    def certificate(self, seconds: float) -> dict[str, Any] | None:
        """What a run of so many seconds took from the cache, and what validated that; None where it took nothing."""
        if self.begun is not None and self.older is not None:
            return {
                "what": "states", "key": self.older.key.text, "saved": self._saved(), "found_by": self.begun.origin,
                "validated": "hashes of the events, and the final pass changed the states exactly as the cache says",
                "older": self.older.describe(),
            }  # fmt: skip
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
            "older": None,
        }


def _leaves_lock(job: Job, stages: Sequence[Stage], threads: int) -> bool:
    """Whether these stages and the final pass leave the interpreter's lock alone, run by so many threads."""
    events = share_of(job.reader.count, job.slices, threads)
    passes = [*((stage.work, False) for stage in stages), (job.passes[-1], True)]
    return not any(stage.strategy is Strategy.ITERATE for stage in stages) and all(
        leaves_lock(job.program, work, events, final=final, tuning=job.tuning) for work, final in passes
    )


@contextmanager
def _started(executor: Executor, job: Job) -> Iterator[None]:
    """The executor with a job. Ctrl-C may come anywhere: then what runs is stopped before it is let go."""
    executor.start(job)
    try:
        yield
    except KeyboardInterrupt:
        executor.cancel()
        raise
    finally:
        executor.close()
