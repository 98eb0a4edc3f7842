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


class Named(tl.Record, key="name"):
    name: str
    cents: int


class Asked(tl.Event):
    user: int


class Rules(tl.Program):
    limit: int = 2
    balance: tl.Counter[int]

    @tl.on(Paid)
    def pay(self, e):
        self.balance[e.user] += e.cents
        if self.balance[e.user] > self.limit:
            self.emit(Rich(user=e.user, cents=e.cents))
            self.emit(Named(name=str(e.user), cents=e.cents))


class Answering(Rules):
    @tl.on(Asked)
    def answer(self, e):
        self.emit(Rich(user=e.user, cents=self.balance[e.user]))
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
    Path("misspelt.csv").write_text("ts,usre,label\n1,1,1\n2,2,0\n")
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
        ("diff run run --key Rihc:user", "Rich"),
        ("diff run run --by usr --report x.html", "user"),
        ("diff run run --labels Rihc:known.csv", "Rich"),
        ("diff run run --labels Rich:known.csv --label lable", "label"),
        ("diff run run --labels Rich:known.csv --label-key usr", "user"),
        ("diff run run --labels Rich:known.csv --label-ts lable", "label"),
        ("diff run run --labels Rich:known.csv --weight cent", "cents"),
        ("diff run run --labels Rich:known.csv --items Piad.user", "Paid.user"),
        ("diff run run --labels Rich:known.csv --items Paid.usr", "Paid.user"),
        ("diff run run --fail-if Rihc.new>1", "Rich.new"),
        ("diff rules.py:Rules rules.py:Rules log --set-b limt=3 --local", "limit"),
        ("diff run --enforce usr --for 1d --flags Rich --local", "user"),
        ("diff run --enforce user --for 1d --flags Rihc --local", "Rich"),
        ("diff run run --fail-if gonne>0", "gone"),
        ("report run --redact usre", "user"),
        ("report run run --by usre", "user"),
        ("why run Rich:usr=1", "user"),
        ("why run Rich:user=1,cent=2", "cents"),
        ("why run Named:nmae=1", "name"),
        ("why run Rihc:1", "Rich"),
        ("why run Rihc@1970-01-01", "Rich"),
        ("why-not run Paid:usre=1", "user"),
        ("why-not run Paid:user=1,cent=2", "cents"),
        ("why-not run Piad:user=1", "Paid"),
        ("why-not run Piad@1970-01-01", "Paid"),
        ("state run balnce --key 1", "balance"),
        ("derive rules.py new run Piad=Rich", "Paid"),
        ("derive rules.py new run Asked=Rihc", "Rich"),
        ("features rules.py:Answering log --at misspelt.csv --ask Aksed --local", "Asked"),
        ("features rules.py:Answering log --at misspelt.csv --local", "usre"),
        ("features rules.py:Rules log --record Rihc --local", "Rich"),
        ("bench confict", "conflict"),
        ("cache cler", "clear"),
        ("help replya", "replay"),
        ("help TL8411", "TL841"),
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


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ("diff rules.py:Rules log --enforce usr --for 1d --flags Rich --local", "user"),
        ("diff rules.py:Rules log --enforce user --for 1d --flags Rihc --local", "Rich"),
        ("diff rules.py:Rules log --set-b limit=1 --by usr --local", "user"),
        ("diff rules.py:Rules log --set-b limit=1 --report x.html --redact usr --local", "user"),
        ("sweep rules.py:Rules log limit=1,2 --labels Rihc:known.csv --local", "Rich"),
        ("sweep rules.py:Rules log limit=1,2 --labels Rich:known.csv --weight cent --local", "cents"),
        ("sweep rules.py:Rules log limit=1,2 --report x.html --redact limt --local", "limit"),
        ("features rules.py:Rules log --record Rihc --local", "Rich"),
    ],
)
def test_a_name_is_checked_before_work(place: Path, arguments: str, name: str) -> None:
    found = cli(*arguments.split())
    assert found.code == 2
    assert f"did you mean {name}?" in found.err, found.err
    assert "final" not in found.err, found.err


def test_labels_without_the_key_s_column_name_the_nearest(place: Path) -> None:
    found = cli("diff", "run", "run", "--labels", "Rich:misspelt.csv")
    assert found.code == 2
    assert "--label-key usre" in found.err, found.err


def test_a_key_without_a_type_is_for_the_types_that_have_its_fields(place: Path) -> None:
    assert cli("diff", "run", "run", "--key", "user").code == 0
    assert cli("diff", "run", "run", "--key", "user", "--key", "name,cents").code == 0
    assert cli("diff", "rules.py:Rules", "log", "--set-b", "limit=2", "--key", "user", "--local").code == 0
    found = cli("diff", "run", "run", "--key", "user,name")
    assert "TL816 --key user,name: no record type has all these fields" in found.err, found.err


def test_names_in_python(place: Path) -> None:
    from timelapse.program.load import load_program
    from timelapse.testing import Harness

    program, log = load_program("rules.py:Rules"), tl.Log.open("log")
    with pytest.raises(tl.TimelapseError, match="did you mean limit"):
        tl.sweep(program, log, {"limti": [1, 2]})
    with pytest.raises(tl.TimelapseError, match="did you mean limit"):
        program(limti=1)
    with pytest.raises(tl.TimelapseError, match="did you mean balance"):
        Harness(program).state("balnce")
    with pytest.raises(tl.TimelapseError, match="did you mean balance"):
        tl.Run.open("run").state("balnce")
    with pytest.raises(tl.TimelapseError, match="did you mean Rich"):
        tl.Run.open("run").table("Rihc")
    with pytest.raises(tl.TimelapseError, match="did you mean user"):
        Paid(usre=1, cents=1)  # type: ignore[call-arg]


def test_a_value_that_looks_like_a_field_is_a_value(place: Path) -> None:
    """A record that is named by a text may be called `nmae=1`: it is told only where there is none."""
    Path("odd.py").write_text(RULES.replace("name=str(e.user)", "name=f'nmae={e.user}'"))
    assert cli("replay", "odd.py:Rules", "log", "--out", "odd", "--local").code == 0
    assert cli("why", "odd", "Named:nmae=1").code == 0


def test_a_file_is_no_run(place: Path) -> None:
    found = cli("why", "rules.py", "Rich:1")
    assert found.code == 2
    assert "TL601" in found.err, found.err
