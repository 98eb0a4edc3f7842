"""`replay --quarantine` from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

import timelapse as tl
from tests.cli.run_cli import cli

FILE = """
import timelapse as tl


class Move(tl.Event):
    who: int
    note: str


class Parsing(tl.Program):
    sums: tl.Counter[int]

    @tl.on(Move)
    def add(self, m):
        self.sums[m.who] += int(m.note)

    level: int = 0
"""


class Move(tl.Event):
    who: int
    note: str


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("cli")
    (found / "rules.py").write_text(FILE)
    notes = ["1", "[bold]\x1b[31m", "2", "", "3"]
    tl.Log.from_events(found / "log", [Move(who=1, note=n, ts=i) for i, n in enumerate(notes)])
    return found


def test_events_that_fail_are_listed_and_the_rest_is_replayed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    failed = cli("replay", "rules.py:Parsing", "log")
    assert failed.code == 2
    assert "TL502" in failed.err
    assert "--quarantine" in failed.err
    done = cli("replay", "rules.py:Parsing", "log", "--quarantine", "--verify", "100%")
    assert done.code == 0, done.err
    assert "2 events were taken out of the log" in done.out
    assert "Move seq 1  rules.py:15 add: ValueError: invalid literal" in done.out
    assert "\x1b" not in done.out
    assert "[bold]" in done.out
    assert tl.Run.open("runs/Parsing-1").state("sums")["value"].to_pylist() == [6]
    told = cli("replay", "rules.py:Parsing", "log", "--quarantine", "--json").json
    assert told["quarantined"] == 2


def test_what_was_taken_out_is_told_wherever_a_run_is_looked_at(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In JSON, the card, the report, a diff, and by why-not, with the handler's own line."""
    monkeypatch.chdir(folder)
    done = cli("replay", "rules.py:Parsing", "log", "--quarantine", "--out", "took", "--json")
    assert [row["seq"] for row in done.json["quarantined_events"]] == [1, 3]
    (folder / "lenient.py").write_text(FILE.replace("int(m.note)", "int(m.note or 0)"))
    assert cli("replay", "lenient.py:Parsing", "log", "--quarantine", "--out", "lenient").code == 0
    shown = cli("diff", "took", "lenient")
    assert "A 2  B 1 events taken out of the log   1 by A alone, 0 by B alone" in shown.out
    assert "Move 3  add: ValueError" in shown.out
    taken = cli("diff", "took", "lenient", "--json").json["quarantined"]
    assert (taken["a"], taken["b"], [r["seq"] for r in taken["only_a"]], taken["only_b"]) == (2, 1, [3], [])
    assert "2 events at which a handler raised were taken out" in tl.Run.open("took")._repr_html_()
    assert cli("report", "took", "--out", "took.html").code == 0
    page = Path("took.html").read_text()
    assert "Taken out of the log" in page
    assert "ValueError: invalid literal" in page
    assert cli("report", "took", "--out", "hidden.html", "--redact", "level").code == 0
    assert "ValueError: invalid literal" not in Path("hidden.html").read_text()
    asked = cli("why-not", "took", "3")
    assert 'add:15 raised "ValueError: invalid literal' in asked.out
    assert "taken out of the log, and had no effect" in asked.out
    assert cli("replay", "rules.py:Parsing", "log", "--without", "took", "--out", "rest").code == 0
    assert cli("why-not", "rest", "3").err.startswith("TL606 event 3 was left out of the log")


def test_more_than_may_be_taken_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number alone asks for the quarantine; beyond it the error says why, and nothing is left."""
    monkeypatch.chdir(folder)
    failed = cli("replay", "rules.py:Parsing", "log", "--max-quarantined", "1", "--out", "many")
    assert failed.code == 2
    assert "TL514" in failed.err
    assert "2 times add (rules.py:15): ValueError: invalid literal" in " ".join(failed.err.split())
    assert "\x1b" not in failed.err
    assert not Path("many").exists()
    done = cli("replay", "rules.py:Parsing", "log", "--max-quarantined", "2", "--out", "few")
    assert done.code == 0, done.err
    assert cli("replay", "rules.py:Parsing", "log", "--max-quarantined", "0").code == 2
