"""What a report says of one run, as plain values: the page only lays them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from timelapse.charts import Timeline, timeline
from timelapse.display import clean, many, moment, one_line, rate, size, span, took
from timelapse.errors import TimelapseError
from timelapse.log import Log
from timelapse.log.views import days_chart
from timelapse.reporting.fields import COUNTED, FieldParts, Keys, field_parts
from timelapse.reporting.redact import HIDDEN, Redaction, shown
from timelapse.reporting.states import StatePart, state_parts
from timelapse.reporting.tables import Ranked, Rows, first_rows, reasons, taken_out, times
from timelapse.results.parameters import shown_text
from timelapse.results.reload import replayed
from timelapse.results.stored import did
from timelapse.run.late_rows import end_apart_text
from timelapse.run.views import IN_ORDER, of_older, of_part, of_types, started_from, warned, was_predicted
from timelapse.segments.info import no_events_on

if TYPE_CHECKING:
    from timelapse.explanation import Explanation
    from timelapse.log import LogInfo
    from timelapse.run import Run


@dataclass(frozen=True)
class Fact:
    """A line of a list: a name, a text, and how it is meant (good, plain, warn, bad)."""

    name: str
    text: str
    tone: str = "plain"
    mono: bool = False


@dataclass(frozen=True)
class Tile:
    """A figure that is shown large."""

    value: str
    name: str
    note: str = ""


@dataclass(frozen=True)
class RecordPart:
    """Outputs of one type."""

    name: str
    count: int
    chart: Timeline
    fields: FieldParts
    rows: Rows


@dataclass(frozen=True)
class Bar:
    """One bar of a list: its share of the largest, in percent, and what stands beside it."""

    name: str
    text: str
    percent: float
    note: str = ""


@dataclass(frozen=True)
class RunPart:
    """One run."""

    program: str
    doc: str
    params: tuple[tuple[str, str], ...]
    about: tuple[Fact, ...]
    tiles: tuple[Tile, ...]
    certificate: tuple[Fact, ...]
    trusted: tuple[str, ...]
    records: tuple[RecordPart, ...]
    rejected: int
    rejected_chart: Timeline
    reasons: tuple[Ranked, ...]
    quarantined: int
    taken_out: Rows
    """The first of those."""
    events_chart: Timeline | None
    types: tuple[tuple[str, str, str], ...]
    """Event types of the log: name, fields, count."""
    states: tuple[tuple[str, ...], ...]
    """Name, kind, strategy, why, line."""
    ends: tuple[StatePart, ...]
    """The states after the last event; empty where a report leaves them out."""
    stages: tuple[Bar, ...]
    account: tuple[Bar, ...]
    cores: int
    picture: str
    plan: str
    notes: tuple[str, ...] = field(default=())


def run_part(run: Run, redaction: Redaction, rows: int, *, with_states: bool = True) -> RunPart:
    """Everything about a run. `rows`: how many outputs of each type are shown; `with_states`: the final states too."""
    notes: list[str] = []
    log, info = _log_of(run, notes)
    explained = _explained(run, log, notes)
    ends = (
        None
        if info is None or info.ts_first is None or info.ts_last is None
        else (info.ts_first, info.ts_last)
    )
    rejected = run.stored_rejected()
    return RunPart(
        program=run.program,
        doc=explained.doc.splitlines()[0] if explained is not None and explained.doc else "",
        params=params_of(run, redaction),
        about=tuple(_about(run, info)),
        tiles=tuple(_tiles(run, ends)),
        certificate=tuple(_certificate(run, redaction)),
        trusted=tuple(one_line(t) for t in run.certificate.get("trusted") or ()),
        records=tuple(_records(run, redaction, rows, ends)),
        rejected=run.rejected_count,
        rejected_chart=timeline("Rejected events", {"rejected": times(rejected)}, css={"rejected": "rejected"}, span=ends),
        reasons=tuple(reasons(rejected, redaction)) if rejected.num_rows else (),
        quarantined=run.quarantined_count,
        taken_out=taken_out(run.stored_quarantined(), redaction, rows),
        events_chart=None if info is None else _events(info),
        types=() if info is None else tuple(
            (t.name, ", ".join(f"{n}: {k}" for n, k in t.fields), f"{t.count:,}") for t in info.types
        ),
        states=tuple(_states(run, explained)),
        ends=tuple(state_parts(run, redaction)) if with_states else (),
        stages=_bars(run.timings),
        account=_bars({n: s for n, s in run.account.items() if s >= 0.005 * sum(run.account.values())}),
        cores=max(1, round(sum(run.account.values()) / run.seconds)) if run.account and run.seconds > 0 else 0,
        picture="" if explained is None else explained.svg(_took(run)),
        plan=run.manifest.plan,
        notes=tuple(notes),
    )  # fmt: skip


def params_of(run: Run, redaction: Redaction) -> tuple[tuple[str, str], ...]:
    """Parameters and their values, as texts."""
    return tuple(
        (name, HIDDEN if redaction.hides_param(name) else shown(shown_text(text)))
        for name, text in run.manifest.params.items()
    )


# --- the log --------------------------------------------------------------------------------------------


def _log_of(run: Run, notes: list[str]) -> tuple[Log | None, LogInfo | None]:
    """The version of the log that was replayed, where it is still there."""
    path = run.manifest.log
    if path is None:
        notes.append("The log was in memory: its types and times are not known here.")
        return None, None
    try:
        log = Log.open(path)
        for version in range(log.version, 0, -1):
            older = log if version == log.version else Log.open(path, version)
            older = replayed(older, run.manifest)
            if older.id == run.manifest.log_id:
                return older, older.info()
        notes.append("The log at the run's path was written anew since: its types and times are not shown.")
    except TimelapseError as error:
        notes.append(
            f"The run's log could not be opened, so its types and times are not shown: {one_line(error)}"
        )
    return None, None


def _events(info: LogInfo) -> Timeline | None:
    """Events per day; a log of one or two days says nothing that way."""
    return days_chart(info, "Events in the log") if len(info.days) > 2 else None


# --- figures --------------------------------------------------------------------------------------------


def _about(run: Run, info: LogInfo | None) -> list[Fact]:
    manifest = run.manifest
    facts = [
        Fact(
            "program", f"{manifest.program}" + (f" from {clean(manifest.source)}" if manifest.source else "")
        ),
        Fact("code fingerprint", manifest.fingerprint[:32], mono=True),
    ]
    if manifest.log is None:
        facts.append(Fact("log", f"in memory, {many(run.events, 'event', 'events')}"))
    else:
        version = f"version {info.version}, " if info is not None else ""
        facts.append(Fact("log", f"{clean(manifest.log)} ({version}{many(run.events, 'event', 'events')})"))
        facts.append(Fact("log id", manifest.log_id or "", mono=True))
    if run.certificate.get("part"):
        facts.append(Fact("part of the log", of_part(run.certificate["part"])))
    if run.certificate.get("types"):
        facts.append(Fact("event types", of_types(run.certificate["types"])))
    if info is not None and info.ts_first is not None and info.ts_last is not None:
        facts.append(Fact("log spans", f"{moment(info.ts_first)} to {moment(info.ts_last)} UTC"))
        left = []
        if info.bad:
            left.append(f"{info.bad:,} bad rows in the quarantine")
        if info.missing_days:
            left.append(no_events_on(info.missing_days))
        facts.append(Fact("log size", size(info.bytes)))
        if left:
            facts.append(Fact("log lacks", "; ".join(left), "warn"))
    facts.append(
        Fact(
            "replayed",
            f"{clean(manifest.started).replace('T', ' ').replace('+00:00', ' UTC')}, {manifest.executor}{did(run.certificate.get('engine', {}))}, {run.slices} slice{'' if run.slices == 1 else 's'}",
        )
    )
    facts.append(Fact("Timelapse", manifest.timelapse))
    return facts


def _tiles(run: Run, ends: tuple[int, int] | None) -> list[Tile]:
    tiles = [Tile(f"{run.events:,}", "events", rate(run.events, run.seconds))]
    length = 0 if ends is None else ends[1] - ends[0]
    tiles.append(Tile(took(run.seconds), "to replay", span(length) if length else ""))
    if length and run.seconds > 0:
        tiles.append(Tile(f"{length / 1e6 / run.seconds:,.0f}x", "real time", "log span / replay time"))
    tiles.append(
        Tile(
            f"{sum(run.counts.values()):,}",
            "outputs",
            f"{len(run.counts)} record type{'s' if len(run.counts) != 1 else ''}",
        )
    )
    tiles.append(Tile(f"{run.rejected_count:,}", "rejected events"))
    if run.quarantined_count:
        tiles.append(Tile(f"{run.quarantined_count:,}", "events taken out"))
    return tiles


def _certificate(run: Run, redaction: Redaction) -> list[Fact]:
    found = run.certificate
    facts = [
        Fact("result digest", run.digest, "good", mono=True),
        Fact("state digest", run.state_digest, mono=True),
    ]
    slices, lead = int(found.get("slices", run.slices)), int(found.get("leading_slices", 0) or 0)
    if was_predicted(found):
        predicted = int(found.get("predicted_slices", max(0, slices - 1 - lead)))
        text = (
            f"{found.get('validated_slices', 0)} of {predicted} slices that have a successor changed the "
            "state exactly as predicted, by a 128-bit hash of every change"
        )
        facts.append(
            Fact(
                "validation", text + (f"; {lead} before them ran one after the other" if lead else ""), "good"
            )
        )
    elif found.get("mode") == "chain":
        facts.append(Fact("validation", IN_ORDER, "good"))
    else:
        facts.append(Fact("validation", "the serial reference itself"))
    if taken := found.get("taken_over"):
        text = f"{taken['slices']} slices of the final pass and {taken['passes']} of passes ahead, from a replay that was killed"
        facts.append(Fact("taken over", text + ", after comparing their files with their checksums"))
    fallback: Mapping[str, Any] | None = found.get("fallback")
    if fallback:
        text = f"from slice {fallback['from_slice']} on one slice after the other"
        text += "" if redaction.any else f": {one_line(fallback['reason'])}"
        if fallback.get("is_bug"):
            text += "; the result is exact all the same, but this is a bug in Timelapse"
        facts.append(Fact("fallback", text, "warn"))
    facts.append(_verified(run, redaction))
    if run.quarantined_count:
        text = f"{many(run.quarantined_count, 'event', 'events')} at which a handler raised: the result is that of the log without them"
        facts.append(Fact("quarantined", text, "warn"))
    if run.manifest.without:
        facts.append(
            Fact("left out", f"the log was replayed without {len(run.manifest.without):,} events", "warn")
        )
    passes = run.passes
    if passes:
        compiled = sum(how == "compiled" for how in passes.values())
        facts.append(Fact("compiled", f"{compiled} of {len(passes)} passes"))
        facts += [
            Fact(f"pass {one_line(n, 60)}", one_line(how)) for n, how in passes.items() if how != "compiled"
        ]
    kept = found.get("cache")
    if kept:
        facts.append(
            Fact(
                "cache",
                f"{one_line(kept['what'])} taken from an earlier replay of the same code and log{of_older(kept)}",
            )
        )
    if found.get("start_from"):
        facts.append(Fact("goes on from", one_line(started_from(found["start_from"]), 600)))
    if found.get("end_apart"):
        facts.append(Fact("for late rows", end_apart_text(found["end_apart"])))
    facts += [Fact("program warns", one_line(text, 600), "warn") for text in warned(found)]
    return facts


def _verified(run: Run, redaction: Redaction) -> Fact:
    from timelapse.run.verified import read_verified

    found = read_verified(run)
    if found is None:
        return Fact("verified", "not yet against the serial reference: timelapse verify does it", "warn")
    when = clean(found.when)[:16].replace("T", " ")
    if not found.ok:
        where = "" if redaction.any else f": {one_line(found.divergence or '', 600)}"
        return Fact("verified", f"DIFFERS from the serial reference ({when} UTC){where}", "bad")
    part = (
        "the whole log"
        if found.events == found.total
        else f"the first {found.events:,} of {found.total:,} events"
    )
    if not (found.outputs or found.boundaries) and found.events < found.total:
        return Fact("verified", f"nothing: there was nothing to compare in {part} ({when} UTC)")
    states = (
        f"the state at {many(found.boundaries, 'slice boundary', 'slice boundaries')}"
        if found.boundaries
        else "no state was compared"
    )
    return Fact(
        "verified",
        f"equal to the serial reference over {part}: {many(found.outputs, 'output', 'outputs')}, {states} ({when} UTC)", "good",
    )  # fmt: skip


def _bars(values: Mapping[str, float]) -> tuple[Bar, ...]:
    top, total = max(values.values(), default=0.0), sum(values.values())
    return tuple(
        Bar(
            one_line(name, 80),
            took(s),
            round(100 * s / top, 2) if top else 0.0,
            f"{100 * s / total:.0f}%" if total else "",
        )
        for name, s in values.items()
    )


# --- rows and states ------------------------------------------------------------------------------------


def _records(run: Run, redaction: Redaction, rows: int, ends: tuple[int, int] | None) -> list[RecordPart]:
    found, budget, keys = [], COUNTED, Keys.of(run)
    for name in run.counts:
        table = run.stored(name)
        fields = field_parts(name, table, redaction, budget, keys)
        budget -= fields.cost
        chart = timeline(f"{name} outputs", {name: times(table)}, span=ends)
        found.append(
            RecordPart(name, table.num_rows, chart, fields, first_rows(name, table, redaction, rows))
        )
    return found


def _took(run: Run) -> str:
    return f"{took(run.seconds)} for {many(run.events, 'event', 'events')}, {many(run.slices, 'slice', 'slices')}"


def _explained(run: Run, log: Log | None, notes: list[str]) -> Explanation | None:
    """The plan as a picture needs the program: it is loaded again, if it has not changed."""
    from timelapse.explanation import explain

    mode = run.certificate.get("mode")
    try:
        return explain(
            run.need_program(), log, slices=run.slices, force=mode if mode in ("chain", "staged") else None
        )
    except TimelapseError as error:
        notes.append(f"Without the dependency picture: {one_line(error)}")
        return None


def _states(run: Run, explained: Explanation | None) -> list[tuple[str, ...]]:
    if explained is not None:
        return [
            (r.state, r.kind, r.strategy, r.because, r.place)
            for r in sorted(explained.states, key=lambda r: r.stage)
            if r.state.isidentifier()
        ]
    return [(s.name, s.kind, "", "", "") for s in run.manifest.states if s.name.isidentifier()]
