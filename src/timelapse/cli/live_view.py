"""How a live run goes, on the terminal, until it ends."""

from __future__ import annotations

import shlex
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from timelapse.streaming.live import Live
    from timelapse.streaming.serve.listening import Listening


@contextmanager
def ending_on_sigterm(run: Live) -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does meanwhile."""
    if threading.current_thread() is not threading.main_thread():  # no other may
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: run.end())
    try:
        yield
    finally:  # None: it was set by no Python code, which cannot be set again
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


_EVERY = 10.0


STOPPING = "stopping after this epoch; Ctrl-C again ends at once, and loses nothing"


def watch(run: Live, progress: Any, stopping: str = STOPPING) -> None:
    """Say how it goes until it ends, or somebody presses Ctrl-C; what is said then."""
    from timelapse.streaming.serve.status import status

    said = time.monotonic()
    first = True
    try:
        while not run.wait(0.5):
            now = time.monotonic()
            if now - said < (1.5 if first else _EVERY):
                continue
            said, first = now, False
            progress.note(line_of(status(run)))
    except KeyboardInterrupt:
        progress.note(stopping)
        run.end()
        while not run.wait(0.5):
            pass


def line_of(found: dict[str, Any]) -> str:
    """One line of how it goes."""
    from timelapse.display import many

    if "epoch" not in found:
        return f"{found['state']}: no rows yet"
    parts = [
        f"epoch {found['epoch']:,}", many(found["rows"], "row", "rows"), f"{found['rows_per_second']:,.0f} rows/s",
        f"complete up to {found['complete_text'] or '-'}",
    ]  # fmt: skip
    for name, what in (
        ("waiting_rows", "wait"), ("late", "late"), ("stale", "too late to be corrected"), ("aside", "aside"), ("filtered", "filtered"), ("duplicates", "came before"), ("quarantined", "taken out"),
    ):  # fmt: skip
        if found[name]:
            parts.append(f"{found[name]:,} {what}")
    if found["commit_seconds"]:
        what = "behind" if found["state"] == "following" else "commit"
        parts.append(f"{what} p99 {1000 * found['commit_seconds']['p99']:,.0f} ms")
    if found["state"] != "running":
        parts.insert(0, found["state"])
    return "  ".join(parts)


def show(run: Live, at: Listening | None, progress: Any, stopping: str = STOPPING) -> None:
    """Serve a run where somebody may listen (None: nowhere), say how it goes until it ends, and end it."""
    server = None
    try:
        if at is not None:
            from timelapse.streaming.serve.app import Server

            server = Server(run, at)
            progress.note(f"{server.address}  (tokens: {run.place.local}/tokens.json)")
        with ending_on_sigterm(run):
            watch(run, progress, stopping)
    finally:
        if server is not None:
            server.close()
        run.end()


def print_end(run: Live, line: Any) -> None:
    from timelapse.display import many
    from timelapse.streaming.serve.status import status

    found = status(run)
    line((f"{found['state']}", "bold"), f"  {run.path}")
    if "epoch" not in found:
        line("no rows were read")
        return
    line(
        f"{many(found['rows'], 'row', 'rows')} in {many(found['epoch'], 'epoch', 'epochs')}, complete up to {found['complete_text'] or '-'}"
    )
    for name, rows in found["records"].items():
        line(f"  {name}: {rows:,}")
    late = {"side": ", put aside", "drop": ", left out"}.get(found["late_policy"], "")
    for name, one, more in (
        ("late", f"late row{late}", f"late rows{late}"),
        ("stale", "of them lies too far back for a correction", "of them lie too far back for a correction"),
        ("aside", "row put aside: no event, or of an absurd time", "rows put aside: no events, or of absurd times"),
        ("skipped", "row skipped: the log that it goes on from has it", "rows skipped: the log that it goes on from has them"),
        ("filtered", "row put aside by a filter", "rows put aside by filters"),
        ("duplicates", "row left out: it came before", "rows left out: they came before"),
        ("waiting_rows", "row waits for later ones", "rows wait for later ones"), ("rejected", "event rejected", "events rejected"),
        ("quarantined", "event taken out, at which a handler raised", "events taken out, at which a handler raised"),
    ):  # fmt: skip
        if found[name]:
            line((f"  {many(found[name], one, more)}", "yellow"))
    if not found["compiled"]:
        line(
            (
                f"  handlers ran as Python: {found['why_python'] or 'they do not compile, see `timelapse explain`'}",
                "dim",
            )
        )
    for where, epochs in found["sliced_epochs"].items():
        line((f"  {many(epochs, 'epoch was', 'epochs were')} processed as time slices: {where}", "dim"))
    for sink in found["sinks"]:
        behind = sink["epoch"] < found["epoch"]
        style = "bold red" if sink["error"] else "yellow" if behind else "dim"
        said = sink["error"] or ("it gets the others when the run is begun again" if behind else "")
        line((f"  {sink['sink']}: up to epoch {sink['epoch']:,}{'  ' + said if said else ''}", style))
    line(("digest ", "dim"), found["digest"])
    line(
        (f"timelapse parity {shlex.quote(str(run.path))}", "dim"),
        ("  compares with a replay of the journal", "dim"),
    )
