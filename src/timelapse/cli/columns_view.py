"""Which columns sources had, from which day to which, as ingest and `timelapse log` print them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from timelapse.segments.columns import Column, columns_of
from timelapse.segments.manifest import IngestEntry, SourceEntry

_NAMES, _LINES, _DAYS = 12, 8, 4
"""So many names are shown for the same days, so many lines for a type, and so many stretches of days on one."""


def print_columns(ingests: Sequence[IngestEntry], types: Sequence[str] | None = None) -> None:
    """The columns of each event type's sources, those of the same days together, over some ingests. `types`: only of these."""
    from timelapse.cli.console import clean, line

    for kind, sources in _by_type(ingests, types).items():
        groups: dict[str, list[str]] = {}
        for column in _columns(sources):
            name = f"{column.name} {column.type}".rstrip() + ("" if column.used else " (not used)")
            groups.setdefault(_days(column), []).append(name)
        by = _days_by(sources)
        told = f", days by {' and '.join(by)}" if by else ""
        for number, (days, names) in enumerate(list(groups.items())[:_LINES]):
            more = f" and {len(names) - _NAMES:,} more" if len(names) > _NAMES else ""
            text = f"{kind}: {', '.join(names[:_NAMES])}{more}: {days}{told if not number else ''}"
            line(("columns  ", "dim"), " " + clean(text))
        if len(groups) > _LINES:
            line(("columns  ", "dim"), f" {kind}: and {len(groups) - _LINES:,} more: timelapse log --json")


def columns_json(ingests: Sequence[IngestEntry], types: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The same, all of it."""
    return [
        {"type": kind, "days_by": _days_by(sources), "columns": [c.to_json() for c in _columns(sources)]}
        for kind, sources in _by_type(ingests, types).items()
    ]  # fmt: skip


def _days_by(sources: Sequence[SourceEntry]) -> list[str]:
    """What tells of which days files are, each once: an ingest may name several ("folders and events")."""
    return sorted({how for one in sources if one.days_by for how in one.days_by.split(" and ")})


def _by_type(ingests: Sequence[IngestEntry], types: Sequence[str] | None) -> dict[str, list[SourceEntry]]:
    found: dict[str, list[SourceEntry]] = {}
    for source in (source for one in ingests for source in one.sources if source.columns):
        if types is None or source.type in types:
            found.setdefault(source.type, []).append(source)
    return found


def _columns(sources: Sequence[SourceEntry]) -> list[Column]:
    """A column that one source uses is used."""
    layouts = [layout for source in sources for layout in source.columns]
    used = {c for s in sources for one in s.columns for c in one.columns if c not in s.unused}
    return columns_of(layouts, {c for s in sources for c in s.unused} - used)


def _days(column: Column) -> str:
    said = [
        (one.first if one.first == one.last else f"{one.first} to {one.last}")
        + ("" if one.all else " in some files")
        for one in column.days
    ]
    more = f" and {len(said) - _DAYS:,} more" if len(said) > _DAYS else ""
    return ", ".join(said[:_DAYS]) + more if said else "in files of unknown days"
