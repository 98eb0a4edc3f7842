"""Tables that grow: a real PostgreSQL server, and Delta tables."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import timelapse as tl
from tests.patience import LONG
from tests.streaming.postgres_server import BINARIES, Server
from tests.streaming.test_live import FAST, Hit, Plain, hits
from timelapse.errors import IngestError, SourceError, UsageError
from timelapse.ingest.source import Source
from timelapse.run import run_serial
from timelapse.segments.types import event_types
from timelapse.streaming.sources import postgres
from timelapse.streaming.sources.delta import DeltaSource
from timelapse.streaming.sources.files import Files
from timelapse.streaming.streams import Partition

SECOND = 1_000_000


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    if BINARIES is None:
        pytest.skip("no PostgreSQL on this machine: apt install postgresql")
    found = Server()
    yield found
    found.close()


def connect(server: Server) -> Any:
    import psycopg

    return psycopg.connect(server.dsn, autocommit=True)


def add(connection: Any, table: str, rows: list[Hit]) -> None:
    with connection.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO {table} (ts, who, size) VALUES (to_timestamp(%s::numeric / 1000000), %s, %s)",
            [(e.ts, e.who, e.size) for e in rows],
        )


def make(connection: Any, table: str) -> None:
    connection.execute(
        f"CREATE TABLE {table} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ts timestamptz, who int, size int)"
    )


def test_rows_of_a_table_once_and_in_order(tmp_path: Path, server: Server) -> None:
    """Over three sessions, with the server killed between them."""
    sent = hits(300)
    with connect(server) as connection:
        make(connection, "hits")
    for number in range(3):
        source = tl.PostgresTable(server.dsn, "public.hits")
        with tl.live(Plain, {Hit: source}, tmp_path / "out", once=number == 2, **FAST) as run:
            with connect(server) as connection:
                for at in range(number * 100, number * 100 + 100, 25):
                    add(connection, "hits", sent[at : at + 25])
            if number < 2:
                run.until(lambda e, n=number: sum(p.rows for p in e.partitions) >= n * 100 + 90)  # type: ignore[misc]
        server.stop()
        server.start()
    with tl.live(
        Plain, {Hit: tl.PostgresTable(server.dsn, "hits")}, tmp_path / "out", once=True, **FAST
    ) as run:
        assert run.wait(LONG)
    assert run.digest == run_serial(Plain, sent).digest
    assert run.parity().same


def test_a_table_is_read_to_its_end_in_one_epoch(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though one question fetches few rows: the next epoch may be long in coming."""
    monkeypatch.setattr(postgres, "_MOST_ROWS", 10)
    with connect(server) as connection:
        make(connection, "many")
        add(connection, "many", hits(95))
    source = tl.PostgresTable(server.dsn, "many")
    with tl.live(Plain, {Hit: source}, tmp_path / "out", once=True, trigger="1h", ahead=None) as run:
        assert run.wait(LONG)
    assert run.digest == run_serial(Plain, hits(95)).digest


def test_numbers_that_commit_out_of_order(tmp_path: Path, server: Server) -> None:
    """A transaction that inserted first and commits last loses nothing: rows behind it wait for it, and only for it."""
    import psycopg

    with connect(server) as connection:
        make(connection, "slow")
        source = tl.PostgresTable(server.dsn, "slow")
        with tl.live(Plain, {Hit: source}, tmp_path / "out", lateness="1h", **FAST) as run:
            first = psycopg.connect(server.dsn)
            add(first, "slow", [Hit(who=1, size=1, ts=5 * SECOND)])
            add(connection, "slow", [Hit(who=2, size=2, ts=6 * SECOND)])
            time.sleep(0.5)
            assert run.last is None or sum(p.rows for p in run.last.partitions) == 0
            reader = psycopg.connect(server.dsn)  # who only reads holds nobody back
            reader.execute("SELECT count(*) FROM slow")
            first.commit()
            add(first, "slow", [Hit(who=4, size=4, ts=7 * SECOND)])
            first.rollback()  # a number that is never used
            run.until(lambda e: sum(p.rows for p in e.partitions) == 2)
            reader.close()
            first.close()
            add(connection, "slow", [Hit(who=3, size=3, ts=8 * SECOND)])
            run.until(lambda e: sum(p.rows for p in e.partitions) == 3)
        with tl.live(Plain, {Hit: source}, tmp_path / "out", lateness="1h", once=True, **FAST) as run:
            run.wait(LONG)
    expected = [
        Hit(who=1, size=1, ts=5 * SECOND),
        Hit(who=2, size=2, ts=6 * SECOND),
        Hit(who=3, size=3, ts=8 * SECOND),
    ]
    assert run.digest == run_serial(Plain, expected).digest


def test_many_writers_at_once(tmp_path: Path, server: Server) -> None:
    """Transactions of several rows that take a while: each row is taken once."""
    import psycopg

    with connect(server) as connection:
        make(connection, "busy")
    source = tl.PostgresTable(server.dsn, "busy")

    def write(who: int) -> None:
        with psycopg.connect(server.dsn) as own:
            for turn in range(8):
                for size in range(3):
                    add(own, "busy", [Hit(who=who, size=size, ts=(turn * 3 + size) * SECOND)])
                    time.sleep(0.004 * (who + size))
                own.commit() if (turn + who) % 4 else own.rollback()

    with tl.live(Plain, {Hit: source}, tmp_path / "out", lateness="1h", **FAST) as run:
        threads = [threading.Thread(target=write, args=(who,)) for who in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with connect(server) as connection:
            ((count,),) = connection.execute("SELECT count(*) FROM busy").fetchall()
        run.until(lambda e: sum(p.rows for p in e.partitions) == count)
    assert count == sum(3 for who in range(5) for turn in range(8) if (turn + who) % 4)


def test_values_of_a_table(tmp_path: Path, server: Server) -> None:
    """Hostile names, numbers and times that are none: rows go aside, nothing is run."""
    with connect(server) as connection:
        connection.execute(
            'CREATE TABLE "o""dd; DROP" ("i d" serial PRIMARY KEY, "ts" timestamptz, "who" numeric, size text)'
        )
        connection.execute(
            """INSERT INTO "o""dd; DROP" (ts, who, size) VALUES ('2026-01-01 00:00:00.000001+02', 7, '5'), ('infinity', 1, '1'),
            ('2026-01-01', 2, 'many'), ('2026-01-02', 3, '4')"""
        )
    source = tl.PostgresTable(server.dsn, 'o"dd; DROP', by="i d")
    with tl.live(Plain, {Hit: source}, tmp_path / "out", once=True, **FAST) as run:
        run.wait(LONG)
    assert run.aside()["bad"].num_rows == 2
    assert run.last is not None
    assert sum(p.rows for p in run.last.partitions) == 2


def test_tables_that_will_not_do(tmp_path: Path, server: Server) -> None:
    with connect(server) as connection:
        make(connection, "good")
        connection.execute("CREATE TABLE loose (id bigint, ts timestamptz, who int, size int)")
        connection.execute("CREATE TABLE below (id bigint PRIMARY KEY, ts timestamptz, who int, size int)")
        connection.execute("INSERT INTO below VALUES (-1, now(), 1, 1)")
    for source, text in (
        (tl.PostgresTable(server.dsn, "nowhere"), "nowhere"), (tl.PostgresTable(server.dsn, "good", by="idd"), "no column 'idd'"),
        (tl.PostgresTable(server.dsn, "loose"), "no unique index"), (tl.PostgresTable(server.dsn, "good", by="ts"), "timestamptz"),
        (tl.PostgresTable(server.dsn, "below"), "id is -1"),
        (tl.PostgresTable("postgresql://me@127.0.0.1:1/db", "good"), "does not answer"),
    ):  # fmt: skip
        with pytest.raises(SourceError, match=text) as wrong:
            tl.live(Plain, {Hit: source}, tmp_path / "out", once=True, **FAST)
        assert wrong.value.code == "TL945"
        assert not (tmp_path / "out").exists()
        assert wrong.value.hint
    with pytest.raises(UsageError, match="names no table"):
        tl.live(Plain, {Hit: "postgresql://me@host/db"}, tmp_path / "other")


def table_of(rows: list[Hit]) -> pa.Table:
    return pa.table(
        {
            "ts": pa.array([e.ts for e in rows], pa.timestamp("us", "UTC")),
            "who": [e.who for e in rows],
            "size": [e.size for e in rows],
        }
    )


def write(folder: Path, rows: list[Hit], **options: Any) -> None:
    from deltalake import write_deltalake

    write_deltalake(str(folder), table_of(rows), mode="append", **options)


def test_versions_of_a_delta_table(tmp_path: Path) -> None:
    """What it has, then what each version adds, over restarts; laying it out anew changes nothing."""
    from deltalake import DeltaTable

    sent, folder = hits(240), tmp_path / "table"
    write(folder, sent[:40], partition_by=["who"])
    write(folder, sent[40:80])
    for number in range(2):
        with tl.live(Plain, {Hit: tl.DeltaTable(folder)}, tmp_path / "out", lateness="1h", **FAST) as run:
            for at in range(80 + number * 80, 160 + number * 80, 40):
                write(folder, sent[at : at + 40])
                run.until(lambda e, n=at: sum(p.rows for p in e.partitions) == n + 40)  # type: ignore[misc]
        DeltaTable(str(folder)).optimize.compact()
    with tl.live(Plain, {Hit: f"delta:{folder}"}, tmp_path / "out", lateness="1h", once=True, **FAST) as run:
        assert run.wait(LONG)
    assert run.last is not None
    assert sum(p.rows for p in run.last.partitions) == 240
    assert run.parity().same
    found = [(e.ts, e.who, e.size) for e in run.journal().events(Hit)] if hasattr(run, "journal") else None
    if found is not None:
        assert sorted(found) == sorted((e.ts, e.who, e.size) for e in sent)


def test_values_inside_structs_of_a_delta_table(tmp_path: Path) -> None:
    """By path, as an ingest reads them; lists are not taken apart."""
    from deltalake import write_deltalake

    sent, folder = hits(60), tmp_path / "table"
    for at in range(0, 60, 30):
        part = sent[at : at + 30]
        body = [{"who": e.who, "deep": {"size": e.size}, "ts": 0} for e in part]
        table = pa.table({"ts": pa.array([e.ts for e in part], pa.timestamp("us", "UTC")), "body": body, "more": [[{"who": 1}]] * 30})  # fmt: skip
        write_deltalake(str(folder), table, mode="append")
    paths: dict[str, Any] = {"who": "body.who", "size": "body.deep.size"}
    given = tl.DeltaTable(folder, tl.Source("", fields=paths))
    with tl.live(Plain, {Hit: given}, tmp_path / "out", once=True, **FAST) as run:
        assert run.wait(LONG)
    assert run.digest == run_serial(Plain, sent).digest
    wrong = tl.DeltaTable(folder, tl.Source("", fields={**paths, "size": "body.size"}))
    with pytest.raises(IngestError, match=r"body\.size") as missing:
        tl.live(Plain, {Hit: wrong}, tmp_path / "wrong", once=True)
    assert missing.value.code == "TL413"
    assert "body.deep.size" in str(missing.value.hint)
    several = tl.DeltaTable(folder, tl.Source("", fields={**paths, "who": "more[].who"}))
    with pytest.raises(UsageError, match="lists of objects are not taken apart"):
        tl.live(Plain, {Hit: several}, tmp_path / "wrong", once=True)


def test_a_delta_table_that_is_there_is_read_in_the_order_of_its_versions(tmp_path: Path) -> None:
    """By the names of its files, which are random, rows of a file that came later were late for no reason."""
    sent, folder = hits(60), tmp_path / "table"
    for at in range(0, 60, 5):
        write(folder, sent[at : at + 5])
        time.sleep(0.002)  # times of files are milliseconds
    with tl.live(Plain, {Hit: tl.DeltaTable(folder)}, tmp_path / "out", once=True, **FAST) as run:
        assert run.wait(LONG)
    assert run.digest == run_serial(Plain, sent).digest


def test_a_delta_table_with_folders_that_are_written_in_escapes(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    sent, folder = hits(50), tmp_path / "table"
    for at, place in enumerate(["plain", "a b", "é/4", "50%", "x=y&z"]):
        part = table_of(sent[10 * at : 10 * at + 10]).append_column("at home", pa.array([place] * 10))
        write_deltalake(str(folder), part, mode="append", partition_by=["at home"])
        if at == 1:
            with tl.live(Plain, {Hit: tl.DeltaTable(folder)}, tmp_path / "out", **FAST) as run:
                run.until(lambda e: sum(p.rows for p in e.partitions) == 20)
    with tl.live(Plain, {Hit: tl.DeltaTable(folder)}, tmp_path / "out", once=True, **FAST) as run:
        assert run.wait(LONG)
    assert run.digest == run_serial(Plain, sent).digest


def test_a_delta_table_whose_rows_change(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    folder = tmp_path / "table"
    write(folder, hits(20))
    with tl.live(Plain, {Hit: tl.DeltaTable(folder)}, tmp_path / "out", **FAST) as run:
        run.until(lambda e: sum(p.rows for p in e.partitions) == 20)
        DeltaTable(str(folder)).delete("who = 1")
        with pytest.raises(SourceError, match="changes or removes rows"):
            run.wait(LONG)
    with pytest.raises(SourceError, match="no Delta table"):
        with tl.live(Plain, {Hit: tl.DeltaTable(tmp_path / "none")}, tmp_path / "other", **FAST) as run:
            run.wait(LONG)


def test_a_delta_table_that_was_made_anew(tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "table"
    write(folder, hits(20))
    with tl.live(Plain, {Hit: tl.DeltaTable(folder)}, tmp_path / "out", once=True, **FAST) as run:
        run.wait(LONG)
    shutil.rmtree(folder)
    write(folder, hits(30))
    with pytest.raises(SourceError, match="another table"):
        with tl.live(Plain, {Hit: tl.DeltaTable(folder)}, tmp_path / "out", **FAST) as run:
            run.wait(LONG)


def test_a_delta_table_that_another_process_has_read_on(tmp_path: Path) -> None:
    """Two processes begin a run at the same moment; the one that stands by takes over later."""
    folder, (kind,) = tmp_path / "table", event_types([Hit])
    write(folder, hits(20))
    first, second = (DeltaSource(tl.DeltaTable(folder)) for _ in range(2))
    for source in (first, second):
        source.check(kind)
    first.start(0, kind, [], [], lambda: None)
    write(folder, hits(5))
    read = first.poll(1000)
    assert sum(len(b.ts) for b in read) == 25
    at = Partition(0, 0, "table", position=read[-1].end, cursor=read[-1].cursor)
    write(folder, hits(7))
    second.start(0, kind, [at], read[0].notes, lambda: None)
    assert sum(len(b.ts) for b in second.poll(1000)) == 7
    for source in (first, second):
        source.close()


class _Counted(tl.Event):
    user: int


def test_rows_of_table_files_have_positions_from_0(tmp_path: Path) -> None:
    """A run that is gone on with has such positions of the file that it read last: with others it would take a row twice."""
    ts = pa.array([1, 2, 3], pa.timestamp("us", "UTC"))
    for name in ("a", "b"):
        pq.write_table(pa.table({"ts": ts, "user": [1, 2, 3]}), tmp_path / f"{name}.parquet")
    source = Files(Source([str(tmp_path)], ts="ts"), once=True)
    source.start(0, event_types([_Counted])[0], (), (), lambda: None)
    found = source.poll(100)
    assert [int(n) for batch in found for n in batch.offsets] == [0, 1, 2, *((1 << 32) + n for n in range(3))]
    assert [batch.end for batch in found] == [2, (1 << 32) + 2]
