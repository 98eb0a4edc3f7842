"""What a run says of itself once it is made: its manifest, with the certificate."""

from __future__ import annotations

import datetime
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from timelapse import __version__
from timelapse.cache.rerun import Reuse
from timelapse.engine.digest import run_digest, state_digest
from timelapse.engine.job import Job, SumRow
from timelapse.engine.outcome import Outcome
from timelapse.ids import INT64_MAX
from timelapse.plan import Plan
from timelapse.program.fingerprint import fingerprint
from timelapse.program.program import Program, spec_of
from timelapse.program.versions import origin_of
from timelapse.results.manifest import FORMAT, RunManifest, StateEntry
from timelapse.results.parameters import params_text
from timelapse.results.records import record_entries
from timelapse.run.foresight import used_kernels
from timelapse.run.late_rows import EndApart
from timelapse.run.memory import memory_of
from timelapse.run.request import Request
from timelapse.run.source import Source
from timelapse.segments.types import heard
from timelapse.tables.rowhash import ZERO


def source_of(program: Program) -> str | None:
    """`FILE:Class`, where the class can be found again by name."""
    cls = type(program)
    if (origin := origin_of(cls)) is not None:
        return origin
    try:
        file = inspect.getsourcefile(cls)
    except (TypeError, OSError):  # OSError: a class of a notebook
        return None
    if file is None or "<" in cls.__qualname__ or not Path(file).is_file():
        return None
    return f"{Path(file).resolve()}:{cls.__qualname__}"


def manifest_of(
    request: Request, plan: Plan, job: Job, outcome: Outcome, reuse: Reuse, foretold: Mapping[str, str], *,
    started: float, seconds: float, why: str = "", apart: EndApart | None = None,
) -> RunManifest:  # fmt: skip
    """The manifest of a replay that is done. `foretold`: how each pass was expected to run (run/foresight.py);
    `started` is a Unix time; `seconds` is what it took so far; `apart` is what was cut off for late rows."""
    program, source = request.program, request.source
    spec = spec_of(program)
    totals = outcome.totals
    content = {name: totals.content.get(name, ZERO) for name in spec.declared}
    return RunManifest(
        format=FORMAT,
        timelapse=__version__,
        program=spec.name,
        source=source_of(program),
        fingerprint=fingerprint(program),
        params=params_text(program),
        log=source.path,
        log_id=source.id,
        events=source.reader.count,
        cuts=list(job.cuts),
        records=record_entries(program, totals.outputs, outcome.schemas),
        states=[StateEntry.of(s) for s in spec.declared.values()],
        rejected=totals.rejected.rows,
        digest=run_digest(totals.outputs, outcome.schemas, totals.rejected),
        state_digest=state_digest(content),
        started=datetime.datetime.fromtimestamp(started, datetime.UTC).isoformat(timespec="seconds"),
        seconds=seconds,
        timings=outcome.timings,
        executor=outcome.executor,
        certificate=_certificate(request, plan, job, outcome, reuse, foretold, seconds, why, apart),
        plan=plan.text(),
        without=list(source.without),
        part=list(source.part or ()),
        types=list(source.types),
        quarantined=None if job.quarantine is None else totals.quarantined,
        pending=outcome.pending,
        until=job.until,
        clocks={} if request.begun is None else request.begun.clocks,
        content={name: SumRow.of(total) for name, total in sorted(totals.content.items())},
        rejected_sum=SumRow.of(totals.rejected),
        logs=[[path, log_id] for path, log_id in source.logs],
    )


def _certificate(
    request: Request, plan: Plan, job: Job, outcome: Outcome, reuse: Reuse, foretold: Mapping[str, str],
    seconds: float, why: str, apart: EndApart | None,
) -> dict[str, Any]:  # fmt: skip
    """What a reader of the result may rely on, and why: what was verified, what was trusted, what went otherwise."""
    return {
        "mode": plan.mode,
        "engine": {
            "where": outcome.executor,
            "why": why,
            **outcome.counted,
        },
        "slices": job.slices,
        "memory": memory_of(plan, job, outcome.compiled),
        "taken_over": None
        if not any(outcome.taken_over)
        else {
            "slices": outcome.taken_over[0],
            "passes": outcome.taken_over[1],
            "torn": len(outcome.torn),
        },
        "again": outcome.again,
        "leading_slices": outcome.lead,
        "validated_slices": outcome.validated,
        "predicted_slices": outcome.predicted,
        "by_key": None
        if plan.mode != "by key" or plan.whole is None
        else {"keys": plan.whole.text, "workers": outcome.workers, "abandoned": outcome.abandoned},
        "repairs": outcome.repair_account,
        "fallback": None
        if outcome.fallback is None
        else {
            "from_slice": outcome.fallback.from_slice,
            "reason": outcome.fallback.reason,
            "is_bug": outcome.fallback.is_bug,
        },
        "trusted": [str(t) for t in request.analysis.trusted],
        "twice": request.twice,
        "diagnostics": [
            {"code": d.code, "severity": d.severity.value, "place": str(d.place), "message": d.message}
            for d in request.analysis.diagnostics
        ],
        "cache": reuse.certificate(seconds),
        "part": part_of(request.source),
        "types": types_of(request.source, request.program),
        "start_from": request.started(),
        "end_apart": None if apart is None else apart.describe(),
        "passes": used_kernels(foretold, outcome.compiled, outcome.why_python),
    }


def part_of(source: Source) -> dict[str, Any] | None:
    """Of a replay over a part of its log: which, and what that means for states."""
    if source.part is None:
        return None
    first, last = source.reader.ts_first, source.reader.ts_before(INT64_MAX)
    return {
        "first_seq": source.part[0], "end_seq": source.part[1], "ts_first": first, "ts_last": last,
        "states": "of an earlier run" if source.begin else "empty at the first event",
    }  # fmt: skip


def types_of(source: Source, program: Program) -> dict[str, list[str]] | None:
    """Of a replay over some event types of its log: which, which handlers had no events for that, and which types no handler hears."""
    if not source.types:
        return None
    names = [cls.__name__ for cls in heard(spec_of(program), source.reader.types)]
    return {
        "only": list(source.types),
        "silent": [name for name in names if name not in source.types],
        "unheard": [name for name in source.types if name not in names],
    }


def about(manifest: RunManifest) -> dict[str, str]:
    """What `timelapse cache` says of an entry."""
    params = ", ".join(f"{name}={text}" for name, text in manifest.params.items())
    return {
        "program": f"{manifest.program}({params})"[:200],
        "log": manifest.log or "",
        "events": str(manifest.events),
        "slices": str(len(manifest.cuts) - 1),
        "log_id": manifest.log_id or "",
        "cuts": ",".join(map(str, manifest.cuts)),
    }
