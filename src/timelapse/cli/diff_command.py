"""`diff`: what another version of a program does differently."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from timelapse.cli.labels_option import LabelColumn, LabelKey, LabelTime
from timelapse.cli.options import Engine, Json, Local, Master, examples
from timelapse.cli.writes import file_of

if TYPE_CHECKING:
    from timelapse.compare import Condition, Counterfactual, Diff, Judgement
    from timelapse.log import Log
    from timelapse.program.program import Program
    from timelapse.progress import Progress
    from timelapse.run import Run
    from timelapse.run.request import Several

SHORT_WARNING = "people who are blocked behave differently"
SHOWN = 5
"""Differences shown when nobody says how many."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            "timelapse diff rules.py:Antispam@main rules.py:Antispam logs/oct --by sender",
            "timelapse diff rules.py:Antispam logs/oct --set-b ratio=3.0",
            "timelapse diff @3 @last --labels reports.parquet --segment country --by sender",
            "timelapse diff rules.py:Antispam logs/oct --enforce event",
            "timelapse diff @3 --enforce sender --for 30d --by sender",
            "timelapse diff @3 @last --labels reports.csv --items Message.id --fail-if 'precision < .7'",
            "timelapse diff rules.py:Antispam@main rules.py:Antispam logs/oct --report diff.html --redact sender",
        )
    )(diff)


def diff(
    a: Annotated[
        str, typer.Argument(metavar="A", help="FILE:Class, FILE:Class@REV, or a run.", show_default=False)
    ],
    b: Annotated[
        str | None,
        typer.Argument(
            metavar="B",
            help="The same, for the new version. The log, where A is compared with itself: --set-b, --enforce.",
            show_default=False,
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Argument(metavar="[LOG]", help="A log's folder; not for two runs.", show_default=False),
    ] = None,
    sets_a: Annotated[
        list[str] | None,
        typer.Option("--set-a", metavar="NAME=VALUE", help="Set a parameter of A. May repeat."),
    ] = None,
    sets_b: Annotated[
        list[str] | None,
        typer.Option("--set-b", metavar="NAME=VALUE", help="Set a parameter of B. May repeat."),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[TYPE:]FIELD,...",
            help="Match outputs by these fields instead of the record's key. May repeat.",
        ),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD", help="Count who is hit and who is freed: users, addresses. May repeat."
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="[TYPE:]FILE",
            help="Judge by labels (Parquet, CSV): columns key, label (default: right), ts.",
        ),
    ] = None,
    label: LabelColumn = None,
    label_ts: LabelTime = None,
    label_key: LabelKey = None,
    segment: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD", help="Split precision and recall by a column of labels or outputs. May repeat."
        ),
    ] = None,
    weight: Annotated[
        str | None, typer.Option(metavar="FIELD", help="Weigh precision and recall by a column: amount.")
    ] = None,
    items: Annotated[
        str | None,
        typer.Option(
            metavar="EVENT.FIELD",
            help="Where the log has what labels name: Message.id. Finds what was missed.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--labels-until", metavar="TIME", help="Until when labels are complete. Default: estimated."
        ),
    ] = None,
    enforce: Annotated[
        str | None,
        typer.Option(
            metavar="event|FIELD",
            help="Compare A with itself enforced: flagged events are rejected, or who FIELD names is banned --for a time.",
        ),
    ] = None,
    ban: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="How long a ban lasts: 30d, 12h, 90m, 45s.")
    ] = None,
    flags: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE", help="The record types that flag, where there are several. May repeat."),
    ] = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help="Exit 3 where it holds, else 0: 'precision < .7 or new > 100'. May repeat.",
        ),
    ] = None,
    shown: Annotated[
        int, typer.Option("--examples", metavar="N", min=0, help="Differences to show.")
    ] = SHOWN,
    report: Annotated[
        Path | None,
        typer.Option(
            parser=file_of("--report", "diff.html"),
            metavar="FILE",
            help="Write the comparison as an HTML file too: see `timelapse report`.",
        ),
    ] = None,
    redact: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD,...", help="Fields and parameters whose values stay out of the report."),
    ] = None,
    master: Master = None,
    local: Local = False,
    engine: Engine = "auto",
    as_json: Json = False,
) -> None:
    """Compare two versions of a program, two settings of it, or two finished runs: outputs gone, new and changed.

    Outputs are matched by the record's key, or by event. Exit code 0 when they are the same, 1 when they differ. With
    --fail-if the conditions alone decide: 0 when none holds, 3 when one does, 2 when one cannot be decided.
    """
    from timelapse.cli.progress_view import progress_for
    from timelapse.cli.writes import check_report
    from timelapse.errors import UsageError
    from timelapse.progress.patience import looking, until_told

    if redact and report is None:
        raise UsageError("--redact is for a report", hint="give --report diff.html too", code="TL800")
    check_report("--report", report)
    with progress_for(as_json) as listener, until_told(listener, "getting ready") as progress:
        from timelapse.cli.diff_view import View
        from timelapse.cli.labels_option import judging_of
        from timelapse.compare import Condition, figures_of
        from timelapse.compare import diff as compare
        from timelapse.compare.before import check_fields
        from timelapse.compare.differences import columns_of, key_fields

        if enforce is None and b is not None and log is None and _is_log(b) and not _is_run(a):
            if not (sets_a or sets_b):
                raise UsageError(
                    f"{b} is a log, and {a} would be compared with itself", code="TL800",
                    hint=f"give it another setting: timelapse diff {a} {b} --set-b NAME=VALUE; or name a second version before the log",
                )  # fmt: skip
            from timelapse.store.remote import place_path

            b, log = a, place_path(b, "log")
        keys = _keys(key)
        conditions = [Condition(text) for text in fail_if or ()]
        judging = judging_of(labels, segments=segment or (), weight=weight, items=items, until=until, label=label, label_ts=label_ts, label_key=label_key)  # fmt: skip
        wanted = _Asked(keys, by or (), judging, conditions, redact or ())
        with _both(
            a, b, log, sets_a, sets_b, master, local, engine, progress, enforce, ban, flags, wanted
        ) as (sides, what):
            with looking(progress, "comparing outputs"):
                found = compare(
                    *sides,
                    key=key_fields(keys, columns_of(*sides)),
                    **_where(engine, master, local, progress),
                )
            check_fields(found, by or ())
            judged = None
            if judging:
                about = found.records[judging["labels"].record(found.records, judging["record"])]
                fields = [f for f in by or () if f in about.schema.names]
                with looking(progress, "judging by labels"):
                    judged = found.judge(**{**judging, "record": about.name, "by": fields})
            names = (a, b or "") if what is None else (a, _enforced_name(a, enforce or "", ban))
            view = View(found, tuple(by or ()), shown, names, judged, what, progress)
            figures = figures_of(found, judged, [(r.name, r.by(field)) for r, field in view.entities])
            holding = [c.text for c in conditions if c.holds(figures)]
            code = (3 if holding else 0) if conditions else int(not found.same)
            if report is not None:
                titles = names if what is None else (names[0], f"{names[1]}: {SHORT_WARNING}")
                with looking(progress, "writing the report"):
                    _write_report(found, judged, report, redact or (), by or (), titles)
            if as_json:
                view.print_json(holding if conditions else None)
            else:
                view.print(holding if conditions else None, code)
                _tell_report(report, names if what is None else None, found)
    if code:
        raise typer.Exit(code)


def _where(engine: Engine, master: str | None, local: bool, progress: Progress) -> dict[str, Any]:
    """Where the outputs are compared, as arguments of `tl.diff`."""
    from timelapse.cli.options import choose_spark

    if local and engine == "auto":
        return {"engine": "local"}
    found = choose_spark(0, progress, master=master, local=local, engine=engine, at_once=False)
    return {"engine": engine, "spark": found or None}


def _write_report(
    found: Diff, judged: Judgement | None, place: Path, redact: Sequence[str], by: Sequence[str], names: tuple[str, str]
) -> None:  # fmt: skip
    from timelapse.reporting import report as make

    make(found, place, redact=redact, by=by, judged=judged, names=names)


def _tell_report(place: Path | None, names: tuple[str, str] | None, found: Diff) -> None:
    """Where the report is, or how to have one. `names`: what the command was given, where both may be runs that stay."""
    from timelapse.cli.console import line

    if place is not None:
        line(("report: ", "dim"), str(place))
    elif not found.same:
        how = "the same command with --report diff.html"
        if names is not None and all(_is_run(name) for name in names):
            how = f"timelapse report {shlex.join(names)}"
        line((f"report: {how}", "dim"))


def _enforced_name(a: str, how: str, ban: str | None) -> str:
    return f"{a}, flagged events rejected" if ban is None else f"{a}, flagged {how} banned for {ban}"


class _Asked(NamedTuple):
    """What will be asked of the comparison."""

    key: Sequence[tuple[str, tuple[str, ...]]]
    by: Sequence[str]
    judging: dict[str, Any]
    conditions: Sequence[Condition]
    redact: Sequence[str]

    def check(self, programs: Sequence[Program], log: Log) -> None:
        """Raises UsageError before the programs are replayed."""
        from timelapse.compare.before import check_asked

        check_asked(programs, log, key=self.key, by=self.by, judging=self.judging, conditions=self.conditions)
        if self.redact:
            from timelapse.reporting.redact import Redaction

            Redaction.check(self.redact, programs)


# --- the two sides --------------------------------------------------------------------------------------


@contextmanager
def _both(
    a: str, b: str | None, log: Path | None, sets_a: list[str] | None, sets_b: list[str] | None, master: str | None,
    local: bool, engine: Engine, progress: Progress, how: str | None, ban: str | None, flags: list[str] | None, asked: _Asked,
) -> Iterator[tuple[tuple[Run, Run], Counterfactual | None]]:  # fmt: skip
    """Both runs, of two versions or of one and itself enforced."""
    from timelapse.compare import enforce, what_if
    from timelapse.errors import UsageError
    from timelapse.log import Log

    if how is None:
        if ban or flags:
            raise UsageError(
                "--for and --flags go with --enforce", hint="--enforce sender --for 30d", code="TL800"
            )
        if b is None:
            raise UsageError("diff compares two", hint=f"timelapse diff {a} B LOG", code="TL800")
        with _sides(a, b, log, sets_a, sets_b, master, local, engine, progress, asked) as sides:
            yield sides, None
        return
    if log is not None or sets_b or (b is None) != _is_run(a):
        raise UsageError(
            "--enforce compares one program, or one finished run, with itself enforced", code="TL800",
            hint="timelapse diff rules.py:Antispam LOG --enforce event, or timelapse diff @3 --enforce event",
        )  # fmt: skip
    from timelapse.cli.options import choose_spark
    from timelapse.run import Run
    from timelapse.run.request import Several

    opened = None if b is None else Log.open(Path(b))
    side = _side(a, sets_a, opened, "--set-a")
    duration = None if ban is None else _span(ban)
    if not isinstance(side, Run) and opened is not None:
        asked.check([side, enforce(side, how, duration=duration, flags=flags or ())], opened)
    factual = (
        side if isinstance(side, Run) else _replayed(side, opened, Several(), master, local, engine, progress)
    )
    reader = Log.open(Path(factual.manifest.log or "")) if b is None else Log.open(Path(b))
    if (reader.id, reader.count) != (factual.manifest.log_id, factual.events):
        raise UsageError(
            f"{reader.path} is not any more what {a} replayed", hint="replay the program again", code="TL815"
        )
    spark = choose_spark(reader.count, progress, master=master, local=local, engine=engine)
    found = what_if(
        factual, reader, how, duration=duration, flags=flags or (), spark=spark, progress=progress, engine=engine,
    )  # fmt: skip
    yield (found.diff.a, found.diff.b), found


def _span(text: str) -> int:
    """`30d`, `12h`, `90m`, `45s` in microseconds. Raises UsageError (TL821)."""
    from timelapse.errors import UsageError
    from timelapse.ids import DAY, HOUR, INT64_MAX, MINUTE, SECOND

    units = {"d": DAY, "h": HOUR, "m": MINUTE, "s": SECOND}
    number, unit = text.strip()[:-1], text.strip()[-1:]
    try:
        found = round(float(number) * units[unit])
        if 0 < found <= INT64_MAX:
            return found
    except (ValueError, KeyError, OverflowError):
        pass
    raise UsageError(f"--for {text!r} is no length of time", hint="30d, 12h, 90m or 45s", code="TL821")


@contextmanager
def _sides(
    a: str, b: str, log: Path | None, sets_a: list[str] | None, sets_b: list[str] | None, master: str | None,
    local: bool, engine: Engine, progress: Progress, asked: _Asked,
) -> Iterator[tuple[Run, Run]]:  # fmt: skip
    """Both runs: opened, or made here and gone afterwards."""
    from timelapse.errors import UsageError
    from timelapse.log import Log
    from timelapse.program.program import Program
    from timelapse.run import Run
    from timelapse.run.several import sharing

    opened = None if log is None else Log.open(log)
    for name, reference, settings in (("--set-a", a, sets_a), ("--set-b", b, sets_b)):
        if settings and _is_run(reference):
            raise UsageError(
                f"{name} is for a program; {reference} is a finished run", hint="name the program"
            )
    if opened is None and not _is_run(b) and ".py" not in b and ":" not in b:
        raise UsageError(
            f"{b} is neither a log, nor a run, nor a program", code="TL800",
            hint=f"timelapse diff {a} {b if _is_run(a) else 'LOG --set-b NAME=VALUE'}: a log is a folder that `timelapse ingest` made",
        )  # fmt: skip
    if opened is None and not (_is_run(a) and _is_run(b)):
        raise UsageError(
            "two programs are compared over a log", hint=f"timelapse diff {a} {b} LOG", code="TL800"
        )
    first, second = (_side(a, sets_a, opened, "--set-a"), _side(b, sets_b, opened, "--set-b"))
    programs = [side for side in (first, second) if isinstance(side, Program)]
    if len(programs) == 2 and opened is not None:
        asked.check(programs, opened)
    with sharing(programs) as several:
        runs = [
            side
            if isinstance(side, Run)
            else _replayed(side, opened, several, master, local, engine, progress)
            for side in (first, second)
        ]
    yield runs[0], runs[1]


def _is_log(reference: str) -> bool:
    from timelapse.segments.manifest import NAME
    from timelapse.store.remote import place_path

    return (place_path(reference, "log") / NAME).is_file()


def _is_run(reference: str) -> bool:
    from timelapse.store.remote import place_path

    return reference.startswith("@") or (place_path(reference, "run") / "run.json").is_file()


def _side(reference: str, settings: list[str] | None, log: Log | None, option: str) -> Run | Program:
    """A finished run, or a program for the log."""
    from timelapse.cli.places import find_run
    from timelapse.cli.settings import build_program
    from timelapse.program.program import spec_of
    from timelapse.program.versions import load_versioned
    from timelapse.run import Run
    from timelapse.segments.types import heard

    if _is_run(reference):
        return Run.open(find_run(reference))
    program = build_program(load_versioned(reference), settings or [], option)
    assert log is not None
    log.bind(heard(spec_of(program), log.types))
    return program


def _replayed(
    program: Program,
    log: Log | None,
    several: Several,
    master: str | None,
    local: bool,
    engine: Engine,
    progress: Progress,
) -> Run:
    from timelapse.cli.options import choose_spark
    from timelapse.run.start import replay_one_of

    assert log is not None
    spark = choose_spark(log.count, progress, master=master, local=local, engine=engine)
    return replay_one_of(several, program, log, None, spark, progress, engine=engine)


def _keys(given: list[str] | None) -> list[tuple[str, tuple[str, ...]]]:
    """`--key TYPE:f,g`, or `--key f,g` for every type that has these fields: types and fields."""
    from timelapse.cli.options import names_of

    parts = [text.rpartition(":") for text in given or ()]
    return [(name, tuple(names_of("--key", [fields], "Alert:user,day"))) for name, _, fields in parts]
