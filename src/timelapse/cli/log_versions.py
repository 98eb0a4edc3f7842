"""`timelapse log --versions`, `--forget` and `--expire`."""

from __future__ import annotations

import dataclasses
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from timelapse.errors import UsageError

if TYPE_CHECKING:
    from timelapse.log import Log

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


def change_versions(log: Log, *, forget: str, expire: str, version: int | None, as_json: bool) -> None:
    """Forget events, remove old versions, and list those that are there. Raises UsageError, LogError."""
    from timelapse.cli.console import line, print_json

    if version is not None and (forget or expire):
        raise UsageError(
            "--forget and --expire are of the newest version", hint="leave out --version", code="TL808"
        )
    age = _seconds(expire) if expire else None
    before = log.count
    if forget:
        log = log.forget(forget)
    gone = [] if age is None else log.expire(age)
    if as_json:
        print_json(
            {
                "forgotten": before - log.count,
                "removed": gone,
                "versions": [dataclasses.asdict(v) for v in log.versions()],
            }
        )
        return
    if forget:
        line(
            (f"{before - log.count:,} events", "bold"),
            f" are not in version {log.version}; events behind them have other numbers",
        )
        older = [v.number for v in log.versions()[:-1]]
        if older:
            line(
                ("warning  ", "yellow"), f" versions {', '.join(map(str, older))} still have them: timelapse log {log.path} --expire 0d",
            )  # fmt: skip
        line(
            ("warning  ", "yellow"),
            " runs over earlier versions, caches and rows in the quarantine are not looked through",
        )
    if age is not None:
        line(f"removed versions: {', '.join(map(str, gone)) or 'none'}")
    _print(log)


def _print(log: Log) -> None:
    from rich.table import Table

    from timelapse.cli.console import console
    from timelapse.cli.view import moment, size

    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("version", "events", "added", "as before up to", "last event", "own files", "replaced"):
        table.add_column(name, justify="right")
    for v in log.versions():
        table.add_row(
            str(v.number), f"{v.count:,}", f"{v.added:+,}", "" if v.rewritten is None else f"{v.rewritten:,}",
            "" if v.ts_last is None else moment(v.ts_last), size(v.own_bytes) if v.own_bytes else "",
            "" if v.replaced is None else f"{datetime.fromtimestamp(v.replaced, UTC):%Y-%m-%d %H:%M}",
        )  # fmt: skip
    console().print(table)


def _seconds(text: str) -> float:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([dhms])", text.strip())
    if found is None:
        raise UsageError(
            f"--expire {text!r} is no age", hint="30d, 12h, 90m; 0d removes all but the newest", code="TL808"
        )
    return float(found[1]) * _UNITS[found[2]]
