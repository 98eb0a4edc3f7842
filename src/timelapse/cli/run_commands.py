"""`replay` and `verify`."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from timelapse.cli.options import (
    Engine,
    Json,
    Local,
    LogArg,
    Master,
    Overwrite,
    ProgramArg,
    Sets,
    Without,
    examples,
)
from timelapse.display import many

if TYPE_CHECKING:
    from timelapse.log import LogInfo
    from timelapse.run import Run, Verification


_SHOWN = 5


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        epilog=examples(
            "timelapse replay rules.py:Antispam logs/oct",
            "timelapse replay rules.py:Antispam logs/oct --set ratio=3.0 --slices 8 --out out/strict",
            "timelapse replay rules.py:Antispam logs/oct --verify 1%",
            "timelapse replay rules.py:Antispam logs/oct --quarantine",
            "timelapse replay rules.py:Antispam logs/oct --without @last",
        )
    )(replay)
    app.command(
        epilog=examples(
            "timelapse verify @last",
            "timelapse verify out/strict --events 1000000",
            "timelapse verify out/strict --files",
        )
    )(verify)


def replay(
    program: ProgramArg,
    log: LogArg,
    settings: Sets = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The run's folder or URL; by default runs/<Program>-<n>."),
    ] = None,
    slices: Annotated[
        int | None, typer.Option(help="Number of time slices; by default chosen by size.")
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Force chain (one pass in log order), staged (time slices), scan, by-key or iterate; for one state STATE=scan|by-key|iterate|chain. May repeat.",
        ),
    ] = None,
    check: Annotated[
        str | None,
        typer.Option(
            "--verify",
            metavar="all|1%|N",
            help="Then check so much of the log's beginning against the serial meaning, or a little more if there is nothing to compare in it.",
        ),
    ] = None,
    allow_impure: Annotated[
        bool,
        typer.Option("--allow-impure", help="Replay handlers that read a clock, randomness or the like."),
    ] = False,
    quarantine: Annotated[
        bool,
        typer.Option(
            "--quarantine", help="Take events at which a handler raises out of the log, list them, and go on."
        ),
    ] = False,
    max_quarantined: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Take out so many at most; by default 1,000, or one event in twenty.",
        ),
    ] = None,
    without: Without = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Move the clock on after the last event: what is due until then happens."
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Only events of this time and later ones. States begin empty: what came before is not seen.",
        ),
    ] = None,
    before: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Only events before this time.")
    ] = None,
    types: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Only events of these types, as if no others had ever occurred."),
    ] = None,
    start_from: Annotated[
        str | None,
        typer.Option(
            "--start-from",
            metavar="RUN",
            help="Go on where a run of this program ended: LOG is its log, with more events, or one that follows it.",
        ),
    ] = None,
    resumable: Annotated[
        bool,
        typer.Option(
            "--resumable",
            help="Keep what --start-from needs of this run later, if the program looks back on states.",
        ),
    ] = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Neither use nor keep states of earlier replays.")
    ] = False,
    master: Master = None,
    local: Local = False,
    engine: Engine = "auto",
    resume: Annotated[
        bool | None,
        typer.Option(
            "--resume/--no-resume",
            help="Go on with a replay into the same place that was killed, also on another machine, or fail; begin again. "
            "Default: go on where one was killed on this machine.",
            show_default=False,
        ),
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Replay a program over a log. The result is exactly that of processing the events one by one.

    Without --master a replay stays in this process, unless slices on a local Spark are faster by more than its start
    takes. A run appears whole or not at all.
    """
    from timelapse.cli.options import begin_spark, choose_spark, leave_out, parse_time, part_of_log

    begin_spark(master, local=local, engine=engine)
    from timelapse.cli.places import find_run, new_run
    from timelapse.cli.progress_view import progress_for
    from timelapse.cli.settings import build_program
    from timelapse.log import Log
    from timelapse.program.program import spec_of
    from timelapse.program.versions import load_named
    from timelapse.run import replay as run_replay
    from timelapse.run.source import check_heard
    from timelapse.run.verify import covering

    made = build_program(load_named(program), settings or [])
    opened = part_of_log(leave_out(Log.open(log), without), types, since, before)
    check_heard(opened, made)
    wanted = None if check is None else _amount(check, opened.count)
    place = new_run(spec_of(made).name) if out is None else nullcontext(out)
    with place as target, progress_for(as_json) as progress:
        spark = choose_spark(opened.count, progress, master=master, local=local, engine=engine, later=True)
        run = run_replay(
            made, opened, target, slices, spark, strategy=_strategy(strategy), progress=progress,
            allow_impure=allow_impure, overwrite=overwrite, cache=not no_cache,
            quarantine=quarantine or max_quarantined is not None, max_quarantined=max_quarantined,
            until=None if until is None else parse_time("--until", until),
            start_from=None if start_from is None else find_run(start_from), resumable=resumable, engine=engine, resume="auto" if resume is None else resume,
        )  # fmt: skip
        proof = None
        if check is not None:
            proof = run.verify(None if wanted is None else covering(run, wanted), progress)
    if as_json:
        _print_run_json(run, proof)
    else:
        print_run(run, opened.info(), proof)
        if proof is not None and wanted is not None and proof.ok and proof.events > wanted:
            _tell_further(wanted)
    if proof is not None and not proof.ok:
        raise typer.Exit(1)


def _tell_further(wanted: int) -> None:
    """That more was verified than was asked for."""
    from timelapse.cli.console import line

    line(
        (
            f"  in the {wanted:,} events asked for there is nothing to compare: it went on to what there is",
            "dim",
        )
    )


def verify(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run's folder, @3 or @last.", show_default=False)
    ],
    events: Annotated[
        str | None,
        typer.Option(metavar="N|1%", help="Only so much of the log's beginning; by default all of it."),
    ] = None,
    files: Annotated[
        bool,
        typer.Option(
            "--files", help="Only read all files of a run, or of a log, and compare their checksums."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check a run against the serial meaning: outputs, rejections, the state at every slice boundary.

    Processes the log's events one by one in plain Python. Exit code 1 and the first difference when there is one.
    Before that, and with --files only, all files are read and those that were altered are named.
    """
    from timelapse.cli.console import line, print_json
    from timelapse.cli.places import find_run
    from timelapse.cli.progress_view import progress_for
    from timelapse.run import Run

    if files:
        from timelapse.cli.verify_files import verify_files

        verify_files(find_run(run), as_json=as_json, alone=events is None)
        return
    opened = Run.open(find_run(run))
    wanted = None if events is None else _amount(events, opened.events)
    with progress_for(as_json) as progress:
        proof = opened.verify(wanted, progress)
    if as_json:
        print_json({**_proof_json(proof), "digest": opened.digest, "run": str(opened.path)})
    else:
        print_proof(proof)
        line(("digest ", "dim"), opened.digest)
    if not proof.ok:
        raise typer.Exit(1)


# --- options --------------------------------------------------------------------------------------------


def _amount(text: str, total: int) -> int | None:
    """`all`, `1%` or a number of events, at least one; None for all. Raises UsageError."""
    from timelapse.errors import UsageError

    if text == "all":
        return None
    try:
        if text.endswith("%"):
            percent = float(text[:-1])
            count = -(-total * percent // 100) if 0 < percent <= 100 else 0
        else:
            count = int(text.replace(",", "").replace("_", ""))
        count = int(count)
    except ValueError:
        count = 0
    if count < 1 and total > 0:
        raise UsageError(f"{text!r} is not a number of events", hint="give all, 1% or 100000", code="TL813")
    return None if count >= total else count


def _strategy(given: list[str] | None) -> str | dict[str, str] | None:
    from timelapse.errors import UsageError

    if not given:
        return None
    pairs = {name: value for name, equals, value in (g.partition("=") for g in given) if equals}
    if not pairs and len(given) == 1:
        return given[0]
    if len(pairs) != len(given):
        raise UsageError(
            "--strategy mixes a name with STATE=name", hint="--strategy chain, or --strategy friends=chain"
        )
    return pairs


# --- printing -------------------------------------------------------------------------------------------


def print_run(run: Run, info: LogInfo, proof: Verification | None) -> None:
    """The summary of a finished run."""
    from timelapse.cli.console import line
    from timelapse.cli.places import label
    from timelapse.cli.view import rate, span, took
    from timelapse.run.late_rows import end_apart_text
    from timelapse.run.views import of_part, of_types, started_from

    length = (info.ts_last or 0) - (info.ts_first or 0)
    speed = (
        f"   {span(length)} at {length / 1e6 / run.seconds:,.0f}x" if run.seconds > 0 and length > 0 else ""
    )
    line(
        (f"{many(run.events, 'event', 'events')} in {took(run.seconds)}", "bold"),
        f"{speed}   {rate(run.events, run.seconds)}   {many(run.slices, 'slice', 'slices')}",
    )
    line(("engine  ", "dim"), f" {run.engine}")
    for name, count in run.counts.items():
        line((name, "bold green"), f"  {many(count, 'output', 'outputs')}")
    if run.pending:
        ahead = "  ".join(f"{name} {count:,}" for name, count in run.pending.items())
        line(("pending ", "dim"), f" {sum(run.pending.values()):,}   {ahead}")
    line(f"rejected {run.rejected_count:,}", ("      stages: ", "dim"), (_timings(run.timings), "dim"))
    print_quarantined(run)
    _print_account(run)
    if (part := run.certificate.get("part")) is not None:
        line(("part    ", "dim"), f" {of_part(part)}")
    if (some := run.certificate.get("types")) is not None:
        line(("types   ", "dim"), f" {of_types(some)}")
    if (before := run.certificate.get("start_from")) is not None:
        line(("from    ", "dim"), f" {started_from(before)}")
    if (apart := run.certificate.get("end_apart")) is not None:
        line(("late    ", "dim"), f" {end_apart_text(apart)}")
    _print_certificate(run.certificate)
    if proof is not None:
        print_proof(proof)
    where = label(run.path) if run.path is not None else ""
    line(
        ("digest ", "dim"),
        f"{run.digest}",
        ("      run ", "dim"),
        f"{where} -> {run.path}" if where.startswith("@") else where,
    )
    if proof is None:
        line(("next: ", "dim"), f"timelapse verify {shlex.quote(where)}")


def print_quarantined(run: Run) -> None:
    """The events that were taken out of the log, the first few one by one."""
    from timelapse.cli.console import line, one_line

    if run.manifest.quarantined is None:
        return
    count = run.quarantined_count
    line(
        ("quarantined ", "bold yellow" if count else ""),
        f"{many(count, 'event was', 'events were')} taken out of the log" if count else "0",
    )
    for row in run.quarantined.slice(0, _SHOWN).to_pylist():
        place = "" if row["file"] is None else f"{Path(row['file']).name}:{row['line']} "
        line(
            ("  ", ""),
            f"{row['event']} seq {row['seq']}  {place}{row['handler']}: {one_line(row['error'], 120)}",
        )
    if count > _SHOWN:
        line(f"  and {count - _SHOWN:,} more: Run.open({str(run.path)!r}).quarantined")


def _timings(timings: dict[str, float]) -> str:
    from timelapse.cli.view import took

    return "  ".join(f"{name} {took(seconds)}" for name, seconds in timings.items())


def _print_account(run: Run) -> None:
    """Where every second went, on how many cores, and what ran compiled."""
    from timelapse.cli.console import line
    from timelapse.cli.view import took

    account, passes = run.account, run.passes
    if account and run.seconds > 0:
        cores = max(1, round(sum(account.values()) / run.seconds))
        shown = {name: s for name, s in account.items() if s >= 0.005 * sum(account.values())}
        text = "  ".join(f"{name} {took(s)}" for name, s in shown.items())
        line(
            ("time    ", "dim"), text, (f"   (core-seconds, {cores} core{'s' if cores != 1 else ''})", "dim")
        )
    if passes:
        compiled = sum(how == "compiled" for how in passes.values())
        line(("compiled", "dim"), f" {compiled}/{len(passes)}")
        for name, how in passes.items():
            if how != "compiled":
                line(("        ", "dim"), f" {name}: {how}")


def repair_text(stage: str, found: dict[str, Any]) -> str:
    """What guessing and repairing a stage's slices took, for people."""
    events = int(found["events"])
    share = f" ({100 * found['again'] / events:.2f}%)" if events else ""
    slices = "slice" if found["slices"] == 1 else "slices"
    text = (
        f"{stage}: {found['slices']} {slices} guessed, {found['rounds']} rounds; {found['again']:,} of {events:,} "
        f"events ran again{share}, at most {found['chain']} in a chain"
    )
    if found["rest"]:
        reasons = "; ".join(dict.fromkeys(found["given_up"].values()))
        text += f"; {found['rest']:,} ran in order: {reasons}"
    return text


def _print_certificate(certificate: dict[str, Any]) -> None:
    from timelapse.cli.console import line
    from timelapse.cli.view import took
    from timelapse.run.views import IN_ORDER, beyond_budget, of_older, warned, was_predicted

    fallback, kept = certificate.get("fallback"), certificate.get("cache")
    if kept:
        saved = took(float(kept.get("saved", 0.0)))
        line(("cache   ", "green"), f"{kept['what']} from the cache ({saved} saved){of_older(kept)}")
    if was_predicted(certificate):
        lead = certificate.get("leading_slices", 0)
        predicted = certificate.get("predicted_slices", max(0, certificate.get("slices", 1) - 1 - lead))
        first = f"; {lead} before them ran one after the other" if lead else ""
        line(
            ("proved  ", "green"),
            f"{certificate.get('validated_slices', 0)} of {predicted} slices "
            f"that have a successor changed the state exactly as predicted{first}",
        )
    else:
        line(("in order", "green"), f" {IN_ORDER}")
    if beyond := beyond_budget(certificate):
        line(("memory  ", "yellow"), f" {beyond}")
    if taken := certificate.get("taken_over"):
        torn = (
            f"; {taken['torn']} files were not as they were written, and done again"
            if taken.get("torn")
            else ""
        )
        line(
            ("gone on ", "green"),
            f"{taken['slices']} slices of the final pass and {taken['passes']} of passes ahead are those of a replay that was killed{torn}",
        )
    for stage, found in (certificate.get("repairs") or {}).items():
        line(("repaired", "green"), repair_text(stage, found))
    if fallback:
        tone = "bold yellow" if fallback.get("is_bug") else "yellow"
        line(("note    ", tone), f"from slice {fallback['from_slice']} on one by one: {fallback['reason']}")
        if fallback.get("is_bug"):
            line("        the result is exact all the same; please report this as a bug in Timelapse")
    trusted = certificate.get("trusted") or []
    if trusted:
        line(
            ("trusted ", "yellow"),
            f"{many(len(trusted), 'call', 'calls')} that analysis cannot see through (listed by timelapse explain)",
        )
    for text in warned(certificate):
        line(("warning ", "yellow"), text)
    if twice := certificate.get("twice"):
        line(
            ("twice   ", "green"),
            f"the first {f'{twice:,} events were' if twice > 1 else 'event was'} processed twice on the same state: no difference",
        )


def print_proof(proof: Verification) -> None:
    """What a verification found."""
    from timelapse.cli.console import line

    first, *rest = proof.text.splitlines()
    head = ("verified ", "bold green") if proof.covers else ("compared ", "bold yellow")
    line(head if proof.ok else ("DIFFERS  ", "bold red"), first)
    for row in rest:
        line("  ", row)


def _proof_json(proof: Verification) -> dict[str, Any]:
    return {
        "ok": proof.ok, "events": proof.events, "total": proof.total, "outputs": proof.outputs,
        "boundaries": proof.boundaries, "rejected": proof.rejected, "covers": proof.covers, "seconds": proof.seconds,
        "divergence": None if proof.divergence is None else proof.divergence.text,
    }  # fmt: skip


def _print_run_json(run: Run, proof: Verification | None) -> None:
    from timelapse.cli.console import print_json

    manifest = run.manifest
    print_json(
        {
            "path": str(run.path), "program": run.program, "params": run.params, "events": run.events,
            "slices": run.slices, "seconds": run.seconds, "timings": run.timings, "account": run.account,
            "passes": run.passes, "executor": manifest.executor, "engine": run.engine,
            "outputs": run.counts, "rejected": run.rejected_count, "quarantined": run.manifest.quarantined,
            "quarantined_events": run.stored_quarantined().drop_columns(["phase"]).to_pylist(),
            "pending": run.pending, "until": manifest.until, "digest": run.digest,
            "state_digest": run.state_digest, "log": manifest.log, "log_id": manifest.log_id,
            "certificate": run.certificate, "verification": None if proof is None else _proof_json(proof),
        }
    )  # fmt: skip
