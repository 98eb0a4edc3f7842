"""Effects that travel through Spark's shuffle are merged to the same bits as those in files."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import deep
from tests.engine.programs import ALL, A, B
from timelapse.engine import exchange
from timelapse.engine.exchange import Merge
from timelapse.errors import ReplayError, UsageError
from timelapse.kinds.base import ABSENT, StateOptions, StateSpec
from timelapse.log import Log
from timelapse.run import replay, run_serial
from timelapse.tables import merge as merging
from timelapse.tables.apply import NO_CHANGE
from timelapse.tables.table import effect_table, read_table, state_table, write_table
from timelapse.testing import random_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTER: StateSpec = tl.Counter.declare("n", (str,), StateOptions(ABSENT), None)


def step(folder: Path, seed: int, *, first: bool = False) -> Merge:
    """A state and effects on it, in files."""
    rng = random.Random(seed)
    delta: Any = tl.Counter.delta(COUNTER, None)
    for _ in range(rng.randrange(30)):
        delta._e_add(f"k{rng.randrange(20)}", rng.randrange(-1, 3))
    whole = effect_table(delta)
    # As workers by key write it: no two of them have a key in common.
    workers = rng.randrange(1, 4)
    own = [[i for i in range(whole.num_rows) if i % workers == w] for w in range(workers)]
    files = tuple(folder / f"effects{w}" for w in range(workers))
    for path, rows in zip(files, own, strict=True):
        write_table(whole.take(pa.array(rows, pa.int64())), path)
    start = [(f"k{i}", i % 3 + 1) for i in range(rng.randrange(20))]
    write_table(state_table(COUNTER, start), folder / "old")
    return Merge(COUNTER, None if first else folder / "old", (files,), folder / "new")


@settings(max_examples=deep(12))
@given(
    seed=st.integers(0, 10**6), readers=st.sampled_from([1, 2, 3]), parts=st.sampled_from([1, 2, 5]),
    rows=st.sampled_from([1, 3, 100]), first=st.booleans(),
)  # fmt: skip
def test_what_arrives_in_any_order_is_merged_as_in_one_place(
    tmp_path_factory: pytest.TempPathFactory, seed: int, readers: int, parts: int, rows: int, first: bool
) -> None:
    """Without Spark: pieces of all readers are shuffled; ranges are merged in several places."""
    folder = tmp_path_factory.mktemp("exchange")
    one = step(folder, seed, first=first)
    expected = one.here()
    state = read_table(one.new).to_pylist()
    one.new.unlink()
    rng = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "_PIECE_ROWS", rows)
        patch.setattr(merging, "RANGE_ROWS", 4)
        sent = [b for reader in range(readers) for b in exchange.send(one, reader, readers, parts)]
        rng.shuffle(sent)
        places = [[b for b in sent if b.column(0)[0].as_py() % 2 == place] for place in range(2)]
        ranges = folder / "ranges"
        ranges.mkdir()
        said = [row for place in places for row in exchange.receive(one, place, parts, ranges)]
        with pytest.raises(ReplayError, match="ranges of n"):
            exchange.collect(one, said[1:], parts, ranges)
        assert exchange.collect(one, said, parts, ranges) == expected
    assert read_table(one.new).to_pylist() == state
    assert not ranges.exists()


def test_a_state_that_a_slice_left_alone(tmp_path: Path) -> None:
    """There is no file with effects then."""
    one = step(tmp_path, 1)
    for path in one.steps[0]:
        path.unlink()
    assert not exchange.by_shuffle(one, cluster=True)
    assert one.here() == NO_CHANGE
    assert read_table(one.new).equals(read_table(tmp_path / "old"))
    empty = Merge(COUNTER, None, one.steps, tmp_path / "first")
    assert empty.here() == NO_CHANGE
    assert read_table(empty.new).num_rows == 0


def test_which_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By size where the executors are other machines; else, and when told so, in files."""
    one = step(tmp_path, 2)
    monkeypatch.delenv(exchange.SWITCH, raising=False)
    assert not exchange.by_shuffle(one, cluster=True)
    monkeypatch.setattr(exchange, "SHUFFLE_BYTES", one.bytes)
    assert exchange.by_shuffle(one, cluster=True)
    assert not exchange.by_shuffle(one, cluster=False)
    monkeypatch.setenv(exchange.SWITCH, "files")
    assert not exchange.by_shuffle(one, cluster=True)
    monkeypatch.setenv(exchange.SWITCH, "shuffle")
    assert exchange.by_shuffle(one, cluster=False)
    monkeypatch.setenv(exchange.SWITCH, "post")
    with pytest.raises(UsageError, match="TIMELAPSE_EXCHANGE is 'post'"):
        exchange.by_shuffle(one, cluster=False)


@pytest.mark.spark
@pytest.mark.parametrize("program", [p for p in ALL if p.__name__ == "Idioms"], ids=lambda p: p.__name__)
def test_replay_through_the_shuffle(
    spark: SparkSession, tmp_path: Path, program: type[tl.Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Spark, all merges forced through it: the same digest, the same state at every boundary."""
    events = random_log([A, B], seed=7, count=80)
    log = Log.from_events(tmp_path / "log", events, [A, B])
    monkeypatch.setenv(exchange.SWITCH, "shuffle")
    shuffled: list[str] = []
    collect = exchange.collect

    def counted(merge: Merge, *rest: Any) -> Any:
        shuffled.append(merge.spec.name)
        return collect(merge, *rest)

    monkeypatch.setattr(exchange, "collect", counted)
    run = replay(program, log, slices=2, spark=spark, strategy="staged", cache=False)
    assert shuffled
    assert run.digest == run_serial(program, log).digest
    found = run.verify()
    assert found.ok, found.text
