"""`sweep`: many settings of a program at once."""

from __future__ import annotations

import hashlib
import shlex
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from timelapse.cli.labels_option import LabelColumn, LabelKey, LabelTime
from timelapse.cli.options import Engine, Json, Local, LogArg, Master, ProgramArg, Sets, examples
from timelapse.cli.writes import file_of
from timelapse.display import many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from timelapse.compare import Sweep
    from timelapse.log import Log
    from timelapse.program.program import ParamSpec, Program

SWEEPS = Path("sweeps")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            "timelapse sweep rules.py:Antispam logs/oct ratio=1,2,3 share=0.1..0.5/5",
            "timelapse sweep rules.py:Antispam logs/oct ratio=1..4/20 --labels reports.parquet --plot ratio.svg",
            "timelapse sweep rules.py:Antispam logs/oct ratio=1..4/20 --report ratio.html",
            "timelapse diff sweeps/Antispam-1f2e3d4c/ratio=1.0-8c2b... sweeps/Antispam-1f2e3d4c/ratio=3.0-02fe...",
        )
    )(sweep)


def sweep(
    program: ProgramArg,
    log: LogArg,
    values: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUES...", help="1,2,3 or 1..10 (whole numbers) or 0.1..0.5/5 (so many values).",
            show_default=False,
        ),
    ],
    settings: Sets = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder of the runs; by default sweeps/<Program>-<hash>. Found runs stay."),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(metavar="[TYPE:]FILE", help="Precision and recall by labels, as in diff."),
    ] = None,
    label: LabelColumn = None,
    label_ts: LabelTime = None,
    label_key: LabelKey = None,
    weight: Annotated[str | None, typer.Option(metavar="FIELD", help="Weigh them by a column: amount.")] = None,
    items: Annotated[
        str | None, typer.Option(metavar="EVENT.FIELD", help="Where the log has what labels name: Message.id.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--labels-until", metavar="TIME", help="Until when labels are complete.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", parser=file_of("--plot", "sweep.svg"), help="Draw outputs, or precision against recall, into a .svg, .png or .pdf.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(parser=file_of("--report", "sweep.html"), metavar="FILE", help="Write the sweep as an HTML file too: see `timelapse report`.")
    ] = None,
    redact: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME,...", help="Parameters whose values stay out of the report. May repeat."),
    ] = None,
    master: Master = None,
    local: Local = False,
    engine: Engine = "auto",
    as_json: Json = False,
) -> None:  # fmt: skip
    """Replay a program with many settings; only what depends on a parameter is repeated.

    All combinations of the values are tried. Each is a run of its own, which diff and verify take. A
    sweep that was interrupted goes on where it stopped when the command is given again.
    """
    from timelapse.cli.console import line
    from timelapse.cli.progress_view import progress_for
    from timelapse.cli.writes import PLOTS, check_file, check_report
    from timelapse.errors import UsageError
    from timelapse.progress.patience import looking, until_told

    check_file("--plot", plot, PLOTS, code="TL820")
    check_report("--report", report)
    if redact and report is None:
        raise UsageError("--redact is for a report", hint="give --report sweep.html too", code="TL800")
    with progress_for(as_json) as shown, until_told(shown, "getting ready") as progress:
        from timelapse.cli.labels_option import judging_of
        from timelapse.cli.options import choose_spark
        from timelapse.cli.settings import build_program
        from timelapse.compare import sweep as run_sweep
        from timelapse.log import Log
        from timelapse.program.program import spec_of
        from timelapse.program.versions import load_named
        from timelapse.reporting import report as make_report
        from timelapse.reporting.redact import Redaction
        from timelapse.run.start import kept_of
        from timelapse.segments.types import heard

        judging = judging_of(labels, weight=weight, items=items, until=until, label=label, label_ts=label_ts, label_key=label_key)  # fmt: skip
        base = build_program(load_named(program), settings or [])
        opened = Log.open(log)
        opened.bind(heard(spec_of(base), opened.types))
        grid = grid_of(base, values)
        Redaction.check(redact or (), [base])
        folder = out or SWEEPS / _default_name(base, opened)
        spark = choose_spark(opened.count, progress, master=master, local=local, engine=engine)
        found = run_sweep(
            base, opened, grid, folder, spark=spark, progress=progress, engine=engine, **judging
        )
        if plot is not None:
            with looking(progress, "drawing the plot"):
                found.figure().savefig(plot)
        if report is not None:
            with looking(progress, "writing the report"):
                make_report(found, report, redact=redact or ())
        if as_json:
            _print_json(found)
        else:
            kept = kept_of(base, opened)
            _print(
                found, folder, plot, kept["reason"] or kept["reads_reason"] or _of_states(base, found.names)
            )
            told = str(report) if report is not None else f"timelapse report {shlex.quote(str(folder))}"
            line(("report: ", "dim"), told)


def _of_states(base: Program, names: Sequence[str]) -> str:
    """Which of the parameters that vary the states depend on, in words; empty where it is none."""
    from timelapse.analysis import analyse
    from timelapse.cache.key import core_parameters

    known = core_parameters(base, analyse(base))
    mine = [name for name in names if name in known]
    return f"the states depend on {', '.join(mine)}" if mine else ""


def _default_name(base: Program, log: Log) -> str:
    """The same for the same program text over the same log, whatever the parameters."""
    from timelapse.program.fingerprint import fingerprint
    from timelapse.program.program import spec_of

    name = spec_of(base).name
    return f"{name}-{hashlib.sha256(f'{fingerprint(base)} {log.id}'.encode()).hexdigest()[:8]}"


# --- values ---------------------------------------------------------------------------------------------


def grid_of(base: Program, arguments: list[str]) -> dict[str, list[Any]]:
    """Values by parameter. Raises UsageError (TL806, TL820) for what does not fit."""
    from timelapse.errors import UsageError, meant
    from timelapse.model.decimals import usual_context
    from timelapse.program.program import spec_of

    params = spec_of(base).params
    found: dict[str, list[Any]] = {}
    for argument in arguments:
        name, equals, text = argument.partition("=")
        if not equals or name not in params or name in found:
            reason = (
                "is given twice"
                if name in found
                else "has no values"
                if name in params
                else "is no parameter"
            )
            raise UsageError(
                f"{name!r} {reason}", hint=f"{'' if name in params else meant(name, params)}write NAME=1,2,3 with a parameter of {', '.join(params) or 'none'}",
                code="TL820",
            )  # fmt: skip
        with usual_context():  # a user's module may have set another
            found[name] = _values(params[name], text)
    return found


def _values(param: ParamSpec, text: str) -> list[Any]:
    from timelapse.cli.settings import read_value
    from timelapse.compare.sweeps import MOST
    from timelapse.errors import UsageError

    if ".." not in text or not _is_number(param.text):
        return [read_value(param, part.strip()) for part in text.split(",")]
    ends, slash, count_text = text.partition("/")
    ends, colon, step_text = ends.partition(":")
    first, _, last = ends.partition("..")
    low, high = (_number(param, read_value(param, end)) for end in (first, last))
    wrong, span = f"{param.name}={text}", f"{param.name}={first.strip()}..{last.strip()}"
    if slash and colon:
        raise UsageError(
            f"{wrong} says both how many values and their distance",
            hint=f"{span}/5 or {span}:1",
            code="TL820",
        )
    if not (low.is_finite() and high.is_finite()) or (not slash and not colon and low % 1 + high % 1):
        raise UsageError(
            f"{wrong} does not say how many values", hint=f"{span}/5 for five of them, {span}:0.5 for one every 0.5", code="TL820"
        )  # fmt: skip
    if colon:
        step = abs(_number(param, read_value(param, step_text)))
        if not step.is_finite() or step == 0:
            raise UsageError(
                f"{wrong}: {step_text.strip()!r} is no distance", hint=f"write {span}:0.5", code="TL820"
            )
        count = int(abs(high - low) // step) + 1
        step = step if high >= low else -step
    elif not slash:
        count, step = int(abs(high - low)) + 1, Decimal(1 if high >= low else -1)
    elif count_text.strip().isdecimal():
        count = int(count_text)
        step = (high - low) / max(1, count - 1)
    else:
        raise UsageError(
            f"{wrong}: {count_text!r} is no number of values", hint="write 0.1..0.5/5", code="TL820"
        )
    if not 2 <= count <= MOST:
        raise UsageError(f"{wrong} are {count:,} values", hint=f"2 to {MOST:,}", code="TL820")
    if param.text in ("int", "Time"):  # offsets are rounded, so that a range that is moved has the same ones
        return list(dict.fromkeys(param.check(int(low) + round(step * n)) for n in range(count)))
    return list(dict.fromkeys(_value(param, low + step * n, exact=not slash) for n in range(count)))


def _is_number(kind: str) -> bool:
    return kind in ("int", "float", "Time") or (kind.startswith("Decimal") and not kind.endswith("None"))


def _number(param: ParamSpec, value: Any) -> Decimal:
    """A parameter's value as it is written: 0.1 is a tenth."""
    return Decimal(repr(value)) if param.text == "float" else Decimal(value)


def _value(param: ParamSpec, found: Decimal, *, exact: bool) -> Any:
    """The parameter's value at a place of a range: 0.1..0.5/5 is to mean 0.2, not 0.2 and a last bit. Decimals are the
    nearest ones of the parameter's scale, unless the range is `exact`."""
    if param.text == "float":
        return param.check(float(f"{found:.12g}"))
    if exact:
        return param.check(found)
    if "[" not in param.text:
        return param.check(Decimal(f"{found:.12g}"))
    places = int(param.text.removeprefix("Decimal[").rstrip("]"))
    return param.check(found.quantize(Decimal(1).scaleb(-places)))


# --- printing -------------------------------------------------------------------------------------------


def _print(found: Sweep, folder: Path, plot: Path | None, reason: str) -> None:
    from rich.table import Table

    from timelapse.cli.console import clean, console, line, one_line
    from timelapse.cli.view import bar

    judged = any(p.judged is not None for p in found.points)
    records = list(dict.fromkeys(name for p in found.points for name in p.run.counts))
    best = found.best()
    table = Table(box=None, pad_edge=False)
    rates = ("precision", "recall", "f1") if judged else ()
    for name in (*found.names, *records, *rates, "seconds"):
        table.add_column(clean(name), justify="right")
    table.add_column("replayed")
    top = max((p.run.counts.get(records[0], 0) for p in found.points), default=0) if records else 0
    if records:
        table.add_column(clean(records[0]))
    for point in found.points:
        scores = [] if point.judged is None else [getattr(point.judged.total.b, r) for r in rates]
        table.add_row(
            *(one_line(point.values[n], 40) for n in found.names),
            *(f"{point.run.counts.get(r, 0):,}" for r in records),
            *("-" if s is None else f"{100 * s:.1f}%" for s in scores),
            f"{point.run.seconds:.2f}", point.replayed,
            *([bar(point.run.counts.get(records[0], 0), top, 24)] if records else []),
            style="bold" if point is best else None,
        )  # fmt: skip
    console().print(table)
    if best is not None and best.judged is not None:
        from timelapse.compare.score import notes_of
        from timelapse.compare.sweeps import describe

        line(("best f1: ", "bold"), one_line(describe(best.values)))
        for warning, text in notes_of(best.judged):
            line(
                ("note: ", "yellow") if warning else ("", ""), (one_line(text, 400), "" if warning else "dim")
            )
    needed = [p.source for p in found.points if not p.resumed]
    parts = [f"{needed.count(s)} {text}" for s, text in
             (("replay", "replayed whole"), ("states", "from kept states on"),
              ("last rules", "only in what decides outputs"))
             if needed.count(s)]  # fmt: skip
    resumed = sum(p.resumed for p in found.points)
    if resumed:
        parts.append(f"{resumed} found ready")
    line((f"{many(len(found.points), 'setting', 'settings')}: {', '.join(parts)}", "dim"))
    if needed.count("replay") > 1 and reason:
        line((f"  nothing more is shared: {one_line(reason)}", "dim"))
    line(("runs: ", "dim"), one_line(folder), f"   plot: {one_line(plot)}" if plot is not None else "")


def _print_json(found: Sweep) -> None:
    from timelapse.cli.console import print_json
    from timelapse.cli.diff_view import scores_json

    print_json(
        {
            "program": found.program, "names": found.names,
            "points": [
                {
                    "values": dict(p.values), "outputs": p.run.counts, "rejected": p.run.rejected_count,
                    "digest": p.run.digest, "seconds": p.run.seconds, "needed": p.source, "resumed": p.resumed,
                    "path": str(p.run.path),
                    "labels": None if p.judged is None else scores_json(p.judged.total)["b"],
                } for p in found.points
            ],
        }
    )  # fmt: skip
