"""The end of a log is a slice of its own in the first replay, so that the one after the first late append goes on from there, and gives what the
serial loop gives over all of the log."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from tests.depth import some
from tests.programs.catalogue import CATALOGUE, Entry
from tests.programs.data import make
from tests.run.test_start_from import Hit, Plain, Watch, _hits, _same
from tests.run.test_start_from_changed import _append, _split
from tests.tuned import tune_cache
from timelapse.analysis import analyse
from timelapse.cache.key import program_key
from timelapse.log import Log
from timelapse.program.times import kept
from timelapse.run import Run, replay, run_serial
from timelapse.run.files import check_files

DAY = 86_400 * 10**6
EVENTS, KEYS = 240, 5


@pytest.fixture(autouse=True)
def _cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_STATES", str(tmp_path / "cache"))
    tune_cache(tmp_path / "cache", long_seconds=0.0)


def _daily(days: int, each: int = 50) -> list[Hit]:
    return [
        Hit(who=n % 9, size=n % 12, ts=1_700_006_400_000_000 + n * DAY // each) for n in range(days * each)
    ]


def _file(path: Path, hits: Sequence[Hit]) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text("ts,who,size\n" + "".join(f"{h.ts},{h.who},{h.size}\n" for h in hits))
    return str(path)


@pytest.mark.parametrize("entry", some(CATALOGUE, first=2), ids=lambda e: e.name)
def test_programs_go_on_from_the_end_that_was_cut_off(entry: Entry, tmp_path: Path) -> None:
    """All of the catalogue: a plain replay, the first late append, a second one."""
    program, rng = entry.program(), random.Random(entry.name)
    events = list(make(entry.mix(KEYS), EVENTS, seed=31).events(entry.classes()))
    late = {EVENTS - 2, EVENTS - 4}
    first, rest = _split(events, late)
    rng.shuffle(rest)
    classes = list(dict.fromkeys(type(e) for e in events))
    resumable = bool(kept(program)) or rng.random() < 0.5
    log = Log.from_events(tmp_path / "log", first, classes)
    runs: list[Run] = []
    for go in range(3):
        if go:
            log = _append(log, rest[go - 1 : go])
        run = replay(program, log, tmp_path / f"run{go}", spark=False, resumable=resumable)
        _same(run_serial(program, list(log.events(*classes))), run, f"go {go}")
        assert check_files(run).ok
        runs.append(run)
    if analyse(type(program)).serial_only is not None or not runs[0].certificate["end_apart"]:
        return
    place = runs[0].certificate["end_apart"]["place"]
    assert place in runs[0].manifest.cuts
    for before, run in itertools.pairwise(runs):
        told = run.certificate["start_from"]
        assert (told["run"], told["reason"]) == (str(before.path), "")
        assert told["slices"] >= 1


def test_most_programs_have_such_an_end(tmp_path: Path) -> None:
    """All that run in one pass, and whose code is certain to be the same in the next replay."""
    without, unsure = [], []
    for entry in CATALOGUE:
        program = entry.program()
        events = list(make(entry.mix(KEYS), EVENTS, seed=31).events(entry.classes()))
        classes = list(dict.fromkeys(type(e) for e in events))
        log = Log.from_events(tmp_path / entry.name, events, classes)
        run = replay(program, log, tmp_path / f"{entry.name}-run", spark=False, resumable=True)
        if not run.certificate["end_apart"]:
            without.append(entry.name)
        if program_key(program, analyse(type(program)), "run") is None:
            unsure.append(entry.name)
    assert without == unsure
    assert len(without) < len(CATALOGUE) // 4


@pytest.mark.parametrize("kernel", ["native", "interpreted"])
def test_files_in_order(kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing tells how late their rows come: those of the last two days may, and all of what is said is where it should be."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", kernel)
    hits = _daily(40)
    late = {1990, 1911}
    first = [h for n, h in enumerate(hits) if n not in late]
    _file(tmp_path / "raw" / "1.csv", first)
    log = Log.write(tmp_path / "log", {Hit: tmp_path / "raw"})
    before = replay(Plain, log, tmp_path / "a", spark=False)
    _same(run_serial(Plain, list(log.events(Hit))), before, "cut")
    told = before.certificate["end_apart"]
    assert before.manifest.cuts == [0, told["place"], 1998]
    assert told["events"] == 1998 - told["place"]
    assert told["place"] <= 1900 < told["place"] + 100  # twice as many as two days have
    assert "its last two days" in told["why"]
    text = f"the last {told['events']:,} events are a slice of their own"
    assert text in before._repr_html_()
    log = log.append({Hit: _file(tmp_path / "2.csv", [hits[n] for n in sorted(late)])})
    again = replay(Plain, log, tmp_path / "b", spark=False)
    _same(run_serial(Plain, list(log.events(Hit))), again, "gone on")
    assert again.certificate["start_from"]["slices"] == 1
    assert again.certificate["start_from"]["events"] == told["place"]


@pytest.mark.parametrize(
    ("days", "said"), [(40, "last two days"), (8, "last day"), (2, "last moments"), (1, "last moments")]
)
def test_what_is_cut_off_is_a_third_at_most(days: int, said: str, tmp_path: Path) -> None:
    log = Log.write(tmp_path / "log", {Hit: _file(tmp_path / "1.csv", _daily(days, 2000 // days))})
    run = replay(Plain, log, tmp_path / "a", spark=False)
    told = run.certificate["end_apart"]
    assert said in told["why"]
    assert 2000 // 64 <= told["events"] <= 2000 // 3


def test_what_the_log_tells_comes_first(tmp_path: Path) -> None:
    """How late rows arrived, and what an append has changed; where all arrive in the log's order nothing is cut off."""
    hits = _daily(40)
    path = tmp_path / "1.csv"
    path.write_text(
        "ts,came,who,size\n" + "".join(f"{h.ts},{h.ts + h.size * 10**6},{h.who},{h.size}\n" for h in hits)
    )
    log = Log.write(tmp_path / "log", {Hit: tl.Source(str(path), arrival="came")})
    told = replay(Plain, log, tmp_path / "a", spark=False).certificate["end_apart"]
    assert "rows arrived up to 1" in told["why"]
    ordered = Log.write(tmp_path / "ordered", {Hit: tl.Source(str(path), arrival="came", order="arrival")})
    run = replay(Plain, ordered, tmp_path / "b", spark=False)
    assert (run.slices, run.certificate["end_apart"]) == (1, None)
    log = log.append({Hit: tl.Source(_file(tmp_path / "2.csv", [hits[1800]]))})
    told = replay(Plain, log, tmp_path / "c", spark=False).certificate["end_apart"]
    assert told["why"].startswith("an append has changed the last 200 events")
    assert told["events"] >= 400


def test_who_has_no_such_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that no replay goes on from, replays that are short, slices that are asked for."""
    log = Log.write(tmp_path / "log", {Hit: _file(tmp_path / "1.csv", _daily(40))})
    asked: list[tuple[type[tl.Program], dict[str, Any]]] = [
        (Plain, {"cache": False}),
        (Plain, {"slices": 1}),
        (Plain, {"strategy": "chain"}),
        (Plain, {"allow_impure": True}),
    ]
    for n, (program, options) in enumerate(asked):
        run = replay(program, log, tmp_path / f"run{n}", spark=False, **options)
        assert (run.slices, run.certificate["end_apart"]) == (1, None), options
    assert replay(Plain, log, spark=False).slices == 1  # it goes with the process
    part = replay(Plain, log.between(None, 1_700_006_400_000_000 + 30 * DAY), tmp_path / "part", spark=False)
    assert part.slices == 1
    tune_cache(tmp_path / "cache", long_seconds=1.0)
    assert replay(Plain, log, tmp_path / "short", spark=False).slices == 1
    tune_cache(tmp_path / "cache", long_seconds=0.0)
    # Watch looks back on its states: only a run that keeps the rows can be gone on from
    looking = Log.from_events(tmp_path / "looking", list(_hits(400)))
    assert replay(Watch, looking, tmp_path / "bare", spark=False).slices == 1
    assert replay(Watch, looking, tmp_path / "kept", spark=False, resumable=True).slices == 2


def test_machine_code_has_one_over_logs_that_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There a cut costs a tenth of a pass: what was made of one file, or of a table in memory, is cut once it was appended to."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    hits = _daily(40)
    _file(tmp_path / "raw" / "1.csv", hits)
    growing: dict[str, Any] = {"folder": tmp_path / "raw", "pattern": f"{tmp_path}/raw/*.csv"}
    given: dict[str, Any] = {"file": tmp_path / "raw" / "1.csv", **growing}
    for name, data in given.items():
        log = Log.write(tmp_path / name, {Hit: data})
        run = replay(Plain, log, tmp_path / f"{name}-run", spark=False)
        assert bool(run.certificate["end_apart"]) == (name in growing), name
        for entry in (tmp_path / "cache" / "entries").iterdir():  # of the same log: the next one begins anew
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    listed = _file(tmp_path / "raw" / "2.csv", [])
    several = Log.write(tmp_path / "several", {Hit: [str(tmp_path / "raw" / "1.csv"), listed]})
    assert replay(Plain, several, tmp_path / "several-run", spark=False).certificate["end_apart"]
    made = Log.from_events(tmp_path / "made", list(hits[:-5]))
    assert replay(Plain, made, tmp_path / "made-run", spark=False).certificate["end_apart"] is None
    made = _append(made, hits[-5:])
    assert (
        replay(Plain, made, tmp_path / "more-run", spark=False, cache=True).certificate["end_apart"] is None
    )
    shutil.rmtree(tmp_path / "made-run")
    shutil.rmtree(tmp_path / "more-run")
    assert replay(Plain, made, tmp_path / "again", spark=False).certificate["end_apart"]


def test_commands_say_it(tmp_path: Path) -> None:
    rules = tmp_path / "rules.py"
    rules.write_text(
        "import timelapse as tl\n\nclass Hit(tl.Event):\n    who: int\n    size: int\n\n"
        "class Big(tl.Record):\n    who: int\n    n: int\n\n"
        "class P(tl.Program):\n    n: tl.Counter[int]\n\n    @tl.on(Hit)\n    def hit(self, e):\n"
        "        self.n[e.who] += e.size\n        self.emit(Big(who=e.who, n=self.n[e.who]))\n"
    )
    log = Log.from_events(tmp_path / "log", list(_hits(600)))
    said = "events are a slice of their own, before which a replay goes on once late rows have come: nothing tells how late"
    told = cli("explain", f"{rules}:P", log.path)
    assert said in " ".join(told.out.split())
    ahead = cli("explain", f"{rules}:P", log.path, "--json").json["cache"]["end_apart"]
    made = cli("replay", f"{rules}:P", log.path, "--out", tmp_path / "run", "--local")
    assert made.code == 0, made.err
    assert said in " ".join(made.out.split())
    run = Run.open(tmp_path / "run")
    assert run.certificate["end_apart"] == ahead
    page = cli("report", tmp_path / "run", "--out", tmp_path / "run.html")
    assert page.code == 0, page.err
    assert said in (tmp_path / "run.html").read_text()
    _append(log, [Hit(who=1, size=2, ts=10**12)])
    assert cli("explain", f"{rules}:P", log.path, "--json").json["cache"]["end_apart"] is None
