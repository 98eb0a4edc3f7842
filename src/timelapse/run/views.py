"""A run as people see it: its outputs over time as a chart, what it found and what proves it as a card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from timelapse.cache.older import older_text
from timelapse.cards import Card, Table
from timelapse.charts import Timeline, timeline
from timelapse.display import many, moment, rate, took
from timelapse.results.parameters import shown_text
from timelapse.run.late_rows import end_apart_text

if TYPE_CHECKING:
    from timelapse.run.run import Run

IN_ORDER = "the log ran in its own order: no state was guessed ahead, so there was none to prove"
"""What is said of a run without predictions."""
_MOST = 2_000_000
"""Outputs that a card draws; `Run.plot` draws any number."""


def outputs_chart(run: Run, record: str | None = None) -> Timeline:
    """Outputs over time, of one record type or of all. Raises RunError (TL603) for a type that the run does not have."""
    names = [record] if record is not None else list(run.counts)
    times = {name: np.asarray(run.stored(name).column("ts")).astype(np.int64, copy=False) for name in names}
    return timeline(f"{record or run.program} outputs", times)


def started_from(found: Mapping[str, Any]) -> str:
    """What is said of the run that a run started from, as its certificate has it."""
    if found["reason"] and found.get("remembered"):
        return f"nothing was taken over of {found['run']}: {found['reason']}"
    if found["reason"]:
        return f"everything was replayed, also what {found['run']} has: {found['reason']}"
    slices = many(found["slices"], "slice", "slices")
    if found.get("of", found["slices"]) > found["slices"]:
        slices = f"{found['slices']} of {many(found['of'], 'slice', 'slices')}"
    told = f"{found['run']}: {found['events']:,} events in {slices} are of that run"
    changed = found.get("changed_from")
    return told if changed is None else f"{told}; its log has changed since, from event {changed:,} on"


def of_older(found: Mapping[str, Any]) -> str:
    """What is said of a run that took from the cache what was found over another version of its log, as its certificate has it."""
    return f": {older_text(found['older'])}" if found.get("older") else ""


def was_predicted(certificate: Mapping[str, Any]) -> bool:
    """Whether starts of slices were known ahead in a run, by passes or from another version of its log, so that there is something proved."""
    return certificate.get("mode") == "staged" or bool((certificate.get("cache") or {}).get("older"))


def of_part(found: Mapping[str, Any]) -> str:
    """What is said of a run over a part of its log, as its certificate has it."""
    if found["ts_first"] is None:
        return "no event lies in it"
    span = f"{moment(found['ts_first'])} to {moment(found['ts_last'])}, events {found['first_seq']:,} to {found['end_seq'] - 1:,}"
    if found["states"].startswith("empty"):
        return f"{span}; states began empty, and what came before was not seen"
    return span


def of_types(found: Mapping[str, Any]) -> str:
    """What is said of a run over some event types of its log, as its certificate has it."""
    told = [f"only {', '.join(found['only'])}"]
    if found["silent"]:
        told.append(f"as if no {' or '.join(found['silent'])} had ever occurred")
    if found["unheard"]:
        told.append(f"no handler hears {', '.join(found['unheard'])}")
    return "; ".join(told)


def card(run: Run) -> Card:
    """What a finished replay prints, shorter."""
    found = run.certificate
    params = ", ".join(f"{n}={shown_text(t)}" for n, t in run.manifest.params.items())
    facts = [
        (
            "events",
            f"{run.events:,} in {took(run.seconds)}, {rate(run.events, run.seconds)}, {run.slices} slice{'' if run.slices == 1 else 's'}",
        ),
        ("engine", run.engine),
        ("rejected", f"{run.rejected_count:,}"),
        ("digest", run.digest),
    ]
    if run.quarantined_count:
        facts.insert(
            3,
            (
                "quarantined",
                f"{many(run.quarantined_count, 'event at which a handler raised was', 'events at which a handler raised were')} taken out",
            ),
        )
    kept = found.get("cache") or {}
    if was_predicted(found):
        facts.append(
            ("proved", f"{found.get('validated_slices', 0)} slices changed the state exactly as predicted")
        )
    elif found.get("mode") == "chain":
        facts.append(("in order", IN_ORDER))
    if kept.get("older"):
        facts.append(("cache", f"{kept['what']} from the cache{of_older(kept)}"))
    if found.get("part"):
        facts.append(("part of the log", of_part(found["part"])))
    if found.get("types"):
        facts.append(("event types", of_types(found["types"])))
    if found.get("start_from"):
        facts.append(("goes on from", started_from(found["start_from"])))
    if found.get("end_apart"):
        facts.append(("for late rows", end_apart_text(found["end_apart"])))
    if beyond := beyond_budget(found):
        facts.append(("memory", beyond))
    for text in warned(found):
        facts.append(("warning", text))
    if found.get("fallback"):
        facts.append(("fallback", str(found["fallback"].get("reason", ""))))
    if run.path is not None:
        facts.append(("stored at", str(run.path)))
    total = sum(run.counts.values())
    figures = [outputs_chart(run).figure(820, 190)] if 0 < total <= _MOST else []
    rows = tuple((name, f"{count:,}") for name, count in run.counts.items())
    table = Table(("record", "outputs"), rows, ("outputs",)) if rows else None
    return Card(f"Run of {run.program}({params})", "", facts, table, figures)


_WARNED = 3
"""Warnings about a program that are told with its run; `explain` has all."""


def warned(certificate: Mapping[str, Any]) -> list[str]:
    """What analysis warned of in the program of a run: code, place and message of the first few, then how many more there are."""
    found = [d for d in certificate.get("diagnostics") or () if d["severity"] == "warning"]
    told = [f"{d['code']} {d['place']}: {d['message']}" for d in found[:_WARNED]]
    if more := len(found) - len(told):
        told.append(f"{more} more: timelapse explain lists {'it' if more == 1 else 'them'}")
    return told


def beyond_budget(certificate: Mapping[str, Any]) -> str:
    """What is said where a budget was set and does not bound everything; empty otherwise."""
    known = certificate.get("memory") or {}
    if not known.get("set") or not known.get("unbounded"):
        return ""
    return f"TIMELAPSE_MEMORY does not bound: {'; '.join(known['unbounded'])}"
