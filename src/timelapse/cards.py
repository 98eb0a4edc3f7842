"""Rich representations: the same card for notebooks (HTML) and for terminals (rich). What it shows is text, never markup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from timelapse.display import clean, one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from timelapse.charts import Figure

_LONGEST = 300


@dataclass(frozen=True)
class Table:
    """Rows of texts. Columns named in `right` are numbers."""

    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[str, ...] = ()


@dataclass(frozen=True)
class Card:
    """A title, what it is, facts (name and text), a table, pictures (which a terminal leaves out)."""

    title: str
    about: str = ""
    facts: Sequence[tuple[str, str]] = ()
    table: Table | None = None
    figures: Sequence[Figure] = ()

    def html(self) -> str:
        """For notebooks."""
        parts = [f'<div style="font-size:1.1em;font-weight:600">{_e(self.title)}</div>']
        if self.about:
            parts.append(f'<div style="opacity:.7;margin-bottom:4px">{_e(self.about)}</div>')
        if self.facts:
            rows = "".join(
                f'<tr style="background:none"><td style="text-align:left;opacity:.7;padding:1px 14px 1px 0">{_e(n)}</td>'
                f'<td style="text-align:left;padding:1px 0">{_e(t)}</td></tr>'
                for n, t in self.facts
            )
            parts.append(f'<table style="border:0;margin:4px 0">{rows}</table>')
        if self.table is not None:
            parts.append(self._table(self.table))
        parts += [f'<div style="max-width:900px">{figure.svg}</div>' for figure in self.figures]
        return f'<div class="timelapse">{"".join(parts)}</div>'

    @staticmethod
    def _table(table: Table) -> str:
        sides = ["right" if n in table.right else "left" for n in table.names]
        head = "".join(
            f'<th style="text-align:{s};padding:2px 14px 2px 0">{_e(n)}</th>'
            for n, s in zip(table.names, sides, strict=True)
        )
        body = "".join(
            "<tr>"
            + "".join(
                f'<td style="text-align:{s};padding:2px 14px 2px 0">{_e(c)}</td>'
                for c, s in zip(row, sides, strict=True)
            )
            + "</tr>"
            for row in table.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def rich(self) -> RenderableType:
        """For terminals."""
        from rich.console import Group
        from rich.table import Table as RichTable
        from rich.text import Text

        parts: list[Any] = [Text(one_line(self.title, _LONGEST), style="bold")]
        if self.about:
            parts.append(Text(one_line(self.about, _LONGEST), style="dim"))
        if self.facts:
            facts = RichTable(box=None, pad_edge=False, show_header=False)
            facts.add_column(style="dim", no_wrap=True)
            facts.add_column()
            for name, text in self.facts:
                facts.add_row(Text(one_line(name, _LONGEST)), Text(one_line(text, _LONGEST)))
            parts.append(facts)
        if self.table is not None:
            rows = RichTable(box=None, pad_edge=False)
            for name in self.table.names:
                rows.add_column(Text(clean(name)), justify="right" if name in self.table.right else "left")
            for row in self.table.rows:
                rows.add_row(*(Text(one_line(c, _LONGEST)) for c in row))
            parts.append(rows)
        return Group(*parts)


def _e(text: str) -> str:
    return escape(one_line(text, _LONGEST))
