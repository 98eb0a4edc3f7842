"""How a live run goes, as data for the page, for `timelapse live` and for Prometheus."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from timelapse.moments import time_text
from timelapse.program.program import spec_of
from timelapse.streaming.live import Live
from timelapse.streaming.sums import digest_of

_RECENT = 30.0
"""Seconds over which rates and latencies are told."""


def status(run: Live) -> dict[str, Any]:
    """Where a live run stands. Rates and latencies are of the last 30 seconds, or fewer where it is younger."""
    health, last = run.health, run.last_here
    now = time.time()
    recent = [c for c in list(health.recent) if now - c.at <= _RECENT]
    span = max(1e-3, min(_RECENT, now - (health.started or now)))
    seconds = np.array([c.seconds for c in recent])
    waiting = run.waiting
    found: dict[str, Any] = {
        "program": run.program_name, "state": health.state, "problem": health.problem,
        "rows_per_second": sum(c.rows for c in recent) / span, "read_per_second": sum(c.read for c in recent) / span,
        "epochs_per_second": len(recent) / span,
        "commit_seconds": {f"p{q}": float(np.percentile(seconds, q)) for q in (50, 90, 99)} if len(seconds) else {},
        "waiting_rows": waiting[0], "waiting_bytes": waiting[1], "checkpoints": health.checkpoints,
        "compiled": run.compiled, "why_python": run.why_python, "states": list(spec_of(run.program).declared),
        "sinks": [{"sink": text, "epoch": epoch, "error": None if error is None else str(error)} for text, epoch, error in run.sinks],
        "outrun": health.outrun, "sliced_epochs": run.sliced.epochs, "sliced_rows": run.sliced.rows, "sliced": run.sliced.last, "why_sliced": run.sliced.why,
        "recent": [[c.at, c.rows, c.seconds] for c in recent[-200:]],
    }  # fmt: skip
    if run.early_results is not None:
        shown, tally = run.early_results.now, run.early_results.tally
        found["early"] = {
            "epoch": shown.epoch, "rows": shown.rows, "until": None if shown.until is None else time_text(shown.until), "problem": shown.problem,
            "seconds": shown.seconds, "records": {name: table.num_rows for name, table in sorted(shown.tables.items())},
            "confirmed": tally.confirmed, "retracted": tally.retracted,
        }  # fmt: skip
    if last is not None:
        names = {s.number: s for s in last.streams}
        found |= {
            "epoch": last.number, "complete": last.complete, "rows": last.end_seq - run.run.first_seq, "digest": digest_of(last),
            "complete_text": None if last.complete is None else time_text(last.complete),
            "behind_seconds": None if last.complete is None else now - last.complete / 1e6,
            "late": sum(p.late for p in last.partitions), "aside": sum(p.aside for p in last.partitions), "skipped": sum(p.skipped for p in last.partitions),
            "late_policy": last.late_rows, "stale": sum(p.stale for p in last.partitions),
            "filtered": sum(p.filtered for p in last.partitions), "duplicates": sum(p.duplicates for p in last.partitions), "filters": [f.text for f in last.filters],
            "rejected": last.rejected.rows, "quarantined": last.quarantined,
            "records": {name: row.rows for name, row in sorted(last.outputs.items())},
            "partitions": [
                {
                    "stream": names[p.stream].text, "source": names[p.stream].source, "partition": p.name, "position": p.position,
                    "greatest": None if p.greatest is None else time_text(p.greatest), "idle": p.idle, "rows": p.rows, "late": p.late,
                    "stale": p.stale, "aside": p.aside, "filtered": p.filtered, "duplicates": p.duplicates,
                }
                for p in last.partitions
            ],
        }  # fmt: skip
    return found


def metrics(run: Live) -> str:
    """The same in the text format of Prometheus."""
    found = status(run)
    lines: list[str] = []

    def put(name: str, kind: str, help_: str, rows: list[tuple[str, Any]]) -> None:
        lines.extend([f"# HELP timelapse_{name} {help_}", f"# TYPE timelapse_{name} {kind}"])
        lines.extend(
            f"timelapse_{name}{labels} {float(value):.10g}" for labels, value in rows if value is not None
        )

    states = (
        "starting",
        "standby",
        "following",
        "running",
        "waiting",
        "paused",
        "ended",
        "stopped",
        "failed",
    )
    put(
        "state",
        "gauge",
        "1 for the state the run is in.",
        [(f'{{state="{s}"}}', s == found["state"]) for s in states],
    )
    put("epochs_total", "counter", "Epochs committed.", [("", found.get("epoch", 0))])
    put("rows_total", "counter", "Rows of the journal.", [("", found.get("rows", 0))])
    put(
        "rows_per_second",
        "gauge",
        "Rows journalled per second, of the last 30 seconds.",
        [("", found["rows_per_second"])],
    )
    put(
        "commit_seconds", "gauge", "Seconds from reading rows to their epoch's commit, of the last 30 seconds.",
        [(f'{{quantile="0.{q[1:]}"}}', value) for q, value in found["commit_seconds"].items()],
    )  # fmt: skip
    put(
        "complete_timestamp_seconds",
        "gauge",
        "The time up to which all is processed.",
        [("", _seconds(found.get("complete")))],
    )
    put("behind_seconds", "gauge", "Wall clock minus that time.", [("", found.get("behind_seconds"))])
    put(
        "waiting_rows",
        "gauge",
        "Rows that wait until all before them is complete.",
        [("", found["waiting_rows"])],
    )
    put("waiting_bytes", "gauge", "The memory they take.", [("", found["waiting_bytes"])])
    put("checkpoints_total", "counter", "Checkpoints written since the start.", [("", found["checkpoints"])])
    put(
        "sliced_epochs_total", "counter", "Epochs processed as time slices since the start, by where.",
        [(f'{{where="{_label(where)}"}}', epochs) for where, epochs in found["sliced_epochs"].items()],
    )  # fmt: skip
    put(
        "sliced_rows_total",
        "counter",
        "Their rows.",
        [("", found["sliced_rows"])],
    )
    put(
        "outrun", "gauge", "1 where sources have had more than is processed for a while.", [("", bool(found["outrun"]))]
    )  # fmt: skip
    partitions = found.get("partitions", [])
    for name, what in (
        ("rows", "Rows read"),
        ("late", "Late rows"),
        ("stale", "Late rows that lie too far back for a correction"),
        ("aside", "Rows put aside"),
        ("filtered", "Rows put aside by filters"),
        ("duplicates", "Rows that came before"),
    ):
        put(
            f"partition_{name}_total", "counter", f"{what}, by stream and partition.",
            [(f'{{stream="{_label(p["stream"])}",partition="{_label(p["partition"])}"}}', p[name]) for p in partitions],
        )  # fmt: skip
    put(
        "outputs_total", "counter", "Records put out.",
        [(f'{{record="{_label(n)}"}}', rows) for n, rows in found.get("records", {}).items()],
    )  # fmt: skip
    if "early" in found:
        put(
            "early_total", "counter", "Early results whose times are complete, by what became of them.",
            [(f'{{became="{what}"}}', found["early"][what]) for what in ("confirmed", "retracted")],
        )  # fmt: skip
    put("rejected_total", "counter", "Events rejected.", [("", found.get("rejected", 0))])
    put(
        "quarantined_total",
        "counter",
        "Events taken out because a handler raised.",
        [("", found.get("quarantined", 0))],
    )
    return "\n".join(lines) + "\n"


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / 1e6


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
