"""States in an open format: read by others, laid out anew, damage named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from tests.patience import LONG
from timelapse.errors import StorageError, TimelapseError, UsageError
from timelapse.log import Log
from timelapse.results.snapshot import read_manifest, read_state, repartition
from timelapse.run import Run, replay

PROGRAM = """
import timelapse as tl

class Hit(tl.Event):
    who: int
    name: str

class Counts(tl.Program):
    hits: tl.Counter[int]
    pairs: tl.Set[tuple[int, str]]
    last: tl.Value[str, int | None]
    mean: tl.Mean[str]
    held: tl.SetOf[int, str]
    total: tl.Counter

    @tl.on(Hit)
    def hit(self, e):
        self.hits[e.who] += 1
        self.pairs.add((e.who, e.name))
        self.last[e.name] = e.who
        self.mean.add(e.name, e.who)
        self.held.add(e.who, e.name)
        self.total += 1
"""
STATES = ("hits", "pairs", "last", "mean", "held", "total")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    from timelapse.program.load import load_events, load_program

    folder = tmp_path_factory.mktemp("made")
    (folder / "rules.py").write_text(PROGRAM)
    hit: Any = load_events(str(folder / "rules.py"))["Hit"]
    events = [hit(who=n * 7 % 83, name=f"n{n % 31}é'", ts=n * 1_000_000) for n in range(900)]
    log = Log.from_events(folder / "log", events)
    return replay(load_program(f"{folder / 'rules.py'}:Counts"), log, folder / "run", 3)


def rows(table: pa.Table) -> list[str]:
    return sorted(repr(row) for row in table.to_pylist())


@pytest.mark.parametrize("anew", [False, True], ids=["checkpoint", "partition"])
def test_others_read_it(made: Run, tmp_path: Path, *, anew: bool) -> None:
    """DuckDB and Polars see the rows that the run has, each key in one file; also where they were laid out anew."""
    import duckdb
    import polars as pl

    assert made.path is not None
    first = tmp_path / ("of-3" if anew else "s")
    shown = cli("state", "checkpoint", made.path, first, "--parts", 3 if anew else 5)
    assert shown.code == 0, shown.err
    if anew:
        shown = cli("state", "partition", first, tmp_path / "s", "--parts", 5)
        assert shown.code == 0, shown.err
    assert "6 states, 5 files each" in shown.out
    for name in STATES:
        files = sorted((tmp_path / "s" / name).glob("*.parquet"))
        assert len(files) == 5
        expected = made.state(name)
        pattern = str(tmp_path / "s" / name / "*.parquet")
        found = duckdb.sql(f"SELECT * FROM read_parquet('{pattern}')").to_arrow_table()
        assert rows(pa.table(found.cast(expected.schema))) == rows(expected)
        assert rows(pl.read_parquet(pattern).to_arrow().cast(expected.schema)) == rows(expected)
        if "key" in expected.column_names:
            keys = [set(map(repr, pl.read_parquet(f)["key"].to_list())) for f in files]
            assert sum(map(len, keys)) == len(set().union(*keys))
    assert len([f for f in (tmp_path / "s" / "hits").iterdir() if pl.read_parquet(f).height]) == 5


def test_at_any_moment(made: Run, tmp_path: Path) -> None:
    at = 333 * 1_000_000
    shown = cli("state", "checkpoint", made.path, tmp_path / "s", "--at", at, "--json")
    assert shown.code == 0, shown.err
    assert json.loads(shown.out)["moment"]["at"] == at
    for name in STATES:
        assert read_state(tmp_path / "s", name).equals(made.state(name, at))


def test_laid_out_anew(made: Run, tmp_path: Path) -> None:
    """In any number of parts, over any way there, the files are those of a snapshot in that number."""
    for parts in (1, 3, 8):
        assert cli("state", "checkpoint", made.path, tmp_path / f"s{parts}", "--parts", parts).code == 0
    assert cli("state", "partition", tmp_path / "s8", tmp_path / "t3", "--parts", 3).code == 0
    repartition(tmp_path / "t3", tmp_path / "t1", 1)
    for found, expected in (("t3", "s3"), ("t1", "s1")):
        for name in STATES:
            a, b = (read_state(tmp_path / folder, name) for folder in (found, expected))
            assert rows(a) == rows(b)
            for file in read_manifest(tmp_path / expected).states[0].files:
                one, other = (tl_rows(tmp_path / folder / file) for folder in (found, expected))
                assert one == other


def tl_rows(path: Path) -> list[str]:
    import pyarrow.parquet as pq

    return rows(pq.read_table(path))


def test_damage_and_wrong_places(made: Run, tmp_path: Path) -> None:
    assert cli("state", "checkpoint", made.path, tmp_path / "s").code == 0
    again = cli("state", "checkpoint", made.path, tmp_path / "s")
    assert again.code == 2
    assert again.err.startswith("TL950")
    assert cli("state", "checkpoint", made.path, tmp_path / "s", "--overwrite").code == 0
    with pytest.raises(UsageError, match="no state 'hit'"):
        read_state(tmp_path / "s", "hit")
    for parts in (0, 5000):
        with pytest.raises(TimelapseError):
            repartition(tmp_path / "s", tmp_path / "t", parts)
    assert not (tmp_path / "t").exists()
    file = next((tmp_path / "s" / "hits").iterdir())
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)
    with pytest.raises(StorageError, match="hits") as damaged:
        repartition(tmp_path / "s", tmp_path / "t", 2)
    assert damaged.value.code == "TL931"
    assert not (tmp_path / "t").exists()
    (tmp_path / "s" / "snapshot.json").write_text("{")
    assert cli("state", "partition", tmp_path / "s", tmp_path / "t", "--parts", 2).err.startswith("TL950")
    assert cli("state", "partition", tmp_path / "none", tmp_path / "t", "--parts", 2).err.startswith("TL950")


def test_of_a_live_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The states of its newest checkpoint are those of a replay of its journal up to there."""
    from tests.streaming.test_live import FAST, Hit, Plain, hits

    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    push = tl.Push()
    with tl.live(Plain, {Hit: push}, tmp_path / "out", **FAST) as run:
        push.send(hits(50))
        push.close()
        run.wait(LONG)
    shown = cli("state", "checkpoint", tmp_path / "out", tmp_path / "s", "--parts", 2, "--json")
    assert shown.code == 0, shown.err
    assert json.loads(shown.out)["moment"]["epoch"] == run.last.number  # type: ignore[union-attr]
    whole = tl.run_serial(Plain, hits(50))
    for state in whole.manifest.states:
        assert rows(read_state(tmp_path / "s", state.name)) == rows(whole.state(state.name))
    assert cli("state", "checkpoint", tmp_path / "out", tmp_path / "t", "--at", "5").code == 2
