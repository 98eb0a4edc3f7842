"""A company's week: what its one definition makes of raw files is what was put into them; `init` finds most of it by itself."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.run_cli import cli
from timelapse.ingest.definition import Definition
from timelapse.ingest.inferring import infer
from timelapse.log import Log
from timelapse.program.load import load_events
from timelapse.synth.company import Company, write_company

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _week(tmp_path: Path) -> tuple[Path, Company]:
    return tmp_path / "week", write_company(tmp_path / "week", per_day=400, seed=3)


def test_one_definition_reads_the_week(tmp_path: Path, spark: SparkSession) -> None:
    week, truth = _week(tmp_path)
    assert truth.duplicates
    assert truth.bad
    assert truth.late
    done = cli("ingest", week / "log.toml")
    assert done.code == 0, done.err
    log = Log.open(week / "log")
    by_type = {s.type: s for s in log.manifest.ingests[0].sources}
    assert {name: s.rows for name, s in by_type.items()} == truth.events
    txn = by_type["Txn"]
    assert (txn.duplicates, txn.bad, txn.conflicts) == (truth.duplicates, truth.bad, 0)
    assert txn.read == truth.events["Txn"] + truth.duplicates + truth.bad
    assert txn.late["most"] > 80_000_000_000  # a day
    assert [text.rsplit(" on ", 1)[1] for text in txn.layouts] == [
        "without 'device' and with 'device_id'", "without 'shop' (not used)", "with 'shop' (not used)",
    ]  # fmt: skip
    assert all(e.device is not None for e in log.events(load_events(str(week / "rules.py"))["Txn"]))  # type: ignore[attr-defined]
    replay = cli("replay", f"{week}/rules.py:Fraud", week / "log", "--verify", "100%", "--json")
    assert replay.code == 0, replay.err
    found = Definition.read(week / "log.toml")
    classes = load_events(found.events)
    other = Log.write(tmp_path / "spark", {classes[name]: own for name, own in found.sources.items()}, spark)
    assert other.id == log.id
    again = {s.type: s for s in other.manifest.ingests[0].sources}
    assert {n: (s.columns, s.unused, s.days_by) for n, s in again.items()} == {
        n: (s.columns, s.unused, s.days_by) for n, s in by_type.items()
    }


def test_chargebacks_judge_two_settings_of_the_rule(tmp_path: Path) -> None:
    """As docs/ingest.md does: of the two limits the higher one has the better precision, and hardly less recall."""
    week, truth = _week(tmp_path)
    assert cli("ingest", week / "log.toml").code == 0
    done = cli(
        "diff", f"{week}/rules.py:Fraud", week / "log", "--set-b", "limit=100000", "--labels", week / "raw" / "chargebacks.parquet",
        "--label-key", "txn_id", "--label", "none", "--label-ts", "reported", "--items", "Txn.id", "--labels-until", "2026-10-12", "--json",
    )  # fmt: skip
    assert done.code == 1, done.err
    judged = done.json["labels"]
    a, b = judged["a"], judged["b"]
    assert a["positives"] == b["positives"] == truth.events["Chargeback"]
    assert b["precision"] > a["precision"] > 0.02
    assert a["recall"] >= b["recall"] > 0.4


def test_the_days_one_after_the_other_give_the_same_log(tmp_path: Path) -> None:
    """Each day's files as they come: late rows and repeats find their places in what is there."""
    week, _ = _week(tmp_path)
    assert cli("ingest", week / "log.toml", tmp_path / "whole").code == 0
    kept = {path: path.read_bytes() for path in sorted((week / "raw" / "txn").rglob("*.gz"))}
    for path in kept:
        path.unlink()
    for path, data in kept.items():
        path.write_bytes(data)
        done = cli("ingest", week / "log.toml", tmp_path / "daily")
        assert done.code == 0, done.err
    log = Log.open(tmp_path / "daily")
    assert log.version == 7
    assert sum(i.late for i in log.manifest.ingests) > 0
    whole = Log.open(tmp_path / "whole")
    assert log.count == whole.count
    assert [repr(e).partition(" seq")[0] for e in log.events()] == [
        repr(e).partition(" seq")[0] for e in whole.events()
    ]
    assert log.id == whole.id


def test_init_writes_what_it_sees(tmp_path: Path) -> None:
    """Its files work as they are; what they guess is marked; nothing is overwritten."""
    week, truth = _week(tmp_path)
    out = tmp_path / "guess"
    arguments = (
        f"{week}/raw/txn",
        f"{week}/raw/logins.jsonl",
        f"Chargeback={week}/raw/chargebacks.parquet",
        "--out",
        out,
    )
    done = cli("init", *arguments)
    assert done.code == 0, done.err
    found = tomllib.loads((out / "log.toml").read_text())
    assert [s["type"] for s in found["source"]] == ["Txn", "Logins", "Chargeback"]
    assert [s["ts"] for s in found["source"]] == ["time", "when", "reported"]
    assert (
        "device and device_id are never in the same file. One column, renamed?"
        in (out / "log.toml").read_text()
    )
    assert 'tz = "UTC"  # assumed, since times have no zone' in (out / "log.toml").read_text()
    made = cli("ingest", out / "log.toml", "--max-bad", "0.01")
    assert made.code == 0, made.err
    rows = {s.type: s.rows for s in Log.open(out / "log").manifest.ingests[0].sources}
    assert rows == {
        "Txn": truth.events["Txn"] + truth.duplicates,
        "Logins": truth.events["Login"],
        "Chargeback": truth.events["Chargeback"],
    }
    again = cli("init", *arguments)
    assert again.code == 2
    assert "events.py: there is such a file already" in again.err


def test_init_takes_hostile_names_as_data(tmp_path: Path) -> None:
    """Names and values cannot leave the comment or text that they stand in."""
    nasty = 'x"]\nimport os #'
    (tmp_path / "a b;rm.jsonl").write_text(
        "".join(
            json.dumps({"ts": 1_700_000_000 + n, nasty: "v\n# \u2028", "class": n, "ts_": 1, "m": "a@b.org"})
            + "\n"
            for n in range(5)
        )
    )
    done = cli("init", f"Nasty={tmp_path}/a b;rm.jsonl", "--out", tmp_path / "out")
    assert done.code == 0, done.err
    (kind,) = load_events(str(tmp_path / "out" / "events.py")).values()
    assert [f.name for f in kind.__fields__] == ["class_", "ts_", "m"]
    assert "left out: the key" in (tmp_path / "out" / "log.toml").read_text()
    assert 'hash = ["m"]' in (tmp_path / "out" / "events.py").read_text()
    assert cli("ingest", tmp_path / "out" / "log.toml").code == 0
    log = Log.open(tmp_path / "out" / "log")
    assert [e.ts for e in log.events()] == [(1_700_000_000 + n) * 1_000_000 for n in range(5)]


def test_init_finds_separators_and_files_without_a_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "".join(f"1700000{n:03};{n};x,{n};01.10.2026 12:00:00\n" for n in range(50))
    )
    assert cli("init", tmp_path / "a.csv", "--out", tmp_path / "out").code == 0
    found = tomllib.loads((tmp_path / "out" / "log.toml").read_text())["source"][0]
    assert (found["sep"], found["header"], found["columns"], found["ts"]) == (
        ";",
        False,
        ["c1", "c2", "c3", "c4"],
        "c1",
    )
    assert found["unit"] == "s"
    (tmp_path / "b.csv").write_text("ts user\n" + "".join(f"1700000{n:03} {n}\n" for n in range(50)))
    assert cli("init", tmp_path / "b.csv", "--out", tmp_path / "spaces").code == 0
    found = tomllib.loads((tmp_path / "spaces" / "log.toml").read_text())["source"][0]
    assert (found["sep"], found["ts"]) == (" ", "ts")
    assert cli("init", tmp_path / "none.csv", "--out", tmp_path / "x").code == 2
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("values", "kind", "missing"),
    [
        (["1", "2", ""], "int", True), (["1", "2.5"], "float", False), (["007", "012"], "str", False), (["true", "False"], "bool", False),
        (["2026-10-01T00:00:00", "2026-10-01"], "tl.Time", False), ([1, None], "int", True), ([[1, 2], [3]], "list[int]", False),
        ([], "str", True), (["1700000000123"], "int", False), (["a"], "str", False),
    ],
)  # fmt: skip
def test_types_of_values(values: list[object], kind: str, missing: bool) -> None:
    found = infer("x", values)
    assert (found.type, found.missing) == (kind, missing)


def test_numbers_and_truths_that_json_has_as_text_are_text_to_init(tmp_path: Path) -> None:
    """What it writes is ingested as it is: a field of int, float or bool reads no text of JSON. What it advises works too."""
    (tmp_path / "paid.jsonl").write_text(
        "".join(
            json.dumps({"at": str(1767225600000 + n), "id": n, "n": str(n), "price": f"{n}.50", "ok": "true", "all": [str(n)]}) + "\n"
            for n in range(40)
        )
    )  # fmt: skip
    assert cli("init", tmp_path / "paid.jsonl", "--out", tmp_path, "--log", tmp_path / "log").code == 0
    events = (tmp_path / "events.py").read_text()
    for line in ("id: int ", "n: str ", "price: str ", "ok: str ", "all: list[str] "):
        assert f"    {line}" in events, events
    assert "Annotated[Decimal, tl.scale(2)]" in events
    definition = tmp_path / "log.toml"
    assert 'unit = "ms"' in definition.read_text()
    assert cli("ingest", definition).code == 0
    assert Log.open(tmp_path / "log").count == 40
    advised = re.findall(r"(\w+): str .*make it (\w+), and compute = \{ (.*?) \}", events)
    assert [(name, kind) for name, kind, _ in advised] == [("n", "int"), ("price", "float"), ("ok", "bool")]
    for name, kind, _ in advised:
        events = events.replace(f"    {name}: str", f"    {name}: {kind}")
    (tmp_path / "advised.py").write_text(events)
    text = definition.read_text().replace('"events.py"', '"advised.py"')
    definition.write_text(f"{text}compute = {{ {', '.join(c for _, _, c in advised)} }}\n")
    assert cli("ingest", definition, "--overwrite").code == 0
    assert [f.type.text for f in Log.open(tmp_path / "log").types[0].fields][:4] == [
        "int",
        "int",
        "float",
        "bool",
    ]


def test_a_few_texts_among_numbers_of_json_are_bad_rows() -> None:
    found = infer("x", [*range(99), "7"], typed=True)
    assert (found.type, found.notes) == ("int", ["1 of 100 are text: bad rows"])


def test_init_looks_at_files_whose_names_do_not_tell_what_they_are(tmp_path: Path) -> None:
    """It named an option that it does not have. What it writes for tables is a definition that an ingest takes."""
    (tmp_path / "pairs.txt").write_text(
        "src dst time\n" + "".join(f"{n} 7 {1767225600 + n}\n" for n in range(30))
    )
    (tmp_path / "things.dump").write_text(
        "".join(
            f'{{"t":{1767225600 + n},"items":[{",".join(n % 2 * ["{}"])}]}}\n'.replace("{}", '{"sku":"a"}')
            for n in range(30)
        )
    )
    (tmp_path / "auth.log").write_text(
        "Jan  1 00:00:00 host sshd[1]: Failed\nJan  1 00:00:01 host sshd[22]: no, Failed again\n"
    )
    done = cli(
        "init",
        *(tmp_path / name for name in ("pairs.txt", "things.dump", "auth.log")),
        "--out",
        tmp_path / "out",
    )
    assert done.code == 0, done.err
    text = (tmp_path / "out" / "log.toml").read_text()
    assert 'format = "csv"  # guessed' in text
    assert 'format = "json"  # guessed' in text
    assert "# guessed: syslog" in text
    assert "items: " not in (tmp_path / "out" / "events.py").read_text()
    made = cli("ingest", tmp_path / "out" / "log.toml", "--types", "Pairs,Things")
    assert made.code == 0, made.err
    assert made.out.count("30 = 15 events + 15 skipped") == 1
    assert Log.open(tmp_path / "out" / "log").count == 45


def test_init_writes_names_that_events_take_and_reads_days_and_commas(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "2nd;amount;when\n" + "".join(f"{n};{n},50;{n + 1:02}/01/2026 10:00\n" for n in range(20))
    )
    assert cli("init", tmp_path / "a.csv", "--out", tmp_path / "out").code == 0
    events, definition = ((tmp_path / "out" / name).read_text() for name in ("events.py", "log.toml"))
    assert "c2nd: int" in events
    assert 'time_format = "%d/%m/%Y %H:%M"' in definition
    compute = events.partition("float, and ")[2].partition("\n")[0]
    (tmp_path / "out" / "events.py").write_text(events.replace("amount: str", "amount: float"))
    (tmp_path / "out" / "log.toml").write_text(f"{definition}{compute}\n")
    done = cli("ingest", tmp_path / "out" / "log.toml")
    assert done.code == 0, done.err
    shown = cli("log", tmp_path / "out" / "log", "--head", "1").out
    assert "c2nd=0" in shown
    assert "amount=0.5" in shown


def test_init_takes_files_that_a_shell_has_listed(tmp_path: Path) -> None:
    """`timelapse init tx_*.csv` without quotes: files whose names differ in numbers are one type's, others types of their own."""
    for n in (1, 2):
        rows = f"T{n},2026-10-01T00:00:00Z,2.50,3.75\n" * 19 + f"T{n},2026-10-01T00:00:00Z,2.50,3.75 EUR\n"
        (tmp_path / f"tx_{n}.csv").write_text("Tx ID,at,amount,paid\n" + rows)
    (tmp_path / "logins.csv").write_text("user,at\n" + "7,2026-10-01T00:00:00Z\n" * 20)
    done = cli(
        "init",
        *(tmp_path / name for name in ("logins.csv", "tx_1.csv", "tx_2.csv")),
        "--out",
        tmp_path / "out",
    )
    assert done.code == 0, done.err
    text = (tmp_path / "out" / "log.toml").read_text()
    logins, tx = tomllib.loads(text)["source"]
    assert (logins["type"], tx["type"]) == ("Logins", "Tx")
    assert tx["files"] == [str(tmp_path / "tx_1.csv"), str(tmp_path / "tx_2.csv")]
    assert '# unique = ["Tx_ID"]' in text
    events = (tmp_path / "out" / "events.py").read_text()
    assert "money? then Annotated[Decimal, tl.scale(2)]" in events
    assert "2 of 40 are no numbers, such as '3.75 EUR': taken as text" in events
    assert "# a glob in their place also takes files that come later" in text
    made = cli("ingest", tmp_path / "out" / "log.toml")
    assert made.code == 0, made.err
    assert Log.open(tmp_path / "out" / "log").count == 60
    assert "--overwrite reads all files again" in cli("ingest", tmp_path / "out" / "log.toml").out


def test_bad_rows_of_another_encoding_or_a_plain_decimal_say_what_helps(tmp_path: Path) -> None:
    (tmp_path / "latin.csv").write_bytes("at,name\n2026-10-01T00:00:00Z,M\xfcller\n".encode("latin-1") * 2)
    (tmp_path / "events.py").write_text(
        "from decimal import Decimal\nfrom typing import Annotated\nimport timelapse as tl\n"
        "class Named(tl.Event):\n    name: str\n"
        "class Paid(tl.Event):\n    amount: Annotated[Decimal, tl.scale(2)]\n"
    )
    done = cli(
        "ingest", tmp_path / "events.py", tmp_path / "log", f"Named={tmp_path}/latin.csv", "--ts", "at"
    )
    assert "TL414" in done.err
    assert "iconv -f WINDOWS-1252 -t UTF-8" in done.err
    (tmp_path / "paid.csv").write_text("at,amount\n2026-10-01T00:00:00Z,2.50\n")
    (tmp_path / "log.toml").write_text(
        'events = "events.py"\nlog = "log"\n[[source]]\ntype = "Paid"\nfiles = "paid.csv"\nts = "at"\n'
        'compute = { amount = "cast(amount as decimal)" }\n'
    )
    assert "cast to decimal(18, 2)" in cli("ingest", tmp_path / "log.toml").err
    (tmp_path / "log.toml").write_text(
        (tmp_path / "log.toml").read_text().replace("as decimal", "as decimal(18, 2)")
    )
    assert cli("ingest", tmp_path / "log.toml").code == 0
