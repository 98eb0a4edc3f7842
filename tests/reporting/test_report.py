"""Reports: what they say, what they leave out, where they go."""

from __future__ import annotations

import random
import re
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from tests.reporting.programs import HOSTILE, Guard, events
from timelapse.charts import Figure
from timelapse.charts.lines import Line, LineChart, Spot
from timelapse.compare import open_sweep
from timelapse.display import took
from timelapse.errors import UsageError
from timelapse.reporting import Report, report
from timelapse.reporting.fields import FieldTop, Keys, Spread, field_part, field_top
from timelapse.reporting.redact import HIDDEN, Redaction, shown
from timelapse.reporting.states import state_parts
from timelapse.reporting.tables import reasons
from timelapse.results.stored import RunContext


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log and two runs, `runs/Guard-1` and `runs/Guard-2`."""
    folder = tmp_path_factory.mktemp("report")
    log = tl.Log.from_events(folder / "log", events())
    (folder / "runs").mkdir()
    for number, limit in ((1, 2), (2, 5)):
        tl.replay(Guard(limit=limit), log, folder / "runs" / f"Guard-{number}", 3, False)
    return folder


@pytest.fixture(scope="module")
def runs(place: Path) -> tuple[tl.Run, tl.Run]:
    return tl.Run.open(place / "runs/Guard-1"), tl.Run.open(place / "runs/Guard-2")


class _Texts(HTMLParser):
    """Tags with their attributes, and the text outside of scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._quiet = 0
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.text += " " if tag in ("td", "th", "tr", "div", "dd", "li", "b", "small", "span") else ""
        self._quiet += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._quiet -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._quiet:
            self.text += data


class Seen(tl.Event):
    k: int


class Counting(tl.Program):
    seen: tl.Counter[int]

    @tl.on(Seen)
    def see(self, e: Seen) -> None:
        self.seen[e.k] += 1


def test_a_run_says_what_ran_and_what_proves_it(runs: tuple[tl.Run, tl.Run]) -> None:
    """Digest, log id, counts, validation, strategies."""
    run = runs[0]
    made = _Texts(tl.report(run).html)
    text = re.sub(r"\s+", " ", made.text)
    assert run.digest in text
    assert run.state_digest in text
    assert str(run.manifest.log_id) in text
    assert f"{run.counts['Seen']} outputs" in text
    assert f"{run.rejected_count} events" in text
    assert "version 1, 130 events" in text
    assert "not yet against the serial reference" in text
    assert "Counter[str]" in text
    assert "real time" in text
    states = run.state_at_cut("visits", run.slices)
    assert f"Counter[str], {len(states)} keys" in text
    assert f"{shown(max(states, key=lambda k: (states[k], k)))}" in text


def test_the_picture_says_what_the_run_took_and_predicts_nothing(runs: tuple[tl.Run, tl.Run]) -> None:
    text = re.sub(r"\s+", " ", _Texts(tl.report(runs[0]).html).text)
    assert f"{took(runs[0].seconds)} for 130 events, " in text
    assert "about " not in text


def test_what_was_verified_is_said(place: Path) -> None:
    """A verification is kept beside its run; a shorter one does not hide it; one of another result is not shown."""
    from timelapse.run.verified import read_verified

    log = tl.Log.open(place / "log")
    run = tl.replay(Guard, log, place / "verified", 2, False)
    assert read_verified(run) is None
    assert run.verify().ok
    assert run.verify(10).ok
    kept = read_verified(run)
    assert kept is not None
    assert (kept.ok, kept.events, kept.total) == (True, 130, 130)
    assert "equal to the serial reference over the whole log" in report(run).html
    other = tl.replay(Guard(limit=0), log, place / "verified_other", 2, False)
    assert run.path is not None
    assert other.path is not None
    (other.path / "verified.json").write_bytes((run.path / "verified.json").read_bytes())
    assert read_verified(other) is None


def test_a_difference_to_the_reference_is_said(place: Path) -> None:
    """In the report too, and what was equal before does not hide it."""
    from dataclasses import replace

    from timelapse.run.verified import keep_verified, read_verified

    run = tl.replay(Guard, place / "log", place / "differs", 2, False)
    proof = run.verify()
    keep_verified(run, replace(proof, ok=False, events=5))
    keep_verified(run, proof)
    kept = read_verified(run)
    assert kept is not None
    assert not kept.ok
    assert "DIFFERS from the serial reference" in report(run).html


def test_nothing_of_the_log_becomes_markup(runs: tuple[tl.Run, tl.Run]) -> None:
    """The tags are those of the templates, whatever texts, names and parameters hold; one script, one policy."""
    plain = {t for t, _ in _Texts(report(tl.replay(Guard(word="x"), [], spark=False)).html).tags}
    for html in (report(runs[0]).html, report(tl.diff(*runs)).html):
        found = _Texts(html)
        known = {
            *plain,
            "h3",
            "li",
            "ol",
            "ul",
            "time",
            "del",
            "ins",
            "i",
            "b",
            "table",
            "tr",
            "td",
            "th",
            "thead",
            "tbody",
        }
        assert {t for t, _ in found.tags} <= known | {
            "figure",
            "div",
            "p",
            "small",
            "span",
            "details",
            "summary",
            "dl",
            "dt",
            "dd",
        }
        assert "<img" not in html
        assert "onerror=" not in re.sub(r"onerror=(&#34;|&quot;)", "", html)
        for tag, attributes in found.tags:
            assert not {
                a for a in attributes if a.startswith("on") or a in ("style", "src", "href", "srcset")
            }, tag
        scripts = [a for t, a in found.tags if t == "script" and a.get("type") != "application/json"]
        assert len(scripts) == 1
        policy = next(a["content"] for t, a in found.tags if a.get("http-equiv") == "Content-Security-Policy")
        assert policy is not None
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", html)
        assert len(html) < 400_000


def test_a_diff_shows_gone_new_and_changed(runs: tuple[tl.Run, tl.Run]) -> None:
    """Counts, parameters that differ, examples, entities."""
    found = tl.diff(*runs)
    text = re.sub(r"\s+", " ", _Texts(report(found, by=["who"], names=("main", "mine")).html).text)
    counts = found.records["Seen"].counts
    assert f"Seen {counts['a']} {counts['b']} {counts['gone']} {counts['new']} {counts['changed']}" in text
    assert "A main" in text
    assert "B mine" in text
    assert "limit 2" in text
    assert "limit 5" in text
    assert f"and {counts['gone'] - 20:,} more" in text
    same = _Texts(report(tl.diff(runs[0], runs[0])).html).text
    assert "They are the same" in same
    with pytest.raises(UsageError, match="nowhere"):
        report(found, by=["nowhere"])


def test_a_sweep_shows_every_setting(place: Path) -> None:
    """Counts, scores and digests of each; plots of them; the folder gives the same but for what labels say."""
    log = tl.Log.open(place / "log")
    labels = pa.table({"n": list(range(0, 130, 2)), "label": [n % 3 == 0 for n in range(0, 130, 2)]})
    found = tl.sweep(Guard(word="w"), log, {"limit": [7, 1, 3]}, place / "swept", labels=labels, spark=False)
    html = report(found).html
    text = re.sub(r"\s+", " ", _Texts(html).text)
    for point in found.points:
        assert point.judged is not None
        score = point.judged.total.b
        assert score.precision is not None
        row = f"{point.values['limit']} {point.run.counts['Seen']} {point.run.rejected_count} {100 * score.precision:.1f}%"
        assert row in text
        assert point.run.digest[:12] in text
    best = found.best()
    assert best is not None
    assert f"best f1: limit={best.values['limit']}" in text
    assert text.count("limit=3: ") == 5  # a mark for outputs, precision, recall, f1 and in the curve
    assert "word 'w'" in text
    again = re.sub(r"\s+", " ", _Texts(report(place / "swept").html).text)
    assert "precision" not in again
    rows = [f"{p.values['limit']} {p.run.counts['Seen']} {p.run.rejected_count}" for p in found.points]
    assert [rows[n] for n in (1, 2, 0)] == sorted(rows, key=again.index)
    assert [p.values for p in open_sweep(place / "swept").points] == [{"limit": n} for n in (1, 3, 7)]


def test_a_redacted_parameter_of_a_sweep_is_nowhere(place: Path) -> None:
    """Neither in the table nor on an axis, as a mark's text or in the best setting."""
    log = tl.Log.open(place / "log")
    labels = pa.table({"n": list(range(130))})
    grid: dict[str, list[Any]] = {"limit": [912837, 1], "word": ["s3cret", "x"]}
    found = tl.sweep(Guard, log, grid, labels=labels, spark=False)
    assert "912837" in report(found).html
    made = report(found, redact=["limit,word"])
    assert HIDDEN in made.html
    assert "s3cret" not in made.html
    assert "912837" not in made.html.replace(",", "")
    assert "s3cret" not in report(found, redact=["word"]).html


def test_a_folder_that_is_no_sweep(place: Path, tmp_path: Path) -> None:
    """Runs of different programs over one log, or none at all."""
    tl.replay(Guard, [], tmp_path / "a" / "one", spark=False)
    tl.replay(Guard, events(20), tmp_path / "a" / "two", spark=False)
    for folder in (tmp_path / "a", tmp_path):
        with pytest.raises(UsageError) as caught:
            open_sweep(folder)
        assert caught.value.code == "TL870"
    with pytest.raises(UsageError):
        report(tmp_path / "a")


def test_axes_have_round_numbers_that_are_within() -> None:
    """Lines with one point, equal points, tiny and huge numbers, and none."""
    for values in ([3.0], [2.0, 2.0], [0.001, 0.0035], [1e300, 2e300], [-5.0, 5.0], [0.0], []):
        drawn = LineChart("t", "x", "y", (Line("a", tuple(Spot(v, v, "p") for v in values)),)).figure()
        marks = [float(v) for v in re.findall(r'c[xy]="([-\d.]+)"', drawn.body)]
        assert len(marks) == 2 * len(values)
        assert all(0 <= m <= drawn.width for m in marks)
    ticks = re.findall(
        r'middle">([^<]*)<',
        LineChart("t", "x", "", (Line("a", (Spot(1, 0, ""), Spot(5, 9, ""))),)).figure().body,
    )
    assert ticks == ["1", "2", "3", "4", "5", "x"]


@pytest.mark.parametrize("ends", [(0.0, 0.0), (0.95, 0.97), (1.0, 1.0), (0.2, 0.9), (0.7531, 0.7532)])
def test_shares_that_are_close_are_drawn_apart(ends: tuple[float, float]) -> None:
    """The axes go around the marks, in round percents from 0 to 100, and the marks are within."""
    spots = tuple(Spot(v, v, "p") for v in ends)
    drawn = LineChart("t", "x", "y", (Line("a", spots),), share=(True, True), close=True).figure()
    marks = [float(v) for v in re.findall(r'c[xy]="([-\d.]+)"', drawn.body)]
    assert all(0 <= m <= drawn.width for m in marks)
    ticks = [float(t) for t in re.findall(r">([\d.]+)%<", drawn.body)]
    assert 0 <= min(ticks) <= max(ticks) <= 100
    assert len(ticks) >= 8
    assert 100 * ends[0] - max(ticks) < 1e-6


def test_values_are_counted_whatever_their_type() -> None:
    """Integers by sorting, the rest by hashing: the same ranking, and a key that no two rows share is told."""
    rng = random.Random(2)
    numbers = [rng.choice([-5, 0, 7, 2**62, rng.randrange(50)]) for _ in range(400)]
    ints = field_top("R", "f", pa.chunked_array([numbers[:100], numbers[100:]]), Redaction())
    texts = field_top("R", "f", pa.chunked_array([[str(n) for n in numbers]]), Redaction())
    assert [(r.text, r.count) for r in ints.rows][:4] == [(r.text, r.count) for r in texts.rows][:4]
    assert ints.distinct == texts.distinct == len(set(numbers))
    unique = field_top("R", "f", pa.chunked_array([list(range(9, 0, -1))]), Redaction())
    assert not unique.rows
    assert unique.why == "every output has its own (9 different values)"
    missing = field_top("R", "f", pa.chunked_array([pa.array([1, None, None], pa.int64())]), Redaction())
    assert [r.count for r in missing.rows] == [2, 1]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (["a", "b", "a", "b"], "2 different values, in 2 outputs each: a, b"),
        (["a"] * 3, "a in all 3 outputs"),
        ([f"n{n // 2}" for n in range(40)], "20 different values, in 2 outputs each"),
        (
            [f"n{n // 2}" for n in range(40)] + ["x", "y"],
            "22 different values, the most frequent 20 of them in 2 outputs each",
        ),
        (
            ["n0", *(f"n{n}" for n in range(30))],
            "30 different values, nearly alike: in 2 outputs at most, and 1 in the middle",
        ),
        (["a", "a", "b", "c"], "3 different values, in 1 or 2 outputs each: a, b, c"),
    ],
)
def test_values_that_are_all_alike_are_not_ranked(values: list[str], why: str) -> None:
    """A line says why, with how many there are."""
    found = field_top("R", "f", pa.chunked_array([values]), Redaction())
    assert found.rows == ()
    assert found.why == why


def test_a_folder_is_no_place_for_a_report(tmp_path: Path) -> None:
    made = report(tl.replay(Counting, [Seen(k=1, ts=1)], spark=False))
    for place in (tmp_path, f"{tmp_path}/new/"):
        with pytest.raises(UsageError, match="this is a folder") as refused:
            made.save(place, overwrite=True)
        assert refused.value.code == "TL809"
    assert not list(tmp_path.iterdir())


def test_what_stands_out_is_ranked() -> None:
    """One value three times among single ones; shares of a few values."""
    for values in (
        ["a", "a", *(f"n{n}" for n in range(30)), "a"],
        ["a", "a", "a", "b", "c"],
        ["a", "a", "b"],
    ):
        found = field_top("R", "f", pa.chunked_array([values]), Redaction())
        assert found.rows
        assert found.rows[0].text == "a"


class Addresses(tl.Program):
    used: tl.Distinct[int, int]

    @tl.on(Seen)
    def see(self, e: Seen) -> None:
        self.used.add(e.k % 4, e.k)


def test_keys_are_ranked_by_what_users_read_of_them() -> None:
    """A sketch is bytes in a table, and a number to users."""
    log = [Seen(k=k, ts=n) for n, k in enumerate([0, 4, 8, 12, 1, 5, 2, 2, 2])]
    [part] = state_parts(tl.replay(Addresses, log, spark=False), Redaction())
    assert [(r.text, r.count) for r in part.top] == [("0", 4), ("1", 2), ("2", 1)]


@pytest.mark.parametrize(
    ("keys", "twice", "shown"),
    [(30, 1, "spread"), (30, 0, "1 under each of 30 keys"), (5, 1, "1 or 2 under each of 5 keys"), (5, 0, "1 under each of 5 keys"), (30, 2, "top"), (2, 1, "top")],
)  # fmt: skip
def test_keys_that_are_nearly_alike_are_not_ranked(keys: int, twice: int, shown: str) -> None:
    """`twice`: so many more events of the first key."""
    run = tl.replay(Counting, [Seen(k=max(0, n - twice), ts=n) for n in range(keys + twice)], spark=False)
    (part,) = state_parts(run, Redaction())
    assert (part.keys, bool(part.top), part.spread is not None) == (keys, shown == "top", shown == "spread")
    assert part.value == (shown if " " in shown else "")
    if part.spread is not None:
        assert "keys are not ranked: the largest values are nearly alike" in part.spread.notes


def test_numbers_are_spread_and_keys_are_ranked() -> None:
    """Floats, decimals and integers with many values that are no keys; quantiles are values that are there."""
    numbers = pa.chunked_array([pa.array([*range(100), None], pa.int64())])
    found = field_part("R", "f", [numbers], Redaction(), Keys())
    assert isinstance(found, Spread)
    assert dict(found.quantiles)["median"] == ("49",)
    assert found.notes == ("None: 1 (1.0%)",)
    assert isinstance(field_part("R", "f", [numbers], Redaction(), Keys(frozenset({"f"}))), FieldTop)
    assert isinstance(field_part("R", "user_id", [numbers], Redaction(), Keys()), FieldTop)
    money = pa.chunked_array([pa.array([Decimal(n) / 100 for n in range(100)], pa.decimal128(19, 2))])
    spread = field_part("R", "f", [money, money], Redaction(), Keys())
    assert isinstance(spread, Spread)
    assert dict(spread.quantiles)["most"] == ("0.99", "0.99")
    assert isinstance(spread.chart, Figure)
    assert "<title>" in spread.chart.body
    other = pa.chunked_array([pa.array([Decimal(n) / 100 for n in range(50, 100)], pa.decimal128(19, 2))])
    two = field_part("R", "f", [money, other], Redaction(), Keys())
    assert isinstance(two, Spread)
    assert dict(two.quantiles)["least"] == ("0.00", "0.50")
    floats = pa.chunked_array([[float("nan"), float("inf"), *(n / 7 for n in range(50))]])
    assert isinstance(field_part("R", "f", [floats], Redaction(), Keys()), Spread)
    hidden = field_part("R", "f", [money], Redaction(frozenset({"f"})), Keys())
    assert isinstance(hidden, FieldTop)
    assert hidden.why == f"100 different values, {HIDDEN}"


def test_redacted_values_are_nowhere_in_the_file(place: Path) -> None:
    """Neither in tables nor charts nor reasons nor parameters; the other fields stay."""
    log = tl.Log.open(place / "log")
    a = tl.replay(Guard(word="s3cret"), log, spark=False)
    b = tl.replay(Guard(limit=4, word="s3cret"), log, spark=False)
    for made in (report(a, redact=["who", "word"]), report(tl.diff(a, b), redact=["Seen.who,word"])):
        assert HIDDEN in made.html
        assert "s3cret" not in made.html
        assert "no: " not in made.html
        assert "left out of this report" in made.html
    assert "s3cret" in report(a, redact=["who"]).html
    with pytest.raises(UsageError) as caught:
        report(a, redact=["wh0"])
    assert caught.value.code == "TL816"


def test_redacting_every_text_leaves_no_text(place: Path) -> None:
    """With both fields redacted nothing of what the log says is left."""
    run = tl.replay(Guard(word="x"), place / "log", spark=False)
    html = report(run, redact=["who", "text"]).html
    for text in HOSTILE:
        if text not in ("<!--", "]]>", "&lt;b&gt;"):  # all else is nowhere else: states show no keys either
            assert shown(text)[:40] not in _Texts(html).text
    assert "elsewhere.invalid" not in html


def test_a_log_that_is_gone_costs_only_what_it_told(tmp_path: Path) -> None:
    """The report says so and goes on; a later version of the log does not confuse it."""
    log = tl.Log.from_events(tmp_path / "log", events(60))
    run = tl.replay(Guard, log, tmp_path / "run", 2, False)
    assert "version 1, 60 events" in report(run).html
    (tmp_path / "log").rename(tmp_path / "moved")
    text = _Texts(report(tl.Run.open(tmp_path / "run")).html).text
    assert "could not be opened" in text
    assert run.digest in text
    in_memory = report(tl.run_serial(Guard, events(20)))
    assert "in memory" in in_memory.html


def test_an_empty_run_has_a_report() -> None:
    """No events, no outputs, no log."""
    made = report(tl.replay(Guard, [], spark=False))
    assert "0 outputs" in _Texts(made.html).text
    assert isinstance(made, Report)
    assert "<iframe" in made._repr_html_()
    assert "sandbox" in made._repr_html_()


def test_values_are_cut_and_visible() -> None:
    """Huge texts say how long they are; control characters and line ends show."""
    assert shown("x" * 2_000_000).endswith("… (2,000,000 characters)")
    assert len(shown("\u202e" * 2_000_000)) < 1_200
    assert shown("a\nb\x1b\u202e") == "a\\nb\\x1b\\u202e"
    assert shown(b"\x00\xff") == r"b'\x00\xff'"
    assert shown(b"\x00" * 10_000).endswith("(10,000 bytes)")
    assert shown(True) == "True"
    assert shown(-0.0) == "-0.0"
    assert shown(None) == "None"


def test_what_a_run_says_of_itself_is_text_too(runs: tuple[tl.Run, tl.Run]) -> None:
    """A description that somebody wrote by hand: nothing in it becomes markup or turns text around."""
    evil = "\u202e<img src=x onerror=alert(1)>\x1b[31m"
    manifest = runs[0].manifest
    changed = msgspec.structs.replace(
        manifest, program=evil, source=None, executor=evil, started=evil, timelapse=evil, plan=evil, log=None,
        timings={evil: 1.0}, account={evil: 1.0}, digest=evil,
        certificate={
            **manifest.certificate, "passes": {evil: evil}, "trusted": [evil], "diagnostics": [{"severity": "warning", "code": evil, "place": evil, "message": evil}],
            "fallback": {"from_slice": evil, "reason": evil, "is_bug": True}, "cache": {"what": evil, "saved": 1},
        },
    )  # fmt: skip
    run = tl.Run(changed, runs[0]._data, None, RunContext())
    for html in (report(run).html, report(tl.diff(run, run)).html):
        found = _Texts(html)
        assert "img" not in {tag for tag, _ in found.tags}
        assert "<img src=x onerror=alert(1)>" in found.text
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", html)


def test_many_reasons_of_rejections_are_ranked() -> None:
    """The most frequent first; of a redacted report only the handlers."""
    rows = [("go", "a")] * 3 + [("go", "b")] * 5 + [("come", "c")] * 4 + [("go", str(n)) for n in range(50)]
    table = pa.table({"handler": [h for h, _ in rows], "reason": [r for _, r in rows]})
    found = reasons(table, Redaction())
    assert [(r.text, r.count) for r in found[:3]] == [("go: b", 5), ("come: c", 4), ("go: a", 3)]
    assert len(found) == 10
    assert [r.count for r in reasons(table, Redaction(frozenset({"who"})))] == [58, 4]


# --- the command ----------------------------------------------------------------------------------------


def test_the_command_writes_a_file(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For one run and for two; over an earlier report, and over nothing else."""
    monkeypatch.chdir(place)
    (place / "programs_to_sweep.py").write_text("from tests.reporting.programs import Guard, Seen, Visit\n")
    done = cli("report", "@1")
    assert done.code == 0, done.err
    assert (place / "Guard-1.html").read_text().startswith("<!doctype html><!-- timelapse report -->")
    assert cli("report", "@1").code == 0
    two = cli("report", "@1", "@2", "-o", "out/two.html", "--by", "who", "--json")
    assert two.json["bytes"] == (place / "out/two.html").stat().st_size
    (place / "mine.html").write_text("mine")
    taken = cli("report", "@1", "-o", "mine.html")
    assert taken.code == 2
    assert "TL830" in taken.err
    assert (place / "mine.html").read_text() == "mine"
    assert cli("report", "@1", "-o", "mine.html", "--overwrite").code == 0
    assert cli("report", "@1", "--redact", "nothing").code == 2
    assert cli("report", "@1", "--by", "who").code == 2
    swept = cli(
        "sweep", "programs_to_sweep.py:Guard", "log", "limit=1,2", "--local", "--report", "s.html", "-o", "sw"
    )
    assert swept.code == 0, swept.err
    assert "report: s.html" in swept.out
    assert "many settings" in (place / "s.html").read_text()
    assert cli("report", "sw", "-o", "again.html").code == 0
    assert "many settings" in (place / "again.html").read_text()
    assert cli("sweep", "programs_to_sweep.py:Guard", "log", "limit=1,2", "--redact", "limit").code == 2
    assert not list(place.glob(".*"))
