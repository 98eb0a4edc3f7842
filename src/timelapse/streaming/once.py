"""Rows that came twice: of those of a type that have the same values in some fields one is in the journal, the first in its order.

That is decided when rows go into the journal, whose order depends on neither batches nor restarts; so this does not, either. A value is known from its
row's time on, for as long as the run says. What is known is in the journal: a process that goes on reads it there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.errors import UsageError
from timelapse.ids import INT64_MIN
from timelapse.ingest.private import check_names
from timelapse.ingest.source import Source
from timelapse.ingest.unique import rule_of
from timelapse.segments.types import EventType
from timelapse.streaming import chain
from timelapse.streaming.arrivals import PLACE, Taken
from timelapse.streaming.format import Epoch
from timelapse.streaming.handover import Origin
from timelapse.streaming.pack import Pack
from timelapse.streaming.place import RunPlace
from timelapse.streaming.rules import Fields
from timelapse.streaming.streams import I64, Bools
from timelapse.tables.rowhash import both_lanes, seed_of, whole_array

U64 = npt.NDArray[np.uint64]


Key = tuple[int, int]
"""The hash of a row's values, in two halves."""


def unique_fields(layouts: Iterable[tuple[EventType, Sequence[Source]]]) -> Fields:
    """What sources ask for (`unique`). Raises UsageError, and IngestError (TL411) where sources of a type differ in it."""
    found: dict[str, Sequence[str]] = {}
    for kind, sources in layouts:
        rule = rule_of(kind, sources)
        if rule is None:
            continue
        check_names(kind, "unique= (--unique)", [name for name in rule.fields if name != "ts"])
        if rule.keep == "last":
            raise UsageError(
                f"of the rows of {kind.name} the last one is to count (conflicts), and a stream does not know which that is", code="TL810",
                hint="leave conflicts out: the first one counts",
            )  # fmt: skip
        found[kind.name] = rule.fields
    return found


class _Known:
    """Hashes of values, each with its row's time: sorted runs, each at least twice as long as the next."""

    def __init__(self) -> None:
        self._runs: list[tuple[U64, U64, I64]] = []

    def copy(self) -> _Known:
        """The same, whatever is added to this one."""
        found = _Known()
        found._runs = list(self._runs)
        return found

    def times(self, low: U64, high: U64) -> I64:
        """The newest time of each; INT64_MIN where it is not known."""
        order = np.argsort(low)  # what is looked up in order lies side by side
        low, high = low[order], high[order]
        sorted_, found = np.full(len(low), INT64_MIN, np.int64), np.empty(len(low), np.int64)
        for lows, highs, ts in self._runs:
            at = np.searchsorted(lows, low)
            left = np.flatnonzero(lows[np.minimum(at, len(lows) - 1)] == low)
            at = at[left]
            while len(left):  # mostly once: others have the same lower half
                same = highs[at] == high[left]
                sorted_[left[same]] = np.maximum(sorted_[left[same]], ts[at[same]])
                at = at + 1
                more = (at < len(lows)) & (lows[np.minimum(at, len(lows) - 1)] == low[left])
                left, at = left[more], at[more]
        found[order] = sorted_
        return found

    def add(self, low: U64, high: U64, ts: I64, since: int) -> None:
        """Further ones; those of earlier times than `since` may be forgotten."""
        if len(low):
            self._runs.append(_sorted([(low, high, ts)]))
        while len(self._runs) > 1 and len(self._runs[-2][0]) < 2 * len(self._runs[-1][0]):
            merged = _sorted(self._runs[-2:], since)
            self._runs[-2:] = [merged] if len(merged[0]) else []

    def forget(self, low: U64, high: U64, ts: I64) -> None:
        """Some rows are no longer in the journal: of each what is known once is forgotten."""
        for n, (lows, highs, times) in enumerate(self._runs):
            gone: set[int] = set()
            for a, b, t in zip(low, high, ts, strict=True):
                at = int(np.searchsorted(lows, a))
                while at < len(lows) and lows[at] == a:
                    if highs[at] == b and times[at] == t:
                        gone.add(at)
                    at += 1
            if gone:
                stays = np.ones(len(lows), np.bool_)
                stays[list(gone)] = False
                self._runs[n] = lows[stays], highs[stays], times[stays]
        self._runs = [run for run in self._runs if len(run[0])]


def _sorted(runs: Iterable[tuple[U64, U64, I64]], since: int = INT64_MIN) -> tuple[U64, U64, I64]:
    low, high, ts = (np.concatenate(parts) for parts in zip(*runs, strict=True))
    order = np.argsort(low, kind="stable")
    order = order[ts[order] >= since]
    return low[order], high[order], ts[order]


class Once:
    """Leaves out rows whose values were in the journal `within` microseconds before, or less."""

    def __init__(self, types: Sequence[EventType], fields: Fields, within: int) -> None:
        self._types, self.fields, self.within = types, fields, within
        self._known = {name: _Known() for name in fields}

    def copy(self) -> Once:
        """The same as it is now, for another thread."""
        found = Once(self._types, self.fields, self.within)
        found._known = {name: known.copy() for name, known in self._known.items()}
        return found

    def parted(self, taken: Taken, complete: int) -> tuple[Taken, dict[str, pa.Table]]:
        """The rows that count, numbered anew, and by type those that came before, without a number. `complete`: the time up to which they go."""
        again: dict[str, Bools] = {}
        for name in self._known:
            if name in taken.tables:
                mask = self._again(name, taken.tables[name], complete)
                if mask.any():
                    again[name] = mask
        if not again:
            return taken, {}
        gone = np.sort(np.concatenate([_seqs(taken.tables[name])[mask] for name, mask in again.items()]))
        tables, left = {}, {}
        for name, table in taken.tables.items():
            if name in again:
                mask = again[name]
                left[name] = table.filter(pa.array(mask)).select(
                    ["ts", *PLACE, *(c for c in table.column_names if c not in ("seq", "ts", *PLACE))]
                )
                table = table.filter(pa.array(~mask))
            if table.num_rows:
                seqs = _seqs(table)
                tables[name] = table.set_column(0, "seq", pa.array(seqs - np.searchsorted(gone, seqs)))
        return Taken.of(tables), left

    def _again(self, name: str, table: pa.Table, complete: int) -> Bools:
        """Which rows came before. The others are known from now on."""
        low, high, whole = self.hashes(name, table)
        ts = np.asarray(table.column("ts"))
        known = self._known[name].times(low, high)
        # Without leaving int64: what is known is no later than these rows.
        gone: Bools = (
            whole & (known > INT64_MIN) & (known >= np.maximum(ts, INT64_MIN + self.within) - self.within)
        )
        order = np.lexsort((high, low))
        same = (low[order][1:] == low[order][:-1]) & (high[order][1:] == high[order][:-1])
        several = np.zeros(len(ts), np.bool_)
        several[order[1:][same]] = several[order[:-1][same]] = True
        seen: dict[tuple[int, int], int] = {}
        for at in np.flatnonzero(several & whole).tolist():
            key = int(low[at]), int(high[at])
            before = seen.get(key, int(known[at]))
            gone[at] = before > INT64_MIN and int(ts[at]) - before <= self.within
            if not gone[at]:
                seen[key] = int(ts[at])
        new = whole & ~gone
        self._known[name].add(low[new], high[new], ts[new], self.since(complete))
        return gone

    def since(self, complete: int) -> int:
        """The time from which on rows matter to those behind `complete`."""
        return max(INT64_MIN, complete - self.within)

    def hashes(self, name: str, table: pa.Table) -> tuple[U64, U64, Bools]:
        """Hashes of each row's values, and whether none of them is missing: else it came nobody after."""
        columns = [whole_array(table.column(field)) for field in self.fields[name]]
        whole = np.ones(table.num_rows, np.bool_)
        for column in columns:
            if column.null_count:
                whole &= np.asarray(column.is_valid())
        low, high = both_lanes(columns, table.num_rows, seed_of(name))
        return low, high, whole

    # --- what another process has put into the journal ------------------------------------------------

    def follow(self, pack: Pack[Epoch]) -> None:
        """An epoch was committed: its rows are known."""
        complete = pack.about.complete
        if complete is not None:
            self.took(pack.sections, pack.table, complete)

    def took(self, names: Iterable[str], table: Callable[[str], pa.Table], complete: int) -> None:
        """An epoch's sections: its rows are known. In a correction, late rows are in their places, and others may be removed since these count."""
        found = {tuple(name.split("/", 1)): name for name in names if "/" in name}
        for name in self._known:
            for part in ("journal", "inserted"):
                if (part, name) in found:
                    self._remember(name, table(found[part, name]), complete)
            if ("removed", name) in found and self.has(name, gone := table(found["removed", name])):
                low, high, whole = self.hashes(name, gone)
                self._known[name].forget(low[whole], high[whole], np.asarray(gone.column("ts"))[whole])

    def recall(self, place: RunPlace, last: Epoch | None, origin: Origin | None) -> None:
        """Know what counts at the end of an epoch, from the journal and the log that it goes on from."""
        complete = (None if origin is None else origin.complete) if last is None else last.complete
        if not self._known or complete is None:
            return
        first = self.first(place, 0 if last is None else last.number, complete)
        if first == 0 and origin is not None:
            for block in origin.blocks(self.since(complete) - 1):
                for name in self._known.keys() & block.tables.keys():
                    self._remember(name, block.tables[name], complete)
        for pack in chain.epochs(place, first + 1, 0 if last is None else last.number):
            self.follow(pack)

    def first(self, place: RunPlace, number: int, complete: int) -> int:
        """The epoch behind which rows matter to those behind `complete`, of those up to `number`; 0: rows of the log before them do, too."""
        since = self.since(complete)
        while number > 0:
            ends = chain.read_about(place, number).complete
            if ends is None or ends < since:
                break
            number -= 1
        return number

    def has(self, name: str, table: pa.Table) -> bool:
        """Whether rows have the fields; else they are from before the event had them."""
        return set(self.fields[name]) <= set(table.column_names)

    def _remember(self, name: str, table: pa.Table, complete: int) -> None:
        if self.has(name, table):
            low, high, whole = self.hashes(name, table)
            self._known[name].add(
                low[whole], high[whole], np.asarray(table.column("ts"))[whole], self.since(complete)
            )


def _seqs(table: pa.Table) -> I64:
    found: I64 = np.asarray(table.column("seq"))
    return found
