"""PostgreSQL, by a query that is read in ranges of a column of whole numbers; all ranges at one snapshot of the database.

A part is a range of so many values of the column; its rows are ordered by the column, then by their text, so that they have one order.
What the server knows of each range, the number of its rows and a hash over them, tells whether it has changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from timelapse.ids import DAY
from timelapse.ingest.files import SourceFile
from timelapse.ingest.tables.base import Opened, Table, unreadable

if TYPE_CHECKING:
    import psycopg
    from psycopg.abc import Buffer
    from psycopg.adapt import Loader

STEP = 100_000
_NO_VALUE = "null"
_TYPES: dict[str, pa.DataType] = {
    "int2": pa.int64(), "int4": pa.int64(), "int8": pa.int64(), "oid": pa.int64(), "float4": pa.float64(), "float8": pa.float64(),
    "bool": pa.bool_(), "bytea": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us"), "timestamptz": pa.timestamp("us", "UTC"),
}  # fmt: skip
"""Arrow's types of columns; all others are read as the server writes them as text, numbers with decimals among them; arrays as lists of JSON."""


@dataclass(frozen=True)
class Postgres(Table):
    """The rows of a query to a PostgreSQL server.

    `dsn`: how to connect, as libpq takes it; `env:NAME` is the content of an environment's variable. It is not recorded, but for host,
    port, database and user. `query`: a SELECT; `by`: a column of it, or an expression over its columns, of whole numbers; ranges of `step` of them
    are read one after the other, or side by side on Spark.
    """

    dsn: str = field(repr=False)
    query: str
    by: str
    step: int = STEP

    def open(self) -> Opened:
        import psycopg

        connection = _connect(self._dsn, self.query)
        try:
            columns, _ = _columns(connection, self.query)
            found = connection.execute(
                _sql(
                    "select case when k is null then null else floor(k::numeric / {step})::bigint end, count(*), "
                    "sum(hashtextextended(t, 0)::numeric)::text from (select ({by}) as k, q::text as t from ({query}\n) as q) as r group by 1 order by 1",
                    query=self.query, by=self.by, step=str(int(self.step)),
                )
            ).fetchall()  # fmt: skip
            row = connection.execute("select pg_export_snapshot()").fetchone()
        except psycopg.Error as error:
            connection.close()
            raise unreadable(
                self._where,
                error,
                "query is a SELECT without a semicolon; by a column of it, or an expression, of whole numbers",
            ) from None
        snapshot = "" if row is None else str(row[0])
        files: list[SourceFile] = []
        rows: list[int] = []
        for number, count, mark in sorted(
            found, key=lambda one: _NO_VALUE if one[0] is None else f"{one[0] * self.step:019d}"
        ):
            name = _NO_VALUE if number is None else f"{int(number) * self.step:019d}"
            part = _Part(self._dsn, self.query, self.by, self.step, number, snapshot, self._where)
            files.append(SourceFile(f"{self._where}#{name}", int(count), part=part, mark=str(mark)))
            rows.append(int(count))
        told = {"by": self.by, "step": self.step}
        return Opened("postgres", files, rows, columns, told, connection.close).only(self.parts)

    @property
    def _dsn(self) -> str:
        if not self.dsn.startswith("env:"):
            return self.dsn
        name = self.dsn.removeprefix("env:")
        if not os.environ.get(name):
            raise unreadable(
                f"postgres {self.dsn}",
                f"the environment's variable {name} is empty",
                f"export {name}=postgresql://...",
            )
        return os.environ[name]

    @property
    def _where(self) -> str:
        from psycopg.conninfo import conninfo_to_dict

        try:
            said = conninfo_to_dict(self._dsn)
        except Exception as error:
            raise unreadable(
                "postgres", error, "dsn is an address, or keys: postgresql://user@host/db"
            ) from None
        port = f":{said['port']}" if said.get("port") else ""
        user = f"{said['user']}@" if said.get("user") else ""
        return f"postgresql://{user}{said.get('host', 'localhost')}{port}/{said.get('dbname', '')}"

    def some(self, opened: Opened, paths: Sequence[str]) -> Self:
        return replace(self, parts=tuple(paths))

    def describe(self) -> dict[str, Any]:
        return {"from": self._where, "query": self.query}


@dataclass(frozen=True)
class _Part:
    """The rows of a range. `number` times `step` is its first value; None: rows without a value."""

    dsn: str = field(repr=False)
    query: str
    by: str
    step: int
    number: int | None
    snapshot: str
    where: str

    def read(self, most: int, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        import psycopg

        try:
            with _connect(self.dsn, self.query) as connection:
                connection.execute(f"set transaction snapshot '{self.snapshot}'")
                types, arrays = _columns(connection, self.query)
                names = list(types) if columns is None else [c for c in columns if c in types]
                texts = {name for name, kind in types.items() if kind == pa.string()}
                columns_ = {
                    c: f"to_json(q.{_quoted(c)})" if c in arrays else f"q.{_quoted(c)}" for c in names
                }
                picked = [f"{told}::text" if c in texts else told for c, told in columns_.items()]
                lo = (self.number or 0) * self.step
                wanted = (
                    _sql("({by}) is null", by=self.by)
                    if self.number is None
                    else _sql(
                        "({by}) >= {lo} and ({by}) < {hi}", by=self.by, lo=str(lo), hi=str(lo + self.step)
                    )
                )
                ordered = _sql(
                    'select {picked} from ({query}\n) as q where {wanted} order by ({by}), q::text collate "C"',
                    picked=", ".join(picked) or "1", query=self.query, wanted=wanted.decode(), by=self.by,
                )  # fmt: skip
                for name, loader in _loaders().items():
                    connection.adapters.register_loader(name, loader)
                with connection.cursor(name="timelapse", binary=True) as cursor:
                    cursor.itersize = most
                    cursor.execute(ordered)
                    while rows := cursor.fetchmany(most):
                        values = list(zip(*rows, strict=True))
                        yield pa.table(
                            [_array(v, types[n]) for n, v in zip(names, values, strict=False)], names
                        )
        except (psycopg.Error, pa.ArrowException, ValueError, OverflowError) as error:
            raise unreadable(self.where, error) from error


def _connect(dsn: str, query: str) -> psycopg.Connection[Any]:
    import psycopg

    try:
        connection = psycopg.connect(dsn, connect_timeout=20)
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        connection.execute("set local timezone = 'UTC'")
    except psycopg.Error as error:
        raise unreadable("postgres", error, "check dsn: postgresql://user@host/db, or env:NAME") from None
    return connection


_MOST = (1 << 63) - 1
_EPOCH = 946_684_800_000_000
"""The server counts microseconds, and days, from 2000."""


@cache
def _loaders() -> dict[str, type[Loader]]:
    """Times as whole numbers since 1970, whatever they are: `infinity`, which is the greatest, and years that Python does not have."""
    from psycopg.adapt import Loader
    from psycopg.pq import Format

    class Stamp(Loader):
        format = Format.BINARY

        def load(self, data: Buffer) -> int:
            found = int.from_bytes(data, "big", signed=True)
            return found if found < -_MOST else min(found + _EPOCH, _MOST)

    class Day(Loader):
        format = Format.BINARY

        def load(self, data: Buffer) -> int:
            found = int.from_bytes(data, "big", signed=True)
            return found if found == -(1 << 31) else min(found + _EPOCH // DAY, (1 << 31) - 1)

    return {"timestamp": Stamp, "timestamptz": Stamp, "date": Day}


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, pa.int32()).cast(kind) if pa.types.is_date(kind) else pa.array(values, kind)


def _columns(connection: psycopg.Connection[Any], query: str) -> tuple[dict[str, pa.DataType], set[str]]:
    """The columns of a query with Arrow's types; and those that are arrays, which are read as lists of JSON."""
    found = connection.execute(_sql("select * from ({query}\n) as q limit 0", query=query)).description or []
    types = {t.oid: t.name for t in connection.adapters.types}
    columns = {c.name: _TYPES.get(types.get(c.type_code, ""), pa.string()) for c in found}
    arrays = {t.array_oid for t in connection.adapters.types if t.array_oid}
    return columns, {c.name for c in found if c.type_code in arrays}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _sql(text: str, **parts: str) -> Any:
    """A statement with the user's own query and expression in it: both come from the definition, not from data."""
    return re.sub(r"\{(\w+)\}", lambda found: parts[found[1]], text).encode()
