"""The first events of a log for which a condition holds."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from timelapse.errors import LogError, Place, meant
from timelapse.model.events import Event
from timelapse.segments.rows import row_maker
from timelapse.segments.where import Where

if TYPE_CHECKING:
    from timelapse.log.log import Log


def first_events(
    log: Log, n: int, types: Sequence[str], where: str, since: int | None = None, before: int | None = None
) -> list[Event]:
    """The first `n` events of these types (none: all) for which `where` (empty: always) holds, in log order: of those from `since` on
    and before `before` (microseconds), of which alone something is read.

    Raises UsageError for a condition that is none, LogError (TL402) for a type that the log does not have.
    """
    known = {t.name: t for t in log.types}
    for name in types:
        if name not in known:
            raise LogError(
                f"there is no event type {name!r}", place=Place(str(log.path)), code="TL402",
                hint=f"{meant(name, known)}event types: {', '.join(known) or 'none'}",
            )  # fmt: skip
    wanted = {name: known[name] for name in types or known}
    condition = Where(where) if where.strip() else None
    if condition is not None:
        wanted = {name: wanted[name] for name in condition.types(wanted)}
    fields = {name: [f.name for f in kind.fields] for name, kind in wanted.items()}
    found: list[Event] = []
    if n <= 0:
        return found
    reader = log.reader
    lo = 0 if since is None else reader.seq_at(since)
    hi = reader.seq_after(reader.count) if before is None else reader.seq_at(before)
    for chunk in reader.chunks(lo, hi, fields):
        some: list[Event] = []
        for name, table in chunk.tables.items():
            kept = table if condition is None else condition.keep(known[name], table)
            some += row_maker(log.classes[name], fields[name])(kept.slice(0, n))
        found += sorted(some, key=attrgetter("seq"))
        if len(found) >= n:
            break
    return found[:n]
