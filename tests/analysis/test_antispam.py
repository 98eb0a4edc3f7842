"""The analysis of the design's own example, as text."""

from __future__ import annotations

import re
from pathlib import Path

from tests.writers.sources import load_source
from timelapse.analysis import Analysis, analyse, build_pass

EXAMPLE = Path(__file__).parents[2] / "examples" / "antispam.py"

GOLDEN = """\
program Antispam
  Set[tuple[int, int]] friends
    set at Antispam.befriend needs nothing
  Counter[int] to_friends
    add at Antispam.count needs friends
  Counter[int] to_others
    add at Antispam.count needs friends
  Counter[str] sent
    add at Antispam.count needs nothing
  Counter[str] with_email
    add at Antispam.count needs nothing
  to_friends <- friends: condition at Antispam.count
  to_others <- friends: condition at Antispam.count
  order: friends | to_friends | to_others | sent | with_email"""


def antispam() -> Analysis:
    return analyse(load_source(EXAMPLE.read_text(), "Antispam"))


def test_the_golden_text() -> None:
    """Counting depends on friendship only. Line numbers are left out: others edit the example."""
    assert re.sub(r":\d+", "", antispam().text()) == GOLDEN


def test_counting_does_not_read_what_flagging_reads() -> None:
    """Two passes: friends, addresses; then counts with friends exact. The text is read only for addresses."""
    found = antispam()
    first = build_pass(found, "1", ["friends", "sent", "with_email"], ["friends", "sent", "with_email"])
    assert first.columns == {"Friendship": ("a", "b"), "Message": ("ip", "text")}
    assert not first.exact
    second = build_pass(found, "2", ["to_friends", "to_others"], ["to_friends", "to_others"])
    assert second.columns == {"Friendship": ("a", "b"), "Message": ("sender", "recipient")}
    assert second.exact == {"friends"}
    assert [h.name for h in second.handlers] == ["befriend", "count"]
