"""Replaying with events taken out, where something happens at other times than the events'.

Where something may fail long after its event, and the replay is one pass as Python, the loop that has such events undone is the run from
the start (kernels/takeout/kernel.py). Other replays undo what fails in its own step there and then (kernels/python/steps.py): where
that moves no time at which the log or a slice begins or ends, nothing else has to be done. What fails later has had effects: then
they begin again without the event, in that loop where they are one pass as Python (`resumable`: what it would keep is of use only if
nothing fails late), or a loop as Python finds all such events first (kernels/takeout/taking.py).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from timelapse.analysis import final_pass
from timelapse.display import many
from timelapse.engine.job import Job, SliceReport, quarantined_path
from timelapse.engine.results import quarantined_seqs, read_quarantined, write_quarantined
from timelapse.env.machine import memory_setting
from timelapse.errors import HandlerError
from timelapse.kernels.choose import runs_compiled
from timelapse.log.without import reader_without
from timelapse.plan import Plan
from timelapse.program.failure import Quarantined, most_failures, quarantined_row, too_many
from timelapse.program.times import acts_later
from timelapse.run.planning import Planner
from timelapse.run.request import Request
from timelapse.run.run import Run
from timelapse.run.slices import least_slices
from timelapse.run.source import refuse_silence
from timelapse.run.takeout import GoesBack, left_as_it_is, taken_out

_COMPILING = 2.0
"""So many seconds machine code takes, about: no longer is begun again without it."""
_STEP = 30e-6
"""A compiled replay begins again for `Tuning.begun_again` events at least, and for more as long as that takes less than going through the log as
Python: about so many seconds for each event."""


class TimesMoved(Exception):
    """Without the events that a run took out its slices would have begun and ended at other times."""

    def __init__(self, rows: list[Quarantined]) -> None:
        super().__init__()
        self.rows = rows


class Attempt(Protocol):
    """Replays over a log that some events have been taken out of. `taking`: it takes out more."""

    def __call__(
        self, request: Request, plan: Plan, gone: Sequence[Quarantined], taking: bool
    ) -> Run: ...  # fmt: skip


def replay_without_failing(request: Request, plan: Plan, attempt: Attempt) -> Run:
    """Replay a program in which something happens at other times than the events', without the events that fail."""
    try:  # in time slices nobody knows in one what was taken out in another: first as if nothing failed
        if plan.mode == "staged":
            return attempt(request, plan, (), False)
    except HandlerError as failure:
        _check(failure)
        request.settings.progress.note(
            f"event seq {failure.seq:,} fails: from here on one slice after the other, taking such events out"
        )
    chain = _in_order(request, plan)
    at_once = acts_later(request.program) and not request.settings.resumable
    if at_once and (late := _late(request, chain)) is not None:
        return _taking(request, late, plan, attempt)
    gone: dict[int, Quarantined] = {}
    goes_back: GoesBack | str = ""
    rounds, began = 0, time.perf_counter()
    while (
        rounds < request.settings.tuned.begun_again
        or time.perf_counter() - began < _STEP * request.source.reader.count
    ):
        rounds += 1
        try:
            return attempt(_without(request, gone), chain, _rows(gone), True)
        except TimesMoved as moved:
            gone |= {row[2]: row for row in moved.rows}
        except HandlerError as failure:
            _check(failure)
            # What failed before it has failed, even where that was for its effects.
            gone |= {row[2]: row for row in failure.before}
            gone[failure.seq] = quarantined_row(failure)
            _check_number(request, gone, failure)
            request.settings.progress.note(
                f"event seq {failure.seq:,} failed after its own time, as it may have had effects by then: beginning again "
                "without it"
            )
            if failure.ts > (request.source.reader.ts_first or 0) and not _is_cheap(request):
                break
            if rounds == 1:
                goes_back = (
                    GoesBack.of(request.program, request.analysis, request.settings.tuned.kernels)
                    if _is_cheap(request)
                    else ""
                )
            spent = time.perf_counter() - began
            # For a few of them nobody waits for the compiler.
            if isinstance(goes_back, GoesBack) and (
                goes_back.is_ready or rounds == request.settings.tuned.begun_again or spent > _COMPILING
            ):
                request.settings.progress.note(f"the events that fail are found {goes_back.how}")
                found = _compiled(request, goes_back)
                if found is not None:
                    return _finally(request, plan, attempt, found)
                goes_back = "too many fail, or too late, or the log would begin or end at another time"
    if (late := _late(request, chain)) is not None:
        # Where something fails late, nothing goes on from the run (run/earlier.py): it need not keep what that would take.
        once = replace(request, settings=replace(request.settings, resumable=False))
        return _taking(once, late, plan, attempt)
    if isinstance(goes_back, str) and goes_back:
        request.settings.progress.note(f"the events that fail are found as Python: {goes_back}")
    most = most_failures(request.settings.max_quarantined, request.source.reader.count)
    rows = taken_out(
        request.program, request.source.reader, most=most, until=request.settings.until,
        progress=request.settings.progress, tuning=request.settings.tuned.kernels,
    )  # fmt: skip
    return _finally(request, plan, attempt, rows)


def _compiled(request: Request, goes_back: GoesBack) -> list[Quarantined] | None:
    """The events that are taken out, where compiled code finds them."""
    reader, settings = request.source.reader, request.settings
    most = most_failures(settings.max_quarantined, reader.count)
    return goes_back.taken_out(reader, most=most, until=settings.until, progress=settings.progress)


def _taking(request: Request, late: Plan, plan: Plan, attempt: Attempt) -> Run:
    """Replay in a loop that takes out on the way what fails late."""
    try:
        return attempt(request, late, (), True)
    except TimesMoved as moved:
        return _finally(request, plan, attempt, moved.rows)


def _finally(request: Request, plan: Plan, attempt: Attempt, rows: list[Quarantined]) -> Run:
    """Replay without all the events that are to be taken out."""
    request.settings.progress.note(
        f"{many(len(rows), 'event is', 'events are')} taken out of the log; replaying it without them"
    )
    return attempt(_without(request, {row[2]: row for row in rows}), plan, rows, False)


def _late(request: Request, chain: Plan) -> Plan | None:
    """The plan of a run in which what fails late is taken out on the way; None where it is found first, and the replay is one without it:
    that is compiled, or has several slices.
    """
    settings, reader = request.settings, request.source.reader
    least = least_slices(
        request.program, chain.last, reader.count, memory_setting(), tuning=request.settings.tuned
    )
    if (settings.slices or least) > 1 or _is_cheap(request):
        return None
    return replace(chain, final=replace(chain.final, takes_late=True))


def all_taken_out(
    request: Request, job: Job, gone: Sequence[Quarantined], reports: Sequence[SliceReport]
) -> int:
    """How many events a replay was without, with those that its slices took out: listed in its first file, instead of those of the `reports`.

    Raises TimesMoved.
    """
    here = [seq for report in reports for seq in quarantined_seqs(job.out, report.slice)]
    is_moved = False
    if here:
        reader = request.source.reader
        rest = reader_without(reader, here)
        refuse_silence(request.program, rest)
        is_moved = not left_as_it_is(reader, rest, job.cuts)
        if not (is_moved or gone) and [report.slice for report in reports] == [0] and here == sorted(here):
            return len(here)  # they are all in that file
    own = [row for report in reports for row in read_quarantined(job.out, report.slice)]
    found = sorted([*gone, *own], key=lambda row: row[2])
    if is_moved:
        raise TimesMoved(found)
    for report in reports:
        path = quarantined_path(job.out, report.slice)
        path.unlink()
        report.parts.pop(path.relative_to(job.out).as_posix(), None)
    write_quarantined(found, job.out, 0)
    return len(found)


def _check(failure: HandlerError) -> None:
    """Raise a failure that no event can be taken out for."""
    if failure.seq < 0 or not failure.reproducible:
        raise failure


def _check_number(request: Request, gone: dict[int, Quarantined], failure: HandlerError) -> None:
    most = most_failures(request.settings.max_quarantined, request.source.reader.count)
    if len(gone) > most:
        raise too_many(_rows(gone), most) from failure


def _rows(gone: dict[int, Quarantined]) -> list[Quarantined]:
    return [gone[seq] for seq in sorted(gone)]


def _without(request: Request, gone: dict[int, Quarantined]) -> Request:
    return request.over(reader_without(request.source.reader, gone))


def _in_order(request: Request, plan: Plan) -> Plan:
    """The plan, as one slice after the other."""
    if plan.mode != "staged":
        return plan
    forced = replace(request, settings=replace(request.settings, strategy="chain"))
    return Planner(forced).plan(1, 1)


def _is_cheap(request: Request) -> bool:
    """Whether to begin again costs less than to go through the log as Python."""
    last = final_pass(request.analysis)
    return runs_compiled(
        request.program, last, request.source.reader.count, final=True, tuning=request.settings.tuned.kernels
    )
