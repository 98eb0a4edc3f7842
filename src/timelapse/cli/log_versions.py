"""`timelapse log --versions`, `--forget`, `--keep`, `--expire` and `--uses`."""

from __future__ import annotations

import dataclasses
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timelapse.display import many
from timelapse.errors import LogError, UsageError

if TYPE_CHECKING:
    from timelapse.log import Log

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


def change_versions(
    log: Log,
    *,
    forget: str,
    keep: str,
    expire: str,
    uses: list[Path] | None,
    version: int | None,
    as_json: bool,
) -> None:
    """Forget events, remove old ones and old versions, list versions and what stands on them. Raises UsageError, LogError."""
    from timelapse.cli.console import print_json

    if version is not None and (forget or expire or keep):
        raise UsageError(
            "--forget, --keep and --expire are of the newest version",
            hint="leave out --version",
            code="TL808",
        )
    if forget and keep:
        raise UsageError("--forget and --keep exclude each other", hint="one after the other", code="TL808")
    age = seconds_of("--expire", expire) if expire else None
    length = seconds_of("--keep", keep) if keep else None
    before = log.count
    told: dict[str, Any] = {}
    if forget:
        told = _forget(log, forget, uses or [], as_json=as_json)
    elif length is not None:
        log.keep(length)
    log = log if version is not None else log.open(log.path)
    gone = [] if age is None else log.expire(age)
    if not as_json and length is not None:
        _tell_kept(log, before - log.count, keep)
    if uses is not None and not forget:
        told["uses"] = _uses(log, uses, as_json=as_json)
    if as_json:
        body = {
            "forgotten": before - log.count if forget else 0, "kept_out": before - log.count if keep else 0, "removed": gone,
            "versions": [dataclasses.asdict(v) for v in log.versions()],
        }  # fmt: skip
        print_json({**body, **told})
        return
    if age is not None:
        from timelapse.cli.console import line

        line(f"removed versions: {', '.join(map(str, gone)) or 'none'}")
    _print(log)


def _forget(log: Log, forget: str, folders: list[Path], *, as_json: bool) -> dict[str, Any]:
    """Forget events, in the quarantine and in caches too; tell what remains."""
    from timelapse.cache.store import open_store
    from timelapse.cli.console import clean, line
    from timelapse.run.citing import entries_over, runs_over
    from timelapse.segments.versions import forget as forgotten

    try:
        found = forgotten(log.path, forget)
    except LogError as error:
        raise _of_hashes(error, log, forget) from None
    newest = log.open(log.path)
    store = open_store()
    entries = [] if store is None else [entry for _, entry in entries_over(newest, store)]
    for entry in entries:
        assert store is not None
        store.remove(entry.head.key)
    places = folders or _default_folders(log)
    runs = runs_over(newest, places)
    if as_json:
        return {
            "quarantine_hidden": found.hidden, "quarantine_searched": found.looked, "caches_removed": len(entries),
            "runs": [{"run": r.place, "version": r.version} for r in runs], "searched": [str(p) for p in places],
        }  # fmt: skip
    line(
        (many(found.events, "event", "events"), "bold"),
        f" {'is' if found.events == 1 else 'are'} not in version {newest.version}; events behind have other numbers",
    )
    if found.looked:
        line(
            f"{many(found.hidden, 'row', 'rows')} of the quarantine told such a value: text and reason were taken out"
        )
    else:
        line(
            ("warning  ", "yellow"),
            " the condition names no value to look for in the quarantine: its rows stay as they are",
        )
    line(f"{many(len(entries), 'entry', 'entries')} of the cache over this log removed")
    older = [v.number for v in newest.versions()[:-1]]
    if older:
        line(
            ("warning  ", "yellow"),
            f" still in {'version' if len(older) == 1 else 'versions'} {', '.join(map(str, older))}: timelapse log {log.path} --expire 0d",
        )
    for run in runs:
        line(
            ("warning  ", "yellow"),
            clean(f" the run {run.place} is over version {run.version or '?'}, and may tell of them"),
        )
    looked = ", ".join(map(str, places))
    line(
        ("remains  ", "dim"),
        clean(
            f" runs elsewhere than below {looked} (--below DIR searches there), journals of live runs, source files, copies"
        ),
    )
    return {}


def _of_hashes(error: LogError, log: Log, forget: str) -> LogError:
    """The error, with what a condition on fields that were hashed has to name."""
    from timelapse.ingest.private import HASH_KEY, hashed, print_in
    from timelapse.segments.where import Where

    told = {}
    condition = Where(forget, "--forget")
    ingests = log.manifest.ingests if error.code == "TL409" else []
    sources = [source for entry in ingests for source in entry.sources]
    for name, variable, type_ in dict.fromkeys(
        (name, s.source.get("hash_key", HASH_KEY), s.type) for s in sources for name in s.source.get("hash", [])
    ):  # fmt: skip
        for value in condition.values_of(name):
            told[name, value] = hashed(value, variable, print_in(ingests, variable, type_))
    if not told:
        return error
    known = [f"{value!r} is {hash_!r} there" for (_, value), hash_ in told.items() if hash_ is not None]
    hint = (
        "; ".join(known) if known else "export the key of its hashes, and this says what the values are there"
    )
    fields = ", ".join(sorted({name for name, _ in told}))
    return LogError(
        f"{error.message}; this log has hashes of {fields}", place=error.place, code=error.code, hint=hint
    )


def _default_folders(log: Log) -> list[Path]:
    """Where runs over a log are likely: beside it, beside its folder, and here."""
    parent = log.path.resolve().parent
    found = [Path.cwd(), parent]
    if (runs := parent.parent / "runs").is_dir():
        found.append(runs)
    return [p for n, p in enumerate(found) if p not in found[:n]]


def _uses(log: Log, folders: list[Path], *, as_json: bool) -> dict[str, Any]:
    """What stands on a log, and what of it holds."""
    from timelapse.cache.store import open_store
    from timelapse.cli.console import clean, line
    from timelapse.run.citing import entries_over, runs_over

    places = folders or _default_folders(log)
    store = open_store()
    found = [
        *runs_over(log, places),
        *([] if store is None else [one for one, _ in entries_over(log, store)]),
    ]
    if not as_json:
        for one in found:
            place = one.place if one.kind == "run" else one.place[:12]
            told = f"{one.program} over version {one.version or '?'}: {one.holds}"
            line((f"{one.kind:<6}", "bold"), clean(f" {place}  "), clean(told))
        line(
            ("searched ", "dim"),
            clean(f"{', '.join(map(str, places))}, and the cache: {len(found):,} stand on this log"),
        )
    return {
        "searched": [str(p) for p in places],
        "found": [{**dataclasses.asdict(one), "holds": one.holds} for one in found],
    }


def _tell_kept(log: Log, gone: int, keep: str) -> None:
    from timelapse.cli.console import line

    if not gone:
        line(f"all events are of the last {keep}")
        return
    line(
        (many(gone, "event", "events"), "bold"),
        f" more than {keep} before the log's end {'is' if gone == 1 else 'are'} not in version {log.version}",
    )
    if bad := log.quarantine().num_rows:
        line(
            ("remains  ", "dim"),
            f" {many(bad, 'row', 'rows')} of the quarantine, of any age, for want of a time",
        )
    line(
        ("warning  ", "yellow"),
        " a replay of it begins with empty states at its first event; events have other numbers",
    )


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


def seconds_of(option: str, text: str) -> float:
    """Seconds of `30d`, `12h`, `90m`, `5s`. Raises UsageError (TL808)."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([dhms])", text.strip())
    if found is None:
        raise UsageError(f"{option} {text!r} is no age", hint="30d, 12h, 90m; 0d is none", code="TL808")
    return float(found[1]) * _UNITS[found[2]]
