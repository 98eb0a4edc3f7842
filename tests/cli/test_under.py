"""`state --key` with the key of a kind that holds several things under one, and lines about what takes long."""

from __future__ import annotations

import time

import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from timelapse.errors import UsageError
from timelapse.log import Log
from timelapse.progress import Silent
from timelapse.progress.patience import looking

PROGRAM = """
import timelapse as tl


class E(tl.Event):
    a: int
    s: str


class P(tl.Program):
    of: tl.SetOf[int, int]
    by: tl.MapOf[str, str, int] = tl.state(default=0)
    two: tl.SetOf[tuple[int, str], str]
    one: tl.Counter[int]

    @tl.on(E)
    def go(self, e):
        self.of.add(e.a % 3, e.a)
        self.by[e.s, "n"] = e.a
        self.by[e.s, "m"] = e.a + 1
        self.two.add((e.a % 2, e.s), e.s + "x")
        self.one[e.a] += 1
"""


class E(tl.Event):
    a: int
    s: str


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tl.Run:
    folder = tmp_path_factory.mktemp("under")
    (folder / "rules.py").write_text(PROGRAM)
    Log.from_events(folder / "log", [E(a=n, s="ab"[n % 2], ts=n * tl.SECOND) for n in range(8)])
    done = cli("replay", f"{folder}/rules.py:P", folder / "log", "--out", folder / "run", "--local")
    assert done.code == 0, done.err
    return tl.Run.open(folder / "run")


def test_a_key_alone_gives_what_is_under_it(run: tl.Run) -> None:
    assert run.under("of", 1)["member"].to_pylist() == [1, 4, 7]
    assert run.under("of", 1, at="1970-01-01T00:00:05")["member"].to_pylist() == [1, 4]
    assert run.under("by", "a").select(["field", "value"]).to_pylist() == [
        {"field": "m", "value": 7},
        {"field": "n", "value": 6},
    ]
    assert run.under("two", (1, "b"))["member"].to_pylist() == ["bx"]
    assert run.under("of", 99).num_rows == 0


def test_what_is_no_such_key(run: tl.Run) -> None:
    with pytest.raises(UsageError, match="one value under a key"):
        run.under("one", 1)
    with pytest.raises(UsageError, match="int"):
        run.under("of", "x")


def test_on_the_command_line(run: tl.Run) -> None:
    """The key alone, or the key with what stands under it, which has a history."""
    assert cli("state", run.path, "of", "--key", "1", "--json").json["rows"] == 3
    assert cli("state", run.path, "two", "--key", "1,b", "--json").json["shown"][0]["member"] == "bx"
    history = cli("state", run.path, "of", "--key", "1,4", "--json")
    assert history.code == 0, history.err
    assert "rows" not in history.json
    assert cli("state", run.path, "of", "--key", "x").code == 2


class Notes(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


def test_what_takes_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while; what is quick says nothing."""
    monkeypatch.setattr("timelapse.progress.patience._PATIENCE", 0.01)
    notes = Notes()
    with looking(notes, "comparing"):
        for _ in range(500):
            time.sleep(0.01)
            if notes.said:
                break
    assert notes.said == ["comparing ..."]
    with looking(notes, ""):
        time.sleep(0.05)
    assert len(notes.said) == 1
