"""Which columns, of which types, sources had from which day to which: found at ingest, stored, shown."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from timelapse.ids import DAY
from timelapse.log import Log, Source
from timelapse.segments.columns import Layout, columns_of, layouts_of
from timelapse.segments.days import day_number, day_text
from timelapse.segments.manifest import SourceEntry

FIRST = day_number("2026-10-01") * DAY


class Pay(tl.Event):
    id: int
    device: str | None


def source_of(log: Log) -> SourceEntry:
    return log.manifest.ingests[-1].sources[0]


def shown(log: Log) -> list[tuple[str, str, list[tuple[str, str, bool]]]]:
    source = source_of(log)
    return [(c.name, c.type, [tuple(d) for d in c.days]) for c in columns_of(source.columns, source.unused)]  # type: ignore[misc]


@pytest.mark.parametrize("seed", range(20))
def test_stretches_are_those_of_every_day(seed: int) -> None:
    """Beside a count of each day: which files are of it, and which of these have the column."""
    rng = random.Random(seed)
    columns = [("a", "int"), ("a", "text"), ("b", "int"), ("c", "text")]
    files = []
    for _ in range(rng.randint(1, 12)):
        own = dict(rng.sample(columns, rng.randint(1, 4)))
        first = rng.randrange(20)
        files.append((own, None if rng.random() < 0.1 else (first, first + rng.choice([0, 0, 1, 5]))))
    layouts = layouts_of(files)
    assert sum(layout.files for layout in layouts) == len(files)
    found = columns_of(layouts)
    assert {(c.name, c.type) for c in found} == {item for own, _ in files for item in own.items()}
    for column in found:
        said: dict[int, bool] = {}
        for stretch in column.days:
            for day in range(day_number(stretch.first), day_number(stretch.last) + 1):
                said[day] = stretch.all
        for day in range(30):
            there = [
                own.get(column.name) == column.type
                for own, days in files
                if days and days[0] <= day <= days[1]
            ]
            if there:
                assert (day in said, said.get(day, False)) == (any(there), all(there)), (
                    column,
                    day_text(day),
                )
        ends = [day_number(d) for stretch in column.days for d in (stretch.first, stretch.last)]
        assert ends == sorted(ends)
        for a, b in zip(column.days, column.days[1:], strict=False):  # none could be one with the next
            between = range(day_number(a.last) + 1, day_number(b.first))
            gap = any(days and any(days[0] <= n <= days[1] for n in between) for _, days in files)
            assert gap or a.all != b.all


def test_folders_names_and_events_tell_the_day(tmp_path: Path) -> None:
    for how, name in (
        ("folders", "dt={day}/pay.csv"), ("folders", "year={y}/month={m}/day={d}/pay.csv"),
        ("file names", "pay-{day}.csv"), ("file names", "pay_{y}{m}{d}.csv"), ("events", "{n}.csv"),
    ):  # fmt: skip
        raw = tmp_path / str(len(list(tmp_path.iterdir())))
        for n in range(4):
            day = day_text((FIRST // DAY) + n)
            y, m, d = day.split("-")
            path = raw / name.format(day=day, y=y, m=m, d=d, n=n)
            path.parent.mkdir(parents=True, exist_ok=True)
            device = "device" if n < 2 else "dev"
            early = FIRST + n * DAY - (5 if n == 3 and how != "events" else 0)  # a late row of the day before
            path.write_text(f"ts,id,{device},note\n{early},1,x,-\n{FIRST + n * DAY + 7},2,y,-\n")
        log = Log.write(raw / "log", {Pay: Source(raw, fields={"device": ["device", "dev"]})})
        whole = [("2026-10-01", "2026-10-04", True)]
        assert shown(log) == [
            ("ts", "text", whole), ("id", "text", whole), ("device", "text", [("2026-10-01", "2026-10-02", True)]),
            ("note", "text", whole), ("dev", "text", [("2026-10-03", "2026-10-04", True)]),
        ], name  # fmt: skip
        assert (source_of(log).unused, source_of(log).days_by) == (["note"], how)


def test_a_name_whose_day_is_not_that_of_its_events_does_not_count(tmp_path: Path) -> None:
    """An export's date is no day of what is in it; of a file without events nothing else is known."""
    (tmp_path / "export-2026-11-30.csv").write_text(f"ts,id\n{FIRST},1\n{FIRST + 3 * DAY},2\n")
    (tmp_path / "export-2026-12-01.csv").write_text("ts,id\n")
    log = Log.write(tmp_path / "log", {Pay: tmp_path / "*.csv"})
    assert source_of(log).columns == [
        Layout({"ts": "text", "id": "text"}, [("2026-10-01", "2026-10-04"), ("2026-12-01", "2026-12-01")], 2)
    ]
    assert source_of(log).days_by == "events and file names"


def test_types_of_tables_and_of_values_in_json(tmp_path: Path) -> None:
    """Of tables from their schemas; of JSON lines as rows are read."""
    raw = tmp_path / "raw"
    raw.mkdir()
    pq.write_table(pa.table({"ts": [FIRST], "id": pa.array([1], pa.int32())}), raw / "a.parquet")
    pq.write_table(pa.table({"ts": [FIRST + DAY], "id": [2], "device": ["x"]}), raw / "b.parquet")
    log = Log.write(tmp_path / "log", {Pay: raw})
    first, second = (("2026-10-01", "2026-10-01", True), ("2026-10-02", "2026-10-02", True))
    assert shown(log) == [
        ("ts", "int64", [("2026-10-01", "2026-10-02", True)]), ("id", "int32", [first]), ("id", "int64", [second]),
        ("device", "string", [second]),
    ]  # fmt: skip
    rows: list[list[dict[str, object]]] = [
        [{"ts": FIRST, "id": 1}],
        [{"ts": "2026-10-02", "id": 2, "device": "x", "more": 1}, {"ts": "2026-10-02", "id": 3}],
    ]
    for number, own in enumerate(rows):
        (tmp_path / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in own))
    log = Log.write(tmp_path / "of-json", {Pay: Source(tmp_path / "*.jsonl", tz="UTC")})
    assert sorted(shown(log)) == [
        ("device", "string", [second]), ("id", "integer", [("2026-10-01", "2026-10-02", True)]),
        ("ts", "integer", [first]), ("ts", "string", [second]),
    ]  # fmt: skip


def test_an_append_is_compared_with_the_days_before(tmp_path: Path) -> None:
    """A file a day: each is the only one of its ingest. What changes is said then too, of the day before its own, with the types."""
    day = iter(range(9))

    def write(columns: str, cells: str) -> Path:
        n = next(day)
        path = tmp_path / f"day-{n}.csv"
        path.write_text(f"ts,{columns}\n{FIRST + n * DAY},{cells}\n")
        return path

    def said(log: Log) -> list[str]:
        return [text.removeprefix(f"Pay: from {tmp_path}/") for text in source_of(log).layouts]

    log = Log.write(tmp_path / "log", {Pay: write("id,device", "1,a")})
    back = write("id", "9")
    log = log.append({Pay: write("id,device", "2,a")})
    assert said(log) == []
    log = log.append({Pay: write("id,device,shop", "3,a,s")})
    assert said(log) == ["day-3.csv on with 'shop' (not used)"]
    log = log.append({Pay: write("id", "4")})
    assert said(log) == ["day-4.csv on without 'device', 'shop' (not used)"]
    log = log.append({Pay: back})  # late: of the day after the first
    assert said(log) == ["day-1.csv on without 'device'"]
    table = tmp_path / "day-5.parquet"
    pq.write_table(pa.table({"ts": [FIRST + 5 * DAY], "id": pa.array([5], pa.int32())}), table)
    log = log.append({Pay: table})
    assert said(log) == [
        "day-5.parquet on 'ts' is int64, not text",
        "day-5.parquet on 'id' is int32, not text",
    ]


def test_commands_show_them_and_an_append_adds_its_own(tmp_path: Path) -> None:
    rules = tmp_path / "rules.py"
    rules.write_text("import timelapse as tl\n\nclass Pay(tl.Event):\n    id: int\n    device: str | None\n")
    for n, columns in enumerate(("id,device", "id,device", "id", "id,extra")):
        folder = tmp_path / "raw" / f"dt=2026-10-0{n + 1}"
        folder.mkdir(parents=True)
        (folder / "pay.csv").write_text(f"ts,{columns}\n{FIRST + n * DAY},1{',x' * columns.count(',')}\n")
    log = tmp_path / "log"
    some = [f"Pay={tmp_path}/raw/dt=2026-10-0{n}/pay.csv" for n in (1, 2, 3)]
    made = cli("ingest", rules, log, some[0].replace("0" + "1/pay", "0[123]/pay"))
    assert made.code == 0, made.err
    said = " ".join(made.out.split())
    assert "columns Pay: ts text, id text: 2026-10-01 to 2026-10-03, days by folders" in said
    assert "columns Pay: device text: 2026-10-01 to 2026-10-02" in said
    added = cli("ingest", rules, log, f"Pay={tmp_path}/raw/dt=2026-10-04/pay.csv", "--append", "--json")
    assert added.code == 0, added.err
    (own,) = added.json["ingest"]["columns"]
    assert [c["name"] for c in own["columns"]] == ["ts", "id", "extra"]
    said = " ".join(cli("log", log).out.split())
    assert "Pay: ts text, id text: 2026-10-01 to 2026-10-04, days by folders" in said
    assert "Pay: extra text (not used): 2026-10-04" in said
    (whole,) = cli("log", log, "--json").json["columns"]
    assert (whole["type"], whole["days_by"]) == ("Pay", ["folders"])
    for day, at in ((5, 4), (6, 9)):  # the second has events of another day than its folder says
        (tmp_path / "raw" / f"dt=2026-10-0{day}").mkdir()
        (tmp_path / "raw" / f"dt=2026-10-0{day}" / "pay.csv").write_text(f"ts,id\n{FIRST + at * DAY},1\n")
    assert cli("ingest", rules, log, f"Pay={tmp_path}/raw/dt=2026-10-0[56]/pay.csv", "--append").code == 0
    assert "days by events and folders Pay:" in " ".join(cli("log", log).out.replace("columns", "").split())
    assert cli("log", log, "--json").json["columns"][0]["days_by"] == ["events", "folders"]
    assert whole["columns"][2] == {
        "name": "device", "type": "text", "used": True,
        "days": [{"first": "2026-10-01", "last": "2026-10-02", "all": True}],
    }  # fmt: skip
