"""The example of docs/time.md runs, and its replay is the serial meaning."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import timelapse as tl
from timelapse.program.load import load_program
from timelapse.testing import check_replay

HEAD = """
import timelapse as tl


class Message(tl.Event):
    user: int


class Silent(tl.Event):
    user: int


class Lost(tl.Record):
    user: int


class Active(tl.Record):
    users: int


"""


def test_the_example_runs(tmp_path: Path) -> None:
    """Who writes too much is blocked for a day, who falls silent is lost after seven, days are reported."""
    text = (Path(__file__).parents[2] / "docs" / "time.md").read_text(encoding="utf-8")
    start = text.index("    class Watch(")
    code = textwrap.dedent(text[start : text.index("\n## ", start)])
    (tmp_path / "watch.py").write_text(HEAD + code, encoding="utf-8")
    program = load_program(f"{tmp_path / 'watch.py'}:Watch")
    message: Any = program.__spec__.events[0]
    hours = [0, *[1] * 25, 20, 30, 24 * 9]
    events = [message(user=1, ts=h * tl.HOUR) for h in hours]
    run = check_replay(program, events, slices=(2, 5), strategies=(None,))
    assert run.table("Lost")["user"].to_pylist() == [1]
    assert run.counts["Active"] == 9  # midnights in Berlin
    assert run.state("blocked", at=3 * tl.HOUR)["key"].to_pylist() == [1]
    assert run.state("blocked").num_rows == 0
    assert run.pending == {"Silent": 1}
