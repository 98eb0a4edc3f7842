"""Rich representations and figures: what they show is text, whatever the log holds."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from rich.console import Console

import timelapse as tl
from tests.reporting.programs import Guard, events
from timelapse import trace
from timelapse.charts import timeline
from timelapse.charts.timeline import nice, short
from timelapse.compare.sweeps import describe
from timelapse.errors import RunError, UsageError
from timelapse.results.parameters import shown_text, text_of


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A program, a log, a run, a diff, a plan."""
    log = tl.Log.from_events(tmp_path_factory.mktemp("views") / "log[bold]", events())
    a, b = (tl.replay(Guard(limit=n), log, spark=False) for n in (2, 5))
    many = tl.sweep(Guard, log, {"limit": [2, 5]}, spark=False)
    return {
        "program": Guard(), "log": log, "run": a, "diff": tl.diff(a, b), "plan": tl.explain(Guard, log), "sweep": many,
    }  # fmt: skip


def in_terminal(value: Any) -> str:
    stream = io.StringIO()
    Console(file=stream, width=140, force_terminal=True, color_system="truecolor").print(value)
    return stream.getvalue()


@pytest.mark.parametrize("name", ["program", "log", "run", "diff", "plan", "sweep"])
def test_notebooks_show_them_as_text(shown: dict[str, Any], name: str) -> None:
    """HTML that is whole, without scripts or handlers; what looks like markup is escaped."""
    html = shown[name]._repr_html_()
    root = ET.fromstring(html.replace("&nbsp;", " "))
    tags = {e.tag.rpartition("}")[2] for e in root.iter()}
    assert not tags & {"script", "img", "iframe", "link", "object"}
    assert not [a for e in root.iter() for a in e.attrib if a.startswith("on")]
    assert "<script" not in html


@pytest.mark.parametrize("name", ["program", "log", "run", "diff", "plan", "sweep"])
def test_terminals_show_them(shown: dict[str, Any], name: str) -> None:
    """`rich.print` shows a card; control characters of the log do not get through, brackets are no markup."""
    text = in_terminal(shown[name])
    assert "\u202e" not in text
    assert "\x1b[31mred" not in text
    word = {
        "program": "Guard",
        "log": "log[bold]",
        "run": shown["run"].digest,
        "diff": "gone",
        "plan": "visits",
        "sweep": "2 settings",
    }[name]
    assert word in text


def test_what_cards_say(shown: dict[str, Any]) -> None:
    """Counts, digests, parameters."""
    run, found = shown["run"], shown["diff"]
    assert run.digest in run._repr_html_()
    assert f"{run.counts['Seen']:,}" in run._repr_html_()
    assert f"{found.records['Seen'].counts['gone']:,}" in found._repr_html_()
    assert "limit=5" in found._repr_html_()
    assert "The same" in tl.diff(run, run)._repr_html_()
    assert "limit: int" in shown["program"]._repr_html_()
    assert "130" in shown["log"]._repr_html_()
    assert "2030-01-01" not in shown["log"]._repr_html_()


def test_plots_are_figures(shown: dict[str, Any], tmp_path: Path) -> None:
    """They show themselves, have their SVG, and are saved."""
    for figure in (shown["run"].plot(), shown["run"].plot("Seen"), shown["diff"].plot(), shown["log"].plot()):
        ET.fromstring(figure.svg)
        assert figure._repr_svg_() == figure.svg
        assert figure.save(tmp_path / "plot.svg").read_text(encoding="utf-8").startswith("<svg")
    with pytest.raises(RunError):
        shown["run"].plot("Nothing")
    with pytest.raises(UsageError):
        shown["diff"].plot("Nothing")


# --- charts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "times",
    [[0], [5, 6], [-(2**63), 2**63 - 1], [10**15] * 3, list(range(0, 86_400_000_000 * 400, 7_777_777_777)), [-1, 0, 1],
     [-(2**63), -(2**63) + 1], [2**63 - 1]],
)  # fmt: skip
def test_every_time_is_counted_once(times: list[int]) -> None:
    """Whatever the times: fine bins and columns add up, and there are not too many."""
    chart = timeline("x", {"a": np.array(times, np.int64), "b": np.array(times[:1], np.int64)})
    assert int(chart.bands[0].counts.sum()) == len(times)
    assert chart.bins <= 1_500
    start, step, columns = chart.columns()
    assert int(columns["a"].sum()) == len(times)
    assert int(columns["b"].sum()) == 1
    assert len(columns["a"]) <= 121
    index = (min(times) - start) // step
    assert columns["a"][index] >= 1
    ET.fromstring(chart.figure().svg)


def test_columns_begin_on_the_calendar() -> None:
    """Days at midnight, weeks on Mondays."""
    day = 86_400_000_000
    start, step, _ = timeline("x", {"a": np.array([day * 100 + 5, day * 190], np.int64)}).columns()
    assert (step, start % day) == (day, 0)
    start, step, _ = timeline("x", {"a": np.array([day * 100 + 5, day * 800], np.int64)}).columns()
    assert (step, (start // day + 3) % 7) == (7 * day, 0)


def test_numbers_on_axes() -> None:
    """Round steps, short labels."""
    assert [nice(n) for n in (0.1, 1, 1.5, 3, 7, 11, 34, 99)] == [1, 1, 2, 5, 10, 20, 50, 100]
    assert [short(n) for n in (0, 9_999, 10_000, 12_500, 1_500_000, 2_000_000_000)] == [
        "0", "9,999", "10k", "12.5k", "1.5M", "2G",
    ]  # fmt: skip


# --- progress in notebooks ----------------------------------------------------------------------------


class _Shell:
    """A notebook's display, as IPython gives it."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def display(self, html: Any, **_: Any) -> _Shell:
        self.update(html)
        return self

    def update(self, html: Any) -> None:
        self.shown.append(html.data)


def test_progress_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bars that end full, names as text; a short job shows nothing; elsewhere nothing is shown at all."""
    import IPython.display

    from timelapse.progress import notebook

    shell = _Shell()
    monkeypatch.setattr(IPython.display, "display", shell.display)
    quick = notebook.NotebookProgress()
    quick.stage("final", 10)
    quick.finish("final", 0.1)
    assert shell.shown == []
    monkeypatch.setattr(notebook, "_FIRST_SECONDS", 0.0)
    monkeypatch.setattr(notebook, "_EVERY_SECONDS", 0.0)
    progress = notebook.NotebookProgress()
    progress.note("<b>starting</b>")
    progress.stage("<script>x</script>", 200)
    progress.advance("<script>x</script>", 50, 200)
    assert "width:25%" in shell.shown[-1]
    progress.finish("<script>x</script>", 1.5)
    assert "width:100%" in shell.shown[-1]
    assert "1.50 s" in shell.shown[-1]
    assert not [html for html in shell.shown if "<script" in html or "<b>" in html]
    assert type(notebook.default_progress()).__name__ == "Silent"
    assert not notebook.in_notebook()


Money = Annotated[Decimal, tl.scale(2)]


class Bought(tl.Event):
    buyer: int
    price: Money


class Dear(tl.Program):
    """The last dear thing that a buyer bought, with its event."""

    least: Decimal = Decimal("10.00")
    last: tl.Value[int, tuple[Money, int] | None]

    @tl.on(Bought)
    def buy(self, e: Bought) -> None:
        if e.price >= self.least:
            self.last[e.buyer] = (e.price, e.seq)


def test_amounts_are_shown_as_numbers(tmp_path: Path) -> None:
    bought = [Bought(buyer=1, price=Decimal(n))._at(n, n) for n in range(20)]
    log = tl.Log.from_events(tmp_path / "log", bought, [Bought])
    run = tl.replay(Dear(least=Decimal("12.50")), log, spark=False)
    (point,) = tl.sweep(Dear, log, {"least": [Decimal("12.50")]}, spark=False).points
    assert describe(point.values) == "least=12.50"
    assert "least=12.50" in run._repr_html_()
    assert "(19.00, 19)" in trace.history(run, "last", 1).text
    assert [shown_text(text_of(v)) for v in (Decimal("0.1"), (Decimal(1), "a"), "Decimal(", 0.5)] == [
        "0.1", "(1, 'a')", "'Decimal('", "0.5",
    ]  # fmt: skip
