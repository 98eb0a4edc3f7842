"""`timelapse cache`: what is kept for edit and rerun."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from timelapse.cli.options import Json, examples

if TYPE_CHECKING:
    from timelapse.cache.store import Entry, Store


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=examples("timelapse cache", "timelapse cache clear", "timelapse cache limit 5GB"))(
        cache
    )


def cache(
    action: Annotated[
        str, typer.Argument(metavar="[list|clear|limit]", help="What to do.", show_default=False)
    ] = "list",
    size: Annotated[
        str | None, typer.Argument(metavar="[SIZE]", help="For limit: 5GB, 500MB.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Show, clear or limit what replays keep so that an edited program runs again faster.

    Entries are found by a hash of all they depend on, checked when they are used, and removed when the limit is
    reached, the one used longest ago first. The folder is $TIMELAPSE_STATES, or states in Timelapse's cache;
    TIMELAPSE_STATES=off switches it off.
    """
    from timelapse.cache.store import open_store, parse_size
    from timelapse.cli.console import line, print_json
    from timelapse.cli.view import size as size_text
    from timelapse.errors import UsageError, meant

    if action not in ("list", "clear", "limit") or (size is not None) != (action == "limit"):
        raise UsageError(
            f"`timelapse cache {action}{f' {size}' if size else ''}` is no command",
            hint=f"{meant(action, ('list', 'clear', 'limit'))}timelapse cache, timelapse cache clear, timelapse cache limit 5GB",
            code="TL813",
        )  # fmt: skip
    store = open_store()
    if store is None:
        raise UsageError("the cache is switched off", hint="unset TIMELAPSE_STATES", code="TL813")
    if action == "clear":
        gone = store.clear()
        if as_json:
            print_json({"removed": gone})
        else:
            line(f"removed {gone} {'entry' if gone == 1 else 'entries'}")
        return
    if action == "limit":
        assert size is not None
        limit = parse_size(size)
        store.set_limit(limit)
        if as_json:
            print_json({"limit": limit})
        else:
            line(f"the cache keeps at most {size_text(limit)}")
        return
    _show(store, [e for e in store.entries() if e.head.files], as_json=as_json)


def _show(store: Store, entries: list[Entry], *, as_json: bool) -> None:
    from timelapse.cli.console import line, print_json
    from timelapse.cli.view import size, took

    now = time.time()
    if as_json:
        print_json({
            "folder": str(store.root), "limit": store.limit(), "bytes": sum(e.head.bytes for e in entries),
            "entries": [
                {
                    "key": e.head.key, "kind": e.head.kind, **e.head.about, "bytes": e.head.bytes,
                    "files": len(e.head.files), "hits": e.hits, "created": e.head.created, "used": e.used,
                }
                for e in entries
            ],
        })  # fmt: skip
        return
    for e in entries:
        about = e.head.about
        hits = f"{e.hits} {'hit' if e.hits == 1 else 'hits'}"
        line(
            (f"{e.head.key[:12]}  ", "dim"), (f"{e.head.kind:<7}", "bold"), f"{size(e.head.bytes):>9}  ",
            f"{took(max(0.0, now - e.used)):>8} ago  {hits:<8}  ", about.get("program", ""),
            (f"  {about.get('log', '')}", "dim"),
        )  # fmt: skip
    total = sum(e.head.bytes for e in entries)
    count = f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}"
    line(f"{count}, {size(total)} of at most {size(store.limit())}  ", (str(store.root), "dim"))
