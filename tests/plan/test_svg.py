"""The picture: well-formed, self-contained, nothing overlaps, lines go around boxes."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.antispam import Antispam
from tests.plan.programs import Ledger
from timelapse.explanation import Explanation, explain
from timelapse.explanation.layout import GAP, Layout, lay_out
from timelapse.explanation.svg import _CHAR, _SMALL

SVG = "{http://www.w3.org/2000/svg}"
Box = tuple[float, float, float, float]


def boxes_of(root: ET.Element) -> list[Box]:
    return [
        (float(r.get("x", 0)), float(r.get("y", 0)), float(r.get("width", 0)), float(r.get("height", 0)))
        for r in root.iter(f"{SVG}rect")
        if r.get("class") == "box"
    ]


@pytest.fixture(scope="module", params=[Antispam, Ledger])
def explained(request: pytest.FixtureRequest) -> Explanation:
    return explain(request.param, cores=2, slices=4)


@pytest.fixture(scope="module")
def root(explained: Explanation) -> ET.Element:
    return ET.fromstring(explained.svg())


def test_every_event_state_and_output_is_there(explained: Explanation, root: ET.Element) -> None:
    count = len(explained.events) + len(explained.states) + len(explained.outputs)
    assert len(boxes_of(root)) == count
    titles = " ".join(t.text or "" for t in root.iter(f"{SVG}title"))
    for state in explained.states:
        assert f"{state.state}: {state.kind}" in titles


def test_boxes_do_not_overlap_and_lie_inside(root: ET.Element) -> None:
    width, height = (float(v) for v in root.get("viewBox", "").split()[2:])
    found = boxes_of(root)
    for x, y, w, h in found:
        assert x >= 0
        assert x + w <= width
        assert y >= 0
        assert y + h <= height
    for (x, y, w, h), (u, v, m, n) in combinations(found, 2):
        assert x + w <= u or u + m <= x or y + h <= v or v + n <= y


def test_names_and_kinds_fit_their_boxes(root: ET.Element) -> None:
    found = boxes_of(root)
    for text in root.iter(f"{SVG}text"):
        style = (text.get("class") or "").split()
        if "mono" not in style:
            continue
        x, y = float(text.get("x", 0)), float(text.get("y", 0))
        size = (_CHAR if "name" in style else _SMALL) * len(text.text or "")
        inside = [b for b in found if b[0] <= x <= b[0] + b[2] and b[1] <= y <= b[1] + b[3]]
        assert len(inside) == 1
        assert x + size <= inside[0][0] + inside[0][2]


def test_nothing_is_loaded_from_elsewhere(explained: Explanation) -> None:
    svg = explained.svg()
    for word in ("href", "url(http", "@import", "<script", "<image", "<foreignObject"):
        assert word not in svg
    assert "prefers-color-scheme:dark" in svg


def test_lines_say_which_line_of_code_they_are(explained: Explanation, root: ET.Element) -> None:
    titles = [
        t.text or "" for g in root.iter(f"{SVG}g") if g.get("class") == "edge" for t in g.iter(f"{SVG}title")
    ]
    for state in explained.states:
        for link in state.depends_on:
            if link.source not in (state.component or (state.state,)):
                assert any(f"{link.source} decides {state.state}" in t and link.place in t for t in titles)


def test_lines_do_not_run_behind_boxes(root: ET.Element) -> None:
    """Where a line crosses a column of boxes, it does so between them."""
    found = boxes_of(root)
    for path in root.iter(f"{SVG}path"):
        if not (path.get("class") or "").startswith("wire"):
            continue
        points = _points(path.get("d", ""))
        for (x, y), (u, v) in pairwise(points):
            if y != v:
                continue  # a curve, between columns
            for left, top, w, h in found:
                crosses = x < left + w - 1 and u > left + 1
                assert not (crosses and top < y < top + h)


def _points(d: str) -> list[tuple[float, float]]:
    points = []
    for part in d.replace("M", "|M").replace("C", "|C").replace("L", "|L").split("|")[1:]:
        numbers = [float(n) for n in part[1:].split()]
        points.append((numbers[-2], numbers[-1]))
    return points


def test_a_notebook_shows_the_picture(explained: Explanation) -> None:
    assert explained.svg() in explained._repr_html_()


# --- the layout, on random graphs --------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[tuple[str, int, float]], list[tuple[str, str]]]:
    boxes = [
        (f"n{i}", draw(st.integers(0, 4)), float(draw(st.integers(20, 80))))
        for i in range(draw(st.integers(1, 15)))
    ]
    pairs = [(a[0], b[0]) for a in boxes for b in boxes if a[1] < b[1]]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=25)) if pairs else []
    return boxes, chosen


@given(graphs())
def test_items_of_a_column_keep_their_distance(
    graph: tuple[list[tuple[str, int, float]], list[tuple[str, str]]],
) -> None:
    boxes, edges = graph
    layout: Layout = lay_out(boxes, edges)
    for column in layout.columns:
        for above, below in pairwise(column):
            assert below.top - above.bottom >= GAP - 1e-6
    assert min(i.top for c in layout.columns for i in c) == pytest.approx(0)
    assert max(i.bottom for c in layout.columns for i in c) == pytest.approx(layout.height)


@given(graphs())
def test_an_edge_has_one_item_in_each_column_that_it_passes(
    graph: tuple[list[tuple[str, int, float]], list[tuple[str, str]]],
) -> None:
    boxes, edges = graph
    layout = lay_out(boxes, edges)
    column = {name: c for name, c, _ in boxes}
    for source, target in edges:
        chain = layout.chains[source, target]
        assert [i.column for i in chain] == list(range(column[source], column[target] + 1))
