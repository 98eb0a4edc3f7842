"""What ingests noticed of a log's sources, for people: each thing once, however many ingests saw it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from timelapse.display import many

if TYPE_CHECKING:
    from timelapse.segments.manifest import SourceEntry

_LAYOUTS = 6
"""Changes of layout that are shown of a source."""
_WARNINGS = 20
"""Warnings that are shown of a log, the newest ones."""


def print_noticed(sources: Sequence[SourceEntry], before: Sequence[SourceEntry] = ()) -> None:
    """Tell of fields without a column, changes of layout, lateness, rows in conflict and beyond the bounds, times that look wrong.

    `sources`: those of an ingest, or of all of a log's ingests, in their order. `before`: those of earlier ingests: what these told of a source,
    that no file has a column for a field, is not told again.
    """
    from timelapse.cli.console import clean, line

    _print_empty(sources, before)
    for source in sources:
        for layout in source.layouts[:_LAYOUTS]:
            line(("layout   ", "yellow"), " " + clean(layout))
        if len(source.layouts) > _LAYOUTS:
            line(
                ("layout   ", "yellow"),
                f" and {len(source.layouts) - _LAYOUTS:,} more changes: timelapse log --json",
            )
    _print_lateness(sources)
    for kind in dict.fromkeys(s.type for s in sources):
        own = [s for s in sources if s.type == kind]
        if conflicts := sum(s.conflicts for s in own):
            unique = dict.fromkeys(f for s in own if s.conflicts for f in s.source.get("unique", []))
            line(
                ("conflicts", "yellow"),
                f" {many(conflicts, 'row', 'rows')} of {kind} with the {', '.join(unique)} of another event, unlike it: in the quarantine",
            )
        if outside := sum(s.outside for s in own):
            line(
                ("outside  ", "yellow"),
                f" {many(outside, 'row', 'rows')} of {kind} {bounds_of(own)}: in the quarantine",
            )
    warnings = list(dict.fromkeys(warning for source in sources for warning in source.warnings))
    for warning in warnings[-_WARNINGS:]:
        line(("warning  ", "yellow"), " " + clean(warning))
    if len(warnings) > _WARNINGS:
        line(
            ("warning  ", "yellow"), f" and {len(warnings) - _WARNINGS:,} earlier ones: timelapse log --json"
        )


def bounds_of(sources: Sequence[SourceEntry]) -> str:
    """Beyond which bounds the rows are that some sources put aside for their time."""
    own = [s.source for s in sources if s.outside]
    starts = any("from_start" in one for one in own)
    options = [
        option for name, option in (("min_ts", "--min-ts"), ("max_ts", "--max-ts"))
        if any(name in one and not (name == "min_ts" and "from_start" in one) for one in own)
    ]  # fmt: skip
    beyond = f"beyond {' and '.join(options)}" if options else ""
    return " or ".join([*(["before the log's start"] if starts else []), *([beyond] if beyond else [])])


def _print_empty(sources: Sequence[SourceEntry], before: Sequence[SourceEntry]) -> None:
    """The fields for which files had no column, of all sources of a type together."""
    from timelapse.cli.console import clean, line

    told = {
        (*place, name)
        for place in dict.fromkeys((s.type, s.position) for s in before)
        for (_, name), (lacking, files) in _without(
            [s for s in before if (s.type, s.position) == place]
        ).items()
        if lacking >= files
    }
    every = _without([*before, *sources])
    for (kind, name), (lacking, files) in _without(sources).items():
        lack = [s for s in sources if s.type == kind and name in s.without]
        if all((kind, s.position, name) in told for s in lack):
            continue
        of_all, all_files = every[kind, name]
        column = lack[0].source.get("fields", {}).get(name, name)
        shown = repr(column) if isinstance(column, str) else " or ".join(map(repr, column))
        where = (
            f"everywhere: there is no column {shown}"
            if of_all >= all_files
            else f"in {lacking:,} of {files:,} files that have no column {shown}"
        )
        line(("empty    ", "yellow"), clean(f" {kind}.{name} is None {where}"))


def _without(sources: Sequence[SourceEntry]) -> dict[tuple[str, str], tuple[int, int]]:
    """Per type and field without a column in some files: how many these are, of how many."""
    files: dict[str, int] = {}
    lacking: dict[tuple[str, str], int] = {}
    for source in sources:
        files[source.type] = files.get(source.type, 0) + source.files
        for name, count in source.without.items():
            lacking[source.type, name] = lacking.get((source.type, name), 0) + count
    return {key: (count, files[key[0]]) for key, count in lacking.items()}


def _print_lateness(sources: Sequence[SourceEntry]) -> None:
    """How late rows came: of each source as its last ingest tells it, and the most of all."""
    from timelapse.cli.console import line
    from timelapse.cli.view import span

    own: dict[tuple[str, int], list[SourceEntry]] = {}
    for source in sources:
        if source.late:
            own.setdefault((source.type, source.position), []).append(source)
    for (kind, _), several in own.items():
        told = ", ".join(f"{name} {span(value)}" for name, value in several[-1].late.items())
        most = max(value for one in several for value in one.late.values())
        more = f" (in the last of {len(several):,} ingests; {span(most)} in all)" if len(several) > 1 else ""
        line(("lateness ", "dim"), f" {kind}: {told}{more}")
