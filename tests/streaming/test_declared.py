"""Event types of a live run change with its program: types and fields are added, fields are left out."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import timelapse as tl
from tests.depth import deep
from tests.patience import LONG
from tests.streaming import later_version as later
from tests.streaming.postgres_server import BINARIES, Server
from timelapse.errors import RunError
from timelapse.run import run_serial
from timelapse.segments.types import EventType, event_types
from timelapse.streaming.declared import Unfit, differences, fitted, grown
from timelapse.streaming.evolution import Migration
from timelapse.streaming.pack import Pack, packed
from timelapse.streaming.reading import Reading
from timelapse.streaming.shadow import Shadow
from timelapse.streaming.sinks import Delta, Parquet, Postgres
from timelapse.streaming.sinks.base import Sink


class Hit(tl.Event):
    who: int
    size: int
    note: str


class Seen(tl.Record, key="who"):
    who: int
    n: int


class First(tl.Program):
    n: tl.Counter[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += e.size
        if self.n[e.who] % 2 == 0:
            self.emit(Seen(who=e.who, n=self.n[e.who]))

    @tl.on(Hit, after=30)
    def later(self, e: Hit) -> None:
        self.emit(Seen(who=e.who, n=-self.n[e.who]))


FAST: dict[str, Any] = {"trigger": "5ms", "ahead": None, "idle": None, "lateness": 40e-6}


def fed(
    program: tl.Program,
    out: Path,
    events: Mapping[type[tl.Event], Sequence[Any]],
    parts: int = 3,
    **options: Any,
) -> list[str]:
    """Run a program over further events of some types, in some parts, and stop it. Returns what the change told."""
    pushes = {kind: tl.Push() for kind in events}
    with tl.live(program, pushes, out, **{**FAST, **options}) as run:
        run.until(lambda e: True) if run.last is not None else None
        for part in range(parts):
            sent = 0 if run.last is None else sum(p.rows for p in run.last.partitions)
            for kind, own in events.items():
                some = own[len(own) * part // parts : len(own) * (part + 1) // parts]
                sent += len(some)
                if some:
                    pushes[kind].send(some)
            run.until(lambda e, sent=sent: sum(p.rows for p in e.partitions) == sent)  # type: ignore[misc]
        last = run.last
        assert last is not None
        number = last.last_change
    return list(next(Reading.open(out, program).epochs(number, number)).about.decisions) if number else []


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    names = [n for n in ("who", "n", "device") if n in table.column_names]
    return [
        (
            round(r["ts"].timestamp() * 1e6) if hasattr(r["ts"], "timestamp") else r["ts"],
            *(r[n] for n in names),
        )
        for r in table.to_pylist()
    ]


def made(seed: int) -> tuple[list[Hit], list[later.Hit], list[later.Refund]]:
    rng = random.Random(seed)
    first = [
        Hit(who=rng.randint(0, 3), size=rng.randint(0, 3), note="x", ts=1_000 + n * 7) for n in range(60)
    ]
    start = first[-1].ts + 7
    second = [
        later.Hit(
            who=rng.randint(0, 3), size=rng.choice([None, 1, 2]), device=rng.choice([None, "a", "b"]), ts=start + n * 7
        )
        for n in range(60)
    ]  # fmt: skip
    refunds = [later.Refund(who=rng.randint(0, 3), n=1, ts=start + n * 35) for n in range(12)]
    return first, second, refunds


def as_later(hit: Hit) -> later.Hit:
    return later.Hit(who=hit.who, size=hit.size, device=None, ts=hit.ts)


@pytest.mark.parametrize("kernel", ["interpreted", "auto"])
@pytest.mark.parametrize("late", ["side", "correct"])
@pytest.mark.parametrize("seed", range(deep(2)))
def test_types_and_fields_are_added_and_left_out(
    seed: int, late: Any, kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that wait, and those for which `after=` handlers are still called, are of both versions; parity and a rebuild hold."""
    if kernel == "interpreted":
        monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    out = tmp_path / "out"
    first, second, refunds = made(seed)
    fed(First(), out, {Hit: first}, late=late)
    before = Reading.open(out, First()).last
    assert before is not None
    assert before.held > 3
    streams: dict[type[tl.Event], Any] = {later.Hit: second, later.Refund: refunds}
    with pytest.raises(RunError, match="event type Refund is added") as caught:
        tl.live(later.Later(), {kind: tl.Push() for kind in streams}, out, **FAST)
    assert caught.value.code == "TL943"
    told = fed(later.Later(), out, streams, evolve=Migration(before=First()), late=late)
    assert told[1:] == [
        "state devices begins empty",
        "Hit.size was int and is int | None",
        "Hit no longer has the field note: None in rows from now on",
        "Hit has the field device besides: None in rows from before",
        "event type Refund is added",
    ]
    found = Reading.open(out, later.Later())
    last = found.last
    assert last is not None
    events = [*map(as_later, first), *second, *refunds]
    events.sort(key=lambda e: (e.ts, type(e) is later.Refund))
    done = [e for e in events if e.ts <= (last.complete or 0)]
    serial = run_serial(later.Tied(at=before.complete or 0), done, until=last.complete)
    assert rows(found.outputs(Seen)) == rows(serial.table(later.Seen))
    assert found.parity().same, found.parity().text
    # Rows of the older version come late once the newer one runs: of another program, they stay aside.
    journal = found.journal()
    assert journal.count == last.end_seq
    assert [t.texts for t in journal.types] == [
        (("who", "int"), ("size", "int | None"), ("note", "str | None"), ("device", "str | None")),
        (("who", "int"), ("n", "int")),
    ]
    assert [(e.who, e.ts) for e in journal.events(later.Hit)] == [
        (e.who, e.ts) for e in done if isinstance(e, later.Hit)
    ]
    rest = [later.Hit(who=1, size=1, device="c", ts=events[-1].ts + 7 * n) for n in range(1, 9)]
    fed(later.Later(), out, {later.Hit: rest, later.Refund: []}, rebuild=True, late=late)
    again = Reading.open(out, later.Later())
    assert again.parity().same
    assert again.last is not None
    done = [e for e in [*events, *rest] if e.ts <= (again.last.complete or 0)]
    serial = run_serial(later.Tied(at=before.complete or 0), done, until=again.last.complete)
    assert rows(again.outputs(Seen)) == rows(serial.table(later.Seen))
    assert again.journal().count == again.last.end_seq


def test_a_shadow_declares_more_than_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it declares besides is empty; once promoted, that comes."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    out = tmp_path / "out"
    first, second, refunds = made(7)
    fed(First(), out, {Hit: first[:30]})
    shadow = Shadow(out, later.Later(), "next")
    shadow.follow()
    shadow.save()
    fed(First(), out, {Hit: first[30:]})
    shadow.follow()
    last = Reading.open(out, First()).last
    assert last is not None
    done = [as_later(h) for h in first if h.ts <= (last.complete or 0)]
    serial = run_serial(later.Later(), done, until=last.complete)
    assert shadow.progress().digest == serial.digest
    shadow.save()
    fed(later.Later(), out, {later.Hit: second, later.Refund: refunds}, promote="next")
    now = Reading.open(out, later.Later())
    assert now.parity().same
    end = now.last
    assert end is not None
    events = sorted([*map(as_later, first), *second, *refunds], key=lambda e: (e.ts, type(e) is later.Refund))
    always = run_serial(later.Later(), [e for e in events if e.ts <= (end.complete or 0)], until=end.complete)
    begun = last.complete or 0
    assert [r for r in rows(now.outputs(Seen)) if r[0] > begun] == [
        r for r in rows(always.table(later.Seen)) if r[0] > begun
    ]
    other = Shadow(out, later.Later(), "other")
    other.follow()
    assert other.progress().digest == always.digest


def test_a_stream_may_be_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A type that the program does not hear needs no stream later."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    out = tmp_path / "out"
    first, _, refunds = made(3)
    fed(First(), out, {later.Refund: refunds[:2], Hit: first[:30]})
    fed(First(), out, {Hit: first[30:45]}, parts=1)
    fed(First(), out, {later.Refund: refunds[2:], Hit: first[45:]}, parts=1)
    found = Reading.open(out, First())
    assert found.parity().same
    assert [t.name for t in found.journal().types] == ["Refund", "Hit"]
    assert found.last is not None
    assert sum(p.rows for p in found.last.partitions) == len(first) + len(refunds)


@pytest.mark.parametrize("named", [True, False])
def test_a_record_keeps_its_types(named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs of all versions stand in one table, also of those before the last. Where the code does not name the record, its first output tells."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    out = tmp_path / "out"
    first, second, refunds = made(12)
    fed(First(), out, {Hit: first})
    streams: dict[type[tl.Event], Any] = {later.Hit: second, later.Refund: refunds}
    fed(later.Later(), out, streams, evolve=Migration(before=First()))
    pushes: dict[type[tl.Event], tl.Push] = {kind: tl.Push() for kind in streams}
    texts = (later.Texts if named else later.hidden_texts())()
    problem = "Seen.n was int64 and is (large_)?string"
    evolve = Migration(before=later.Later(), drop=["devices"])
    run = tl.live(texts, pushes, out, evolve=evolve, **FAST)
    if not named:
        count = Reading.open(out, texts).outputs(Seen).num_rows
        start = second[-1].ts
        rest = [later.Hit(who=1, size=1, device="c", ts=start + 50 * n) for n in range(1, 9)]
        run.until(lambda e: e.last_change > 4)
        pushes[later.Hit].send(rest)
        pushes[later.Refund].send([later.Refund(who=1, n=1, ts=start + 400)])
    with pytest.raises(RunError, match=problem) as caught:
        assert run.wait(LONG)
    assert caught.value.code == "TL847"
    if not named:
        assert Reading.open(out, texts).outputs(Seen).num_rows == count


def test_sinks_have_outputs_of_all_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables get columns of later versions; rows of before have nothing in them."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    if BINARIES is None:
        pytest.skip("no PostgreSQL on this machine: apt install postgresql")
    out, server = tmp_path / "out", Server()
    try:

        def sinks() -> list[Sink]:
            return [Delta(tmp_path / "delta"), Parquet(tmp_path / "parquet"), Postgres(server.dsn)]

        import deltalake
        import psycopg

        with psycopg.connect(
            server.dsn
        ) as connection:  # made beforehand, with columns that the database fills
            connection.execute(
                "CREATE TABLE seen (id bigserial PRIMARY KEY, written timestamptz NOT NULL DEFAULT now(), ts timestamptz, "
                "phase bigint, seq bigint, ordinal bigint, who bigint, n bigint)"
            )
        first, second, refunds = made(11)
        fed(First(), out, {Hit: first}, sinks=sinks())
        evolve = Migration(before=First())
        fed(later.Later(), out, {later.Hit: second, later.Refund: refunds}, evolve=evolve, sinks=sinks())
        expected = set(rows(Reading.open(out, later.Later()).outputs(Seen)))
        names = ["ts", "who", "n", "device"]
        delta = deltalake.DeltaTable(str(tmp_path / "delta" / "Seen")).to_pyarrow_table()
        assert set(rows(delta)) == expected
        assert delta.num_rows == len(rows(delta))
        with psycopg.connect(server.dsn) as connection:
            found = connection.execute(f"SELECT {', '.join(names)} FROM seen").fetchall()
            nullable = "SELECT column_name FROM information_schema.columns WHERE table_name = 'seen' AND is_nullable = 'NO'"
            assert {name for (name,) in connection.execute(nullable)} == {"id", "written"}
        assert {(round(ts.timestamp() * 1e6), who, n, device) for ts, who, n, device in found} == expected
        files = pa.concat_tables(
            [pq.read_table(f) for f in sorted((tmp_path / "parquet").rglob("*.parquet"))],
            promote_options="default",
        )
        assert set(rows(files)) == expected
        assert delta.num_rows == len(found) == files.num_rows
    finally:
        server.close()


def test_what_does_not_fit() -> None:
    class Other(tl.Event):
        who: int
        when: int

    class Text(tl.Event):
        who: str

    known = event_types([Other])
    for fields, problem in (
        ([("who", "str"), ("when", "int")], "Other.who was int and is str"),
        (
            [("who", "int"), ("when", "int"), ("more", "int")],
            "Other.more is new, and the journal's rows have none",
        ),
    ):
        with pytest.raises(Unfit, match=problem):
            grown(known, [EventType.parse("Other", fields)])
    optional = EventType.parse("Other", [("when", "int | None"), ("who", "int")])
    wider = grown(known, [optional])
    assert wider[0].texts == (("who", "int"), ("when", "int | None"))
    with pytest.raises(Unfit, match=r"was int \| None and is int"):
        grown(wider, known)
    assert grown(wider, [optional]) == wider
    assert grown(known, event_types([Text])) == (*known, *event_types([Text]))
    assert differences(known, wider, [optional]) == ["Other.when was int and is int | None"]


def test_rows_are_fitted_to_a_later_version() -> None:
    kind = EventType.parse("Hit", [("who", "int"), ("more", "str | None")])
    journal = pa.table({"seq": [1], "ts": [5], "who": [2], "gone": [3], "@stream": [0], "@offset": [9]})
    assert fitted(kind, journal).to_pydict() == {
        "seq": [1], "ts": [5], "who": [2], "more": [None], "@stream": [0], "@offset": [9],
    }  # fmt: skip
    way = pa.table({"ts": [5], "@stream": [0], "who": [2]})
    assert fitted(kind, way).column_names == ["ts", "@stream", "who", "more"]
    assert fitted(kind, fitted(kind, way)).equals(fitted(kind, way))


class Label(tl.Record):
    who: int
    label: str


class Labelled(tl.Program):
    n: tl.Counter[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += e.size
        self.emit(Label(who=e.who, label="x"))


class Numbered(tl.Program):
    n: tl.Counter[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += e.size
        self.emit(later.Label(who=e.who, number=e.size))


def test_a_delta_table_where_a_version_leaves_a_field_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that had to be there; and the version after the next has it again."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    deltalake = pytest.importorskip("deltalake")
    first, _, _ = made(4)
    before: tl.Program | None = None
    for n, program in enumerate((Labelled(), Numbered(), Labelled())):
        evolve: Any = False if before is None else Migration(before=before)
        sinks = [Delta(tmp_path / "delta")]
        fed(program, tmp_path / "out", {Hit: first[20 * n : 20 * n + 20]}, evolve=evolve, sinks=sinks)
        before = program
    expected = Reading.open(tmp_path / "out", Labelled()).outputs("Label")
    table = deltalake.DeltaTable(str(tmp_path / "delta" / "Label")).to_pyarrow_table()
    found, wanted = (
        sorted(
            zip(*(t.column(c).to_pylist() for c in ("seq", "who", "label", "number")), strict=True), key=repr
        )
        for t in (table, expected)
    )
    assert found == wanted


class Named(msgspec.Struct):
    name: str


def test_columns_of_a_pack_are_aligned() -> None:
    """Wherever its sections begin: Arrow computes with them as they are."""
    for size in range(1, 9):
        about = Named(name="x" * size)
        data, _ = packed(about, {"a": pa.table({"n": list(range(size))}), "b": pa.table({"m": [1.5] * size})})
        pack = Pack("name", data, Named, "")
        for name in ("a", "b"):
            for column in pack.table(name).columns:
                assert all(
                    b.address % 8 == 0 for chunk in column.chunks for b in chunk.buffers() if b is not None
                )
