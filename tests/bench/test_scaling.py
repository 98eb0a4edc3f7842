"""The benchmark of scaling: foretold against measured, with errors that are what they say."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from benchmarks import run, scaling
from benchmarks.candidates import Candidate
from benchmarks.data import Dataset, Made, make
from benchmarks.measure import Bench, Measured
from benchmarks.scaling import CLUSTER, PLACES, WAYS, Way, candidate, foretell
from benchmarks.suites import Settings
from benchmarks.workloads import IntAntispam

EVENTS = 2_000
TOLD: list[str] = []


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scale-data")


def test_foretold_and_measured_stand_side_by_side(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With times that are given: twice what is foretold, everywhere; one place finds something else, one fails."""
    rows: dict[str, float] = {}
    cores: dict[str, int] = {}
    true = scaling.foretell

    def foretold(way: Way, place: scaling.Place, log: tl.Log) -> Any:
        row = true(way, place, log)
        rows[candidate(way, place).name] = row.seconds
        return row

    def measured(entries: list[tuple[Candidate, Made]], bench: Bench) -> list[Measured]:
        ((one, made),) = entries
        cores[one.name] = bench.cores
        found = Measured(one.name, one.title, made.dataset.events, warm=[2 * rows[one.name]], cpu=[1.0])
        found.details = {"mode": "chain", "slices": 1, "digest": "b" if one.name == "ewma-2-cores" else "a"}
        if one.name == "ledger-2-cores":
            found = Measured(one.name, one.title, made.dataset.events, state="failed", reason="no such place")
        return [found]

    monkeypatch.setattr(scaling, "foretell", foretold)
    monkeypatch.setattr(scaling, "measure", measured)
    settings = Settings(EVENTS, 1, data, quick=True, say=TOLD.append)
    [(report, files)] = list(run.run(["scale"], settings, None, tmp_path))
    assert {f.suffix for f in files} == {".json", ".md", ".svg"}
    assert len(report.tables[0].rows) == len(WAYS) * len(PLACES) == 12
    assert cores["antispam-1-core"] == 1
    assert cores["antispam-2-machines-of-1-core"] == cores["antispam-2-cores"] == 2
    for way in WAYS:
        for place in PLACES:
            name = f"{way.name}, {place.name}"
            if candidate(way, place).name in ("ewma-2-cores", "ledger-2-cores"):
                assert f"{name}: speed-up" not in report.values
                continue
            assert report.values[f"{name}: measured / foretold"] == pytest.approx(2.0)
            speedup = report.values[f"{name}: speed-up"]
            assert speedup == pytest.approx(report.values[f"{name}: speed-up foretold"])
    by_place = {tuple(row[:2]): row for row in report.tables[0].rows}
    assert by_place["transfers, as planned", "2 cores"][6] == "no such place"
    assert by_place["anti-spam, as planned", "1 core"][6] == "+100%"
    assert [by_place["anti-spam, as planned", p.name][-1] for p in PLACES] == ["1.00×", "1.70×", "1.70×"]
    assert {m.name: m.state for m in report.wrong} == {
        "ewma-2-cores": "DIFFERENT",
        "ledger-2-cores": "failed",
    }


def test_what_is_forced_is_foretold(data: Path) -> None:
    """Slices that are forced cost their passes; places and ways are those that run."""
    log = tl.Log.open(make(Dataset(EVENTS), data, TOLD.append).log)
    planned, forced = (w for w in WAYS if w.program is IntAntispam)
    one, two, cluster = PLACES
    assert foretell(forced, one, log).mode == "staged"
    assert foretell(forced, one, log).slices == 2
    assert foretell(planned, one, log).seconds < foretell(forced, one, log).seconds
    assert foretell(planned, cluster, log).machines == 2
    assert math.isclose(foretell(planned, two, log).exchange, 0.0)
    options = candidate(forced, cluster).options
    assert (options["master"], options["slices"], options["strategy"]) == (CLUSTER, 2, "staged")
    assert options["program"] == "IntAntispam"
    assert candidate(planned, two).options["master"] is None
