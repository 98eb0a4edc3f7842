"""Programs over one log that find the same states: the output parts of all run beside the first one's replay."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from timelapse.analysis import analyse
from timelapse.analysis.outputs import output_part
from timelapse.analysis.result import PassProgram
from timelapse.cache.key import CoreKey, core_key
from timelapse.cache.reads import Reads
from timelapse.cache.states import KeptStates, hold, put_back
from timelapse.engine.job import Aside, Job, SliceReport
from timelapse.engine.outcome import Outcome
from timelapse.kernels.companions import Companion
from timelapse.model.types import BOOL, FLOAT, INT
from timelapse.program.fingerprint import Unsure
from timelapse.program.program import Program
from timelapse.store.moves import move


@dataclass(frozen=True)
class Made:
    """What one program's output part has put out: a report for each slice, whose files lie in a folder laid out as a job's
    scratch."""

    scratch: Path
    cuts: tuple[int, ...]
    reports: list[SliceReport]


@dataclass
class Group:
    """`programs`: all of them, in the order of their replays. `folder`: where what they put out waits for these."""

    programs: Sequence[Program]
    folder: Path
    made: dict[int, Made] = field(default_factory=dict)
    """By the program's identity."""
    states: KeptStates | None = None
    """What all of them find, once one has."""

    def take(self, job: Job) -> tuple[Made, KeptStates] | None:
        """What a program has put out, if that is known, and its states, which are in the run's folder then. The former is
        gone then."""
        made = self.made.pop(id(job.program), None)
        if made is None or self.states is None or made.cuts != job.cuts or len(made.reports) != job.slices:
            return None
        put_back(self._held, job.out)
        job.attempt_path("").mkdir(parents=True, exist_ok=True)
        results = made.scratch / "results"
        move((results / report.attempt, job.attempt_path(report.attempt)) for report in made.reports)
        return made, self.states

    def hold(self, job: Job, reports: list[SliceReport], origin: Mapping[str, Any]) -> None:
        """Keep the states that a program's run found for those that follow it."""
        if self.states is None:
            with contextlib.suppress(OSError):  # then each is replayed by itself
                self.states = hold(job, reports, origin, self._held)

    @property
    def _held(self) -> Path:
        return self.folder / "state"

    def beside(
        self,
        job: Job,
        reads: Reads,
        key: CoreKey,
        log_id: str | None,
        most: int,
        drive: Callable[[Job], Outcome],
    ) -> tuple[Outcome, bool]:
        """Drive a job whose final pass records its program's reads, with the output parts beside it of the programs that follow, as far
        as they need no more, at most so many. Returns the outcome, and whether they ran: then the reads were not kept."""
        program, final = job.program, job.passes[-1]
        place = next(n for n, p in enumerate(self.programs) if p is program)
        following = [p for p in self.programs[place + 1 :] if id(p) not in self.made][:most]
        found = [(p, c) for p in following if (c := _companion(p, final, reads, key, log_id))]
        if not found:
            return drive(job), False
        aside = Aside(tuple(c for _, c in found), self.folder)
        outcome = drive(replace(job, aside=aside))
        ran = [report.aside for report in outcome.reports if report.aside is not None]
        for number, (other, _) in enumerate(found):
            made = [reports[number] for reports in ran if number in reports]
            self.made[id(other)] = Made(aside.scratch(number), job.cuts, made)
        return outcome, bool(ran)


def _companion(
    program: Program, final: PassProgram, reads: Reads, key: CoreKey, log_id: str | None
) -> Companion | None:
    """A program's output part, if the reads and the events' fields that the final pass has are enough for it."""
    analysis = analyse(program)
    part = output_part(analysis)
    own = core_key(program, analysis, log_id, key.cuts, key.until)
    if part.reason or own.reason or own.whole != key.whole:
        return None
    try:
        wanted = Reads.of(program, own, part)
    except (Unsure, RecursionError):
        return None
    if any(site.type not in (INT, FLOAT, BOOL) for site in reads.part.sites):
        return None
    names = {known: name for (_, name), known in reads.keys.items()}
    if not names.keys() >= set(wanted.keys.values()):
        return None
    if any(not set(fields) <= set(final.columns.get(e.__name__, ())) for e, fields in part.fields.items()):
        return None
    work, _ = wanted.alone()
    return Companion(program, work, {column: names[known] for column, known in wanted.keys.items()})
