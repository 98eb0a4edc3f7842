"""Work that tells nothing itself is named in a line, before it begins to look as if a command hung."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.run_cli import cli
from timelapse.ids import SECOND
from timelapse.progress import Silent
from timelapse.progress.patience import looking, until_told
from timelapse.trace.knowledge import Unfocused

PROGRAM = """
import timelapse as tl


class E(tl.Event):
    k: int


class Out(tl.Record, key="k"):
    k: int


class P(tl.Program):
    least: int = 2
    n: tl.Counter[int]

    @tl.on(E)
    def h(self, e: E):
        self.n[e.k] += 1
        if self.n[e.k] >= self.least:
            self.emit(Out(k=e.k))
"""


class AtOnce:
    """A timer whose time is over when it starts."""

    daemon = False

    def __init__(self, seconds: float, call: Callable[..., None], arguments: Sequence[Any]) -> None:
        self._call, self._arguments = call, arguments

    def start(self) -> None:
        self._call(*self._arguments)

    def cancel(self) -> None: ...


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.py").write_text(PROGRAM)
    rows = "\n".join(f"{n * SECOND},{n % 5}" for n in range(40))
    (tmp_path / "e.csv").write_text(f"ts,k\n{rows}\n")
    assert cli("ingest", "p.py", "log", "E=e.csv", "--ts", "ts", "--unit", "us").code == 0
    monkeypatch.setattr("timelapse.progress.patience.Timer", AtOnce)
    return tmp_path


def lines(*arguments: object) -> list[str]:
    found = cli(*arguments)
    assert found.code in (0, 1), found.err
    return found.err.splitlines()


def test_commands_say_a_line_first(place: Path) -> None:
    """Before programs are loaded and replays begin; and what comes behind the last replay is named as well."""
    compared = lines("diff", "p.py:P", "log", "--set-b", "least=3", "--local", "--report", "d.html")
    assert compared[0] == "getting ready ..."
    assert {"comparing outputs ...", "writing the report ..."} <= set(compared)
    swept = lines("sweep", "p.py:P", "log", "least=1..3", "--local", "--plot", "s.svg", "--report", "s.html")
    assert swept[0] == "getting ready ..."
    assert {"drawing the plot ...", "writing the report ..."} <= set(swept)
    assert cli("replay", "p.py:P", "log", "--local").code == 0
    assert lines("report", "@last") == ["writing the report ..."]


def test_a_check_says_what_comes_behind_its_replays(place: Path) -> None:
    said = lines("check", "p.py:P", "log", "--local", "--sample", "40")
    assert said[0] == "getting ready ..."
    behind = [
        "comparing the first half's outputs ...",
        "comparing the last quarter's outputs ...",
        "looking at what 40 events read ...",
    ]
    assert [text for text in dict.fromkeys(said) if text in behind] == behind


def test_a_check_says_how_far_it_is_with_what_events_read(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unfocused(*_: object) -> None:
        raise Unfocused("its slice is gone through")

    monkeypatch.setattr("timelapse.trace.moments.Past.focus", unfocused)
    said = lines("check", "p.py:P", "log", "--local", "--sample", "40")
    begun = said.index("looking at what 40 events read ...")
    assert any(text.startswith("through slice") for text in said[begun:])


def test_features_say_a_line_before_anything_is_loaded(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading the program and the libraries takes longer than a second on a busy machine."""
    monkeypatch.setattr("timelapse.cli.progress_view.threading.Timer", AtOnce)
    found = cli("features", "nowhere.py:P", "log", "--local")
    assert found.code == 2
    assert found.err.splitlines()[0] == "getting ready ..."
    said = lines("features", "p.py:P", "log", "--local", "--out", "rows.parquet")
    assert said[0] == "getting ready ..."
    assert "writing the rows ..." in said


class Heard(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def stage(self, name: str, total: int) -> None:
        self.said.append(name)

    def note(self, text: str) -> None:
        self.said.append(text)


@pytest.mark.parametrize("first", ["stage", "advance", "finish", "note", "looking"])
def test_whoever_is_told_something_is_not_told_to_wait(first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line is left out once anything else is said; that is passed on."""
    running: list[Any] = []

    class Kept(threading.Timer):
        def start(self) -> None:
            running.append(self)

    monkeypatch.setattr("timelapse.progress.patience.Timer", Kept)
    heard = Heard()
    with until_told(heard, "getting ready") as progress:
        assert not running[0].finished.is_set()
        if first == "stage":
            progress.stage("x", 1)
        elif first == "advance":
            progress.advance("x", 1, 2)
        elif first == "finish":
            progress.finish("x", 1.0)
        elif first == "note":
            progress.note("x")
        else:
            with looking(progress, "x"):
                assert running[0].finished.is_set()
        assert running[0].finished.is_set()  # it was cancelled
    assert heard.said == (["x"] if first in ("stage", "note") else [])
