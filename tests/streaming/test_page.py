"""The page of a live run in a real browser: what the run holds is text, whatever it says, and the page shows how it goes.

Needs Chromium (`apt install chromium`, or its path in TIMELAPSE_CHROMIUM).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import timelapse as tl
from tests.patience import LONG, until
from tests.reporting.browser import Browser, found
from tests.streaming.test_live import FAST
from tests.streaming.test_serve import WARM, Client, Named, Names, rows
from timelapse.streaming.following import follow
from timelapse.streaming.serve.app import Server

BROWSER = found()
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine: apt install chromium")


@pytest.fixture(scope="module")
def opened() -> Iterator[Browser]:
    assert BROWSER is not None
    with Browser(BROWSER) as browser:
        yield browser


@pytest.fixture
def browser(opened: Browser) -> Iterator[Browser]:
    """It asks the server of a test that is over nothing more."""
    yield opened
    opened.call("Page.navigate", url="about:blank")


def shown(browser: Browser, expression: str, wanted: str) -> None:
    """Wait until an expression's text has something in it."""
    until(lambda: wanted in str(browser.evaluate(expression)), what=lambda: browser.evaluate(expression))


def clicked(browser: Browser, click: str, expression: str, wanted: str) -> None:
    """Click, and wait until an expression's text has something in it. An answer to what was not there yet, or that was not to be had at that moment, is no last one: click
    again, as people do."""
    end = time.monotonic() + LONG
    while True:
        browser.evaluate(click)
        again = time.monotonic() + _AGAIN
        while (text := str(browser.evaluate(expression))) == "replaying the journal ..." or (
            wanted not in text and time.monotonic() < again
        ):
            assert time.monotonic() < end, text
            time.sleep(0.02)
        if wanted in text:
            return


_AGAIN = 10.0
"""Seconds after which it is clicked again."""


def test_hostile_texts_and_figures(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    push = tl.Push()
    with tl.live(Names, {Named: {WARM: push}}, tmp_path / "out", idle=None, **FAST) as run:
        server = Server(run, "127.0.0.1:0")
        client = Client(server)
        path = (
            f"/push/Named/{WARM}".replace("<", "%3C")
            .replace(">", "%3E")
            .replace('"', "%22")
            .replace("/script", "%2Fscript")
        )
        client.ask(path, rows("ann", WARM, "</pre><img src=x onerror=alert(1)>", "end"), right="push")
        names = ("ann", WARM, "</pre><img src=x onerror=alert(1)>", "end")
        push.send([Named(name=name, size=1, ts=1000 + n) for n, name in enumerate(names)])
        browser.open(server.address)
        shown(browser, "document.getElementById('ask').hidden", "False")
        browser.evaluate(
            f"document.getElementById('token').value = '{client.tokens['read']}'; document.querySelector('#token-form button').click()"
        )
        shown(browser, "document.getElementById('outputs').textContent", "<script>")
        shown(browser, "document.getElementById('partitions').textContent", WARM)
        why = "[...document.querySelectorAll('#outputs button')].at(-1).click()"
        clicked(browser, why, "document.getElementById('why').textContent", "emit Told(name='ann'")
        browser.evaluate("document.getElementById('close').click()")
        shown(browser, "document.getElementById('answer').hidden", "True")
        assert "Names" in browser.evaluate("document.getElementById('program').textContent")
        look = "document.getElementById('states').value = 'n'; document.getElementById('key').value = ''; document.querySelector('#look button').click()"
        clicked(browser, look, "document.getElementById('value').textContent", "onerror")
        assert browser.evaluate("document.querySelectorAll('img, script:not([src])').length") == 0
        assert not [m for m in browser.messages if "401" not in m], browser.messages
        browser.evaluate(
            f"document.getElementById('operator').value = '{client.tokens['operate']}'; document.querySelector('#operate button').click()"
        )
        shown(browser, "document.getElementById('state').textContent", "paused")
        server.close()


def test_early_results(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What rows that wait would put out stands apart from what is committed, as text."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    push = tl.Push()
    with tl.live(
        Names, {Named: push}, tmp_path / "out", idle=None, **{**FAST, "lateness": "1s", "early": "0s"}
    ) as run:
        server = Server(run, "127.0.0.1:0")
        push.send([Named(name=name, size=1, ts=1000 + n) for n, name in enumerate(("ann", WARM))])
        browser.open(server.address)
        shown(browser, "document.getElementById('ask').hidden", "False")
        browser.evaluate(
            f"document.getElementById('token').value = '{server.tokens['read']}'; document.querySelector('#token-form button').click()"
        )
        shown(browser, "document.getElementById('early').textContent", "<script>")
        shown(browser, "document.getElementById('early').textContent", "behind epoch")
        assert browser.evaluate("document.getElementById('outputs').textContent") == ""
        assert browser.evaluate("document.querySelectorAll('script:not([src])').length") == 0
        push.send([Named(name="end", size=1, ts=2_000_000)])
        shown(browser, "document.getElementById('outputs').textContent", "<script>")
        shown(browser, "document.getElementById('early').textContent", "end")
        shown(
            browser,
            "document.getElementById('figures').textContent",
            "2 / 0early results confirmed / retracted",
        )
        server.close()


def test_without_early_results_the_page_says_nothing_of_them(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    push = tl.Push()
    with tl.live(Names, {Named: push}, tmp_path / "out", **FAST) as run:
        server = Server(run, "127.0.0.1:0")
        push.send([Named(name="ann", size=1, ts=1000), Named(name="end", size=1, ts=2000)])
        browser.open(server.address)
        shown(browser, "document.getElementById('ask').hidden", "False")
        browser.evaluate(
            f"document.getElementById('token').value = '{server.tokens['read']}'; document.querySelector('#token-form button').click()"
        )
        shown(browser, "document.getElementById('outputs').textContent", "ann")
        assert browser.evaluate("document.getElementById('early-box').hidden") is True
        server.close()


def test_a_process_that_follows(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its page shows how the run goes, and offers no say in it."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    push = tl.Push()
    with tl.live(Names, {Named: push}, tmp_path / "out", idle=None, **FAST) as run:
        push.send([Named(name=name, size=1, ts=1000 + n) for n, name in enumerate(("ann", "bob", "end"))])
        last = run.until(lambda e: e.end_seq >= 2)
        with follow(tmp_path / "out") as followed:
            followed.until(lambda e: e.number >= last.number)
            server = Server(followed, "127.0.0.1:0")
            token = Client(server).tokens["read"]
            browser.open(server.address)
            shown(browser, "document.getElementById('ask').hidden", "False")
            browser.evaluate(
                f"document.getElementById('token').value = '{token}'; document.querySelector('#token-form button').click()"
            )
            shown(browser, "document.getElementById('state').textContent", "following")
            shown(browser, "document.getElementById('outputs').textContent", "bob")
            assert browser.evaluate("document.getElementById('operate-box').hidden")
            server.close()
