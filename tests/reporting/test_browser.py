"""Reports in a real browser: nothing runs that is not ours, charts answer, and it fits a phone and paper.

Needs Chromium (`apt install chromium`, or its path in TIMELAPSE_CHROMIUM).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import timelapse as tl
from tests.reporting.browser import Browser, found
from tests.reporting.programs import HOSTILE, Guard, events
from timelapse.reporting import report

BROWSER = found()
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine: apt install chromium")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The reports of a hostile run, of a diff with labels, and of a sweep over hostile values."""
    folder = tmp_path_factory.mktemp("browser")
    log = tl.Log.from_events(folder / "log", events())
    a, b = (tl.replay(Guard(limit=n), log, folder / f"r{n}", 2, False) for n in (2, 5))
    report(a, folder / "run.html")
    labels = pa.table({"n": list(range(130)), "label": [n % 3 == 0 for n in range(130)]})
    found = tl.diff(a, b)
    report(found, folder / "diff.html", by=["who"], judged=found.judge(labels))
    words = {"limit": [1, 2, 4], "word": HOSTILE[:-1]}
    # Without the texts of two million characters, which this report does not show: each setting would read and write them.
    short = tl.Log.from_events(folder / "short", [e for e in events() if len(e.text) < 1000])
    report(tl.sweep(Guard, short, words, labels=labels, spark=False), folder / "sweep.html")
    return {name: folder / f"{name}.html" for name in ("run", "diff", "sweep")}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert BROWSER is not None
    with Browser(BROWSER) as opened:
        yield opened


def _box(browser: Browser, selector: str) -> dict[str, Any]:
    found = browser.evaluate(
        f"(() => {{ const e = document.querySelector({selector!r}); e.scrollIntoView({{block: 'center'}});"
        " const b = e.getBoundingClientRect(); return {x: b.x, y: b.y, w: b.width, h: b.height}; })()"
    )
    return dict(found)


@pytest.mark.parametrize("name", ["run", "diff", "sweep"])
def test_hostile_texts_stay_texts(browser: Browser, files: dict[str, Path], name: str) -> None:
    """No script of the log ran, nothing was asked of a network, the policy had nothing to stop; the texts can be read."""
    browser.open(files[name])
    assert browser.evaluate("window.harmed") is None
    assert browser.requests == [files[name].resolve().as_uri()]
    assert browser.messages == []
    text = browser.evaluate("document.body.innerText + document.body.textContent")
    assert "<script>window.harmed = 1</script>" in text
    assert "\\u202egnp.exe" in text
    assert "{{ 7 * 7 }}" in text
    assert name == "sweep" or "(2,000,000 characters)" in text
    assert browser.evaluate("getComputedStyle(document.body).display") == "block"
    assert browser.evaluate("document.querySelectorAll('img,iframe,object,embed,link,base,form').length") == 0


def test_the_policy_stops_what_is_not_ours(browser: Browser, files: dict[str, Path], tmp_path: Path) -> None:
    """That the tests above could fail: the same scripts, written into the page as markup, are seen and stopped."""
    page = tmp_path / "planted.html"
    planted = "<script>window.harmed = 1</script><img src='https://elsewhere.invalid/x.png' onerror='window.harmed = 3'>"
    page.write_text(
        files["run"].read_text(encoding="utf-8").replace("<main>", f"<main>{planted}"), encoding="utf-8"
    )
    browser.open(page)
    assert browser.evaluate("window.harmed") is None
    assert any("Content Security Policy" in m for m in browser.messages)
    page.write_text(
        re.sub(r'<meta http-equiv="Content.*?>', "", page.read_text(encoding="utf-8")), encoding="utf-8"
    )
    browser.open(page)
    assert browser.evaluate("window.harmed") in (1, 3)


def test_charts_answer_pointer_keys_and_legend(browser: Browser, files: dict[str, Path]) -> None:
    """A column is read, its values add up to the outputs, dragging zooms in, double-click goes back, bands can be hidden."""
    browser.open(files["diff"])
    assert browser.evaluate(
        "[...document.querySelectorAll('figure.chart')].every(f => f.dataset.ready === 'yes')"
    )
    box = _box(browser, "figure.chart > svg")
    x, y = box["x"] + box["w"] / 2, box["y"] + box["h"] / 2
    browser.mouse("mouseMoved", x, y)
    read = "(() => { const t = document.querySelector('figure.chart .tip'); return t.hidden ? '' : t.textContent; })()"
    assert "UTC" in browser.evaluate(read)
    walk = """(() => {
        const f = document.querySelector('figure.chart'), tip = f.querySelector('.tip');
        const press = (key) => f.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
        let sum = 0, seen = '';
        for (let i = 0; i < 400; i++) press('ArrowLeft');
        for (let i = 0; i < 400; i++) {
            if (tip.textContent === seen) break;
            seen = tip.textContent;
            sum += +[...tip.children].find(d => d.textContent.startsWith('gone')).textContent.slice(5).replace(',', '');
            press('ArrowRight');
        }
        return sum;
    })()"""
    shown = browser.evaluate("document.querySelector('td.gone').textContent.trim()")
    assert browser.evaluate(walk) == int(shown)
    label = "document.querySelector('figure.chart > svg:last-of-type text:last-of-type').textContent"
    columns = "document.querySelectorAll('figure.chart > svg > path').length"
    before = browser.evaluate(label)
    browser.mouse("mousePressed", x, y, button="left", clickCount=1)
    browser.mouse("mouseMoved", x + box["w"] / 5, y, button="left", buttons=1)
    browser.mouse("mouseReleased", x + box["w"] / 5, y, button="left", clickCount=1)
    reset = "document.querySelector('figure.chart .legend button').hidden"
    assert browser.evaluate(reset) is False
    assert browser.evaluate(label) != before
    browser.evaluate("document.querySelector('figure.chart > svg').dispatchEvent(new MouseEvent('dblclick'))")
    assert browser.evaluate(reset) is True
    assert browser.evaluate(label) == before
    paths = browser.evaluate(columns)
    browser.evaluate("[...document.querySelectorAll('figure.chart .legend button')].pop().click()")
    assert browser.evaluate(columns) < paths


@pytest.mark.parametrize("name", ["run", "diff", "sweep"])
def test_it_fits_a_phone(browser: Browser, files: dict[str, Path], name: str) -> None:
    """No sideways scrolling of the page at 360 pixels, text that can be read, in dark colours too."""
    browser.open(files[name], width=360, height=740, phone=True, dark=True)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 360
    assert (
        browser.evaluate(
            "Math.min(...[...document.querySelectorAll('p,dd,td,th,li,h2')].map(e => parseFloat(getComputedStyle(e).fontSize)))"
        )
        >= 12
    )
    ground, ink = (
        [int(n) for n in re.findall(r"\d+", browser.evaluate(f"getComputedStyle(document.body).{what}"))[:3]]
        for what in ("backgroundColor", "color")
    )
    assert max(ground) < 60
    assert min(ink) > 200


@pytest.mark.parametrize("name", ["run", "diff", "sweep"])
def test_wide_tables_scroll_on_a_phone(browser: Browser, files: dict[str, Path], name: str) -> None:
    """Nothing of a table is left out or cut: what is too wide scrolls, and names break at sensible places only."""
    browser.open(files[name], width=360, height=740, phone=True)
    assert browser.evaluate(
        "[...document.querySelectorAll('table.rows')].every(t => { const box = t.closest('.wide');"
        " return box && getComputedStyle(box).overflowX === 'auto' && box.scrollWidth >= t.offsetWidth - 1; })"
    )
    hidden = (
        "[...document.querySelectorAll('table *')].filter(e => getComputedStyle(e).display === 'none').length"
    )
    assert browser.evaluate(hidden) == 0
    inside = "[...document.querySelectorAll('h1,h3,dt,th')].filter(e => e.scrollWidth > e.clientWidth + 1 && !e.title && e.clientWidth).length"
    assert browser.evaluate(inside) == 0


def test_an_opened_plan_is_whole_on_paper(browser: Browser, files: dict[str, Path]) -> None:
    """Before it is printed everything is opened; no line of the plan runs out of the page."""
    browser.open(files["run"], width=700)
    browser.evaluate("dispatchEvent(new Event('beforeprint'))")
    browser.call("Emulation.setEmulatedMedia", media="print", features=[])
    assert browser.evaluate("[...document.querySelectorAll('details')].every(d => d.open)")
    plans = "[...document.querySelectorAll('pre')].map(p => [p.scrollWidth - p.clientWidth, p.textContent.length])"
    found = browser.evaluate(plans)
    assert found
    assert all(over <= 1 and length > 100 for over, length in found)
    browser.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not browser.evaluate("[...document.querySelectorAll('details')].some(d => d.open)")


def test_a_tall_picture_is_on_one_page_of_paper(browser: Browser, files: dict[str, Path]) -> None:
    """Of programs with many states: it was cut through its boxes, behind a page with nothing but its heading. Nor are rows cut."""
    browser.open(files["run"], width=700)
    browser.call("Emulation.setEmulatedMedia", media="print", features=[])
    picture = "document.querySelector('.picture svg')"
    browser.evaluate(
        f"(s => {{s.setAttribute('viewBox', '0 0 900 6000'); s.setAttribute('width', 900); s.setAttribute('height', 6000)}})({picture})"
    )
    width, height = browser.evaluate(f"(r => [r.width, r.height])({picture}.getBoundingClientRect())")
    assert 600 < height < 800  # CSS pixels: 212 mm
    assert width <= 700
    for one in (".picture", "tr"):
        assert browser.evaluate(f"getComputedStyle(document.querySelector('{one}')).breakInside") == "avoid"


def test_it_prints(browser: Browser, files: dict[str, Path]) -> None:
    """On paper it is dark on light, whatever the screen prefers, and some pages long."""
    browser.open(files["run"], dark=True)
    printed = browser.pdf()
    assert printed.startswith(b"%PDF")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 12
    browser.call(
        "Emulation.setEmulatedMedia",
        media="print",
        features=[{"name": "prefers-color-scheme", "value": "dark"}],
    )
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.evaluate("getComputedStyle(document.querySelector('.legend')).display") == "none"


def test_charts_are_there_without_scripts(browser: Browser, files: dict[str, Path]) -> None:
    """Drawn on the way, for readers that run no scripts."""
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(files["run"])
        assert browser.evaluate("document.querySelector('figure.chart').dataset.ready") is None
        drawn = browser.evaluate("document.querySelectorAll('figure.chart > svg.tlc path').length")
        assert drawn > 2
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
