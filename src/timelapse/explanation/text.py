"""An explanation as a plain table and for the terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

from timelapse.display import foretold
from timelapse.explanation.summary import advice_at, because_of, of_use, summary, time_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from timelapse.explanation.model import Explanation, Note, OutputRow, PassRow, StateRow

COLOURS = {"scan": "green", "by key": "cyan", "iterate": "yellow", "chain": "red"}
_SEVERITY = {"error": "bold red", "warning": "yellow", "info": "cyan"}


def clean(text: str) -> str:
    """Text without control characters, on one line."""
    return "".join(c if not unicodedata.category(c).startswith("C") else " " for c in text)


def as_text(e: Explanation) -> str:
    """Everything, in columns."""
    lines = [_title(e)]
    lines.extend(f"  {line}" for line in e.doc.splitlines()[:1])
    lines.append("")
    lines.extend(f"{word:<9} {text}" for word, text in summary(e))
    lines.append("")
    lines.extend(_states(e))
    lines.append("")
    lines.extend(_passes(e))
    if e.outputs:
        lines.append("")
        rows = [("output", "from", "line", "with")]
        rows += [(o.record, _from(o), ", ".join(o.places), ", ".join(o.states)) for o in e.outputs]
        lines.extend(table(rows))
    lines.append("")
    lines.extend(law_lines(e))
    for title, notes in (("trusted calls", e.trusted), ("diagnostics", e.diagnostics)):
        if notes:
            lines.append("")
            lines.append(title)
            lines.extend(f"  {line}" for note in notes for line in note_lines(note))
    return "\n".join(clean(line).rstrip() for line in lines) + "\n"


def _title(e: Explanation) -> str:
    return f"{e.program}({', '.join(f'{n}: {t}' for n, t in e.params.items())})"


def _states(e: Explanation) -> list[str]:
    if not e.states:
        return ["no states: every slice runs by itself"]
    rows = [("stage", "state", "kind", "strategy", "because", "line")]
    because, advice = because_of(e), advice_at(e)
    rows += [(str(r.stage), r.state, r.kind, r.strategy, because[r.state], r.place) for r in e.states]
    lines = table(rows)
    out = [lines[0]]
    for row, line in zip(e.states, lines[1:], strict=True):
        out.append(line)
        indent = " " * 7
        links = dependency_text(row)
        if links:
            out.append(f"{indent}<- {links}")
        if row.state in advice:
            out.append(f"{indent}{rewrite_text(row, advice[row.state])}")
    return out


def rewrite_text(row: StateRow, names: Sequence[str]) -> str:
    """What to write instead, for a state or several."""
    which = f" ({', '.join(names)})" if len(names) > 1 else ""
    return f"rewrite{which}: {row.rewrite}"


def _from(output: OutputRow) -> str:
    """What puts records of a type out."""
    return ", ".join(output.events) or "ticks"


def dependency_text(row: StateRow) -> str:
    """`friends (condition, rules.py:31)`, one per state that it depends on."""
    found: dict[str, list[str]] = {}
    for d in row.depends_on:
        found.setdefault(d.source, []).append(f"{d.via} {d.place}".strip())
    return "; ".join(f"{name} ({', '.join(dict.fromkeys(why))})" for name, why in found.items())


def _passes(e: Explanation) -> list[str]:
    rows = [("pass", "states", "reads", "cost")]
    rows += [pass_cells(p) for p in e.passes]
    return [*table(rows), *kernel_lines(e)]


def kernel_lines(e: Explanation) -> list[str]:
    """Which passes run compiled, which as Python and why, handler by handler where they differ."""
    known = [p for p in e.passes if p.kernel]
    if not known:
        return []
    lines = ["", f"compiled {sum(p.kernel == 'compiled' for p in known)}/{len(known)} passes"]
    for p in known:
        name = "final" if p.stage is None else f"pass {p.stage}"
        if p.kernel == "compiled":
            lines.append(f"  {name}: compiled ({', '.join(h.handler for h in p.handlers if h.compiled)})")
            for h in p.handlers:
                if not h.compiled:
                    at = f" [{h.place}]" if h.place else ""
                    lines.append(f"    as Python, at its events: {h.why}{at}")
            continue
        lines.append(f"  {name}: as Python: {p.why}")
        refused = [h for h in p.handlers if not h.compiled]
        for h in refused:
            at = f" [{h.place}]" if h.place else ""
            lines.append(f"    {h.handler}: {h.why.removeprefix(f'{h.handler}: ')}{at}")
        rest = [h.handler for h in p.handlers if h.compiled]
        if refused and rest:
            lines.append(
                f"    {', '.join(rest)} could be compiled: one handler that cannot keeps the whole pass in Python"
            )
    return lines


def pass_cells(p: PassRow) -> tuple[str, str, str, str]:
    """What a pass is called, finds, reads and costs."""
    reads = ", ".join(f"{n}({', '.join(f)})" for n, f in p.reads.items()) or "nothing"
    if p.rejects:
        reads += f"; may reject {', '.join(p.rejects)}"
    name = "final" if p.stage is None else str(p.stage)
    states = p.strategy if p.stage is None else ", ".join(p.states)
    return name, states, reads, f"{p.cost:.2f}"


def law_lines(e: Explanation) -> list[str]:
    """The mode, and what more cores would gain: the cost law with this program's numbers."""
    lines = []
    counted = [f"{n:,} {name}" for name, n in e.events.items() if n is not None]
    if counted:
        lines.append(f"log       {', '.join(counted)}")
    lines.append(f"mode      {e.mode}: {e.reason}")
    if e.plan.not_whole and e.plan.choices:
        lines.append(f"          not one pass by key: {e.plan.not_whole}")
    lines.append(f"predicted {time_text(e)}")
    parts = [f"{name} {foretold(seconds)}" for name, seconds in e.phases.items() if seconds]
    if e.seconds is not None and parts:
        lines.append(f"          all passes: {', '.join(parts)}")
    if not of_use(e):
        return lines
    law = f"{', '.join(f'{v:.2f} on {n}' for n, v in e.law.items())} cores"
    by = "on one machine" if e.foretold else "by the cost law alone"
    lines.append(f"cores     {by}, of the serial time: {law}")
    # where passes before the final one do not run, what they would cost says nothing of this replay
    if not e.foretold or e.mode == "staged":
        lines.append(f"          {_gain(e)}")
    return lines


def _gain(e: Explanation) -> str:
    """What more cores share out, and what they do not: the work that goes from slice to slice."""
    text = f"all passes before the final one together are {e.total:.2f} of it"
    return text + (f", {e.chained:.2f} of it slice after slice, whatever the cores" if e.chained else "")


def note_lines(note: Note) -> list[str]:
    """A diagnostic on two lines."""
    return [f"{note.code} {note.place} {note.message}", f"      {note.remedy}"]


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as aligned columns, two spaces apart."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def as_rich(e: Explanation) -> RenderableType:
    """For a terminal. User text is never read as markup."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    def text(value: str, style: str = "") -> Text:
        return Text(clean(value), style=style)

    parts: list[RenderableType] = [
        Text.assemble((clean(e.program), "bold"), clean(_title(e)[len(e.program) :]))
    ]
    parts.extend(text(line, "dim") for line in e.doc.splitlines()[:1])
    parts.append(Text(""))
    head = Table(box=None, pad_edge=False, show_header=False)
    head.add_column(style="dim", no_wrap=True)
    head.add_column(overflow="fold")
    for word, said in summary(e):
        head.add_row(text(word), text(said))
    parts += [head, Text("")]
    because, advice = because_of(e), advice_at(e)
    if e.states:
        states = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("stage", "state", "strategy", "because", "line"):
            states.add_column(name, overflow="fold", no_wrap=name in ("stage", "strategy"))
        for row in e.states:
            colour = COLOURS[row.strategy]
            why = text(because[row.state])
            links = dependency_text(row)
            if links:
                why.append(f"\n<- {clean(links)}", style="dim")
            if row.state in advice:
                why.append(f"\n{clean(rewrite_text(row, advice[row.state]))}", style="yellow")
            label = text(row.state, "bold")
            label.append(f"\n{clean(row.kind)}", style="dim")
            states.add_row(str(row.stage), label, text(row.strategy, colour), why, text(row.place, "dim"))
        parts += [states, Text("")]
    passes = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("pass", "states", "reads", "cost"):
        passes.add_column(name, overflow="fold", justify="right" if name == "cost" else "left")
    for p in e.passes:
        cells = pass_cells(p)
        passes.add_row(*(text(c) for c in cells))
    parts.append(passes)
    parts.extend(text(line) for line in kernel_lines(e))
    parts.append(Text(""))
    for output in e.outputs:
        parts.append(
            Text.assemble(
                ("output ", "dim"), (clean(output.record), "bold"),
                clean(f"  from {_from(output)} at {', '.join(output.places)}"),
                clean(f", with {', '.join(output.states)}" if output.states else ""),
            )
        )  # fmt: skip
    parts.extend(text(line) for line in law_lines(e))
    for title, notes in (("trusted calls", e.trusted), ("diagnostics", e.diagnostics)):
        if notes:
            parts += [Text(""), Text(title, style="bold")]
            for note in notes:
                first, second = note_lines(note)
                line = text(first)
                line.stylize(_SEVERITY.get(note.severity, ""), 0, len(note.code))
                parts += [line, text(second, "dim")]
    return Group(*parts)
