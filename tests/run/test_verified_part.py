"""Verifying a part of a log: what was compared is said, and the part reaches something to compare."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from timelapse.engine.job import change_path
from timelapse.log import Log
from timelapse.results.data import DirectoryData
from timelapse.run import verify as verify_module
from timelapse.run.verify import covering

PROGRAM = """
import timelapse as tl

class E(tl.Event):
    n: int

class Out(tl.Record):
    n: int

class Late(tl.Program):
    first: int = 600
    refuse: int = 10_000
    seen: tl.Counter[int]

    @tl.on(E)
    def go(self, e):
        self.seen[e.n % 7] += 1
        if e.n >= self.refuse:
            self.reject("late")
        if e.n >= self.first:
            self.emit(Out(n=e.n))
"""


class E(tl.Event):
    n: int


class Out(tl.Record):
    n: int


class Late(tl.Program):
    """Puts out from an event on, and rejects from another on."""

    first: int = 600
    refuse: int = 10_000
    seen: tl.Counter[int]

    @tl.on(E)
    def go(self, e: E) -> None:
        self.seen[e.n % 7] += 1
        if e.n >= self.refuse:
            self.reject("late")
        if e.n >= self.first:
            self.emit(Out(n=e.n))


EVENTS = [E(n=n, ts=n * tl.SECOND) for n in range(1000)]


def test_a_part_reaches_the_first_output() -> None:
    run = tl.replay(Late, EVENTS, slices=1, spark=False)
    assert (covering(run, 100), covering(run, 601), covering(run, 700), covering(run, 5000)) == (
        601,
        601,
        700,
        1000,
    )
    proof = run.verify(covering(run, 100))
    assert (proof.ok, proof.covers, proof.events, proof.outputs, proof.boundaries) == (True, True, 601, 1, 0)
    assert "the first 601 of 1,000 events, 1 output" in proof.text
    assert "no state was compared" in proof.text


def test_a_part_reaches_a_boundary_or_a_rejection() -> None:
    sliced = tl.replay(Late, EVENTS, slices=4, spark=False)
    assert covering(sliced, 10) == sliced.manifest.cuts[1]
    proof = sliced.verify(covering(sliced, 10))
    assert "0 outputs, state at 1 slice boundary" in proof.text
    refusing = tl.replay(Late(refuse=300), EVENTS, slices=1, spark=False)
    assert covering(refusing, 10) == 301
    assert "0 outputs, 1 rejection" in refusing.verify(301).text


def test_a_part_that_would_be_too_long_stays_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing compared is not called equal."""
    monkeypatch.setattr(verify_module, "AT_LEAST", 100)
    run = tl.replay(Late, EVENTS, slices=1, spark=False)
    assert (covering(run, 100), covering(run, 121)) == (100, 601)
    proof = run.verify(100)
    assert (proof.ok, proof.covers) == (True, False)
    assert proof.text.startswith("nothing: the first 100 of 1,000 events have no output")
    nothing = tl.replay(Late(first=5000), EVENTS, slices=1, spark=False)
    assert covering(nothing, 100) == 100
    whole = nothing.verify()
    assert (whole.covers, whole.boundaries) == (True, 1)
    assert "all 1,000 events, 0 outputs, state at 1 slice boundary" in whole.text


def test_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules.py").write_text(PROGRAM)
    Log.from_events(tmp_path / "log", EVENTS)
    monkeypatch.chdir(tmp_path)
    done = cli("replay", "rules.py:Late", "log", "--verify", "10%", "--local")
    assert "verified equal to the serial reference: the first 601 of 1,000 events, 1 output" in done.out
    assert "in the 100 events asked for there is nothing to compare" in done.out
    part = cli("verify", "@1", "--events", "10%")
    assert part.code == 0
    assert "compared nothing: the first 100 of" in part.out
    assert cli("verify", "@1", "--events", "10%", "--json").json["covers"] is False


def test_each_change_of_a_slice_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a change that is another one than the slice's is found at the slice's end."""
    log = Log.from_events(tmp_path / "log", [E(n=i, ts=i) for i in range(400)])
    run = tl.replay(Late, log, tmp_path / "run", slices=40, spark=False)
    read: list[Path] = []
    real = DirectoryData._change_table

    def noted(data: DirectoryData, path: Path) -> pa.Table | None:
        read.append(path)
        return real(data, path)

    def another(data: DirectoryData, path: Path) -> pa.Table | None:
        return real(data, change_path(data.path, 18, "seen") if path == read[19] else path)

    monkeypatch.setattr(DirectoryData, "_change_table", noted)
    found = run.verify()
    assert (found.ok, found.boundaries) == (True, 40)
    assert len(read) == len(set(read)) == 40
    monkeypatch.setattr(DirectoryData, "_change_table", another)
    found = run.verify()
    assert found.divergence is not None
    assert found.divergence.name == f"seen (before seq {run.manifest.cuts[20]})"
