"""What `timelapse ingest` and `replay` say of rows that they skip, of how far they are, and of one event."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import timelapse as tl
from tests.cli.run_cli import cli

RULES = """import timelapse as tl

class Pay(tl.Event):
    a: int

class Note(tl.Record):
    a: int

class Rules(tl.Program):
    n: tl.Counter[int]

    @tl.on(Pay)
    def one(self, e):
        self.n[e.a] += 1
        self.emit(Note(a=e.a))
"""
T = "2025-01-01T00:00:00Z"
ROWS = {
    "a.csv": (f"ts,a\n{T},1\n\n", [], "empty lines"),
    "a.jsonl": (
        f'{{"ts":"{T}","items":[{{"a":1}}]}}\n{{"ts":"{T}","items":[]}}\n', ["--map", "a=items[].a"],
        "empty lines or objects without items",
    ),
    "a.log": (
        f"{T} 1\nnoise\n", ["--regex", r"(?P<ts>\S+) (?P<a>\d+)"],
        "empty lines or lines that --regex does not match",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_skipped_rows_are_called_what_they_are(name: str, tmp_path: Path) -> None:
    text, options, said = ROWS[name]
    (tmp_path / name).write_text(text)
    (tmp_path / "rules.py").write_text(RULES)
    done = cli("ingest", tmp_path / "rules.py", tmp_path / "log", f"Pay={tmp_path / name}", *options)
    assert done.code == 0, done.err
    assert f"1 row: {said}\n" in done.out
    assert "Pay: 2 = 1 event + 1 skipped" in done.out
    assert f"left out: 1 row ({said})" in cli("log", tmp_path / "log").out
    # the number of rows of text is estimated by its bytes: it is not told as that of events
    assert "read ...\n" in done.err
    assert "write: 1 event ...\n" in done.err
    replayed = cli("replay", f"{tmp_path / 'rules.py'}:Rules", tmp_path / "log", "--out", tmp_path / "run")
    assert "the first event was processed twice on the same state: no difference" in replayed.out


def test_rows_of_other_times_are_not_said_to_be_missing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"ts,a\n{T},1\n")
    (tmp_path / "rules.py").write_text(RULES)
    text = 'events = "rules.py"\nlog = "log"\n[[source]]\ntype = "Pay"\nfiles = "a.csv"\nsince = 2025-01-02T00:00:00Z\n'
    (tmp_path / "log.toml").write_text(text)
    done = cli("ingest", tmp_path / "log.toml", "--to", "2025-01-02")
    assert done.code == 0, done.err
    assert "Pay: 1 = 0 events + 1 of other sources or times" in done.out
    assert "the log has no events: no row became one" in done.out
    (tmp_path / "log.toml").write_text(text + "before = 2025-01-02T00:00:00Z\n")
    refused = cli("ingest", tmp_path / "log.toml", tmp_path / "other")
    assert "no time lies between since= 2025-01-02" in refused.err
    assert not (tmp_path / "other").exists()


def test_late_rows_and_files_that_are_taken_in_again_are_counted(tmp_path: Path) -> None:
    """One event is one event; what a corrected file brings is not said to be added; a version that was removed is called that."""
    (tmp_path / "rules.py").write_text(RULES)
    (tmp_path / "a.csv").write_text("ts,a\n2025-01-01T00:00:00Z,1\n2025-01-02T00:00:00Z,2\n")
    (tmp_path / "b.csv").write_text("ts,a\n2025-01-01T12:00:00Z,3\n")
    (tmp_path / "c.csv").write_text("ts,a\n2024-01-01T12:00:00Z,3\n")
    rules, log = tmp_path / "rules.py", tmp_path / "log"
    assert cli("ingest", rules, log, f"Pay={tmp_path / 'a.csv'}").code == 0
    refused = cli("ingest", rules, log, f"Pay={tmp_path / 'b.csv'}", "--append", "--late", "refuse")
    assert "1 event is not later than the log" in refused.err
    said = cli("ingest", rules, log, f"Pay={tmp_path / 'b.csv'}", "--append").out
    assert "Its first event is where it was; runs over earlier versions stay as they are" in said
    assert "3 events (1 added)" in said
    assert "had been taken in before" not in said
    assert (
        "All others have other numbers"
        in cli("ingest", rules, log, f"Pay={tmp_path / 'c.csv'}", "--append").out
    )
    again = cli("ingest", rules, log, f"Pay={tmp_path / 'c.csv'}", "--append", "--again").out
    assert f"{tmp_path / 'c.csv'} had been taken in before, and its events are in the log once more" in again
    assert (
        cli("replay", f"{rules}:Rules", log, "--out", tmp_path / "run", "--no-cache", "--slices", "2").code
        == 0
    )
    (tmp_path / "log.toml").write_text(
        'events = "rules.py"\nlog = "log2"\n[[source]]\ntype = "Pay"\nfiles = "a.csv"\nts = "ts"\n'
    )
    assert cli("ingest", tmp_path / "log.toml").code == 0
    (tmp_path / "a.csv").write_text("ts,a\n2025-01-01T00:00:00Z,9\n")
    assert "1 event (1 taken in, 2 of before gone)" in cli("ingest", tmp_path / "log.toml").out
    assert "version 2, 1 event\n" in cli("ingest", tmp_path / "log.toml").out
    assert cli("log", log, "--forget", "a == 3").code == 0
    assert cli("log", log, "--expire", "0d").code == 0
    gone = cli("verify", tmp_path / "run")
    assert gone.code == 2
    assert "not there: it was removed" in " ".join(gone.err.split())


def test_an_append_leaves_out_files_that_the_log_has(tmp_path: Path) -> None:
    """A known file again changes nothing; one of its name with other content is added; on purpose all is taken in again."""
    rules, log, raw = tmp_path / "rules.py", tmp_path / "log", tmp_path / "raw"
    rules.write_text(RULES)
    raw.mkdir()
    for day in (1, 2):
        (raw / f"{day}.csv").write_text(f"ts,a\n{day}000000,5\n{day}000001,6\n")
    sources = f"Pay={raw}/*.csv"
    assert cli("ingest", rules, log, f"Pay={raw}/1.csv").code == 0

    more = cli("ingest", rules, log, sources, "--append").out
    assert f"{raw}/1.csv: in the log already, left out (--again takes them in once more)" in more
    assert (tl.Log.open(log).version, tl.Log.open(log).count) == (2, 4)

    os.utime(raw / "2.csv", (0, 0))  # touched, and the same
    same = cli("ingest", rules, log, sources, "--append")
    assert (same.code, "nothing new: all 2 files are in" in same.out, "--again" in same.out) == (
        0,
        True,
        True,
    )
    assert json.loads(cli("ingest", rules, log, sources, "--append", "--json").out)["added"] == 0
    assert (tl.Log.open(log).version, tl.Log.open(log).count) == (2, 4)

    (raw / "2.csv").write_text("ts,a\n9000000,7\n")
    assert cli("ingest", rules, log, sources, "--append").code == 0
    assert tl.Log.open(log).count == 5
    assert cli("ingest", rules, log, sources, "--append", "--again").code == 0
    assert tl.Log.open(log).count == 8

    wrong = cli("ingest", rules, tmp_path / "other", sources, "--again")
    assert (wrong.code, "--again is for --append" in wrong.err) == (2, True)
    gone = cli("ingest", rules, log, f"Pay={raw}/3*.csv", "--append")
    assert (gone.code, "3*.csv" in gone.err) == (2, True)


def test_an_append_takes_rows_of_other_times_from_a_file_that_the_log_has(tmp_path: Path) -> None:
    rules, log, raw = tmp_path / "rules.py", tmp_path / "log", tmp_path / "raw.csv"
    rules.write_text(RULES)
    raw.write_text("ts,a\n" + "".join(f"2026-10-0{day}T12:00:00Z,{day}\n" for day in range(1, 6)))

    def added(*times: str) -> int:
        exists = log.exists()
        before = tl.Log.open(log).count if exists else 0
        shown = cli("ingest", rules, log, f"Pay={raw}", *times, *(["--append"] if exists else []))
        assert shown.code == 0, shown.err
        count = tl.Log.open(log).count - before
        assert ("nothing new" in shown.out) is (count == 0)
        return count

    assert added("--from", "2026-10-01", "--to", "2026-10-03") == 2
    assert added("--from", "2026-10-01", "--to", "2026-10-02") == 0
    assert added("--from", "2026-10-03", "--to", "2026-10-05") == 2
    assert added("--from", "2026-10-02", "--to", "2026-10-04") == 0
    assert added("--from", "2026-10-05") == 1
    assert added("--from", "2026-10-01") == 0
