"""Reads that find nothing: the cheapest finder of wrong keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from timelapse import trace
from timelapse.checks.findings import Finding
from timelapse.log import Log
from timelapse.program.program import Program, spec_of
from timelapse.program.times import VIEWS
from timelapse.progress import Progress
from timelapse.run import Run
from timelapse.segments.types import heard

_MOST = 1_000_000
"""Events of a log through which the plain loop goes for a sample."""
_TOGETHER = 20
"""Events of the sample that follow one another: a block of the log is read whole anyway."""


def missing_reads(program: Program, log: Log, run: Run, sample: int, progress: Progress) -> Iterator[Finding]:
    """Per state the share of reads that found nothing, over events of the log's second half.

    Reads that only serve to write (`x[k] += 1`) do not count. A state whose every read finds nothing is a warning.
    """
    spec = spec_of(program)
    if log.count > _MOST and any(use.what not in VIEWS for use in spec.times):
        use = next(u for u in spec.times if u.what not in VIEWS)
        yield Finding(
            "reads", "note", f"not looked at: with {use.text_of_what} that takes the plain loop over {log.count:,} events"
        )  # fmt: skip
        return
    classes: dict[str, Any] = {cls.__name__: cls for cls in heard(spec, log.types)}
    seqs: list[int] = []
    groups = max(1, sample // _TOGETHER)
    half = log.count // 2
    for group in range(groups):
        lo = log.reader.seq_after(half + (log.count - half) * group // groups)
        seqs += [e.seq for e in log.reader.events(lo, lo + min(_TOGETHER, sample), classes)]
    traced = trace.events(run, sorted(set(seqs)), progress=progress)
    counts = {name: [0, 0] for name in spec.declared}
    lines: dict[str, set[int]] = {name: set() for name in spec.declared}
    for one in traced.values():
        for read in one.reads:
            if not read.own and not read.every:
                name = _place(read, one.views)
                count = counts.setdefault(name, [0, 0])
                count[0] += 1
                count[1] += not read.present
                lines.setdefault(name, set()).add(read.line)
    parts = []
    details = {name: {"reads": n, "missing": missing} for name, (n, missing) in counts.items()}
    for name, (n, missing) in counts.items():
        if n and missing == n and n >= 10 and name in spec.states:  # a window may well show nothing
            where = ", ".join(str(x) for x in sorted(lines[name]))
            yield Finding(
                "reads", "warning", f"{name}: every one of {n:,} reads found nothing (line {where})",
                "is it written under the same key? a pair in another order, a name in other letters",
                {"state": name, **details[name], "lines": sorted(lines[name])},
            )  # fmt: skip
        elif n:
            share = 100 * missing / n
            parts.append(f"{name} {share:.0f}%" if share >= 1 or not missing else f"{name} < 1%")
    text = (
        f"of the reads at {len(traced):,} events so many found no value: {', '.join(parts)}; much more than you "
        "expect points to a wrong key"
        if parts
        else f"at {len(traced):,} events no state is read but to be written"
    )
    yield Finding("reads", "ok", text, "", details)


def _place(read: trace.Read, views: Mapping[str, trace.View]) -> str:
    """The state or view that was read; looks back at a moment, of which each event may have its own, are one."""
    view = views.get(read.state)
    is_moment = view is not None and read.state.startswith(f"{view.state}.at(")
    return f"{view.state}.get(at=)" if view is not None and is_moment else read.state
