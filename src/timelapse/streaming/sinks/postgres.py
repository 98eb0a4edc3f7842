"""PostgreSQL: a table per record type, filled by COPY in the same transaction as the marker.

Columns are `ts` (timestamptz), `phase`, `seq`, `ordinal`, and the record's fields. The marker is a row of the table `timelapse_marker`, which is
locked from reading it to the commit: two processes cannot both add an epoch.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from timelapse.errors import Place
from timelapse.streaming.sinks.base import Marker, SinkError, refuse_used

if TYPE_CHECKING:
    import psycopg

_MARKERS = "timelapse_marker"
_THERE = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
_READ = "SELECT run, epoch, hash FROM {}.{} WHERE record = %s"
_READ_LOCKED = "SELECT run, epoch, hash FROM {}.{} WHERE record = %s FOR UPDATE"
_COLUMNS = """SELECT column_name, is_nullable = 'NO' AND column_default IS NULL AND is_identity = 'NO' AND is_generated = 'NEVER'
FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"""
"""With whether a row has to give a value: it need not where the database has one."""
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Postgres:
    """A database, by a connection string (`postgresql://user@host/db`); passwords are better in `~/.pgpass` or PGPASSWORD.
    `schema`: where tables are. `tables`: names of tables, where they are not those of records in lower case."""

    def __init__(self, dsn: str, *, schema: str = "public", tables: dict[str, str] | None = None) -> None:
        self._dsn, self._schema, self._tables = dsn, schema, dict(tables or {})
        self._connection: psycopg.Connection[Any] | None = None
        self._run = ""
        self._made: dict[str, pa.Schema] = {}

    @property
    def text(self) -> str:
        shown = re.sub(r"//[^@/]*@", "//", self._dsn)
        return f"PostgreSQL {re.sub(r'password=[^ ]+', 'password=...', shown)}"

    def check(self, records: Sequence[str]) -> None:
        try:
            with self._connected() as connection:
                there = connection.execute(_THERE, (self._schema, _MARKERS)).fetchone()
            for record in records if there else ():
                refuse_used(self, record)
        finally:
            self.close()  # the run may never begin: a source can be refused after this

    def open(self, run: str) -> None:
        self._run = run
        with self._connected() as connection, connection.transaction():
            connection.execute(self._sql("CREATE SCHEMA IF NOT EXISTS {}", self._schema))
            connection.execute(self._sql(
                "CREATE TABLE IF NOT EXISTS {}.{} (record text PRIMARY KEY, run text NOT NULL, epoch bigint NOT NULL, hash text NOT NULL)",
                self._schema, _MARKERS,
            ))  # fmt: skip

    def _sql(self, text: str, *names: str) -> Any:
        from psycopg import sql

        return sql.SQL(text).format(*map(sql.Identifier, names))

    def _connected(self) -> _Connected:
        return _Connected(self)

    def connection(self) -> psycopg.Connection[Any]:
        """The connection, made when there is none."""
        try:
            import psycopg
        except ImportError:
            raise SinkError("psycopg is not installed", hint="pip install 'psycopg[binary]'") from None
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._dsn, autocommit=True, connect_timeout=10)
        return self._connection

    def marker(self, record: str) -> Marker | None:
        with self._connected() as connection:
            return self._marker(connection, record)

    def _marker(self, connection: Any, record: str, *, lock: bool = False) -> Marker | None:
        query = _READ_LOCKED if lock else _READ
        row = connection.execute(self._sql(query, self._schema, _MARKERS), (record,)).fetchone()
        return None if row is None else Marker(*row)

    def put(self, record: str, table: pa.Table, before: Marker | None, now: Marker) -> None:
        name = self._tables.get(record, record.lower())
        with self._connected() as connection, connection.transaction():
            if before is None:  # who comes second waits here, and finds the first one's
                connection.execute(
                    self._sql(
                        "INSERT INTO {}.{} VALUES (%s, %s, 0, '') ON CONFLICT DO NOTHING",
                        self._schema,
                        _MARKERS,
                    ),
                    (record, now.run),
                )
            held = self._marker(connection, record, lock=True)
            if held != (before or Marker(now.run, 0, "")):
                raise SinkError(
                    f"another process has put outputs there, up to epoch {held and held.epoch}", place=Place(what=f"{record} in {self.text}"),
                    hint="one process runs a live run at a time",
                )  # fmt: skip
            if self._made.get(name) != table.schema:
                connection.execute(self._create(name, table.schema))
                self._widen(connection, name, table.schema)
            columns = self._sql(", ".join(["{}"] * len(table.schema.names)), *table.schema.names)
            from psycopg import sql

            copy = sql.SQL("COPY {}.{} ({}) FROM STDIN").format(
                sql.Identifier(self._schema), sql.Identifier(name), columns
            )
            with connection.cursor().copy(copy) as writer:
                for row in _rows(table):
                    writer.write_row(row)
            connection.execute(
                self._sql(
                    "UPDATE {}.{} SET run = %s, epoch = %s, hash = %s WHERE record = %s",
                    self._schema,
                    _MARKERS,
                ),
                (now.run, now.epoch, now.hash, record),
            )
        self._made[name] = table.schema

    def _create(self, name: str, schema: pa.Schema) -> Any:
        from psycopg import sql

        columns = [
            sql.SQL("{} {}{}").format(
                sql.Identifier(f.name),
                sql.SQL("timestamptz" if f.name == "ts" else _type_of(f)),
                sql.SQL("" if f.nullable else " NOT NULL"),
            )
            for f in schema
        ]
        return sql.SQL("CREATE TABLE IF NOT EXISTS {}.{} ({})").format(
            sql.Identifier(self._schema), sql.Identifier(name), sql.SQL(", ").join(columns)
        )

    def _widen(self, connection: Any, name: str, schema: pa.Schema) -> None:
        """Give a table the columns that a later version of the program has besides; what it no longer has may be missing."""
        had = dict(connection.execute(_COLUMNS, (self._schema, name)).fetchall())
        for field in schema:
            if field.name not in had:
                self._alter(connection, name, f"ADD COLUMN {{}} {_type_of(field)}", field.name)
            elif had[field.name] and field.nullable:
                self._alter(connection, name, "ALTER COLUMN {} DROP NOT NULL", field.name)
        for column, needed in had.items():
            if needed and column not in schema.names:
                self._alter(connection, name, "ALTER COLUMN {} DROP NOT NULL", column)

    def _alter(self, connection: Any, name: str, what: str, column: str) -> None:
        connection.execute(self._sql("ALTER TABLE {}.{} " + what, self._schema, name, column))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def lost(self) -> None:
        """The connection is of no use any more."""
        self.close()


class _Connected:
    """A connection for some statements. Where the server does not answer that is an OSError; what it refuses is a SinkError."""

    def __init__(self, sink: Postgres) -> None:
        self._sink = sink

    def __enter__(self) -> psycopg.Connection[Any]:
        import psycopg

        try:
            return self._sink.connection()
        except psycopg.OperationalError as error:
            raise ConnectionError(str(error).strip()) from None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        import psycopg

        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            self._sink.lost()
            raise ConnectionError(str(error).strip()) from None
        if isinstance(error, psycopg.Error):
            raise SinkError(
                str(error).strip(),
                place=Place(what=self._sink.text),
                hint="give a schema of its own: Postgres(schema=)",
            ) from None


def _type_of(field: pa.Field) -> str:
    kind = field.type
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_integer(kind):
        return "bigint"
    if pa.types.is_floating(kind):
        return "double precision"
    if pa.types.is_timestamp(kind):
        return "timestamptz"
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "bytea"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _type_of(kind.value_field) + "[]"
    return "text"


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Rows as the database takes them. Texts of PostgreSQL have no NUL: it is written as its picture, U+2400."""
    columns = []
    for field, column in zip(table.schema, table.columns, strict=True):
        values = column.to_pylist()
        if field.name == "ts":
            values = [_EPOCH + datetime.timedelta(microseconds=v) for v in values]
        elif pa.types.is_large_string(field.type) or pa.types.is_string(field.type):
            values = [v if v is None or "\0" not in v else v.replace("\0", "␀") for v in values]
        columns.append(values)
    return zip(*columns, strict=True)
