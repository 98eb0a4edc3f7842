"""What matplotlib draws is what pages show: the same ticks and lines, and texts of logs as they are."""

from __future__ import annotations

import io
import re
from html import unescape
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest

from timelapse.charts.drawn import drawn, steps
from timelapse.charts.lines import Line, LineChart, Spot

EVIL = "$x$ <b> & _y\n\x1b"
SHOWN = "$x$ <b> & _y\\n\\x1b"


def chart(**more: object) -> LineChart:
    spots = (Spot(1, 3, "one"), Spot(2, 8, "two", best=True), Spot(9, float("nan"), "nowhere"))
    return LineChart("t", "x", "y", (Line("a", spots), Line("b", spots[:1])), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "more",
    [{}, {"whole": (True, True)}, {"share": (False, True)}, {"named": ("first", "second", "third")}],
)
def test_both_have_the_same_ticks(more: dict[str, object]) -> None:
    """Where there is room for all of them in both."""
    body = chart(**more).figure().body
    axes = drawn(chart(**more)).axes[0]
    for anchor, found in (("middle", axes.get_xticklabels()), ("end", axes.get_yticklabels())):
        page = [unescape(t) for t in re.findall(rf'text-anchor="{anchor}">([^<]*)<', body)]
        assert [t.get_text() for t in found] == [t for t in page if t != "x"]


def test_marks_without_a_place_are_left_out_and_lines_are_named() -> None:
    axes = drawn(chart()).axes[0]
    assert [np.asarray(line.get_xdata()).tolist() for line in axes.lines] == [
        [1, 2],
        [2],
        [1],
    ]  # the second is a ring
    legend = axes.get_legend()
    assert legend is not None
    assert [t.get_text() for t in legend.get_texts()] == ["a", "b"]


def test_more_lines_than_colours_can_be_told_apart() -> None:
    """A page shows the first of them; a file all, with other strokes."""
    series = tuple(Line(str(n), (Spot(0, n, ""), Spot(1, n, ""))) for n in range(14))
    many = LineChart("t", "x", "y", series)
    found = {(line.get_color(), line.get_linestyle()) for line in drawn(many).axes[0].lines}
    assert len(found) == 14
    assert many.figure().body.count('class="line ') == 6


def test_texts_are_shown_as_they_are() -> None:
    """A dollar begins no formula, an underscore hides no line, what is markup in SVG is escaped, and nothing is escaped twice."""
    spots = (Spot(0, 1, EVIL, short=EVIL), Spot(1, 2, EVIL))
    series = (Line(EVIL, spots), Line("_b", spots[1:]))
    figure = drawn(LineChart(EVIL, EVIL, EVIL, series, named=("$a$", "_c")))
    axes = figure.axes[0]
    legend = axes.get_legend()
    assert legend is not None
    texts = [axes.title, axes.xaxis.label, axes.yaxis.label, *legend.get_texts(), *axes.texts, *axes.get_xticklabels()]  # fmt: skip
    seen = [one._preprocess_math(one.get_text()) for one in texts]  # type: ignore[attr-defined]
    assert [math for _, math in seen] == [False] * len(seen)
    assert [text for text, _ in seen] == [SHOWN, SHOWN, SHOWN, SHOWN, "_b", SHOWN, "$a$", "_c"]
    with mpl.rc_context({"svg.fonttype": "none"}):
        file = io.BytesIO()
        figure.savefig(file, format="svg")
    shown = {"".join(node.itertext()).strip() for node in ET.fromstring(file.getvalue()).iter() if node.tag.endswith("text")}  # fmt: skip
    assert {SHOWN, "_b", "$a$", "_c"} <= shown


def test_nothing_to_draw() -> None:
    assert "nothing to draw" in drawn(LineChart("t", "x", "y", ())).axes[0].texts[0].get_text()


def test_steps_stay_until_the_next() -> None:
    axes = steps("a$b$[1]", "value", [0, 3_600_000_000], [1.0, 2.0]).axes[0]
    (line,) = axes.lines
    assert line.get_drawstyle() == "steps-post"
    assert np.asarray(line.get_ydata()).tolist() == [1.0, 2.0]
    assert axes.title._preprocess_math(axes.get_title()) == ("a$b$[1]", False)  # type: ignore[attr-defined]
