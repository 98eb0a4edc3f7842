"""Progress: stage names at once, a line every two seconds, bars on a terminal; harmless for hostile names."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.cli.run_cli import command
from tests.patience import LONG
from timelapse.cli.progress_view import BarProgress, PlainProgress
from timelapse.progress import Progress


def test_plain_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage's name comes first, then how far it is every two seconds with the time left, then how long it took."""
    now = [100.0]
    monkeypatch.setattr("timelapse.cli.progress_view.time.monotonic", lambda: now[0])
    progress: Progress = PlainProgress()
    progress.stage("counts", 1000)
    for second in range(5):
        now[0] = 100.0 + second
        progress.advance("counts", 100 * second, 1000)
    progress.finish("counts", 4.5)
    assert capsys.readouterr().err.splitlines() == [
        "counts: 1,000 events ...", "counts: 20%  ETA 8.00 s", "counts: 40%  ETA 6.00 s", "counts: 4.50 s",
    ]  # fmt: skip


def test_hostile_names_are_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    """Names come from programs: no markup, no terminal control."""
    progress = PlainProgress()
    progress.stage("[red]\x1b[31mx", 0)
    progress.note("\x07[/]")
    assert capsys.readouterr().err == "[red]\\x1b[31mx ...\n\\x07[/]\n"


def test_calls_from_other_threads(capsys: pytest.CaptureFixture[str]) -> None:
    """Progress may be reported from any thread, also of stages that nobody began."""
    progress = PlainProgress()
    threads = [threading.Thread(target=progress.advance, args=("x", n, 10)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(capsys.readouterr().err.splitlines()) <= 1


def in_terminal(args: list[str]) -> tuple[int, str]:
    """Run with a terminal as stderr. Exit code, and what it showed."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=follower, text=True)
    os.close(follower)
    shown = b""
    try:
        while part := os.read(leader, 65536):
            shown += part
    except OSError:  # Linux says so when the other end has been closed
        pass
    os.close(leader)
    process.communicate(timeout=LONG)
    return process.returncode, shown.decode("utf-8", "replace")


def test_bars_on_a_terminal(tmp_path: Path) -> None:
    """On a terminal a stage has a bar; a stage that comes again gets another."""
    code, shown = in_terminal([*command("synth", "--events", 50_000, "--out", tmp_path / "log")])
    assert code == 0
    assert "generate" in shown
    assert "50,000" in shown or " s" in shown
    assert "━" in shown
    script = tmp_path / "bars.py"
    script.write_text(
        "from timelapse.cli.progress_view import progress_for\n"
        "with progress_for(False) as p:\n"
        "    for _ in range(2):\n"
        "        p.stage('[red]a', 10)\n"
        "        p.advance('[red]a', 5, 10)\n"
        "    p.finish('[red]a', 1.0)\n"
        "    p.stage('b', 0)\n"
        "    p.advance('never begun', 1, 2)\n"
        "    p.note('a [note] \\x1b]0;title\\x07')\n"
        "    p.finish('b', 2.0)\n"
    )
    code, shown = in_terminal([command()[0], str(script)])
    assert code == 0, shown
    assert "[red]a" in shown
    assert "a [note] \\x1b]0;title\\x07" in shown
    assert not re.search("\x1b]0;", shown)


def test_before_the_first_stage(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes long before the first stage begins is told, once; what does not is not."""
    monkeypatch.setattr("timelapse.cli.progress_view._PATIENCE", 0.01)
    with PlainProgress() as slow:
        deadline = time.monotonic() + LONG
        while "getting ready ..." not in (shown := capsys.readouterr().err) and time.monotonic() < deadline:
            time.sleep(0.01)
        slow.stage("replay", 10)
    assert shown == "getting ready ...\n"
    monkeypatch.setattr("timelapse.cli.progress_view._PATIENCE", 60)
    with PlainProgress() as quick:
        quick.stage("replay", 10)
        assert quick._first.finished.is_set()
    assert capsys.readouterr().err == "replay: 10 events ...\n" * 2


def test_while_no_stage_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bars: one line stands for what is no stage, before the first and between two; none is left at the end."""
    progress = BarProgress()

    def labels() -> list[str]:
        return [task.fields["label"] for task in progress._bars.tasks]

    with progress:
        assert labels() == ["getting ready"]
        progress.stage("a", 2)
        progress.stage("b", 2)
        assert labels() == ["a", "b"]
        progress.finish("a", 1.0)
        assert labels() == ["a", "b"]
        progress.finish("b", 1.0)
        assert labels() == ["a", "b", "working"]
        progress.stage("c", 0)
        progress.finish("c", 1.0)
        assert labels() == ["a", "b", "c", "working"]
    assert labels() == ["a", "b", "c"]
    with pytest.raises(KeyError), BarProgress() as progress:
        raise KeyError
    assert labels() == []
