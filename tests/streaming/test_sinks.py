"""Sinks have every output exactly once, whatever fails between the two, and say so where they cannot go on."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import timelapse as tl
from tests.patience import LONG, until
from tests.streaming.postgres_server import BINARIES, Server
from tests.streaming.test_live import FAST, Hit, Plain, Seen, hits
from timelapse.errors import SourceError, UsageError
from timelapse.streaming.live import Live
from timelapse.streaming.sinks import Callback, Delta, Parquet, Postgres
from timelapse.streaming.sinks.base import Marker, Sink, SinkError
from timelapse.streaming.sinks.choose import sink_of


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")


@pytest.fixture(scope="module")
def database() -> Iterator[Server]:
    if BINARIES is None:
        pytest.skip("no PostgreSQL on this machine: apt install postgresql")
    server = Server()
    yield server
    server.close()


class Faulty:
    """A sink that fails before or after what it does."""

    def __init__(self, sink: Sink, seed: int, share: float = 0.3) -> None:
        self._sink, self._rng, self._share = sink, random.Random(seed), share

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def put(self, record: str, table: pa.Table, before: Marker | None, now: Marker) -> None:
        if self._rng.random() < self._share:
            raise OSError("not now")
        self._sink.put(record, table, before, now)
        if self._rng.random() < self._share:
            raise OSError("the answer was lost")


def sessions(out: Path, sink_of_session: Any, count: int = 3, rows: int = 60) -> Live:
    """Some sessions of a live run, each with the sink made anew."""
    sent = hits(count * rows)
    for number in range(count):
        push = tl.Push()
        with tl.live(Plain, {Hit: push}, out, sinks=[sink_of_session(number)], **FAST) as run:
            for at in range(number * rows, number * rows + rows, 10):
                push.send(sent[at : at + 10])
                time.sleep(0.02)
            if number == count - 1:
                push.close()
                run.wait(LONG)
            else:
                run.until(lambda e, n=number: e.end_seq >= n * rows + rows - 1)  # type: ignore[misc]
    return run


def same(run: Live, table: pa.Table) -> None:
    """A sink has what the run has, in any order."""
    expected = run.outputs(Seen).sort_by([("seq", "ascending"), ("ordinal", "ascending")]).to_pylist()
    found = table.select(["ts", "phase", "seq", "ordinal", "who", "n"]).sort_by(
        [("seq", "ascending"), ("ordinal", "ascending")]
    )
    assert found.to_pylist() == expected
    assert len(expected) == 180


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_parquet(tmp_path: Path, share: float) -> None:
    run = sessions(tmp_path / "out", lambda n: Faulty(Parquet(tmp_path / "tables"), n, share))
    same(run, pq.read_table(tmp_path / "tables" / "Seen"))
    with pytest.raises(SinkError, match="another live run"):
        tl.live(Plain, {Hit: tl.Push()}, tmp_path / "other", sinks=[Parquet(tmp_path / "tables")], **FAST)
    assert not (tmp_path / "other").exists()


def test_outputs_of_another_run(tmp_path: Path) -> None:
    """A run that is there gets a sink besides."""
    sessions(tmp_path / "first", lambda n: Parquet(tmp_path / "tables"), count=1)
    tl.live(Plain, {Hit: tl.Push()}, tmp_path / "other", **FAST).end()
    with tl.live(
        Plain, {Hit: tl.Push()}, tmp_path / "other", sinks=[Parquet(tmp_path / "tables")], **FAST
    ) as other:
        other._loop.push_of("Hit", "").send(hits(20))  # type: ignore[union-attr]
        until(lambda: other.sinks[0][2] is not None, other)
        assert "another live run" in str(other.sinks[0][2])
    assert other.last is not None, "the run itself goes on"


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_delta(tmp_path: Path, share: float) -> None:
    from deltalake import DeltaTable

    run = sessions(tmp_path / "out", lambda n: Faulty(Delta(tmp_path / "tables"), n, share))
    table = DeltaTable(str(tmp_path / "tables" / "Seen"))
    same(run, pa.table(table.to_pyarrow_table()))
    assert table.transaction_version(f"timelapse-{run.run.run}") == run.last.number  # type: ignore[union-attr]


def test_postgres(tmp_path: Path, database: Server) -> None:
    """With faults, and a server that is killed and begun again in the middle."""
    import psycopg

    ended = threading.Event()

    def kill() -> None:
        while not (tmp_path / "out" / "live.json").exists():  # a new run asks its sinks first
            ended.wait(0.02)
        up = 0.2
        while not ended.wait(up):
            database.stop()
            time.sleep(0.05)
            database.start()
            up *= 1.3  # on a slow machine nothing might get done within the first of these times

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        run = sessions(tmp_path / "out", lambda n: Faulty(Postgres(database.dsn, schema="one"), n), rows=60)
    finally:
        ended.set()
        thread.join()
    with tl.live(
        Plain, {Hit: tl.Push()}, tmp_path / "out", sinks=[Postgres(database.dsn, schema="one")], **FAST
    ) as again:
        until(lambda: again.sinks[0][1] == again.last.number, again)  # type: ignore[union-attr]
    with psycopg.connect(database.dsn) as connection:
        rows = connection.execute(
            "SELECT extract(epoch FROM ts) * 1000000, phase, seq, ordinal, who, n FROM one.seen"
        ).fetchall()
    columns = list(zip(*rows, strict=True))
    names = ["ts", "phase", "seq", "ordinal", "who", "n"]
    same(
        run,
        pa.table(
            {name: pa.array([int(v) for v in values]) for name, values in zip(names, columns, strict=True)}
        ),
    )


class Text(tl.Record):
    text: str
    some: float | None
    data: bytes


class Texts(tl.Program):
    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.emit(Text(text="'); DROP TABLE seen; --\0\\\t\n", some=None if e.who else 1.5, data=b"\0\xff"))


def test_texts_in_postgres(tmp_path: Path, database: Server) -> None:
    import psycopg

    push = tl.Push()
    with tl.live(
        Texts, {Hit: push}, tmp_path / "out", sinks=[Postgres(database.dsn, schema='two"; DROP')], **FAST
    ) as run:
        push.send(hits(10))
        push.close()
        run.wait(LONG)
    assert run.sinks[0][2] is None
    with psycopg.connect(database.dsn) as connection:
        rows = connection.execute('SELECT text, "some", data FROM "two""; DROP".text ORDER BY seq').fetchall()
    assert len(rows) == 10
    assert rows[0] == ("'); DROP TABLE seen; --␀\\\t\n", 1.5, b"\0\xff")
    assert rows[1][1] is None


def test_a_function_is_called_at_least_once(tmp_path: Path) -> None:
    found: list[tuple[str, int, int]] = []
    run = sessions(
        tmp_path / "out",
        lambda n: Callback(lambda record, table, epoch: found.append((record, table.num_rows, epoch))),
    )
    assert sum(rows for _, rows, _ in found) == run.outputs(Seen).num_rows
    assert [epoch for _, _, epoch in found] == sorted({epoch for _, _, epoch in found})


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://nobody@127.0.0.1:1/nowhere", "parquet:{at}/file/tables", "delta:{at}/file", "kafka://127.0.0.1:1/alerts",
        "postgresql://{dsn}/nowhere",
    ],
)  # fmt: skip
def test_a_new_run_asks_its_sinks_first(
    tmp_path: Path, database: Server, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that does not exist was found once the run had begun; and a folder that cannot be made was asked for again and again."""
    monkeypatch.setattr("timelapse.streaming.sinks.kafka._FIRST_WAIT", 0.3)
    (tmp_path / "file").touch()
    sink = sink_of(
        text.format(at=tmp_path, dsn=database.dsn.removeprefix("postgresql://").rpartition("/")[0])
    )
    with pytest.raises(SinkError):
        tl.live(Plain, {Hit: tl.Push()}, tmp_path / "out", sinks=[sink], **FAST)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_run_that_another_process_begins_meanwhile(tmp_path: Path) -> None:
    """What its sinks have is of the same run: who comes second goes on with it, and does not take it for another one."""

    class Slow(Parquet):
        def check(self, records: Any) -> None:
            if not (tmp_path / "out").exists():
                once()
            super().check(records)

    (tmp_path / "hits").mkdir()

    def once(sink: type[Parquet] = Parquet) -> Live:
        for n, row in enumerate(hits(40)):
            (tmp_path / "hits" / f"{n}.jsonl").write_text(
                f'{{"ts": {row.ts}, "who": {row.who}, "size": {row.size}}}\n'
            )
        with tl.live(
            Plain, {Hit: tmp_path / "hits"}, tmp_path / "out", once=True, sinks=[sink(tmp_path / "table")], **FAST
        ) as run:  # fmt: skip
            run.wait(LONG)
        return run

    run = once(Slow)
    assert [error for *_, error in run.sinks] == [None]
    ours = run.outputs(Seen)
    assert ours.num_rows == 40
    there = pq.read_table(tmp_path / "table" / "Seen").select(ours.column_names)
    assert there.sort_by("seq").to_pylist() == ours.sort_by("seq").to_pylist()


@pytest.mark.parametrize("kind", [Parquet, Delta])
def test_a_folder_that_cannot_be(tmp_path: Path, kind: Any) -> None:
    """A run that is there was asked for it again and again, and its end said nothing."""
    tl.live(Plain, {Hit: tl.Push()}, tmp_path / "out", **FAST).end()
    (tmp_path / "file").touch()
    with tl.live(
        Plain, {Hit: tl.Push()}, tmp_path / "out", sinks=[kind(tmp_path / "file" / "tables")], **FAST
    ) as run:
        until(lambda: run.sinks[0][2] is not None, run)
        assert "is no folder" in str(run.sinks[0][2])


def test_a_database_of_another_run_is_left_alone(tmp_path: Path, database: Server) -> None:
    sessions(tmp_path / "out", lambda n: Postgres(database.dsn, schema="used"), count=1)
    with pytest.raises(SinkError, match="another live run"):
        tl.live(
            Plain,
            {Hit: tl.Push()},
            tmp_path / "other",
            sinks=[Postgres(database.dsn, schema="used")],
            **FAST,
        )
    assert not (tmp_path / "other").exists()


def test_texts_on_the_command_line(tmp_path: Path) -> None:
    assert "tables" in sink_of(f"parquet:{tmp_path}/tables").text
    assert "secret" not in sink_of("postgresql://me:secret@host/db").text
    for wrong in ("parquet:", "tables", "s3://bucket", "kafka://b"):
        with pytest.raises(UsageError):
            sink_of(wrong)


def test_a_database_that_is_only_asked_keeps_no_connection(database: Server, tmp_path: Path) -> None:
    """The run never begins, since a source is refused."""
    sink = Postgres(database.dsn, schema="asked")
    with pytest.raises(SourceError):
        tl.live(Plain, {Hit: tl.DeltaTable(tmp_path / "none")}, tmp_path / "out", sinks=[sink], **FAST)
    assert sink._connection is None
