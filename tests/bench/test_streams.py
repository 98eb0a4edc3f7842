"""The transactional benchmarks: by hand, replayed and by the serial meaning the same; figures are what was measured."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import timelapse as tl
from benchmarks import stream_data, streams
from benchmarks.candidates import Candidate
from benchmarks.data import Made, make
from benchmarks.measure import Measured
from benchmarks.rivals import streams_numba, streams_python
from benchmarks.stream_data import REPORTED, SEGMENTS, STAYS, Cars, Moves, Stream, Updates
from benchmarks.stream_programs import (
    GrepSum,
    Ledger,
    LibraryLedger,
    Refused,
    Toll,
    TollProcessing,
    Total,
)
from benchmarks.suites import Settings

EVENTS = 1_500
TOLD: list[str] = []
CASES: dict[str, tuple[Stream, tl.Program, type[tl.Record], str]] = {
    "ledger": (Moves(EVENTS), Ledger(opening=300, rounds=3), Refused, "move"),
    "library": (Moves(EVENTS), LibraryLedger(opening=300, rounds=3), Refused, "move"),
    "grepsum": (Updates(EVENTS), GrepSum(rounds=3), Total, "value"),
    "toll": (Cars(EVENTS, users=60), TollProcessing(rounds=3), Toll, "toll"),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stream-data")


@pytest.mark.parametrize("which", CASES)
def test_by_hand_and_serial_find_the_same(which: str, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain Python, what Numba compiles, and the meaning: the same refusals, sums, tolls."""
    monkeypatch.setattr(stream_data, "SEGMENTS", 10)  # few vehicles, and tolls all the same
    stream, program, record, field = CASES[which]
    made = make(stream, data, TOLD.append)
    wanted = tl.run_serial(program, tl.Log.open(made.log)).table(record)[field].to_numpy()
    assert len(np.unique(wanted)) > 8
    if record is Refused:
        assert 20 < len(wanted) < EVENTS / 4
    options: dict[str, Any] = {"which": which, "params": {"opening": 300, "rounds": 3}}
    assert np.array_equal(streams_python.candidate(made.path, **options)(2.0), wanted)
    if which == "library":
        return
    for name in ("work", "_ledger", "_grepsum", "_toll"):  # compiling is tested elsewhere
        monkeypatch.setattr(streams_numba, name, getattr(streams_numba, name).py_func)
    by_hand = streams_numba.candidate(
        made.path, keys=stream.keys, events=EVENTS, segments=SEGMENTS, **options
    )
    assert np.array_equal(by_hand(2.0), wanted)


def test_a_case_is_measured_with_every_strategy(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody finds the same, also who guessed and repaired; files are written."""

    def here(name: str, title: str, file: str, options: dict[str, Any], **more: Any) -> Candidate:
        """All in one process, without Spark."""
        ours = {"kernel": "python", "spark": False} if file == "replay_spark.py" else {}
        return Candidate(name, title, file, {**options, **ours}, shares="one")

    monkeypatch.setattr(streams, "Candidate", here)
    monkeypatch.setattr(streams, "machine_us", lambda rounds: 2.5)
    monkeypatch.setattr(streams, "OPENING", 300)
    settings = Settings(EVENTS, 1, data, quick=True, say=TOLD.append)
    report = streams.measured("ledger", "Transfers", settings, streams.ledger_cases()[2:])
    assert report.wrong == []
    assert {m.state for m in report.measured} == {"ok"}
    assert {f.suffix for f in report.write(tmp_path)} == {".json", ".md", ".svg"}
    assert len(report.tables) == len(report.notes) == 1
    assert 0 < report.values["ledger-library: ran again"] <= 1
    (guessed,) = (m for m in report.measured if m.name == "ledger-library-iterate")
    assert guessed.details is not None
    assert guessed.details["slices"] == 4


@pytest.mark.parametrize("name", ["ledger", "grepsum", "toll"])
def test_figures_are_ratios_of_what_was_measured(
    name: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With times that are given: events per second, ratios, and the planner's choice against the best strategy."""
    seconds = {"numba": 0.5, "planned": 3.0, "local": 2.0, "chain": 2.5, "2-slices": 4.0, "iterate": 2.4}

    def measured(entries: list[tuple[Candidate, Made]], bench: object) -> list[Measured]:
        found = []
        for candidate, made in entries:
            known = [t for word, t in seconds.items() if candidate.name.endswith(word)]
            median = known[0] if known else made.dataset.events / 100  # plain Python: 100 events/s
            details = {"mode": "chain", "slices": 1, "passes": {}, "repairs": {}} if known else None
            found.append(
                Measured(
                    candidate.name,
                    candidate.title,
                    made.dataset.events,
                    warm=[median],
                    cpu=[median / 2],
                    details=details,
                )
            )
        return found

    monkeypatch.setattr(streams, "measure", measured)
    monkeypatch.setattr(streams, "machine_us", lambda rounds: 2.5)
    monkeypatch.setattr(streams, "SLOW_PYTHON", EVENTS // 2)
    report = getattr(streams, name)(Settings(EVENTS, 1, data, say=TOLD.append))
    for case in [name, f"{name}-machine"]:
        assert report.values[f"{case}: million events/s"] == pytest.approx(EVENTS / 2.0 / 1e6)
        assert report.values[f"{case}: python / timelapse"] == pytest.approx(EVENTS / 100 / 2.0)
        assert report.values[f"{case}: native / timelapse"] == pytest.approx(0.25)
        assert report.values[f"{case}: planned / best"] == pytest.approx(3.0 / 2.5)
        assert report.values[f"{case}: planned / best, CPU"] == pytest.approx(3.0 / 2.5)
    assert report.values[f"{name}-machine: user code us"] == 2.5
    if name == "ledger":
        assert report.values["ledger-library: planned / best"] == pytest.approx(3.0 / 2.4)


def test_the_share_that_ran_again_counts_what_was_given_up() -> None:
    stages = {"a": {"events": 80, "again": 2, "rest": 0}, "b": {"events": 20, "again": 1, "rest": 7}}
    one = Measured("x", "x", 100, details={"repairs": stages})
    assert streams.repaired(one) == pytest.approx(0.1)
    assert streams.repaired(Measured("x", "x", 100, details={"repairs": {}})) is None


def test_streams_have_the_shape_that_is_said(data: Path) -> None:
    """A tenth as many accounts as events; each vehicle reports every thirty seconds and stays for some reports."""
    moves = pq.read_table(make(CASES["ledger"][0], data, TOLD.append).flat)
    assert moves.num_rows == EVENTS
    assert set(moves["source"].to_pylist()) <= set(range(EVENTS // 10))
    busiest = np.sort(np.bincount(moves["target"].to_numpy(), minlength=EVENTS // 10))
    assert busiest[-1] < 5 * EVENTS / (EVENTS // 10)  # Zipf 0.2: hardly any skew
    cars = pq.read_table(make(Cars(EVENTS, users=50), data, TOLD.append).flat).to_pydict()
    reports: dict[int, list[tuple[int, int]]] = {}
    for ts, vehicle, segment in zip(cars["ts"], cars["vehicle"], cars["segment"], strict=True):
        reports.setdefault(vehicle, []).append((ts, segment))
    apart = {b[0] - a[0] for one in reports.values() for a, b in itertools.pairwise(one)}
    assert apart == {REPORTED}
    stays = [a[1] == b[1] for one in reports.values() for a, b in itertools.pairwise(one)]
    assert sum(stays) / len(stays) == pytest.approx(1 - 1 / STAYS, abs=0.1)
