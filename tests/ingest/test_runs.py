"""Sorting in runs gives the log that is made in one piece: whatever times there are, whatever the ranges and runs; nothing is left behind."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.depth import deep
from timelapse.ingest import on_spark, prepare_spark, runs
from timelapse.log import Log


class Pay(tl.Event):
    user: str
    cents: int | None


class Seen(tl.Event):
    page: list[str]


class Ping(tl.Event):
    pass


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Spark's part is done in this process: what its tasks do is done in turn."""

    def each(_: Any, count: int, function: Callable[[int], bytes]) -> list[bytes]:
        return [function(n) for n in range(count)]

    monkeypatch.setattr(on_spark, "_each", each)
    monkeypatch.setattr(on_spark, "_cores", lambda spark: 2)
    monkeypatch.setattr(
        prepare_spark, "run_tasks", lambda spark, items, function: [function(i) for i in items]
    )
    monkeypatch.setattr("timelapse.env.spark_session.session", lambda spark: spark)
    return object()


def _files(rng: random.Random, place: Path) -> dict[Any, Any]:
    """Two sources of one type, and types with and without fields; few times, so that many are the same."""
    place.mkdir()
    most = rng.choice((1, 3, 50, 10**6))

    def ts() -> int:
        return rng.randrange(-most, most)

    names = []
    for n in range(3):
        bad = ["x,u,1\n"] if rng.random() < 0.5 else []
        rows = [f"{ts()},u{rng.randrange(5)},{rng.choice(('', '7'))}\n" for _ in range(rng.randrange(60))]
        names.append(place / f"{n}.csv")
        names[-1].write_text("ts,user,cents\n" + "".join(sorted(rows, key=lambda _: rng.random()) + bad))
    seen = place / "s.jsonl"
    seen.write_text("".join(f'{{"ts": {ts()}, "page": ["p{n}"]}}\n' for n in range(rng.randrange(40))))
    ping = place / "p.csv"
    ping.write_text("ts\n" + "".join(f"{ts()}\n" for _ in range(rng.randrange(30))))
    return {
        Pay: [tl.Source([names[2], names[0]]), tl.Source(names[1])],
        Seen: seen,
        Ping: ping,
    }


@pytest.mark.parametrize("seed", range(deep(12)))
def test_the_log_is_the_same(seed: int, tmp_path: Path, here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    sources = _files(rng, tmp_path / "raw")
    whole = Log.write(tmp_path / "whole", sources, max_bad=0.9)
    monkeypatch.setattr(runs, "RUN_BYTES", rng.choice((1, 500, 1 << 30)))
    monkeypatch.setattr(runs, "RANGE_BYTES", rng.choice((300, 2000, 1 << 30)))
    partitions = rng.choice((None, 1, 2, 7, 1000))
    log = Log.write(tmp_path / "log", sources, here, max_bad=0.9, partitions=partitions)
    assert log.id == whole.id
    assert log.quarantine().sort_by(
        [("file", "ascending"), ("line", "ascending")]
    ) == whole.quarantine().sort_by([("file", "ascending"), ("line", "ascending")])
    assert [s.rows for s in log.manifest.ingests[0].sources] == [
        s.rows for s in whole.manifest.ingests[0].sources
    ]
    assert {p.name for p in log.path.iterdir()} <= {"manifest.json", "segments", "quarantine", ".lock"}
    more = tmp_path / "more.csv"
    more.write_text("ts,user,cents\n" + "".join(f"{rng.randrange(-5, 5)},v{n},\n" for n in range(9)))
    assert log.append({Pay: more}, here).id == whole.append({Pay: more}).id


def test_ranges_are_exact_and_in_order(tmp_path: Path) -> None:
    """Each range has as many events as it should, ties or not, over all of int64."""
    import numpy as np
    import pyarrow as pa

    rng = np.random.default_rng(3)
    folder = tmp_path / runs.FOLDER
    folder.mkdir()
    made: list[runs.RunEntry] = []
    for n, values in enumerate(
        (
            np.sort(rng.integers(-(2**63), 2**63 - 1, 50)),
            np.zeros(100, np.int64),
            np.array([-(2**63), 0, 0, 2**63 - 1]),
        )
    ):
        batch = pa.record_batch([pa.array(values)], ["ts"])
        with pa.OSFile(str(folder / str(n)), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as out:
            out.write_batch(batch)
        made.append(runs.RunEntry(str(n), n % 2, len(values), 1))
    for parts in (1, 2, 3, 10, 154, 400):
        found = runs.ranges(tmp_path, made, parts, 2)
        assert sum(one.rows for one in found) == 154
        assert max(one.rows for one in found) - min(one.rows for one in found) <= 1
        for at in range(3):
            own = [(lo, hi) for one in found for n, lo, hi in one.parts if n == at]
            assert [own[0][0], *(hi for _, hi in own)] == [0, *(lo for lo, _ in own[1:]), made[at].rows]
