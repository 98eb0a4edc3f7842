"""synth, ingest and log from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from timelapse.log import Log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = """
import timelapse as tl


class Message(tl.Event):
    sender: int
    text: str


class Friendship(tl.Event):
    a: int
    b: int
"""


@pytest.fixture
def events_file(tmp_path: Path) -> Path:
    path = tmp_path / "events.py"
    path.write_text(EVENTS)
    return path


def test_synth_writes_a_log_and_log_shows_it(tmp_path: Path) -> None:
    """Text and JSON agree; the summary names the next step."""
    target = tmp_path / "social"
    made = cli("synth", "--events", 5000, "--seed", 7, "--out", target)
    assert made.code == 0
    assert "5,000 events" in made.out
    assert f"timelapse replay examples/antispam.py:Antispam {target}" in made.out
    assert "generate" in made.err
    shown = cli("log", target, "--json").json
    assert shown["events"] == 5000
    assert sum(sum(day.values()) for day in shown["days"].values()) == 5000
    assert [t["name"] for t in shown["types"]] == ["Friendship", "Message"]
    text = cli("log", target).out
    assert "Message" in text
    assert "2026-10-01" in text
    assert shown["id"] in text


@pytest.mark.parametrize("given", ["spoken.py", "spoken.py:Other", "spoken:Other", "spoken.py:Message"])
def test_ingest_names_the_replay_that_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """Of a program that was named it made spoken.py:Other:First, and of one in a module an error after all was done."""
    programs = "".join(
        f"\n\nclass {name}(tl.Program):\n    @tl.on(Message)\n    def on(self, m: Message) -> None: ...\n"
        for name in ("First", "Other")
    )
    (tmp_path / "spoken.py").write_text(EVENTS + programs)
    (tmp_path / "m.jsonl").write_text('{"ts": 1, "sender": 2, "text": "a"}\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    made = cli("ingest", given, "log", "Message=m.jsonl")
    assert made.code == 0, made.err
    named = given if given.endswith("Other") else "spoken.py:First"
    assert f"next: timelapse replay {named} " in made.out


def test_synth_refuses_what_makes_no_sense(tmp_path: Path) -> None:
    """Ranges, dates and places are checked before anything is made."""
    assert cli("synth", "--exponent", -1, "--out", tmp_path / "x").err.startswith("TL812")
    assert cli("synth", "--start", "soon", "--out", tmp_path / "x").err.startswith("TL800")
    assert cli("synth", "--local", "--master", "local[1]", "--out", tmp_path / "x").code == 2
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("x")
    assert cli("synth", "--events", 10, "--out", tmp_path / "mine", "--overwrite").err.startswith("TL401")
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_synth_start_is_utc(tmp_path: Path) -> None:
    """A time with a zone is converted, one without is UTC."""
    for start, first in (("2020-01-01T01:00:00+01:00", 1577836800), ("2020-01-01", 1577836800)):
        body = cli(
            "synth",
            "--events",
            10,
            "--rate",
            1,
            "--start",
            start,
            "--overwrite",
            "--json",
            "--out",
            tmp_path / "l",
        )
        assert 0 <= body.json["ts_first"] / 1e6 - first < 200_000


@pytest.mark.spark
def test_ingest_files_of_two_types(spark: SparkSession, tmp_path: Path, events_file: Path) -> None:
    """Options for all and per type, mapped fields, quarantine, append; the summary says what happened."""
    (tmp_path / "m.csv").write_text("when;from;text\n3;1;a;b\n1;2;x\n2;3;[red]\x1b[31m\n")
    (tmp_path / "f.jsonl").write_text('{"ts": 2000000, "a": 1, "b": 2}\n')
    target = tmp_path / "log"
    common = [events_file, target, f"Message={tmp_path}/m.csv", f"Friendship={tmp_path}/f.jsonl"]
    options = [
        "--ts",
        "Message=when",
        "--unit",
        "Message=s",
        "--sep",
        "Message=;",
        "--map",
        "Message.sender=from",
    ]
    refused = cli("ingest", *common, *options)
    assert refused.code == 2
    assert refused.err.splitlines()[-3:][0].startswith("TL414") or "TL414" in refused.err
    assert "m.csv:2" in refused.err
    assert not target.exists()
    made = cli("ingest", *common, *options, "--max-bad", "50%")
    assert made.code == 0, made.err
    assert "3 events" in made.out
    assert "1 bad row (" in made.out
    info = cli("log", target, "--bad", 3)
    assert "m.csv:2" in info.out
    log = Log.open(target)
    assert [(e.name, e.count) for e in log.manifest.types] == [("Message", 2), ("Friendship", 1)]
    # Message is declared first, so it comes first at the same time.
    ts = next(c.tables for c in log.reader.chunks(0, 3, {"Message": None, "Friendship": None}))
    assert ts["Message"]["seq"].to_pylist() == [0, 1]
    assert ts["Message"]["text"].to_pylist() == ["x", "[red]\x1b[31m"]
    (tmp_path / "f2.jsonl").write_text('{"ts": 9000000, "a": 1, "b": 2}\n')
    again = cli("ingest", events_file, target, f"Friendship={tmp_path}/f2.jsonl", "--append", "--json")
    assert again.json["version"] == 2
    assert again.json["added"] == 1
    (tmp_path / "f3.jsonl").write_text('{"ts": 2500000, "a": 1, "b": 2}\n')
    early = cli(
        "ingest", events_file, target, f"Friendship={tmp_path}/f3.jsonl", "--append", "--late", "refuse"
    )
    assert early.code == 2
    assert "TL408" in early.err


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        (["Message"], "TL808"), (["Nobody=x.csv"], "TL808"), (["Message=nowhere.csv"], "TL412"),
        (["Message=nowhere.csv", "--ts", "a", "--ts", "b"], "TL808"), (["Message=n.csv", "--year", "x"], "TL808"),
        (["Message=n.csv", "--map", "sender"], "TL808"), (["Message=n.csv", "--map", "Other.a=b"], "TL808"),
        (["Message=n.csv", "--map", "Message.nope=b"], "TL808"), (["Message=n.csv", "--max-bad", "2"], "TL808"),
        (["Message=n.csv", "--regex", "("], "TL411"), (["Message=n.csv", "--unit", "weeks"], "TL411"),
        (["Message=n.csv", "--append", "--overwrite"], "TL800"), (["Message=n.csv", "--append"], "TL403"),
    ],
)  # fmt: skip
def test_ingest_refuses_bad_arguments(tmp_path: Path, events_file: Path, extra: list[str], code: str) -> None:
    """Each with its code, and without a log."""
    shown = cli("ingest", events_file, tmp_path / "log", *extra)
    assert shown.code == 2
    assert f"{code} " in shown.err
    assert not (tmp_path / "log").exists()


def test_ingest_names_the_event_types_there_are(tmp_path: Path, events_file: Path) -> None:
    """The hint lists them."""
    assert "Message, Friendship" in cli("ingest", events_file, tmp_path / "log", "Nobody=x").err


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [
        (1_082_040_961, 1_098_777_142, "1970"),  # seconds, read as microseconds
        (1_700_000_000_000, 1_700_900_000_000, "1970"),  # milliseconds, read as microseconds
        (1_700_000_000_000 * 10**6, 1_700_900_000_000 * 10**6, "2900"),  # milliseconds, read as seconds
        (1_082_040_961 * 10**6, 1_098_777_142 * 10**6, None),
        (-1, 5, "1970"),
        (-(10**15), -5, "before 1970"),
        (-1, 1_098_777_142 * 10**6, None),
        (None, None, "no events"),
    ],
)
def test_times_in_the_wrong_unit_are_doubted(first: int | None, last: int | None, words: str | None) -> None:
    """Numbers read in the wrong unit give times near 1970 or far in the future; right ones are not doubted."""
    from timelapse.cli.ingest_summary import doubtful_times

    found = doubtful_times(first, last)
    assert found is None if words is None else found is not None and words in found


def test_ingest_finds_missing_files_before_spark_starts(tmp_path: Path, events_file: Path) -> None:
    """A path with no files is named at once."""
    done = cli("ingest", str(events_file), str(tmp_path / "log"), f"Message={tmp_path / 'nothing'}")
    assert done.code == 2
    assert "TL412" in done.err
    assert "Spark" not in done.err


def test_a_log_in_an_impossible_place_is_refused(tmp_path: Path) -> None:
    """The error names the log's place, not the temporary one, and what to do."""
    (tmp_path / "file").write_text("")
    done = cli("synth", "--events", "10", "--out", str(tmp_path / "file" / "log"))
    assert done.code == 2
    assert "TL401" in done.err
    assert ".partial-" not in done.err


PROFILE = """
import timelapse as tl


class Friendship(tl.Event):
    a: int
    b: int


class Row(tl.Record, key="who"):
    who: int
    friends: int


class Profile(tl.Program):
    friends: tl.Counter[int]

    @tl.on(Friendship)
    def go(self, e):
        self.friends[e.a] += 1
        self.emit(Row(who=e.a, friends=self.friends[e.a]))
"""


def test_features_as_of_the_rows_of_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("profile.py").write_text(PROFILE)
    Path("at.csv").write_text("who,ts,label\n1,2,yes\n1,9,no\n2,1,yes\n")

    class Friendship(tl.Event):
        a: int
        b: int

    tl.Log.from_events("log", [Friendship(a=1 + i % 2, b=0, ts=i) for i in range(5)])
    done = cli("features", "profile.py:Profile", "log", "--at", "at.csv", "--out", "rows.csv", "--json")
    assert done.code == 0, done.err
    assert (done.json["rows"], done.json["missing"], done.json["record"]) == (3, 1, "Row")
    assert Path("rows.csv").read_text().splitlines() == [
        '"who","ts","label","friends"', '1,2,"yes",1', '1,9,"no",3', '2,1,"yes",',
    ]  # fmt: skip
    shown = cli("features", "profile.py:Profile", "log")
    assert "Row  5 rows, 4 columns" in shown.out
    refused = cli("features", "profile.py:Profile", "log", "--at", "at.csv", "--record", "Rows")
    assert refused.code == 2
    assert "TL603" in refused.err
