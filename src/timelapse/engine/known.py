"""What the driver of a staged replay knows so far: predictions, whose files hold what, and their checksums."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from timelapse.engine.boundary import rows_before
from timelapse.engine.exchange import Merge
from timelapse.engine.job import RESULTS, Job, SliceReport, SumRow, Task, TaskResult, rows_name, start_name
from timelapse.program.times import kept
from timelapse.store.parts import Part


@dataclass
class Known:
    """Of a replay that was begun. `predicted`: by state and span, what the span changes."""

    job: Job
    predicted: dict[tuple[str, int], SumRow]
    files: dict[str, Part] = field(default_factory=dict)
    """Files of the job's scratch that tasks read: starts of slices, rows, what passes found slices to do."""
    _found: dict[tuple[int, int, int], str] = field(default_factory=dict)
    """By pass, slice and part: the attempt whose files count."""

    def take(self, task: Task, result: TaskResult) -> None:
        """A task's result counts. No other attempt at the same will."""
        for report in result.reports:
            self.files |= report.beside
            if task.kind in ("pass", "chain", "guess", "repair"):
                self._found[task.index, report.slice, task.part] = report.attempt
            elif task.kind == "final":
                self.files |= {
                    f"{RESULTS}/{report.attempt}/{name}": part for name, part in report.parts.items()
                }

    def found(self, index: int, slice_id: int, parts: int) -> tuple[str, ...]:
        """The attempts whose files say what a pass found a slice to do: one, or by key one for each part."""
        return tuple(self._found.get((index, slice_id, part), "") for part in range(parts))

    def start(self, states: Iterable[str], span: int) -> str:
        """What these states are at the start of a span, as a number that says it: the hashes of all changes before it.

        Two replays for which it is the same begin alike, whatever made their start states.
        """
        rows = [(n, [self.predicted.get((n, at)) for at in range(span)]) for n in sorted(states)]
        return hashlib.sha256(msgspec.json.encode(rows)).hexdigest()[:32]

    def starts(self, states: Iterable[str], *slices: int) -> dict[str, Part]:
        """The files of states at these slices' starts, and of rows that are looked back on from there."""
        names = [start_name(slice_id, state) for slice_id in slices for state in states]
        for slice_id in slices:
            names += self._rows(slice_id)
        return {name: self.files[name] for name in names if name in self.files}

    def merged(self, task: Task) -> dict[str, Part]:
        """The files that a merge reads."""
        merge = Merge.of(self.job, task)
        paths = [*merge.paths, *(self.job.attempt_rows_path(a, task.first, task.state, form)
                                 for a in task.attempts for form in self.job.passes[-1].logs.get(task.state, ()))]  # fmt: skip
        names = [path.relative_to(self.job.scratch).as_posix() for path in paths]
        return {name: self.files[name] for name in names if name in self.files}

    def _rows(self, slice_id: int) -> list[str]:
        logs, names = self.job.passes[-1].logs, []
        widths: Mapping[str, int] = kept(self.job.program) if logs else {}
        for state, forms in logs.items():
            for before in rows_before(self.job, slice_id, widths[state]):
                names += [rows_name(before, state, form) for form in forms]
                names.append(start_name(before, state))
        return names


def after(start: str, report: SliceReport) -> str:
    """What the slice after one begins from, in a chain of final passes."""
    moved = sorted(report.moved.items())
    return hashlib.sha256(msgspec.json.encode((start, report.slice, moved))).hexdigest()[:32]


def chained(reports: Sequence[SliceReport]) -> str:
    """What a chain of final passes begins from that comes after these slices."""
    start = ""
    for report in reports:
        start = after(start, report)
    return start
