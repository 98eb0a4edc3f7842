"""A PostgreSQL table that grows, by a column of rising whole numbers.

A row's position is that number. Numbers are given when a row is inserted and seen when its transaction commits, so a lower one may appear after a higher
one. Who inserts holds a lock on the table until its transaction ends: the source notes the highest number, and the transactions that hold such a lock just after;
once these have ended, no row up to that number can come any more, and rows up to there are read. Nobody is made to wait. What this needs: numbers come from
the column's default (serial, identity), rows are inserted into this table, and are not changed or removed before they are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import numpy as np
import pyarrow as pa

from timelapse.errors import Place, SourceError, UsageError, meant
from timelapse.ingest.parse import parse_table
from timelapse.ingest.source import Source
from timelapse.segments.types import EventType
from timelapse.streaming.rows import Batch
from timelapse.streaming.sources.base import LiveSource, Wake, batch_of, check_begin, pieces, table_plan
from timelapse.streaming.streams import Partition

if TYPE_CHECKING:
    import psycopg

ONE = "table"
"""The name of the one partition."""
_MOST_ROWS = 50_000
_WHOLE = {"int2", "int4", "int8"}
_PLAIN: dict[str, pa.DataType] = {
    "bool": pa.bool_(), "int2": pa.int64(), "int4": pa.int64(), "int8": pa.int64(), "float4": pa.float64(), "float8": pa.float64(),
    "bytea": pa.binary(), "date": pa.date32(), "_int4": pa.list_(pa.int64()), "_int8": pa.list_(pa.int64()),
    "_float8": pa.list_(pa.float64()), "_text": pa.list_(pa.string()), "_varchar": pa.list_(pa.string()), "_bool": pa.list_(pa.bool_()),
}  # fmt: skip
"""Types of PostgreSQL that are taken as they are. Times are taken as microseconds, everything else as text."""
_TIMES = {"timestamptz": pa.timestamp("us", "UTC"), "timestamp": pa.timestamp("us")}

_COLUMNS = """
SELECT a.attname, t.typname, a.attnotnull, EXISTS (
    SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
        AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum)
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_WRITERS = """
SELECT DISTINCT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND granted AND pid IS DISTINCT FROM pg_backend_pid()
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
    AND relation IN (SELECT %(table)s::regclass UNION SELECT relid FROM pg_partition_tree(%(table)s::regclass))
"""


@dataclass(frozen=True)
class PostgresTable:
    """A table: `dsn` as libpq takes it, `table` (with its schema, if it has one), `by` the rising column.

    `layout` has the options of `tl.Source` (`ts`, `unit`, `fields`, ...); its data are not looked at. `begin`: "earliest" or
    "latest", for a run that has read nothing of the table yet.
    """

    dsn: str
    table: str
    by: str = "id"
    layout: Source = field(default_factory=lambda: Source(""))
    begin: str = "earliest"

    def __post_init__(self) -> None:
        check_begin(self.begin)

    @classmethod
    def of(cls, url: str, layout: Source) -> PostgresTable:
        """From `postgresql://user@host/db?table=logins&by=id`. Raises UsageError."""
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        table, by = query.pop("table", ""), query.pop("by", "id")
        if not table:
            raise UsageError(
                "the address of the database names no table", code="TL810",
                hint="say which table, and by which column of rising whole numbers it is read; docs/live.md has an example",
            )  # fmt: skip
        dsn = urlunsplit((parts.scheme, parts.netloc, parts.path, urlencode(query), ""))
        return cls(dsn, table, by, layout)


class PostgresSource(LiveSource):
    """A table as a source. `once`: the rows that it has now."""

    def __init__(self, given: PostgresTable, *, once: bool = False) -> None:
        self._given, self._once = given, once
        self._connection: psycopg.Connection[Any] | None = None
        self._position = -1
        self._safe = -1
        """Up to here no further rows come."""
        self._ceiling = -1
        self._writers: set[str] = set()
        self._until: int | None = None
        self._at_end = False
        self._types: dict[str, str] = {}

    @property
    def text(self) -> str:
        where = urlsplit(self._given.dsn)
        at = f"{where.hostname or 'this machine'}{where.path}" if where.scheme else "a database"
        return f"PostgreSQL {self._given.table} by {self._given.by} at {at}"

    def check(self, kind: EventType) -> None:
        self._checked(kind)

    def _checked(self, kind: EventType) -> int | None:
        """The table's last position. Raises SourceError where it will not do."""
        self._kind = kind
        self._describe()
        low, high = self._ends()
        if low is not None and low < 0:
            raise self._wrong(f"{self._given.by} is {low}", "positions are numbers from 0 on")
        return high

    def start(
        self, stream: int, kind: EventType, partitions: Sequence[Partition], notes: Sequence[str], wake: Wake
    ) -> None:
        self._stream = stream
        self._position = next((p.position for p in partitions if p.name == ONE), -1)
        high = self._checked(kind)
        if high is not None and high < self._position:
            raise self._wrong(
                f"{self._given.by} ends at {high:,}, and the run has read up to {self._position:,}",
                "the table has lost rows, or was made anew: begin another run",
            )
        if self._position < 0 and self._given.begin == "latest" and high is not None:
            self._position = high
        self._safe = self._position
        self._until = (high if high is not None else -1) if self._once else None

    def _wrong(self, what: str, hint: str) -> SourceError:
        return SourceError(what, place=Place(what=self.text), hint=hint, code="TL945")

    def _describe(self) -> None:
        """Which columns there are, and whether the rising one will do. Raises SourceError."""
        given = self._given
        rows = self._ask(_COLUMNS, (_quoted(given.table),))
        self._types = {name: kind for name, kind, _, _ in rows}
        own = next((r for r in rows if r[0] == given.by), None)
        if own is None:
            raise self._wrong(
                f"the table has no column {given.by!r}",
                f"{meant(given.by, self._types)}columns: {', '.join(self._types)}",
            )
        if own[1] not in _WHOLE or not own[2] or not own[3]:
            raise self._wrong(
                f"{given.by} is {own[1]}{'' if own[2] else ', may be null'}{'' if own[3] else ', and has no unique index of its own'}",
                "rows are read by a column of whole numbers that is not null and unique: a serial or identity primary key",
            )
        self._plan = table_plan(self._kind, given.layout, tuple(self._types), "table")

    def _ask(self, query: Any, values: Any = ()) -> list[tuple[Any, ...]]:
        """Rows of the database. Raises OSError where it does not answer, SourceError where it refuses."""
        try:
            import psycopg
        except ImportError:
            raise SourceError(
                "psycopg is not installed", hint="pip install 'psycopg[binary]'", code="TL945"
            ) from None
        try:
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(self._given.dsn, autocommit=True, connect_timeout=10)
            return self._connection.execute(query, values).fetchall()
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            self.close()
            raise ConnectionError(str(error).strip()) from None
        except psycopg.Error as error:
            said = str(error).strip().partition("\n")[0]
            raise self._wrong(
                said, "check the table's name, its columns, and what the user may read"
            ) from None

    def _ends(self) -> tuple[int | None, int | None]:
        from psycopg import sql

        by, table = sql.Identifier(self._given.by), _identifier(self._given.table)
        ((low, high),) = self._ask(
            sql.SQL("SELECT min({by}), max({by}) FROM {table}").format(by=by, table=table)
        )
        return low, high

    def partitions(self) -> Sequence[str]:
        return (ONE,)

    def poll(self, most: int) -> list[Batch]:
        return pieces(most, lambda: self._piece(most))

    def _piece(self, most: int) -> Batch | None:
        """The next rows: about so many at most, and no more than one question fetches."""
        if self._safe <= self._position and not self._look():
            return None
        from psycopg import sql

        names = [n for n in self._types if n in self._plan.needed or n == self._given.by]
        query = sql.SQL(
            "SELECT {columns} FROM {table} WHERE {by} > %s AND {by} <= %s ORDER BY {by} LIMIT %s"
        ).format(
            columns=sql.SQL(", ").join([_selected(n, self._types[n]) for n in names]),
            table=_identifier(self._given.table), by=sql.Identifier(self._given.by),
        )  # fmt: skip
        limit = min(most, _MOST_ROWS)
        rows = self._ask(query, (self._position, self._safe, limit))
        if not rows:
            self._position = self._safe
            return None
        columns = [
            _arrow(self._types[name], list(values))
            for name, values in zip(names, zip(*rows, strict=True), strict=True)
        ]
        table = pa.table(columns, names)
        offsets = np.asarray(table.column(self._given.by), np.int64)
        parsed = parse_table(self._plan, table.select([n for n in names if n in self._plan.needed]), 0)
        self._position = int(offsets[-1]) if len(rows) == limit else self._safe
        bad = [int(offsets[b.row]) for b in parsed.bad]
        kept = offsets[np.asarray(parsed.rows, np.int64)]
        return batch_of(self._stream, ONE, self._kind, parsed, kept, bad, int(offsets[-1]))

    def _look(self) -> bool:
        """Find up to where rows can be read. Whether there are any."""
        if self._ceiling <= self._safe:
            _, high = self._ends()
            wanted = -1 if high is None else high if self._until is None else min(high, self._until)
            self._at_end = wanted <= self._position
            if self._at_end:
                return False
            self._ceiling = wanted
            self._writers = self._holding()
        elif self._writers:
            self._writers &= self._holding()
        if not self._writers:
            self._safe = self._ceiling
        return self._safe > self._position

    def _holding(self) -> set[str]:
        """The transactions that may have inserted rows and have not ended."""
        return {str(row[0]) for row in self._ask(_WRITERS, {"table": _quoted(self._given.table)})}

    def at_end(self, partition: str) -> bool:
        return self._at_end

    @property
    def ended(self) -> bool:
        return self._until is not None and self._position >= self._until

    def close(self) -> None:
        if self._connection is not None:
            with suppress(Exception):
                self._connection.close()
            self._connection = None


def _identifier(table: str) -> Any:
    from psycopg import sql

    return sql.Identifier(*table.split(".", 1))


def _quoted(table: str) -> str:
    """A table's name as `regclass` takes it, whatever is in it."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in table.split(".", 1))


def _selected(name: str, kind: str) -> Any:
    from psycopg import sql

    column = sql.Identifier(name)
    if kind in _TIMES:  # infinity has no number: the row goes aside, unless the field may be None
        return sql.SQL(
            "CASE WHEN isfinite({c}) THEN round(extract(epoch FROM {c}) * 1000000)::bigint END"
        ).format(c=column)
    return column if kind in _PLAIN else sql.SQL("{}::text").format(column)


def _arrow(kind: str, values: list[Any]) -> pa.Array:
    if kind in _TIMES:
        return pa.array(values, pa.int64()).cast(_TIMES[kind])
    return pa.array(values, _PLAIN.get(kind, pa.string()))
