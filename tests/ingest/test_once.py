"""Of rows that share what is unique one is an event: which one, and what is told of the others, does not depend on what was taken in when, or where."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from tests.depth import some
from timelapse.errors import EventOrderError
from timelapse.log import Log, Source
from timelapse.segments.quarantine import beaten_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Pay(tl.Event):
    id: int | None
    cents: float
    device: str | None


class Beat(tl.Event):
    pass


class Row(NamedTuple):
    ts: int
    id: int | None
    cents: float
    device: str | None
    arrived: int


Files = dict[str, list[Row]]


def _file(path: Path, rows: Sequence[Row]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (",".join("" if v is None else str(v) for v in row) for row in rows)
    path.write_text("ts,id,cents,device,arrived\n" + "".join(f"{line}\n" for line in lines))
    return path


def _files(rng: random.Random) -> Files:
    """Rows with few ids and times: many are sent again, identical or changed, in the same file or another."""
    names = rng.sample("abcdefgh", rng.randrange(2, 7))
    found: Files = {name: [] for name in names}
    sent: list[Row] = []
    for _ in range(rng.randrange(10, 80)):
        if sent and rng.random() < 0.5:
            row = rng.choice(sent)
            changed = rng.randrange(4)
            if changed == 1:
                row = row._replace(ts=max(0, row.ts + rng.randrange(-1, 2)))
            elif changed == 2:
                row = row._replace(cents=rng.choice([0.0, -0.0, 0.5, float("nan")]))
            elif changed == 3:
                row = row._replace(device=rng.choice(["a", "b", None]))
        else:
            some = rng.choice([None, *range(12)])
            row = Row(rng.randrange(6), some, rng.choice([0.0, 1.0]), rng.choice(["a", None]), 0)
        row = row._replace(arrived=row.ts + rng.randrange(5))
        sent.append(row)
        found[rng.choice(names)].append(row)
    return found


class Meant(NamedTuple):
    events: list[Row]
    duplicates: int
    conflicts: int


def _value(row: Row) -> str:
    return repr(row[:4])  # every NaN is one value; -0.0 is not 0.0


def _meant(files: Files, keep: str, arrival: bool) -> Meant:
    """The rule, over all rows at once."""
    placed = [(row, (row.ts, name, n)) for name, rows in files.items() for n, row in enumerate(rows)]
    by_id: dict[int, list[tuple[Row, tuple[int, str, int]]]] = defaultdict(list)
    taken = [one for one in placed if one[0].id is None]
    duplicates = conflicts = 0
    for one in placed:
        if one[0].id is not None:
            by_id[one[0].id].append(one)
    for own in by_id.values():
        own.sort(key=lambda one: (one[0].arrived if arrival else one[0].ts, one[1]))
        taken.append(own[-1 if keep == "last" else 0])
        distinct = len({_value(row) for row, _ in own})
        duplicates += len(own) - distinct
        conflicts += distinct - 1
    return Meant([row for row, _ in sorted(taken, key=lambda one: one[1])], duplicates, conflicts)


def _check(log: Log, meant: Meant, rows: int) -> None:
    assert [repr((e.ts, e.id, e.cents, e.device)) for e in log.events(Pay)] == [
        _value(r) for r in meant.events
    ]
    entries = [s for i in log.manifest.ingests for s in i.sources]
    assert sum(s.duplicates for s in entries) == meant.duplicates
    assert sum(s.conflicts for s in entries) == meant.conflicts
    assert sum(s.read for s in entries) == rows == log.count + meant.duplicates + meant.conflicts
    assert sum(s.rows - s.displaced for s in entries) == log.count
    assert log.quarantine().num_rows == meant.conflicts


def _texts(log: Log) -> list[str]:
    return sorted(log.quarantine()["raw"].to_pylist())


HOW = [(seed, keep, arrival) for seed in range(14) for keep in ("first", "last") for arrival in (False, True)]


@pytest.mark.parametrize(
    ("seed", "keep", "arrival", "on_spark"),
    [
        *((*how, False) for how in some(HOW)),
        pytest.param(14, "first", False, True, marks=pytest.mark.spark),
        pytest.param(15, "last", True, True, marks=pytest.mark.spark),
    ],
)
def test_any_split_and_order_of_appends_gives_the_same_log(
    seed: int, keep: Any, arrival: bool, on_spark: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    rng = random.Random(f"{seed} {keep} {arrival}")
    files = _files(rng)
    paths = [_file(tmp_path / "raw" / f"{name}.csv", rows) for name, rows in files.items()]
    meant, rows = _meant(files, keep, arrival), sum(map(len, files.values()))
    spark: SparkSession | None = request.getfixturevalue("spark") if on_spark else None

    def source(some: Sequence[Path]) -> Source:
        return Source(
            [str(p) for p in some], unique=["id"], conflicts=keep, arrival="arrived" if arrival else None
        )

    whole = Log.write(tmp_path / "whole", {Pay: source(paths)})
    _check(whole, meant, rows)
    if spark is not None:
        there = Log.write(tmp_path / "there", {Pay: source(paths)}, spark, partitions=3)
        assert there.id == whole.id
        _check(there, meant, rows)
        assert _texts(there) == _texts(whole)
    for split in range(1 if spark else 3):
        left = rng.sample(paths, len(paths))
        log: Log | None = None
        while left:
            some = [left.pop() for _ in range(min(len(left), rng.randrange(1, 4)))]
            if log is None:
                log = Log.write(tmp_path / f"log{split}", {Pay: source(some)})
                continue
            before = [(version, log.id) for version, log in [(log.version, log)]]
            log = log.append({Pay: source(some)}, spark if rng.random() < 0.7 else None)
            for version, id_ in before:  # earlier versions stay what they were
                assert Log.open(log.path, version).id == id_
        assert log is not None
        assert log.id == whole.id
        _check(log, meant, rows)
        assert _texts(log) == _texts(whole)


def test_what_was_in_conflict_and_is_taken_after_all_conflicts_no_more(tmp_path: Path) -> None:
    """By arrival: a value, a correction, the value once more. It is the event again; the correction is in the quarantine."""
    sent = [Row(5, 1, 1.0, "a", 6), Row(5, 1, 2.0, "a", 7), Row(5, 1, 1.0, "a", 8), Row(5, 1, 2.0, "a", 9)]
    log: Log | None = None
    seen = []
    for number, row in enumerate(sent):
        part = Source(
            _file(tmp_path / f"{number}.csv", [row]), unique=["id"], conflicts="last", arrival="arrived"
        )
        log = Log.write(tmp_path / "log", {Pay: part}) if log is None else log.append({Pay: part})
        (event,) = log.events(Pay)
        quarantine = log.quarantine().to_pylist()
        seen.append(
            (
                event.cents,
                ["'cents': 1.0" in b["raw"] for b in quarantine],
                {b["file"][-5:] for b in quarantine},
            )
        )
        assert all(b["reason"] == "another event has the same id, and the last is taken" for b in quarantine)
    assert seen == [
        (1.0, [], set()), (2.0, [True], {"0.csv"}), (1.0, [False], {"1.csv"}), (2.0, [True], {"2.csv"})
    ]  # fmt: skip


def test_slices_and_versions_hold_up_to_where_an_event_was_replaced(tmp_path: Path) -> None:
    rows = [Row(10 * n, n, float(n), None, 0) for n in range(20)]
    log = Log.write(tmp_path / "log", {Pay: Source(_file(tmp_path / "b.csv", rows), unique=["id"])})
    earlier = Row(125, 15, 0.5, None, 0)
    log = log.append({Pay: Source(_file(tmp_path / "c.csv", [earlier]), unique=["id"])})
    entry = log.manifest.ingests[-1]
    assert (entry.rewritten, entry.late, entry.sources[0].displaced, entry.sources[0].conflicts) == (
        13,
        1,
        1,
        1,
    )
    assert [e.ts for e in log.events(Pay)][11:17] == [110, 120, 125, 130, 140, 160]
    (bad,) = log.quarantine().to_pylist()
    assert bad["file"] == str(tmp_path / "b.csv")
    assert bad["line"] is None
    assert "'cents': 15.0" in bad["raw"]


def test_an_append_that_may_not_change_what_is_there_takes_no_events_place(tmp_path: Path) -> None:
    options: dict[str, Any] = {"unique": ["id"], "conflicts": "last"}
    first = Source(_file(tmp_path / "a.csv", [Row(1, 1, 0.0, None, 0), Row(2, 2, 0.0, None, 0)]), **options)
    log = Log.write(tmp_path / "log", {Pay: first})
    later = Source(_file(tmp_path / "b.csv", [Row(9, 1, 1.0, None, 0)]), **options)
    with pytest.raises(EventOrderError, match="1 event of the log goes: rows of the same values") as caught:
        log.append({Pay: later}, late="refuse")
    assert caught.value.code == "TL408"
    assert Log.open(tmp_path / "log").id == log.id
    assert [e.ts for e in log.append({Pay: later}).events(Pay)] == [2, 9]


@pytest.mark.parametrize("keep", ["first", "last"])
def test_rows_of_tables_come_in_the_order_in_which_they_were_taken_in(keep: Any, tmp_path: Path) -> None:
    """They have no file: cut into appends anywhere, a table gives what it gives as a whole."""
    rng = random.Random(keep)
    for number in range(20):
        rows = [
            {"ts": rng.randrange(4), "id": rng.randrange(8), "cents": float(rng.randrange(2)), "device": None}
            for _ in range(rng.randrange(2, 30))
        ]
        schema = pa.schema({"ts": pa.int64(), "id": pa.int64(), "cents": pa.float64(), "device": pa.string()})

        def source(some: list[dict[str, Any]], schema: pa.Schema = schema) -> Source:
            return Source(pa.Table.from_pylist(some, schema), unique=["id"], conflicts=keep)

        whole = Log.write(tmp_path / f"whole{number}", {Pay: source(rows)})
        cut = rng.randrange(1, len(rows))
        log = Log.write(tmp_path / f"log{number}", {Pay: source(rows[:cut])}).append(
            {Pay: source(rows[cut:])}
        )
        assert log.id == whole.id
        entries = [s for i in log.manifest.ingests for s in i.sources]
        own = whole.manifest.ingests[0].sources[0]
        assert sum(s.duplicates for s in entries) == own.duplicates
        assert sum(s.conflicts for s in entries) == own.conflicts


def test_what_one_source_of_a_type_says_holds_for_all(tmp_path: Path, spark: SparkSession) -> None:
    a = _file(tmp_path / "a.csv", [Row(n, n % 5, 0.0, None, 0) for n in range(10)])
    b = _file(tmp_path / "b.csv", [Row(n, n % 7, 0.0, None, 0) for n in range(10)])
    sources = [Source(a), Source(b, unique=["id"])]
    here = Log.write(tmp_path / "here", {Pay: sources})
    there = Log.write(tmp_path / "there", {Pay: sources}, spark)
    assert [(e.ts, e.id) for e in here.events(Pay)] == [
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 3),
        (4, 4),
        (5, 5),
        (6, 6),
    ]
    assert here.id == there.id
    for log in (here, there):
        told = [(s.rows, s.duplicates, s.conflicts) for s in log.manifest.ingests[0].sources]
        assert told == [(5, 0, 5), (2, 5, 3)] or sum(r for r, _, _ in told) == 7


EVENTS = """import timelapse as tl
class Pay(tl.Event):
    id: int | None
    cents: float
    device: str | None
"""


def test_an_event_comes_back_when_the_file_that_replaced_it_is_corrected(tmp_path: Path) -> None:
    (tmp_path / "events.py").write_text(EVENTS)
    definition = tmp_path / "log.toml"
    definition.write_text(
        'events = "events.py"\nlog = "log"\n[[source]]\ntype = "Pay"\nfiles = "raw/*.csv"\nunique = ["id"]\n'
    )
    _file(tmp_path / "raw" / "2.csv", [Row(5, 1, 1.0, None, 0), Row(9, 2, 1.0, None, 0)])
    assert cli("ingest", definition).code == 0
    _file(tmp_path / "raw" / "1.csv", [Row(4, 1, 3.0, None, 0), Row(5, 4, 3.0, None, 0)])
    done = cli("ingest", definition)
    said = " ".join(done.out.split())
    assert "Pay: 2 + 1 of the log = 2 events + 1 conflicting" in said
    assert "1 event of the log has gone: rows with the same id take its place" in said
    log = Log.open(tmp_path / "log")
    assert [(e.ts, e.cents) for e in log.events(Pay)] == [(4, 3.0), (5, 3.0), (9, 1.0)]
    _file(tmp_path / "raw" / "1.csv", [Row(6, 1, 3.0, None, 0), Row(5, 4, 3.0, None, 0)])
    assert cli("ingest", definition).code == 0
    log = Log.open(tmp_path / "log")
    assert [(e.ts, e.cents) for e in log.events(Pay)] == [(5, 3.0), (5, 1.0), (9, 1.0)]
    assert log.quarantine().num_rows == 1
    assert "'cents': 3.0" in log.quarantine()["raw"][0].as_py()


def test_a_person_who_is_forgotten_leaves_no_hash(tmp_path: Path) -> None:
    rows = [Row(1, 1, 1.0, "ann", 0), Row(2, 1, 2.0, "ann", 0), Row(3, 2, 2.0, "bob", 0)]
    log = Log.write(tmp_path / "log", {Pay: Source(_file(tmp_path / "a.csv", rows), unique=["id"])})
    assert len(beaten_in(log.path, log.manifest, set())["Pay"]) == 1
    log = log.forget("device == 'ann'")
    assert not beaten_in(log.path, log.manifest, set())


def _hashes(log: Log) -> list[bytes]:
    """All that stand in the quarantine's files of the newest version, whether they count or not."""
    names = [name for entry in log.manifest.ingests for name in entry.quarantine]
    tables = [pq.read_table(log.path / "quarantine" / name) for name in names]
    return [one for table in tables for one in table["event"].to_pylist() if one is not None]


def test_nor_where_the_text_does_not_tell_whose_event_it_was(tmp_path: Path) -> None:
    """It was not kept, or not all of it; what says that an event was taken after all has a hash, too."""
    rows = [
        Row(1, 1, 1.0, "ann", 0),
        Row(2, 1, 2.0, "ann", 0),
        Row(3, 2, 2.0, "bob", 0),
        Row(4, 2, 1.0, "bob", 0),
    ]
    data = _file(tmp_path / "a.csv", rows)
    private = Log.write(tmp_path / "private", {Pay: Source(data, unique=["id"], drop=["device"])})
    assert len(_hashes(private)) == 2
    assert not _hashes(private.forget("id == 1"))
    long = [row._replace(device="x" * 20_000 + str(row.device)) for row in rows]
    log = Log.write(tmp_path / "long", {Pay: Source(_file(tmp_path / "b.csv", long), unique=["id"])})
    assert len(_hashes(log)) == 2
    log = log.forget("id == 1")
    assert not _hashes(log)
    assert "xxx" not in str(log.quarantine().to_pylist())


def test_nor_where_it_was_taken_after_all(tmp_path: Path) -> None:
    def sent(name: str, row: Row) -> dict[type[tl.Event], Source]:
        return {
            Pay: Source(_file(tmp_path / name, [row]), unique=["id"], conflicts="last", arrival="arrived")
        }

    log = Log.write(tmp_path / "log", sent("a.csv", Row(5, 1, 1.0, "ann", 6)))
    log = log.append(sent("b.csv", Row(5, 1, 2.0, "ann", 7)))
    log = log.append(sent("c.csv", Row(5, 1, 1.0, "ann", 8)))
    log = log.append(sent("d.csv", Row(6, 2, 1.0, "bob", 8)))
    assert len(_hashes(log)) == 3
    counted = log.quarantine().num_rows
    log = log.forget("device == 'ann'")
    assert not _hashes(log)
    assert log.quarantine().num_rows == counted
