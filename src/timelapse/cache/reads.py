"""Resolved reads: recording them, keeping them, and running the output part on them alone."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timelapse.analysis.closed import closed_function
from timelapse.analysis.outputs import OutputPart, Site
from timelapse.analysis.result import PassHandler, PassProgram
from timelapse.cache.key import CoreKey, site_key
from timelapse.cache.states import KeptStates
from timelapse.cache.store import Store
from timelapse.engine.driver import Driver
from timelapse.engine.job import Job, SliceReport
from timelapse.engine.outcome import Outcome
from timelapse.engine.reads import ReadsReader, event_class, reads_class
from timelapse.kernels.choose import cold_events, prepare, runs_compiled
from timelapse.kernels.python.interpreted import RECORDER
from timelapse.model.events import Event
from timelapse.model.types import BOOL, FLOAT, INT, TIME, OptionalType, ValueType
from timelapse.program.program import Program, spec_of
from timelapse.segments.decoded import DecodedReader
from timelapse.segments.reader import EventReader

KIND = "reads"
FOLDER = "reads"
_FEW = 8
"""Columns per event type that a first run records."""


@dataclass(frozen=True)
class Reads:
    """The reads of one program's output part, each with the key of its column."""

    part: OutputPart
    keys: Mapping[tuple[str, str], str]
    """(event type, site) -> key."""

    @classmethod
    def of(cls, program: Program, key: CoreKey, part: OutputPart) -> Reads:
        """Raises Unsure where a site cannot be hashed."""
        return cls(part, {(s.event.__name__, s.name): site_key(program, key, s) for s in part.sites})

    def missing(self, store: Store) -> bool:
        """Whether a column is not kept yet."""
        return any(store.head(k) is None for k in self.keys.values())

    # --- recording ----------------------------------------------------------------------------------

    @property
    def small(self) -> bool:
        """Whether recording costs little: a few numbers per event."""
        sites = self.part.sites
        numbers = all(_inner(s.type) in (INT, FLOAT, BOOL, TIME) for s in sites)
        return numbers and all(
            sum(s.event is e for s in sites) <= _FEW for e in {s.event for s in sites}
        )  # fmt: skip

    def recording(self, job: Job, *, first: bool, chained: bool) -> tuple[PassProgram, bool]:
        """The final pass with handlers that record, and whether that costs little now.

        It costs too much where the pass would no longer run compiled, and in a `first` run, which may never be
        followed by another one, where it does not run compiled anyway.
        """
        program, final = job.program, job.passes[-1]
        made = self._recording(program, final)
        events = job.reader.count if chained else _largest(job)
        fast, full = (
            runs_compiled(program, work, events, final=True, tuning=job.tuning) for work in (made, final)
        )
        return made, fast or not (first or full)

    def _recording(self, program: Program, final: PassProgram) -> PassProgram:
        handlers, spec = list(final.handlers), spec_of(program)
        columns = {name: list(fields) for name, fields in final.columns.items()}
        groups: dict[tuple[Any, ...], list[Site]] = {}
        for site in self.part.sites:
            scope = (id(site.function.__globals__), *((n, id(v)) for n, v in sorted(site.free.items())))
            groups.setdefault((site.event, site.after, scope), []).append(site)
        for number, ((event, after, _), sites) in enumerate(groups.items()):
            called = {h.name for h in spec.handlers_of(event)}
            listening = [h for h in final.handlers if h.name in called]
            place = handlers.index(listening[after - 1]) + 1 if after else handlers.index(listening[0])
            handlers.insert(place, _recorder(event, number, sites))
            read = columns[event.__name__]
            for name in _fields_read(event, sites):
                if name not in read:
                    read.append(name)
        order = {e.__name__: [f.name for f in e.__fields__] for e, _, _ in groups}
        return dataclasses.replace(
            final, handlers=tuple(handlers),
            columns={n: tuple(sorted(c, key=order[n].index)) if n in order else tuple(c) for n, c in columns.items()},
        )  # fmt: skip

    def keep(self, store: Store, job: Job, about: dict[str, str]) -> str | None:
        """Keep the columns that a recording run left in its folder. Returns None, or why not all are kept."""
        why = None
        for (event, name), key in self.keys.items():
            folder = job.out / FOLDER / event / name
            files = {p.name: p for p in sorted(folder.glob("*.arrow"))} if folder.is_dir() else {}
            site = next(s for s in self.part.sites if (s.event.__name__, s.name) == (event, name))
            described = {**about, "reads": f"{event}: {site.text}"}
            if store.head(key) is None:
                why = store.publish(key, KIND, files, described, {}) or why
        return why

    # --- running ------------------------------------------------------------------------------------

    def alone(self) -> tuple[PassProgram, dict[str, dict[str, ValueType]]]:
        """The output part as a pass whose events have what it reads as further fields, and these by event type."""
        reads: dict[str, dict[str, ValueType]] = {}
        for site in self.part.sites:
            reads.setdefault(site.event.__name__, {})[site.name] = site.type
        fields = self.part.fields
        classes = {e: event_class(e, names, reads.get(e.__name__, {})) for e, names in fields.items()}
        work = PassProgram(
            "outputs", (), frozenset(), frozenset(), frozenset(),
            tuple(
                PassHandler(h.name, tuple(classes[e] for e in h.events if e in classes), h.function, h.text)
                for h in self.part.handlers
            ),
            self.part.members,
            {e.__name__: (*names, *reads.get(e.__name__, {})) for e, names in fields.items()},
            frozenset(), timeless=True,
        )  # fmt: skip
        return work, reads

    def job(self, store: Store, job: Job, decoded: Path | None = None) -> Job | None:
        """A job that runs the output part alone; None where a column is not there.

        `decoded`: where its events are kept as they are read, for other jobs with the same columns.
        """
        place = job.scratch / FOLDER
        for (event, name), key in self.keys.items():
            if store.lease(key, place / event / name) is None:
                return None
        work, reads = self.alone()
        reader: EventReader = ReadsReader(job.reader, str(place), job.cuts[:-1], reads)
        if decoded is not None:
            reader = DecodedReader(reader, str(decoded), " ".join(sorted(self.keys.values())))
        return dataclasses.replace(job, passes=(work,), reader=reader, marks=False)


class OutputDriver(Driver):
    """Runs the output part over all slices at once. There is nothing to predict, nor to compare."""

    def _totals(self) -> dict[str, int]:
        return {"final": self._job.cuts[-1] - self._job.cuts[0]}

    def outputs(self, kept: KeptStates) -> Outcome | None:
        """None where a handler failed: who is to blame is found by the whole program.

        `kept`: what each slice is known to do to each state.
        """
        job = self._job
        prepare(job.program, job.passes[-1], job.reader.count, final=True, tuning=job.tuning)
        loop, slices = self._loop, self._job.slices
        waiting = [self._task("final", "final", first=i, last=i) for i in range(slices)]
        reports: dict[int, SliceReport] = {}
        try:
            while waiting or loop.running:
                batch = waiting[: loop.free]
                del waiting[: len(batch)]
                loop.submit(batch)
                task, result = loop.wait()
                if result.failure is not None:
                    waiting.clear()
                else:
                    reports[task.first] = result.reports[0]
        finally:
            loop.close()
        if len(reports) < slices:
            return None
        return self.known(reports, kept)

    def known(self, reports: Mapping[int, SliceReport], kept: KeptStates) -> Outcome:
        """The outcome where what each slice puts out is known too."""
        for index, report in reports.items():
            report.moved = {name: total for (name, number), total in kept.moved.items() if number == index}
            report.content = {
                name: total for (name, number), total in kept.content.items() if number == index
            }
        self._accept(reports)
        reports[0].parts |= kept.parts  # their files are in the run
        return self._outcome([reports[i] for i in range(self._job.slices)])


def worth_it(job: Job, alone: Job) -> bool:
    """Whether the output part alone is faster than all: not where only all of it is compiled."""
    events = _largest(job)
    if not runs_compiled(job.program, job.passes[-1], events, final=True, tuning=job.tuning):
        return True
    count = job.reader.count
    enough = (
        max(events, count)
        if count >= cold_events(tuning=job.tuning) and events >= job.tuning.warm_events
        else events
    )
    return runs_compiled(job.program, alone.passes[-1], enough, final=True, tuning=job.tuning)


def _largest(job: Job) -> int:
    return max(b - a for a, b in itertools.pairwise(job.cuts))


def _inner(kind: ValueType) -> ValueType:
    return kind.inner if isinstance(kind, OptionalType) else kind


def remove(folder: Path) -> None:
    """Take the recorded columns out of a run's folder."""
    shutil.rmtree(folder / FOLDER, ignore_errors=True)


def _recorder(event: type[Event], number: int, sites: list[Site]) -> PassHandler:
    """A handler that puts out what the sites read."""
    cls = reads_class(event.__name__, number, {s.name: s.type for s in sites})
    name = f"tl_reads_{number}"
    call = ast.Call(
        ast.Name(name, ast.Load()), [],
        [ast.keyword(s.name, ast.parse(s.text, mode="eval").body) for s in sites],
    )  # fmt: skip
    emit = ast.Expr(ast.Call(ast.Attribute(ast.Name("self", ast.Load()), "emit", ast.Load()), [call], []))
    free = {k: v for s in sites for k, v in s.free.items()}
    function = closed_function([emit], sites[0].function, {**free, name: cls}, RECORDER)
    return PassHandler(RECORDER, (event,), function, function.__dict__["__tl_text__"])


def _fields_read(event: type[Event], sites: list[Site]) -> list[str]:
    """Fields that the sites need; all where one of them hands the event on."""
    names = [f.name for f in event.__fields__]
    used: set[str] = set()
    for site in sites:
        tree = ast.parse(site.text, mode="eval")
        plain = {
            id(n.value): n.attr for n in ast.walk(tree)
            if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "e"
        }  # fmt: skip
        whole = any(isinstance(n, ast.Name) and n.id == "e" and id(n) not in plain for n in ast.walk(tree))
        used |= set(names) if whole or set(plain.values()) - {*names, "ts", "seq"} else set(plain.values())
    return [n for n in names if n in used]
