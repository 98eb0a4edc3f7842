"""Profiles of logs: counted exactly where values are few, with a stated error where they are many; fields that fall silent; hot keys; the page."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from timelapse.log import Log
from timelapse.segments.sketches import Distinct, Heavy, hashes_of
from timelapse.trace.hot_keys import hot_keys

DAY = 86_400_000_000


class Txn(tl.Event):
    user: int
    device: str | None
    amount: float
    tags: list[str]


class Spent(tl.Program):
    by_user: tl.Counter[int]
    last: tl.Value[tuple[int, str], float] = tl.state(default=0.0)

    @tl.on(Txn)
    def txn(self, e: Txn) -> None:
        self.by_user[e.user] += 1
        if e.user == 3:
            self.last[e.user, "x"] = e.amount


def _events(days: int = 6, per_day: int = 40, silent_from: int = 4) -> list[Txn]:
    rng = random.Random(4)
    return [
        Txn(
            user=rng.choice((1, 2, 3, 3, 3)), device=None if day >= silent_from else f"d{n % 7}",
            amount=float(n), tags=[] if n % 2 else ["a"], ts=day * DAY + n,
        )
        for day in range(days) for n in range(per_day)
    ]  # fmt: skip


def test_few_values_are_counted_exactly(tmp_path: Path) -> None:
    events = _events()
    log = Log.from_events(tmp_path / "log", events, block=17)
    (kind,) = log.profile().types
    user, device, amount, tags = kind.fields
    counts = Counter(e.user for e in events)
    assert [(v.value, v.count, v.error) for v in user.frequent] == [
        (str(k), n, 0) for k, n in counts.most_common()
    ]
    assert (user.distinct, user.distinct_error, user.least, user.most) == (3, 0.0, "1", "3")
    assert (device.nulls, device.blank, device.distinct) == (80, 0, 7)
    assert [(d.day, d.events, d.empty, d.distinct) for d in device.days][3:5] == [
        ("1970-01-04", 40, 0, 7), ("1970-01-05", 40, 40, 0),
    ]  # fmt: skip
    assert (amount.mean, amount.least, amount.most, amount.days[2].mean) == (19.5, "0.0", "39.0", 19.5)
    assert amount.quantiles["0.5"] == pytest.approx(19.5, abs=1)
    assert (tags.distinct, tags.frequent) == (2, ())


def test_fields_that_fall_silent_are_told_with_their_day(tmp_path: Path) -> None:
    said = "Txn.device is empty in all 80 events from 1970-01-05 on, and before that never"
    log = Log.from_events(tmp_path / "log", _events())
    assert said in log.info().gaps
    assert log.profile().warnings == (said,)
    assert said in " ".join(cli("log", log.path).out.split())
    whole = Log.from_events(tmp_path / "whole", _events(silent_from=9))
    assert whole.info().gaps == ()
    never = Log.from_events(tmp_path / "never", _events(silent_from=0))
    assert never.info().gaps == ()
    less = log.forget("device == 'd3'")
    assert any(gap.startswith("Txn.device is empty in all 80") for gap in less.info().gaps)


@pytest.mark.parametrize("seed", range(3))
def test_sketches_keep_to_their_error(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.zipf(1.3, 60_000) % 1_000_000
    many, few = Distinct(512), Distinct(100_000)
    heavy = Heavy(pa.int64(), 100)
    for part in np.array_split(values, 13):
        column = pa.array(part)
        for one in (many, few):
            one.add(hashes_of(column))
        heavy.add(column)
    truth = Counter(values.tolist())
    assert (few.exact, few.count) == (True, len(truth))
    assert not many.exact
    assert abs(many.count - len(truth)) <= 5 * many.error * len(truth)
    assert 0 < heavy.error <= len(values) / 100
    top = heavy.top(5)
    assert top
    for value, count in top:
        assert count <= truth[value] <= count + heavy.error
    found = {value for value, _ in heavy.top(100)}
    assert {v for v, n in truth.items() if n > 2 * heavy.error} <= found


def test_hot_keys_of_a_program(tmp_path: Path) -> None:
    events = _events()
    log = Log.from_events(tmp_path / "log", events)
    found = hot_keys(Spent, log)
    states = {s.state: s for s in found.states}
    threes = sum(e.user == 3 for e in events)
    assert (found.events, found.of) == (len(events), len(events))
    assert states["by_user"].hot[0].key == "by_user[3]"
    assert states["by_user"].keys == 3
    assert states["last"].operations == threes == states["last"].hot[0].count
    assert hot_keys(Spent, log, events=10).events == 10


def test_text_json_and_a_page_that_escapes(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    events = [Txn(user=n, device=hostile, amount=1.0, tags=[], ts=n * DAY // 9) for n in range(40)]
    log = Log.from_events(tmp_path / "log", events)
    rules = tmp_path / "rules.py"
    rules.write_text(
        "import timelapse as tl\n\nclass Txn(tl.Event):\n    device: str | None\n\n"
        "class P(tl.Program):\n    n: tl.Counter[str]\n\n    @tl.on(Txn)\n    def t(self, e):\n"
        "        self.n[e.device or ''] += 1\n"
    )
    page = tmp_path / "p.html"
    done = cli("log", log.path, "--profile", "--program", f"{rules}:P", "--page", page)
    assert done.err.index("events one by one: ") < done.err.index("counting what they used")
    assert done.code == 0, done.err
    assert "Txn" in done.out
    html = page.read_text()
    assert hostile not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "Content-Security-Policy" in html
    body = cli("log", log.path, "--profile", "--json").json
    assert body["types"][0]["fields"][1]["frequent"] == [{"value": hostile, "count": 40, "error": 0}]
    assert body["hot"] is None
    other = tmp_path / "mine.html"
    other.write_text("mine")
    assert cli("log", log.path, "--profile", "--page", other).code == 2
    assert other.read_text() == "mine"
    assert cli("log", log.path, "--profile", "--type", "Nothing").code == 2
