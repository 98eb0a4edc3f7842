"""Benchmarks run over tiny logs: equal results, wrong rivals caught, files written, targets judged."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import timelapse as tl
from benchmarks import candidates as who
from benchmarks import conflict, look, looking, replays, run, suites
from benchmarks.candidates import Candidate
from benchmarks.data import Dataset, Made, make
from benchmarks.measure import DIFFERENT, FAILED, MISSING, OK, SKIPPED, Bench, difference, measure
from benchmarks.process import Once, Process
from benchmarks.readings import Readings
from benchmarks.report import FORMAT, Plot, Series, read
from benchmarks.rivals import windows_numba
from benchmarks.suites import Settings
from benchmarks.targets import TARGETS, judge
from benchmarks.workloads import (
    Deviation,
    Ewma,
    Friendship,
    IntAntispam,
    Message,
    Scored,
    Sent,
    Spam,
    TextAntispam,
    WindowedSpam,
)
from tests.cli.run_cli import cli
from timelapse.cli import main as cli_main

EVENTS = 3_000
TOLD: list[str] = []


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench-data")


@pytest.fixture(scope="session")
def numbers(data: Path) -> Made:
    return make(Dataset(EVENTS), data, TOLD.append)


@pytest.fixture(scope="session")
def texts(data: Path) -> Made:
    return make(Dataset(EVENTS, text=True), data, TOLD.append)


def flagged(made: Made) -> list[int]:
    """What the serial meaning flags."""
    program = TextAntispam if made.dataset.text else IntAntispam
    found: list[int] = tl.run_serial(program, tl.Log.open(made.log)).table(Spam)["message"].to_pylist()
    return found


def test_the_plain_files_hold_the_logs_events(numbers: Made, texts: Made) -> None:
    """Rivals read the same events, in the same order; both versions of a data set are the same network."""
    flat = [pq.read_table(made.flat).to_pylist() for made in (numbers, texts)]
    for made, rows in zip((numbers, texts), flat, strict=True):
        kinds: tuple[type[tl.Event], ...] = (Friendship, Message if made.dataset.text else Sent)
        events = list(tl.Log.open(made.log).events(*kinds))
        assert len(events) == len(rows) == EVENTS
        for event, row in zip(events, rows, strict=True):
            assert event.seq == row["seq"]
            if isinstance(event, Friendship):
                assert (row["kind"], event.a, event.b) == (0, row["a"], row["b"])
            else:
                assert isinstance(event, Sent | Message)
                assert (event.id, event.sender, event.recipient) == (row["id"], row["a"], row["b"])
                assert event.ip == row["ip"]
    assert [r["has_email"] for r in flat[0] if r["kind"]] == ["@" in r["text"] for r in flat[1] if r["kind"]]


def test_rivals_find_what_the_serial_meaning_finds(numbers: Made, texts: Made) -> None:
    """Whatever is installed, over numbers and over strings; what is not installed is said."""
    wanted = flagged(numbers)
    assert wanted == flagged(texts)
    assert len(wanted) > 10
    chosen = [
        who.PYTHON,
        who.NATIVE,
        who.PIPELINED,
        who.PROTOTYPE,
        who.INTERPRETED,
        who.POLARS,
        who.DUCKDB,
        who.BYTEWAX,
    ]
    shared = [replace(c, shares="numba") if c.file == "numba_hand.py" else c for c in chosen]
    twice = [replace(c, name=f"{c.name}-text", shares=c.shares or c.name) for c in shared]
    both = [*((c, numbers) for c in shared), *((c, texts) for c in twice)]
    for one in measure(both, Bench(rounds=1, say=TOLD.append)):
        missing = [
            n for c in chosen if c.title == one.title for n in c.needs if importlib.util.find_spec(n) is None
        ]
        assert (one.name, one.state, one.reason) == (
            (one.name, MISSING, "not installed: make bench-install") if missing else (one.name, OK, "")
        )
        if not missing:
            assert one.rows == len(wanted)
            assert len(one.warm) == 1


WRONG = """
import os

def candidate(place, **options):
    from benchmarks.rivals.python_loop import candidate as right
    run = right(place, **options)

    def wrong(ratio):
        found = run(ratio)
        {change}
        return found

    return wrong
"""


@pytest.mark.parametrize(
    ("change", "state", "reason"),
    [
        ("found[4:6] = found[4:6][::-1].copy()", DIFFERENT, "first at place 4"),
        ("found = found[:-1]", DIFFERENT, "nothing, not"),
        ("raise ValueError('no such engine')", FAILED, "ValueError: no such engine"),
        ("print('out of memory', flush=True); os._exit(3)", FAILED, "out of memory"),
        ("print('libraries print')", OK, ""),
    ],
)
def test_a_wrong_rival_is_caught(numbers: Made, tmp_path: Path, change: str, state: str, reason: str) -> None:
    """A different order, a missing one, an exception, a process that ends: all are shown, none is timed."""
    file = tmp_path / "wrong.py"
    file.write_text(WRONG.format(change=change), encoding="utf-8")
    wrong = Candidate("wrong", "Wrong", str(file))
    right, one = measure([(who.PYTHON, numbers), (wrong, numbers)], Bench(rounds=1, say=TOLD.append))
    assert right.state == OK
    assert (one.state, reason in one.reason) == (state, True)
    assert bool(one.warm) is (state == OK)


READY = """
class candidate:
    def __init__(self, place, **options):
        self.made_ready = 0

    def ready(self, ratio):
        self.made_ready += 1

    def __call__(self, ratio):
        import numpy as np
        self.details = {"made ready": self.made_ready}
        return np.arange(3)
"""


def test_what_makes_a_candidate_ready_is_none_of_its_processor_time(
    numbers: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay that only woke Spark's workers was counted as the driver's work: twice what tasks took, the simulation of hosts then said."""
    file = tmp_path / "awake.py"
    file.write_text(READY, encoding="utf-8")
    did: list[str] = []
    plain_ask, plain_cpu = Process._ask, Process._cpu

    def ask(self: Process, body: dict[str, Any]) -> dict[str, Any]:
        did.append("make" if "file" in body else "ready" if "ready" in body else "run")
        return plain_ask(self, body)

    def cpu(self: Process) -> tuple[float, float] | None:
        did.append("cpu")
        return plain_cpu(self)

    monkeypatch.setattr(Process, "_ask", ask)
    monkeypatch.setattr(Process, "_cpu", cpu)
    (found,) = measure([(Candidate("awake", "Awake", str(file)), numbers)], Bench(rounds=1, say=TOLD.append))
    assert found.state == OK
    assert found.details == {"made ready": 3}
    assert did == ["make", *["ready", "cpu", "run", "cpu"] * 3]


def test_rounds_of_a_group_are_by_turns(
    numbers: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "awake.py"
    file.write_text(READY, encoding="utf-8")
    did: list[str] = []
    told: list[str] = []
    plain = Process.run

    def one(self: Process, candidate: Candidate, ratio: float = 2.0) -> Once:
        did.append(candidate.name)
        return plain(self, candidate, ratio)

    monkeypatch.setattr(Process, "run", one)
    entries = [
        (Candidate(name, name, str(file), group=name[0], shares="all"), numbers)
        for name in ("a1", "b1", "a2", "b2")
    ]
    found = measure(entries, Bench(rounds=2, warm_ups=2, say=told.append))
    assert did == ["a1", "b1", "a2", "b2", *["a1", "a2"] * 4, *["b1", "b2"] * 4]
    assert [len(one.warm) for one in found] == [2] * 4
    assert told[-4:] == ["b: warm-up", "b: warm-up", "b: round 1 of 2", "b: round 2 of 2"]


def test_a_spent_budget_and_a_missing_package_are_shown(numbers: Made) -> None:
    """Neither is an error."""
    missing = replace(who.PYTHON, name="x", needs=("no_such_package",))
    found = measure([(missing, numbers), (who.PYTHON, numbers)], Bench(until=0.0, say=TOLD.append))
    assert [m.state for m in found] == [MISSING, SKIPPED]


def test_differences_are_named() -> None:
    """The first place, and both values."""
    a, b = np.array([1, 2, 3]), np.array([1, 5, 3])
    assert difference(a, b, "native") == "3 flagged, native 3; first at place 1: 5, not 2"
    assert "place 3: nothing, not 4" in difference(np.array([1, 2, 3, 4]), a, "native")


def local(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Spark, no compiler: the sweeps' own code is what is tested."""
    for name, stand_in in (("NATIVE", who.PYTHON), ("PIPELINED", who.PYTHON), ("OURS", who.INTERPRETED)):
        given = getattr(who, name)
        process = f"local {stand_in.name}"
        patched = replace(
            stand_in, name=given.name, title=given.title, rounds=None, limit=None, shares=process
        )
        monkeypatch.setattr(who, name, patched)


def test_the_benchmark_by_key_finds_what_the_serial_meaning_finds(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand in Python and Numba, as planned, by key and as a chain: the same deviations."""
    for name in ("KEYED", "KEYED_BY_KEY", "KEYED_CHAIN", "KEYED_PYTHON", "KEYED_NATIVE", "KEYED_PIPELINED"):
        found = getattr(who, name)  # compiling is tested elsewhere
        options = {**found.options, "kernel": "python"}
        monkeypatch.setattr(who, name, replace(found, options=options, shares="one"))
    settings = Settings(EVENTS, 1, data, quick=True, say=TOLD.append)
    [(report, _)] = list(run.run(["keyed"], settings, None, tmp_path))
    assert report.wrong == []
    made = settings.made(Readings(EVENTS, users=EVENTS // 10))
    wanted = tl.run_serial(Ewma, tl.Log.open(made.log)).table(Deviation).num_rows
    assert {m.rows for m in report.measured} == {wanted}
    assert wanted > 3
    found = {"chain", "chain on one core", "python", "native"}
    assert set(report.values) == {f"{name} / by key" for name in found}


def test_the_benchmark_of_windows_finds_what_the_serial_meaning_finds(
    data: Path, tmp_path: Path, numbers: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand in Python and in what Numba compiles, and replayed: the same scores."""
    wanted = tl.run_serial(WindowedSpam, tl.Log.open(numbers.log)).table(Scored)["score"].to_numpy()
    assert len(np.unique(wanted)) > 3
    monkeypatch.setattr(windows_numba, "_block", windows_numba._block.py_func)
    with np.errstate(over="ignore"):
        by_hand = windows_numba.candidate(numbers.path, users=numbers.users)(2.0)
    assert np.array_equal(by_hand, wanted)
    for name in ("WINDOWS", "WINDOWS_NATIVE", "WINDOWS_PYTHON", "WINDOWS_INTERPRETED"):
        found = getattr(who, name)  # compiling is tested elsewhere
        file = who.WINDOWS_PYTHON.file if name == "WINDOWS_NATIVE" else found.file
        options = {**found.options, "kernel": "python"}
        monkeypatch.setattr(who, name, replace(found, file=file, options=options, shares="one"))
    settings = Settings(EVENTS, 1, data, quick=True, say=TOLD.append)
    [(report, _)] = list(run.run(["windows"], settings, None, tmp_path))
    assert report.wrong == []
    assert {m.rows for m in report.measured} == {len(wanted)}
    assert set(report.values) == {"python / timelapse", "native / timelapse"}


def test_looking_into_a_run_is_measured_cold_and_warm(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every question is answered, by the command line (here in this process) and in Python; the run is real."""
    asked = []

    def command(arguments: tuple[str, ...], fine: tuple[int, ...]) -> tuple[float, float]:
        assert cli_main.run(arguments) in fine, arguments
        asked.append(arguments[0])
        return 2.0, 1.0

    monkeypatch.setattr(look, "_command", command)
    monkeypatch.setattr(looking, "commanded", lambda question, path: looking.Took(1.5, 2.5))
    settings = Settings(EVENTS, 1, data, quick=True, say=TOLD.append)
    [(report, _)] = list(run.run(["look"], settings, None, tmp_path))
    others = ["replay", "why", "why-not", "state", "state"] * len(look.OTHERS)
    assert asked == ["replay", "why", "why-not", "state", "state", "state", "state", *others]
    assert report.values["windows, ticks and sends: slowest cold CPU seconds"] == 1.0
    assert [row[0] for row in report.tables[1].rows] == ["CountMessages"]
    assert report.values["every program that compiles: slowest cold seconds"] == 1.5
    assert [row[0] for row in report.tables[0].rows][1:3] == ["why", "why-not"]
    assert report.values["why: cold CPU / replay CPU"] == 1.0
    assert 0 < report.values["state NAME --at: warm seconds"] < 60


def test_the_conflict_sweep_repairs_to_the_state_of_the_serial_order(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The less there is on the accounts, the more is refused, and the more is decided otherwise than guessed."""
    monkeypatch.setattr(conflict, "EXPONENTS", (0.2,))
    monkeypatch.setattr(conflict, "OPENINGS", (100, 1600))
    settings = Settings(2_000, 1, data, quick=True, say=TOLD.append)
    [(report, _)] = list(run.run(["conflict"], settings, None, tmp_path))
    again = [report.values[f"exponent 0.2, opening {n}: again"] for n in (100, 1600)]
    assert again[0] > again[1] == 0
    assert len(report.tables[0].rows) == 2
    assert {row[-1] for row in report.tables[0].rows} <= {"iterate", "chain"}


@pytest.mark.parametrize("name", ["zipf", "sizes", "slices", "edit", "compare"])
def test_sweeps_measure_what_targets_ask_for(
    name: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each leaves its numbers, a table with a row per point, and files that can be read back."""
    local(monkeypatch)
    settings = Settings(1_000, 1, data, quick=True, say=TOLD.append)
    [(report, files)] = list(run.run([name], settings, None, tmp_path))
    assert report.wrong == []
    assert report.tables[0].rows
    assert report.values
    assert all(value > 0 for value in report.values.values())
    assert {f.suffix for f in files} >= {".json", ".md"}
    body = read(tmp_path)[name]
    assert body["format"] == FORMAT
    assert {"when", "settings", "machine", "versions", "measured", "values", "tables", "notes"} <= set(body)
    for one in body["measured"]:
        assert {"name", "title", "events", "state", "cold", "warm", "cpu", "memory", "median"} <= set(one)
        assert all(isinstance(t, float) for t in one["warm"])


def test_the_command_prints_writes_and_judges(data: Path, tmp_path: Path) -> None:
    """`bench NAME` with a table, JSON and Markdown; then targets from what is there; a wrong name is an error."""
    args = ("--events", EVENTS, "--rounds", 1, "--data", data, "--out", tmp_path)
    shown = cli("bench", "rivals", "--only", "python", *args)
    assert shown.code == 0
    assert "plain Python, dicts" in shown.out
    assert "NOT MET" not in shown.out.split("Targets")[0]
    body = json.loads((tmp_path / "rivals.json").read_text("utf-8"))
    assert [m["name"] for m in body["measured"]] == ["numba", "python"]
    assert body["values"]["python / native"] > 0
    judged = cli("bench", "--targets", "--out", tmp_path, "--json")
    assert judged.code == 0
    assert len(judged.json["targets"]) == len(TARGETS)
    assert cli("bench", "nonsense", *args).code == 2


def test_only_some_of_ingest_is_measured(data: Path, tmp_path: Path) -> None:
    """A comparison by its name, or candidates: Spark is not started for those that are not named."""
    args = ("--events", EVENTS, "--rounds", 1, "--data", data, "--out", tmp_path)
    assert cli("bench", "ingest", "--only", "csv", *args).code == 0
    values = json.loads((tmp_path / "ingest.json").read_text("utf-8"))["values"]
    assert sorted(values) == ["csv peak", "csv speed of polars"]
    shown = cli("bench", "ingest", "--only", "polars", *args)
    assert shown.code == 0
    assert json.loads((tmp_path / "ingest.json").read_text("utf-8"))["values"] == {}
    assert "timelapse," not in shown.out


def test_plots_are_made(tmp_path: Path) -> None:
    """Bars and lines, as SVG."""
    from benchmarks.plots import draw

    for bars in (True, False):
        picture = draw(Plot("a title", "x", "y", [Series("one", [1, 2], [0.5, 2.0])], bars=bars, log=bars))
        assert picture is not None
        assert b"<svg" in picture


def test_targets_are_judged_by_what_was_measured() -> None:
    """Met, not met, not measured; at most and at least."""
    values = {
        "rivals": {"values": {"timelapse / native": 0.96, "polars / timelapse": 2.0, "timelapse seconds": 2.0, "events": 10}},
        "text": {"values": {"timelapse seconds": 3.0, "events": 10}},
        "sizes": {"values": {"timelapse / native at 10": 1.0, "timelapse / native at 50": 1.2, "timelapse / native at 1": 9.0}},
    }  # fmt: skip
    found = {v.target.text: v for v in judge(values)}
    assert found["of hand-written single-thread Numba, tasks on Spark"].word == "NOT MET"
    assert found["times faster than Polars"].word == "met"
    assert found["times faster than DuckDB"].word == "not measured"
    assert found["of the integer version, with strings and text"].value == pytest.approx(1.5)
    assert found["of the ratio to native, at five times the events"].value == pytest.approx(1.2)


def test_the_program_for_compile_times_has_a_hundred_statements() -> None:
    """And it is Python."""
    import ast

    tree = ast.parse(replays.hundred())
    handler = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))
    assert len([n for n in ast.walk(handler) if isinstance(n, ast.stmt)]) - 1 == replays.STATEMENTS
    assert suites.EXPONENTS[0] == 0.5
    assert suites.EXPONENTS[-1] == 4.0
    assert len(suites.EXPONENTS) == 15
