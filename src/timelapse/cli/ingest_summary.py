"""What `timelapse ingest` tells when it is done: where every row has gone, and what looks wrong."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from timelapse.display import many

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from timelapse.log import Log
    from timelapse.segments.manifest import IngestEntry

_SHOWN = 5


def print_summary(
    log: Log, seconds: float, events: str, *, as_json: bool, not_read: Sequence[str] = ()
) -> None:
    """Tell what an ingest did. `events`: the file with the event classes. `not_read`: what it left out, which people have been told."""
    from timelapse.cli.columns_view import columns_json, print_columns
    from timelapse.cli.console import line, print_json
    from timelapse.cli.data_commands import print_gaps
    from timelapse.cli.log_json import log_json
    from timelapse.cli.noticed_view import print_noticed
    from timelapse.cli.view import share, size, skipped_as, span, took

    info = log.info()
    last = info.ingests[-1]
    bad = sum(s.bad for s in last.sources)
    skipped = sum(s.skipped for s in last.sources)
    if as_json:
        body = {**log_json(info), "seconds": seconds, "added": last.events, "not_read": list(not_read)}
        body["ingest"] = {"bad": bad, "skipped": skipped, "sources": [
            {"type": s.type, "rows": s.rows, "bad": s.bad, "skipped": s.skipped, "outside": s.outside, "read": s.read, "filtered": s.filtered, "duplicates": s.duplicates, "conflicts": s.conflicts, "displaced": s.displaced, "bad_in": s.bad_in, "late": s.late, "layouts": s.layouts, "without": s.without, "source": s.source} for s in last.sources
        ], "columns": columns_json([last])}  # fmt: skip
        doubt = doubtful_times(info.ts_first, info.ts_last)
        body["warnings"] = ([] if doubt is None else [doubt]) + [w for s in last.sources for w in s.warnings]
        print_json(body)
        return
    if bad:
        line(
            ("rejected  ", "yellow"),
            f"{many(bad, 'bad row', 'bad rows')} ({share(bad, last.events + bad)}) in {log.path}/quarantine: timelapse log {log.path} --bad 5",
        )
    print_columns([last])
    print_noticed(last.sources, [one for entry in info.ingests[:-1] for one in entry.sources])
    _print_sums(last, info.ingests[:-1])
    _print_known(last, info.ingests[:-1])
    if skipped:
        line(("skipped   ", "dim"), f"{many(skipped, 'row', 'rows')}: {skipped_as(last.sources)}")
    if (doubt := doubtful_times(info.ts_first, info.ts_last)) is not None:
        line(("warning   ", "yellow"), doubt)
    print_gaps(info)
    length = span((info.ts_last or 0) - (info.ts_first or 0))
    added = f" ({last.events:,} added)" if log.version > 1 else ""
    if gone := sum(last.replaced.values()):
        added = f" ({last.events:,} taken in, {gone:,} of before gone)"
    line(
        (f"{many(info.count, 'event', 'events')}", "bold"), f"{added}, {length}, {size(info.bytes)}, version {info.version}   {took(seconds)}",
        ("      next: ", "dim"), f"timelapse replay {_program(events)} {shlex.quote(str(log.path))}",
    )  # fmt: skip


def _outside(options: Mapping[str, Any]) -> str:
    """What rows are whose time is outside a source's bounds."""
    return "before the start" if "from_start" in options and "max_ts" not in options else "beyond the bounds"


def _print_sums(ingest: IngestEntry, before: Sequence[IngestEntry]) -> None:
    """Where the rows that were read have gone, and what late ones did to the log. `before`: the log's earlier ingests."""
    from timelapse.cli.console import line

    for source in ingest.sources:
        parts = {
            "bad": source.bad, _outside(source.source): source.outside, "duplicates": source.duplicates,
            "conflicting": source.conflicts, "of other sources or times": source.filtered, "skipped": source.skipped,
        }  # fmt: skip
        told = "".join(f" + {count:,} {name}" for name, count in parts.items() if count)
        if told:
            of_before = f" + {source.displaced:,} of the log" if source.displaced else ""
            line(
                ("rows      ", "dim"),
                f"{source.type}: {source.read:,}{of_before} = {many(source.rows, 'event', 'events')}{told}",
            )
    _print_replaced(ingest, before)
    displaced = sum(source.displaced for source in ingest.sources)
    if displaced:
        unique = ", ".join(
            dict.fromkeys(f for s in ingest.sources if s.displaced for f in s.source["unique"])
        )
        line(
            ("replaced  ", "yellow"),
            f"{many(displaced, 'event of the log has', 'events of the log have')} gone: rows with the same {unique} take {'its' if displaced == 1 else 'their'} place",
        )
    if ingest.replaced:
        which = (
            "all events that were there"
            if ingest.rewritten is None
            else f"up to event {ingest.rewritten:,} all"
        )
        first = (
            f"{which} stand where they stood, as they were"
            if ingest.rewritten != 0
            else "no event stands where it stood"
        )
        line(("", ""), f"          {first}; runs over earlier versions stay as they are")
    elif ingest.rewritten is not None:
        late = f"{many(ingest.late, 'event is', 'events are')} before the log's end as it was: this version has what is late in its place. "
        line(
            ("late      " if ingest.late else "          ", "yellow"),
            f"{late if ingest.late else ''}{_where_they_were(ingest.rewritten)}; runs over earlier versions stay as they are",
        )


def _print_known(ingest: IngestEntry, before: Sequence[IngestEntry]) -> None:
    """Which files an append has taken in that the log had already: nobody may have wanted that."""
    from timelapse.cli.console import line
    from timelapse.ingest.known import Taken

    had, rows = Taken(before), {s.type for s in ingest.sources if s.rows}
    again = [
        path for (kind, path), now in Taken([ingest]).files.items()
        if kind in rows and path not in ingest.replaced and had.same((kind, path), now)
    ]  # fmt: skip
    if again:
        others = f" (and {many(len(again) - 1, 'other file', 'other files')})" if len(again) > 1 else ""
        line(
            ("warning   ", "yellow"),
            f"{again[0]}{others} had been taken in before, and its events are in the log once more: unique = [...] drops such rows, log.toml takes a file once",
        )


def _where_they_were(first: int) -> str:
    if not first:
        return "All others have other numbers"
    return (
        "Its first event is where it was" if first == 1 else f"Its first {first:,} events are where they were"
    )


def _print_replaced(ingest: IngestEntry, before: Sequence[IngestEntry]) -> None:
    """Which files were taken in again, and why."""
    from timelapse.cli.console import line
    from timelapse.ingest.known import Taken

    old, new = Taken(before), Taken([ingest])
    corrected, same, wider = [], 0, 0
    for path, gone in ingest.replaced.items():
        now = {key: of for key, of in new.files.items() if key[1] == path}
        if not now:
            corrected.append(
                f"{path} is not in its table any more: its {many(gone, 'event is', 'events are')} gone"
            )
        elif all(old.same(key, of) for key, of in now.items()):
            as_they_were = all(old.has_times(key, *new.times(key)) for key in now)
            same, wider = same + as_they_were, wider + (not as_they_were)
        else:
            corrected.append(
                f"{path} was taken in again: {many(gone, 'event of its old version is', 'events of its old version are')} gone, with its bad rows"
            )
    for text in corrected[:_SHOWN]:
        line(("corrected ", "yellow"), text)
    if len(corrected) > _SHOWN:
        line(("corrected ", "yellow"), f"and {len(corrected) - _SHOWN:,} more")
    if wider:
        line(
            ("read again", "dim"),
            f" {many(wider, 'file', 'files')} of which the log had rows of some times: the events of before are replaced by those of all times that were asked for",
        )
    if same:
        line(
            ("read again", "dim"),
            f" {many(same, 'file that is as it was', 'files that are as they were')}: of rows that had been left out as duplicates some may count now",
        )


def doubtful_times(first: int | None, last: int | None) -> str | None:
    """A warning when there are no events, or their times (microseconds) look as if read in the wrong unit."""
    if first is None or last is None:
        return "the log has no events: no row became one"
    year = 366 * 86_400_000_000
    if first >= 0 and last < year:
        return "all times are in 1970: are they numbers in another unit than --unit says (s, ms, us, ns)?"
    if last < year:
        when = "before 1970" if last < 0 else "in 1970 or before"
        return f"all times are {when}: are they missing, or in another unit or format than was said?"
    if last > 1000 * year:
        return "some times are after the year 2900: are they numbers in another unit than --unit says (s, ms, us, ns)?"
    return None


def _program(events: str) -> str:
    from timelapse.program.load import program_beside

    return program_beside(events) or "rules.py:Program"
