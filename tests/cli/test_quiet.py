"""A terminal is not left without a word: not before a command's first output, nor between, nor after its last."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_progress import in_terminal
from timelapse.cli import quiet
from timelapse.cli.console import console, print_json
from timelapse.cli.main import run
from timelapse.cli.progress_view import BarProgress, PlainProgress
from timelapse.cli.quiet import Quiet

CLEAR = "\r\x1b[2K"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    found = Terminal()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setattr(sys, "stdout", found)
    monkeypatch.setattr("timelapse.cli.quiet.time.monotonic", lambda: 100.0)
    monkeypatch.setattr(quiet, "_now", Quiet(found))
    return found


def test_the_line_goes_away_before_anything_else_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    watched = quiet._now
    assert watched is not None
    watched.look(100.9)
    assert screen.getvalue() == ""
    watched.look(101.2)
    watched.look(103.4)
    assert screen.getvalue() == f"{CLEAR}starting ... 1 s{CLEAR}starting ... 3 s"
    writes: dict[str, Callable[[], None]] = {
        "found": lambda: console().print("found"),
        "1": lambda: print_json(1),
        "reading": lambda: PlainProgress().note("reading"),
    }
    for text, write in writes.items():
        watched.look(105.0)
        write()
        assert screen.getvalue().endswith(f" s{CLEAR}{text}\n")
    watched.look(102.0)
    assert screen.getvalue().endswith(f"{CLEAR}working ... 2 s")


def test_bars_move_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    watched = quiet._now
    assert watched is not None
    with BarProgress():
        watched.look(190.0)
    assert "starting" not in screen.getvalue()
    watched.look(190.0)
    assert screen.getvalue().endswith(f"{CLEAR}working ... 90 s")


def test_what_is_done_behind_the_last_line_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`check` was silent for seconds behind its last line."""
    screen = terminal(monkeypatch)
    monkeypatch.chdir(tmp_path)
    assert run(["runs"]) == 0
    watched = quiet._now
    assert watched is not None
    watched.look(107.0)
    assert screen.getvalue().endswith(f"{CLEAR}ending ... 7 s")
    watched.end()
    assert screen.getvalue().endswith(CLEAR)
    watched.look(120.0)
    assert screen.getvalue().endswith(CLEAR)


@pytest.mark.process
def test_a_command_on_a_terminal_is_watched(tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text(
        "import sys, time\n"
        "from timelapse.cli import main, quiet\n"
        "quiet._PATIENCE = 0.02\n"
        "def slow(*args, **more):\n"
        "    while not quiet._now._shown: time.sleep(0.01)\n"
        "    return []\n"
        "main._guarded = lambda *args, **more: (slow(), main.console().print('found'), 0)[2]\n"
        "main.main(['runs'])\n"
    )
    code, shown = in_terminal([sys.executable, str(script)])
    assert code == 0
    assert "starting ... " in shown
    assert shown.endswith(CLEAR)


def test_a_pagers_screen_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """`timelapse log LOG --head 100000 | less` waits for its reader."""
    screen = terminal(monkeypatch)
    watched = quiet._now
    assert watched is not None
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    watched.look(102.0)
    assert "starting" in screen.getvalue()
    console().print("found")
    watched.look(190.0)
    assert screen.getvalue().endswith(CLEAR)


def test_nothing_is_watched_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(quiet, "_now", None)
    quiet.watch()
    assert quiet._now is None
