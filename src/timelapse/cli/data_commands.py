"""`synth` and `log`; `ingest` has a file of its own."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from timelapse.cli.options import (
    Json,
    Local,
    LogArg,
    Master,
    Overwrite,
    examples,
    parse_span,
    parse_time,
    type_names,
)
from timelapse.cli.writes import file_of
from timelapse.display import many

if TYPE_CHECKING:
    from timelapse.log import LogInfo
    from timelapse.model.events import Event

_DEFAULT_EVENTS = 1_000_000
_GAPS = 6
"""Gaps that are shown."""
_SHOWN = 20
"""Events that are shown where --where or --types is given without --head."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    from timelapse.cli import ingest_command

    app.command(
        epilog=examples(
            "timelapse synth --events 1000000 --exponent 0.8 --seed 7 --out logs/social",
            "timelapse synth --company --out week",
            "timelapse synth --events 100000000 --users 10000000 --out logs/big --master local[8]",
        )
    )(synth)
    ingest_command.register(app)
    app.command(
        "log",
        epilog=examples(
            "timelapse log logs/oct",
            "timelapse log logs/oct --bad 5",
            "timelapse log logs/oct --versions",
            "timelapse log logs/oct --uses --below runs",
            "timelapse log logs/oct --keep 90d --expire 7d",
            "timelapse log logs/oct --verify",
            "timelapse log logs/oct --profile --program rules.py:Antispam --page profile.html",
            "timelapse log logs/oct --forget 'user == 512' --expire 0d",
            """timelapse log logs/oct --types Message --where 'sender == 512 and ts >= "2026-10-03"' --head 50""",
        ),
    )(show_log)


def synth(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the log goes.", show_default=False)],
    events: Annotated[int, typer.Option(help="Number of events.")] = _DEFAULT_EVENTS,
    exponent: Annotated[
        float, typer.Option(help="Exponent of the power law of users and addresses: 0 even, 4 very skewed.")
    ] = 0.8,
    seed: Annotated[int, typer.Option(help="The same seed and settings give the same log.")] = 1,
    users: Annotated[
        int | None, typer.Option(help="Users; by default a tenth of the events, at most a million.")
    ] = None,
    addresses: Annotated[
        int | None, typer.Option(help="IP addresses; by default a tenth of the users.")
    ] = None,
    spammers: Annotated[float, typer.Option(help="Share of the users who are spammers.")] = 0.02,
    friendships: Annotated[float, typer.Option(help="Share of the events that are friendships.")] = 0.2,
    start: Annotated[str, typer.Option(help="Time of the first event, UTC, ISO 8601.")] = "2026-10-01",
    rate: Annotated[
        float | None, typer.Option(help="Events per second; by default the log spans 30 days.")
    ] = None,
    company: Annotated[
        bool,
        typer.Option(
            "--company",
            help="Instead of a log, raw files of a company's week as they come, with a definition that reads them.",
        ),
    ] = False,
    master: Master = None,
    local: Local = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Generate a social network: friendships, and messages of which some are spam.

    Users and addresses follow a power law, friends live near each other, spammers write to strangers. The log does
    not depend on how many machines make it. Event types: Friendship(a, b), Message(id, sender, recipient, ip, text).
    Up to a million events are made in this process, more on Spark.
    """
    from timelapse.cli.console import line, print_json
    from timelapse.cli.log_json import log_json
    from timelapse.cli.progress_view import progress_for
    from timelapse.cli.view import took
    from timelapse.log import Log
    from timelapse.segments.place import as_path, check_free
    from timelapse.synth import Network, generate
    from timelapse.synth.write import LOCAL_EVENTS

    if company:
        _company(out, events, seed, as_json=as_json)
        return
    network = Network.make(
        events, exponent=exponent, seed=seed, users=users, addresses=addresses, spammers=spammers,
        friendships=friendships, start=parse_time("--start", start), rate=rate,
    )  # fmt: skip
    check_free(as_path(out), overwrite=overwrite)
    began = time.perf_counter()
    with progress_for(as_json) as progress:
        from timelapse.cli.options import choose_spark

        spark = choose_spark(events, progress, master=master, local=local, limit=LOCAL_EVENTS, at_once=True)
        generate(out, network, spark=spark, overwrite=overwrite, progress=progress)
    seconds = time.perf_counter() - began
    log = Log.open(out)
    if as_json:
        print_json(
            {
                **log_json(log.info()),
                "seconds": seconds,
                "users": network.users,
                "addresses": network.addresses,
            }
        )
        return
    line(
        f"{many(log.count, 'event', 'events')}, {many(network.users, 'user', 'users')}, {network.addresses:,} addresses, {network.days:,.1f} days, "
        f"exponent {exponent:g}   ", (took(seconds), "bold"),
    )  # fmt: skip
    line(
        ("log id ", "dim"),
        log.id,
        ("   next: ", "dim"),
        f"timelapse replay {_program()} {shlex.quote(str(out))}",
    )


def _company(out: Path, events: int, seed: int, *, as_json: bool) -> None:
    """Write a company's week."""
    import dataclasses

    from timelapse.cli.console import line, print_json
    from timelapse.errors import Place, UsageError
    from timelapse.synth.company import DAYS, write_company

    if out.exists():
        raise UsageError(
            "there is something here already",
            place=Place(str(out)),
            hint="choose another folder",
            code="TL808",
        )
    per_day = max(40, min(events, 14_000 if events == _DEFAULT_EVENTS else events) // DAYS)
    found = write_company(out, per_day=per_day, seed=seed)
    if as_json:
        print_json(dataclasses.asdict(found))
        return
    told = ", ".join(f"{count:,} {name}" for name, count in found.events.items())
    line(
        f"{told}; of Txn {found.duplicates:,} rows are sent twice, {found.late:,} come a day late, {found.bad:,} cannot be read"
    )
    line(
        ("next: ", "dim"),
        f"timelapse ingest {shlex.quote(f'{out}/log.toml')} && timelapse replay {shlex.quote(f'{out}/rules.py:Fraud')} {shlex.quote(f'{out}/log')}",
    )


def _program() -> str:
    """The anti-spam program: where the repository has it, else as it is installed."""
    here = "examples/antispam.py"
    return f"{here if Path(here).is_file() else 'timelapse.cli.demo_programs.antispam'}:Antispam"


def show_log(
    path: LogArg,
    version: Annotated[int | None, typer.Option(help="An earlier version of the log.")] = None,
    bad: Annotated[int, typer.Option(min=0, help="Show so many quarantined rows.")] = 0,
    head: Annotated[
        int | None,
        typer.Option("--head", min=0, help="Show the first so many events (20 with --where or --types)."),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--types", "--type", metavar="A,B", help="Events of these types only. May repeat."),
    ] = None,
    where: Annotated[
        str,
        typer.Option(
            metavar="CONDITION",
            help="""Events for which this holds: 'sender == 512 and ts >= "2026-10-03"'.""",
        ),
    ] = "",
    since: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Events of this time and later ones.")
    ] = None,
    before: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Events before this time.")
    ] = None,
    versions: Annotated[bool, typer.Option("--versions", help="List the log's versions.")] = False,
    forget: Annotated[
        str,
        typer.Option(
            metavar="CONDITION",
            help="Make a version without the events for which this holds: 'user == 512'. Earlier versions have them until --expire.",
        ),
    ] = "",
    expire: Annotated[
        str,
        typer.Option(
            metavar="AGE",
            help="Remove versions that were replaced longer ago: 30d, 12h; 0d removes all but the newest.",
        ),
    ] = "",
    keep: Annotated[
        str,
        typer.Option(
            metavar="AGE",
            help="Make a version without the events that are longer before the log's end: 30d, 12h.",
        ),
    ] = "",
    uses: Annotated[
        bool,
        typer.Option(
            "--uses",
            help="List the runs and caches over this log, and what of each holds for its newest version.",
        ),
    ] = False,
    below: Annotated[
        list[Path] | None,
        typer.Option(
            "--below",
            metavar="DIR",
            help="Where --uses and --forget look for runs. By default here and beside the log. May repeat.",
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Read all files of all versions, and name each that is torn or altered."
        ),
    ] = False,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="What the fields hold, by type, field and day: missing, extreme, distinct and frequent values.",
        ),
    ] = False,
    program: Annotated[
        str | None,
        typer.Option(
            metavar="FILE:CLASS",
            help="--profile: the hot keys of this program's states, over the first --events of the log.",
        ),
    ] = None,
    events: Annotated[
        int | None,
        typer.Option(metavar="N", help="--program: the first N events (0: all; 100,000 by default)."),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            parser=file_of("--page", "profile.html"),
            metavar="FILE.html",
            help="--profile: write it as a page, too.",
        ),
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Show a log: types, counts, span, events per day, sizes, what ingest left out; its first events; or its versions."""
    from timelapse.cli.console import print_json
    from timelapse.cli.log_json import log_json
    from timelapse.log import Log

    if verify:
        from timelapse.cli.verify_files import verify_log

        verify_log(path, as_json=as_json)
        return
    log = Log.open(path, version)
    names = type_names(types or [])
    if profile or page or program:
        from timelapse.cli.log_profile import show_profile

        show_profile(
            log,
            types=names,
            program=program,
            events=events,
            page=page,
            overwrite=overwrite,
            as_json=as_json,
        )
        return
    if forget or expire or versions or keep or uses:
        from timelapse.cli.log_versions import change_versions
        from timelapse.store.places import local_path

        looked = [local_path(p, "folder") for p in below or []] if uses or below else None
        change_versions(
            log, forget=forget, keep=keep, expire=expire, uses=looked, version=version, as_json=as_json
        )
        return
    if head is not None or names or where or since or before:
        lo, hi = parse_span(since, before)
        found = log.head(_SHOWN if head is None else head, *names, where=where, since=lo, before=hi)
        _print_events(found, as_json=as_json)
        return
    info = log.info()
    rows = log.quarantine().slice(0, max(bad, 0)).to_pylist() if bad else []
    if as_json:
        body = log_json(info)
        if bad:
            body["quarantine"] = rows
        print_json(body)
        return
    _print_info(info)
    _print_bad(rows)


def _print_events(events: list[Event], *, as_json: bool) -> None:
    from timelapse.cli.console import line, one_line, print_json
    from timelapse.moments import time_text

    if as_json:
        print_json([{"type": type(e).__name__, "ts": e.ts, "seq": e.seq, **_fields(e)} for e in events])
        return
    for event in events:
        shown = "  ".join(f"{name}={value!r}" for name, value in _fields(event).items())
        line(
            (f"{event.seq:>9} ", "dim"),
            f"{time_text(event.ts)} ",
            (type(event).__name__, "bold"),
            f"  {one_line(shown)}",
        )
    if not events:
        line("no events")


def _fields(event: Event) -> dict[str, Any]:
    return {f.name: getattr(event, f.name) for f in event.__fields__}


def _print_info(info: LogInfo) -> None:
    from rich.table import Table

    from timelapse.cli.columns_view import print_columns
    from timelapse.cli.console import clean, console, line
    from timelapse.cli.noticed_view import print_noticed
    from timelapse.cli.view import moment, share, size, skipped_as, span

    table = Table(box=None, pad_edge=False, header_style="dim")
    for name, justify in (
        ("type", "left"),
        ("events", "right"),
        ("", "right"),
        ("size", "right"),
        ("fields", "left"),
    ):
        table.add_column(name, justify=justify, no_wrap=name != "fields")  # type: ignore[arg-type]
    for kind in info.types:
        fields = ", ".join(f"{name}: {text}" for name, text in kind.fields)
        table.add_row(
            clean(kind.name),
            f"{kind.count:,}",
            share(kind.count, info.count),
            size(kind.bytes),
            clean(fields),
        )
    console().print(table)
    if info.ts_first is None or info.ts_last is None:
        line("no events")
    else:
        line(
            f"{moment(info.ts_first)} to {moment(info.ts_last)} UTC ({span(info.ts_last - info.ts_first)})   "
            f"{many(info.count, 'event', 'events')}   {size(info.bytes)} in {many(info.segments, 'segment', 'segments')}{f' of at most {info.segment}' if info.segment else ''}   version {info.version}"
        )
        _print_days(info)
    print_gaps(info)
    print_columns(info.ingests, [kind.name for kind in info.types])
    print_noticed([one for sources in info.told for one in sources])
    if info.bad or info.skipped:
        bad = f"{many(info.bad, 'bad row', 'bad rows')} ({share(info.bad, info.count + info.bad)}, in {info.path}/quarantine)"
        skipped = f"{many(info.skipped, 'row', 'rows')} ({skipped_as([s for own in info.told for s in own])})"
        line("left out: " + ", ".join(text for text, n in ((bad, info.bad), (skipped, info.skipped)) if n))
    line(("id ", "dim"), info.id)


def print_gaps(info: LogInfo) -> None:
    """What looks missing."""
    from timelapse.cli.console import clean, line
    from timelapse.segments.info import no_events_on

    if info.missing_days:
        line(("warning  ", "yellow"), " " + no_events_on(info.missing_days))
    for gap in info.gaps[:_GAPS]:
        line(("gap      ", "yellow"), " " + clean(gap))
    if len(info.gaps) > _GAPS:
        line(
            ("gap      ", "yellow"), f" and {len(info.gaps) - _GAPS:,} more: timelapse log {info.path} --json"
        )


def _print_days(info: LogInfo) -> None:
    """A bar per day; where there are too many, a sparkline over all of them."""
    from timelapse.cli.console import line
    from timelapse.cli.view import bar, sparkline

    totals = {day: sum(kinds.values()) for day, kinds in info.days.items()} | dict.fromkeys(
        info.missing_days, 0
    )
    totals = dict(sorted(totals.items()))
    if len(totals) > 31:
        days = list(totals)
        line(f"{days[0]} ", (sparkline(list(totals.values())), "cyan"), f" {days[-1]}  ({len(days):,} days)")
        return
    top = max(totals.values(), default=0)
    for day, count in totals.items():
        line(f"  {day}  {count:>13,} ", (bar(count, top), "cyan"))


def _print_bad(rows: list[dict[str, Any]]) -> None:
    from timelapse.cli.console import line, one_line

    for row in rows:
        place = row["file"] + (f":{row['line']}" if row["line"] is not None else "")
        line(
            (f"{one_line(place)} ", "bold"),
            f"{row['type']}: {one_line(row['reason'])}  ",
            (one_line(row["raw"]), "dim"),
        )
