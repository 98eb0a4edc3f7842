"""Times in events' fields: after the event itself, and the order of arrival."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.checks.findings import Finding
from timelapse.display import many, span
from timelapse.errors import UsageError, meant
from timelapse.ids import INT64_MAX
from timelapse.log import Log

I64 = npt.NDArray[np.int64]


def times_of_fields(log: Log, arrived: str | None) -> Iterator[Finding]:
    """A finding per Time field that has values after its events; one that all is well where none has."""
    checked = 0
    late = 0
    for kind in log.types:
        names = [
            f.name for f in kind.fields if f.type.text.removesuffix(" | None") == "Time" and f.name != arrived
        ]
        if not names:
            continue
        found = {n: [0, 0, 0] for n in names}  # values, after the event, by how much at most
        for chunk in log.reader.chunks(0, INT64_MAX, {kind.name: names}):
            table = chunk.tables.get(kind.name)
            if table is None:
                continue
            for name in names:
                ahead = _ahead(table, name)
                found[name][0] += len(ahead)
                found[name][1] += int((ahead > 0).sum())
                found[name][2] = max(found[name][2], int(ahead.max(initial=0)))
        for name, (values, after, most) in found.items():
            checked += 1
            if after:
                late += 1
                yield Finding(
                    "fields", "warning",
                    f"{kind.name}.{name} lies after its event in {after:,} of {values:,} values, by up to {span(most)}",
                    "a handler that reads it knows what live could not have known, unless it is a date in the future by its meaning",
                    {"type": kind.name, "field": name, "values": values, "after": after, "most": most},
                )  # fmt: skip
    if not late:
        yield Finding(
            "fields",
            "ok",
            f"no time in a field lies after its event ({many(checked, 'Time field', 'Time fields')})",
        )


def _ahead(table: pa.Table, name: str) -> I64:
    """By how much a field's times lie after the events'; without missing ones."""
    column = table.column(name)
    there = np.asarray(column.is_valid())
    values = np.asarray(column.cast(pa.int64()).fill_null(0), np.int64)
    ahead: I64 = (values - np.asarray(table.column("ts"), np.int64))[there]
    return ahead


def arrival(log: Log, arrived: str) -> Finding:
    """How late events came, and how many came after one of a later time. Raises UsageError (TL845)."""
    kinds = {
        k.name: [arrived] for k in log.types if any(f.name == arrived and f.type.text == "Time" for f in k.fields)
    }  # fmt: skip
    if not kinds:
        declared = [f.name for k in log.types for f in k.fields if f.type.text == "Time"]
        raise UsageError(
            f"no event type has a field {arrived}: tl.Time", hint=f"{meant(arrived, declared)}types: {', '.join(t.name for t in log.types)}", code="TL845"
        )  # fmt: skip
    seqs: list[I64] = []
    late: list[I64] = []
    came: list[I64] = []
    for chunk in log.reader.chunks(0, INT64_MAX, kinds):
        for table in chunk.tables.values():
            seqs.append(np.asarray(table.column("seq"), np.int64))
            came.append(np.asarray(table.column(arrived).cast(pa.int64()), np.int64))
            late.append(_ahead(table, arrived))
    if not seqs:
        return Finding("arrival", "ok", "no events with a time of arrival")
    order = np.argsort(np.concatenate(seqs), kind="stable")
    times, delay = np.concatenate(came)[order], np.concatenate(late)
    # An event came out of order where one that is later in the log had come before it.
    soonest = np.minimum.accumulate(times[::-1])[::-1]
    wrong = int((times[:-1] > soonest[1:]).sum())
    p50, p99 = (int(x) for x in np.quantile(delay, [0.5, 0.99]))
    share = f"{100 * wrong / len(times):.2g}%"
    text = f"late by p50 {span(p50)}, p99 {span(p99)}, at most {span(int(delay.max()))}; {wrong:,} events ({share}) out of order"
    return Finding(
        "arrival", "warning" if wrong else "ok", text,
        "live saw these events in another order than the replay does" if wrong else "",
        {"p50": p50, "p99": p99, "max": int(delay.max()), "out_of_order": wrong, "events": len(times)},
    )  # fmt: skip
