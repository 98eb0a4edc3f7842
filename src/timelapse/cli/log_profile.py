"""`timelapse log --profile`: what a log's fields hold, and which keys of a program's states are hot."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from timelapse.display import many

if TYPE_CHECKING:
    from timelapse.log import Log
    from timelapse.progress import Progress
    from timelapse.segments.profile import FieldProfile, Profile

_VALUES = 3
_WIDE = 24


def show_profile(
    log: Log, *, types: list[str], program: str | None, events: int | None, page: Path | None, overwrite: bool, as_json: bool
) -> None:  # fmt: skip
    """Profile a log and show it as text, JSON or a page. Raises UsageError, LogError, HandlerError."""
    from timelapse.cli.console import line, print_json
    from timelapse.cli.progress_view import one_by_one, progress_for
    from timelapse.cli.settings import build_program
    from timelapse.program.versions import load_named
    from timelapse.reporting.page import check_place
    from timelapse.trace.critical import stepped
    from timelapse.trace.hot_keys import hot_keys

    made = None if program is None else build_program(load_named(program), [])
    if page is not None and not overwrite:
        check_place(page)
    with progress_for(as_json) as progress:
        profile = _timed(progress, log, types)
        if made is not None:
            progress.note(f"hot keys of {program} ...")
            advance = one_by_one(progress, stepped(made, log, events)[1], "counting what they used")
            profile = dataclasses.replace(profile, hot=hot_keys(made, log, events=events, advance=advance))
    if page is not None:
        from timelapse.reporting.profile_page import profile_page

        profile_page(profile).save(page, overwrite=overwrite)
    if as_json:
        print_json(profile.to_json())
        return
    _print(profile)
    if page is not None:
        line(("page ", "dim"), str(page))


def _timed(progress: Progress, log: Log, types: list[str]) -> Profile:
    import time

    began = time.perf_counter()
    progress.stage("profile", log.count)
    profile = log.profile(*types, advance=lambda done: progress.advance("profile", done, log.count))
    progress.finish("profile", time.perf_counter() - began)
    return profile


def _print(profile: Profile) -> None:
    from rich.table import Table

    from timelapse.cli.console import clean, console, line, one_line
    from timelapse.cli.view import share

    for kind in profile.types:
        line((kind.name, "bold"), f"  {many(kind.events, 'event', 'events')}")
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name, right in (
            ("field", False),
            ("type", False),
            ("empty", True),
            ("distinct", True),
            ("least", False),
            ("greatest", False),
            ("mean", True),
            ("most frequent", False),
        ):
            table.add_column(name, justify="right" if right else "left", overflow="fold")
        for one in kind.fields:
            table.add_row(
                clean(one.name), one.type, f"{one.empty:,} ({share(one.empty, one.events)})" if one.empty else "",
                f"{'~' if one.distinct_error else ''}{one.distinct:,}", clean(one_line(one.least, _WIDE)),
                clean(one_line(one.most, _WIDE)), "" if one.mean is None else f"{one.mean:.6g}", clean(_frequent(one)),
            )  # fmt: skip
        console().print(table)
    for state in () if profile.hot is None else profile.hot.states:
        assert profile.hot is not None
        line(
            (f"{profile.hot.program}.{state.state}", "bold"),
            f"  {state.operations:,} operations on {state.keys:,} keys, over the first {profile.hot.events:,} of {profile.hot.of:,} events",
        )
        for key in state.hot:
            line(f"  {key.count:>9,} {share(key.count, state.operations):>6}  ", clean(key.key))
    for text in profile.warnings:
        line(("gap      ", "yellow"), " " + clean(text))
    if any(one.distinct_error for kind in profile.types for one in kind.fields):
        error = max(one.distinct_error for kind in profile.types for one in kind.fields)
        line(
            ("~ ", "dim"),
            f"an estimate: standard error {100 * error:.1f}%. Counts of frequent values are lower bounds where they end in +",
        )
    line(("per day: ", "dim"), "--json, or --page FILE.html")


def _frequent(one: FieldProfile) -> str:
    from timelapse.cli.console import one_line

    return ", ".join(
        f"{one_line(v.value, _WIDE)} ({v.count:,}{'+' if v.error else ''})" for v in one.frequent[:_VALUES]
    )
