"""A misspelt name gets the nearest one, wherever names are given."""

from __future__ import annotations

from pathlib import Path

import pytest

import timelapse as tl
from tests.cli.run_cli import cli

RULES = """
import timelapse as tl


class Paid(tl.Event):
    user: int
    cents: int


class Rich(tl.Record, key="user"):
    user: int
    cents: int


class Rules(tl.Program):
    limit: int = 2
    balance: tl.Counter[int]

    @tl.on(Paid)
    def pay(self, e):
        self.balance[e.user] += e.cents
        if self.balance[e.user] > self.limit:
            self.emit(Rich(user=e.user, cents=e.cents))
"""


class Paid(tl.Event):
    user: int
    cents: int


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIMELAPSE_STATES", "off")
    Path("rules.py").write_text(RULES)
    Path("paid.csv").write_text("ts,user,cents\n1,1,1\n2,1,2\n3,2,3\n")
    Path("known.csv").write_text("user,label\n1,1\n2,0\n")
    tl.Log.from_events("log", [Paid(user=u, cents=c, ts=t) for t, u, c in ((1, 1, 1), (2, 1, 2), (3, 2, 3))])
    assert cli("replay", "rules.py:Rules", "log", "--out", "run", "--local").code == 0
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ("replay rules.py:Rules log --set limmit=3", "limit"),
        ("replay rules.py:Rules log --strategy balanse=chain", "balance"),
        ("replay rules.py:Rules log --strategy chian", "chain"),
        ("sweep rules.py:Rules log limti=1,2 --local", "limit"),
        ("state run balnce", "balance"),
        ("diff run run --by usr", "user"),
        ("diff run run --key usr", "user"),
        ("diff run run --labels known.csv --segment usr", "user"),
        ("diff run run --labels Rihc:known.csv", "Rich"),
        ("diff run run --fail-if gonne>0", "gone"),
        ("report run --redact usre", "user"),
        ("log log --head 1 --where usre==1", "user"),
        ("log log --head 1 --type Paied", "Paid"),
        ("ingest rules.py new Piad=paid.csv", "Paid"),
        ("ingest rules.py new Paid=paid.csv --map Paid.usre=x", "user"),
        ("ingest rules.py new Paid=paid.csv --map Piad.user=x", "Paid"),
        ("ingest rules.py new Paid=paid.csv --map Paid.user=usr", "user"),
        ("check rules.py:Ruls log", "Rules"),
    ],
)
def test_the_nearest_name(place: Path, arguments: str, name: str) -> None:
    found = cli(*arguments.split())
    assert found.code == 2
    assert f"did you mean {name}?" in found.err, found.err
