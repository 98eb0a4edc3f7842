"""Labels beside outputs that are read part by part: the same judgement as over whole tables, to the last bit."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pytest

import timelapse as tl
from tests.compare.test_by_parts import random_table, stored
from tests.depth import deep
from timelapse.compare import by_parts, diff, engines, judging
from timelapse.compare.by_parts import Pair
from timelapse.compare.differences import Diff
from timelapse.compare.match import Found
from timelapse.compare.records import RecordDiff, compared
from timelapse.compare.score import Judgement, judge
from timelapse.compare.tallies import amount, exact
from timelapse.env.jobs import Here
from timelapse.errors import RunError, UsageError
from timelapse.ids import DAY
from timelapse.run import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from timelapse.compare.sides import InFiles
    from timelapse.env.jobs import Jobs

KEYS = {"k": "int", "t": "text"}


class _NoLog:
    """A run whose log is gone."""

    def need_reader(self) -> Any:
        raise RunError("there is no log")


def _outputs(rng: random.Random, keys: dict[str, str], rows: int) -> pa.Table:
    table = random_table(rng, {**keys, "s": "text", "b": "float"}, rows)
    weights = [
        rng.choice([0.0, 0.1, 0.2, 1e16, 3.3, 1e-300, *([None] if rng.random() < 0.2 else [])])
        for _ in range(rows)
    ]
    return table.append_column(pa.field("w", pa.float64()), pa.array(weights, pa.float64()))


def _labels(rng: random.Random, keys: dict[str, str]) -> pa.Table:
    rows = rng.choice([0, 1, 5, 40])
    columns: dict[str, Any] = dict(random_table(rng, keys, rows).select(list(keys)).to_pydict())
    found = {n: pa.array(v, pa.int64() if keys[n] == "int" else pa.string()) for n, v in columns.items()}
    if rng.random() < 0.7:
        found["label"] = pa.array([rng.choice([True, True, False, None]) for _ in range(rows)], pa.bool_())
    if rng.random() < 0.6:
        found["ts"] = pa.array([rng.randrange(-1, 6) * DAY for _ in range(rows)], pa.int64())
    found["land"] = pa.array([rng.choice(["x", "y", None]) for _ in range(rows)], pa.string())
    found["worth"] = pa.array([rng.choice([0.1, 0.2, 7.0]) for _ in range(rows)], pa.float64())
    return pa.table(found)


def _case(rng: random.Random, folder: Path, jobs: Jobs) -> tuple[Diff, Diff, pa.Table, dict[str, Any]]:
    keys = dict(rng.sample(list(KEYS.items()), rng.randint(1, 2)))
    tables: list[pa.Table | None] = [_outputs(rng, keys, rng.choice([0, 1, 9, 80])) for _ in range(2)]
    files = []
    for side, table in enumerate(tables):
        (folder / f"{side}").mkdir(parents=True)
        files.append(stored(folder / f"{side}", rng, cast("pa.Table", table)))
    whole = compared("R", tables, tuple(keys))
    pair = Pair.of("R", tuple(keys), files)
    parts = RecordDiff("R", pair.identity, pair.sides, Found.nothing(), jobs)
    none = cast("Run", _NoLog())
    options = {
        "segments": rng.sample(["land", "s", "b", *keys], rng.randrange(4)), "by": rng.sample(["s", "b", *keys], rng.randrange(3)),
        "weight": rng.choice([None, "w", "worth"]), "until": rng.choice([None, None, 2 * DAY]),
    }  # fmt: skip
    diffs = [Diff(none, none, {"R": record}, record) for record in (whole, parts)]
    return diffs[0], diffs[1], _labels(rng, keys), options


def _judged(found: Diff, labels: pa.Table, options: dict[str, Any]) -> tuple[str, str]:
    """All that is said, or what is wrong."""
    try:
        return "judged", repr(judge(found, labels, record="R", **options))
    except UsageError as error:
        return error.code, error.message


@pytest.mark.parametrize("seed", range(deep(60)))
def test_random_outputs_and_labels(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of one field and of two, nulls, equal times, labels that contradict each other or have no times, fields that a label lacks."""
    rng = random.Random(seed)
    monkeypatch.setattr(by_parts, "GROUP_ROWS", rng.choice([5, 30, 10_000]))
    whole, parts, labels, options = _case(rng, tmp_path, Here())
    assert _judged(parts, labels, options) == _judged(whole, labels, options)


def test_on_spark(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of Spark judge as this process does."""
    from timelapse.env.spark_jobs import SparkJobs

    monkeypatch.setattr(by_parts, "GROUP_ROWS", 30)
    jobs = SparkJobs(spark)
    for seed in (3, 11):
        whole, parts, labels, options = _case(random.Random(seed), tmp_path / f"{seed}", jobs)
        assert _judged(parts, labels, options) == _judged(whole, labels, options)
    assert "2 jobs" in jobs.text or "4 jobs" in jobs.text


class E(tl.Event):
    n: int


class Hit(tl.Record, key="n"):
    n: int
    worth: float


class Rules(tl.Program):
    step: int = 2

    @tl.on(E)
    def go(self, e: E) -> None:
        if e.n % self.step == 0:
            self.emit(Hit(n=e.n, worth=e.n / 10))


def test_a_comparison_by_parts_judges_by_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where outputs take more memory than this process should, no whole table of them is made."""
    events = [E(n=n, ts=n * DAY // 10) for n in range(200)]
    runs = [tl.replay(Rules(step=s), events, out=tmp_path / f"{s}", spark=False, slices=3) for s in (2, 3)]
    labels = pa.table({"n": list(range(0, 200, 5)), "label": [n % 2 == 0 for n in range(40)]})
    options: dict[str, Any] = {"weight": "worth", "by": ["n"], "segments": ["n"]}
    wanted = diff(runs[0], runs[1]).judge(labels, **options)
    monkeypatch.setattr(engines, "memory_alone", lambda: 1 << 10)
    monkeypatch.setattr(by_parts, "_FEW_ROWS", 20)
    found = diff(runs[0], runs[1])
    assert "part by part" in found.engine

    def refuse(self: InFiles) -> pa.Table:
        raise AssertionError("all outputs are read at once")

    monkeypatch.setattr("timelapse.compare.sides.InFiles.table", refuse)
    assert _same(found.judge(labels, **options), wanted)
    monkeypatch.setattr(judging, "memory_alone", lambda: 0)
    assert _same(found.judge(labels, **options), wanted)  # little is enough


def _same(found: Judgement, wanted: Judgement) -> bool:
    return repr(found) == repr(wanted)


def test_sums_do_not_depend_on_their_order() -> None:
    rng = random.Random(5)
    values = [
        rng.choice([0.0, 0.1, 1e300, 5e-324, 2.0**-1074 * 3, 1e16, 1.0]) * rng.random() for _ in range(1000)
    ]
    total = exact(np.array(values))
    assert amount(total, weighed=True) == math.fsum(values)
    rng.shuffle(values)
    cut = rng.randrange(1000)
    assert exact(np.array(values[:cut])) + exact(np.array(values[cut:])) == total
    assert amount(exact(np.array([1.0, math.inf])), weighed=True) == math.inf
    assert amount(exact(np.array([1.7e308, 1.7e308])), weighed=True) == math.inf
    assert amount(7, weighed=False) == 7
