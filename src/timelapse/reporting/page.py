"""`tl.report`: a run, a diff or a sweep as one HTML file that needs nothing else.

Everything that stems from logs and programs is text: the templates escape it, control characters were made visible
before (display.py), and a content security policy in the page allows exactly the style and the script that belong to it, by
their hashes, and no network.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timelapse.charts import Figure, Timeline
from timelapse.charts.style import CSS as CHART_STYLE
from timelapse.compare import Diff, Sweep, open_sweep
from timelapse.display import clean, many
from timelapse.errors import Place, UsageError
from timelapse.reporting.diff_part import diff_part
from timelapse.reporting.redact import Redaction
from timelapse.reporting.run_part import run_part
from timelapse.reporting.sweep_part import sweep_part
from timelapse.run import Run
from timelapse.store.parts import write_part
from timelapse.store.places import local_path

if TYPE_CHECKING:
    from jinja2 import Environment

    from timelapse.compare import Judgement

MARK = "<!-- timelapse report -->"
"""Stands in a report's first line, so that a report is only ever written over a report."""
_SHORT = 16
"""Names of up to so many characters stay on a line."""
_BREAKS = re.compile(r"(?<=[_.:/\[\]])(?=[^_.:/\[\]])|(?<=[a-z0-9])(?=[A-Z])")
_FOLDER = Path(__file__).with_name("templates")
_STYLED = re.compile(r"<style>.*?</style>", re.DOTALL)


@dataclass(frozen=True)
class Report:
    """A finished report. `html` is the whole file; in notebooks it shows itself in a frame."""

    title: str
    html: str

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the file. Raises UsageError (TL830) where something else than a report is in the way, (TL809) for a folder."""
        target = local_path(path, "report")
        if target.is_dir() or str(path).endswith("/"):  # a path forgets the slash
            raise UsageError(
                "a report is one file, and this is a folder", place=Place(str(path)), code="TL809",
                hint=f"name a file in it: {target / 'report.html'}",
            )  # fmt: skip
        if not overwrite:
            check_place(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_part(target, self.html.encode())
        return target

    def _repr_html_(self) -> str:
        return (
            f'<iframe sandbox="allow-scripts" title="{escape(self.title)}" width="100%" height="720" '
            f'style="border:1px solid #8884;border-radius:8px" srcdoc="{escape(self.html)}"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<Report {self.title}: {len(self.html):,} characters>"


def check_place(path: Path) -> None:
    """Raise UsageError (TL830) where something else than a report is in the way."""
    if not path.exists():
        return
    head = b""
    if path.is_file():
        with path.open("rb") as file:
            head = file.read(200)
    if MARK.encode() not in head:
        raise UsageError(
            "something that is not a report is there", place=Place(str(path)), code="TL830",
            hint="choose another place with --report or --out (-o), or give --overwrite",
        )  # fmt: skip


def report(
    of: Run | Diff | Sweep | str | Path, path: str | Path | None = None, *, redact: Iterable[str] = (), by: Sequence[str] = (),
    examples: int = 20, judged: Judgement | None = None, names: tuple[str, str] | None = None, overwrite: bool = False,
) -> Report:  # fmt: skip
    """The report of a run, a diff or a sweep (or the path of a run or of a sweep's folder); written to `path` where
    one is given.

    `redact` names fields and parameters whose values stay out (`"sender"`, `"Spam.sender"`). For a diff, `by` names
    fields to count by, `judged` is what `Diff.judge` said of labels, `names` what both sides are called. `examples` is the
    number of rows or differences shown of each record type. An earlier report at `path` is replaced, anything else only
    with `overwrite`. Raises UsageError: TL816 for names that are not there, TL830 for a path that is taken, TL870 for a
    folder whose runs are no sweep.
    """
    found = of if isinstance(of, Run | Diff | Sweep) else _opened(Path(of))
    if isinstance(found, Sweep):
        redaction = Redaction.of(redact, [p.run for p in found.points])
        title = f"{found.program}: {many(len(found.points), 'setting', 'settings')}"
        swept = sweep_part(found, redaction)
        first = run_part(found.points[0].run, redaction, 0, with_states=False)
        html = rendered(
            "page.html", title, run=first, diff=None, other=None, sweep=swept, redaction=redaction
        )
    elif isinstance(found, Run):
        redaction = Redaction.of(redact, [found])
        title = f"{found.program}: a run over {many(found.events, 'event', 'events')}"
        html = rendered(
            "page.html", title, run=run_part(found, redaction, examples), diff=None, other=None, sweep=None,
            redaction=redaction,
        )  # fmt: skip
    else:
        redaction = Redaction.of(redact, [found.a, found.b])
        compared = diff_part(found, redaction, by, examples, names, judged)
        both = [run_part(run, redaction, 0, with_states=False) for run in (found.a, found.b)]
        title = f"{found.a.program}: two versions over {many(found.a.events, 'event', 'events')}"
        html = rendered(
            "page.html", title, run=both[1], diff=compared, other=both[0], sweep=None, redaction=redaction
        )
    made = Report(clean(title), html)
    if path is not None:
        made.save(path, overwrite=overwrite)
    return made


def _opened(path: Path) -> Run | Sweep:
    """What lies at a path: a run, or a folder of runs that a sweep made."""
    if not (path / "run.json").exists() and next(path.glob("*/run.json"), None) is not None:
        return open_sweep(path)
    return Run.open(path)


@cache
def _assets() -> tuple[str, str]:
    """The page's style and script."""
    from timelapse.explanation.svg import STYLE as PLAN_STYLE

    style = (_FOLDER / "report.css").read_text(encoding="utf-8")
    script = (_FOLDER / "report.js").read_text(encoding="utf-8")
    return f"\n{CHART_STYLE}{PLAN_STYLE}{style}", f"\n{script}"


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, extensions=[], finalize=_visible,
    )  # fmt: skip
    made.filters["n"] = lambda value: f"{value:,}"
    made.filters["clean"] = clean
    made.filters["name"] = _name
    made.filters["number"] = lambda value: f"{value:.6g}" if isinstance(value, float) else f"{value:,}"
    made.globals["chart"] = _chart
    made.globals["drawing"] = _drawing
    made.globals["bar"] = _bar
    made.globals["picture"] = _picture
    return made


def _visible(value: Any) -> Any:
    """Whatever a template puts out: control characters show, also where nobody thought of them."""
    from markupsafe import Markup

    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _name(text: object) -> Any:
    """A name that, where it is long, may be broken after `_`, `.`, `:`, `/`, `[` and before capitals, and nowhere else."""
    shown = clean(text)
    parts = [shown] if len(shown) <= _SHORT else _BREAKS.split(shown)
    return _safe("<wbr>".join(escape(part) for part in parts))


def rendered(template: str, title: str, **parts: Any) -> str:
    """A template with the reports' style, script and policy."""
    style, script = _assets()
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    return _environment().get_template(template).render(
        title=clean(title), mark=_safe(MARK), policy=policy, style=_safe(style), script=_safe(script), **parts
    )  # fmt: skip


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _safe(text: str) -> Any:
    """Markup that this package made itself."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704 nothing from a log or program comes here unescaped


def _chart(one: Timeline) -> Any:
    """A timeline: drawn here for paper and for readers without scripts, with the counts for the script."""
    data = json.dumps(one.data(), ensure_ascii=True, separators=(",", ":"))
    data = data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return _safe(
        f'<figure class="chart" tabindex="0">{one.figure().markup(style=False)}'
        f'<script type="application/json">{data}</script></figure>'
    )


def _drawing(one: Figure) -> Any:
    """A picture that needs no script."""
    return _safe(one.markup(style=False))


def _bar(percent: float, css: str = "c1") -> Any:
    width = min(100.0, max(0.6 if percent > 0 else 0.0, percent))
    return _safe(
        f'<svg class="tlc bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="{escape(css)}" width="{width:g}" height="6"/></svg>'
    )


def _picture(svg: str) -> Any:
    """The plan's picture: its own style is in the page's, and it may not bring attributes that are style."""
    bare = _STYLED.sub("", svg, count=1)
    return _safe(bare.replace(' style="max-width:100%;height:auto"', "", 1))


__all__ = ["Report", "report"]
