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
