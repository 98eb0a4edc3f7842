"""A log without some of its events: the others keep their seq, and nothing else changes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timelapse as tl
from timelapse.errors import LogError
from timelapse.kernels.choose import SWITCH
from timelapse.run import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 60


class Move(tl.Event):
    who: int
    word: str


class Ping(tl.Event):
    who: int


class Out(tl.Record):
    who: int
    n: int


class Count(tl.Program):
    n: tl.Counter[int]

    @tl.on(Move, Ping)
    def go(self, e: Any) -> None:
        self.n[e.who] += 1
        self.emit(Out(who=e.who, n=60 // (e.seq % 7)))


def made(i: int) -> tl.Event:
    return Ping(who=i % 3, ts=i // 2) if i % 4 == 1 else Move(who=i % 3, word="ab"[i % 2], ts=i // 2)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tl.Log:
    path = tmp_path_factory.mktemp("log") / "log"
    return tl.Log.from_events(path, [made(i) for i in range(COUNT)], [Move, Ping], block=16)


@pytest.fixture(scope="module")
def failed(log: tl.Log, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("run") / "run"
    return tl.replay(Count, log, out, slices=3, spark=False, quarantine=True)


@given(seqs=st.sets(st.integers(0, COUNT - 1)), lo=st.integers(0, COUNT), hi=st.integers(0, COUNT))
def test_what_is_left_is_read_with_its_seq(log: tl.Log, seqs: set[int], lo: int, hi: int) -> None:
    fewer = log.without(seqs)
    kept = [e for e in log.events(Move, Ping) if e.seq not in seqs]
    assert list(fewer.events(Move, Ping)) == kept
    assert len(fewer) == fewer.count == fewer.reader.count == len(kept)
    classes: dict[str, type[tl.Event]] = {"Move": Move, "Ping": Ping}
    assert list(fewer.reader.events(lo, hi, classes)) == [e for e in kept if lo <= e.seq < hi]
    for n in (1, 2, 3, 7):
        cuts = fewer.reader.cuts(n)
        sizes = [sum(a <= e.seq < b for e in kept) for a, b in itertools.pairwise(cuts)]
        assert (cuts[0], cuts[-1], sum(sizes)) == (0, COUNT, len(kept))
        assert max(sizes) - min(sizes) <= 1
    for n in range(len(kept) + 1):
        assert sum(e.seq < fewer.reader.seq_after(n) for e in kept) == n


def test_the_repeated_run_gives_the_same_and_fails_nowhere(log: tl.Log, failed: Run) -> None:
    gone = [i for i in range(COUNT) if i % 7 == 0]
    assert failed.left_out == gone
    with pytest.raises(tl.TimelapseError, match="TL502"):
        tl.replay(Count, log, spark=False)
    for what in (failed, failed.path, gone):
        again = tl.replay(Count, log.without(what), slices=4, spark=False)
        assert (again.digest, again.state_digest) == (failed.digest, failed.state_digest)
        assert (again.events, again.quarantined_count, again.left_out) == (COUNT - len(gone), 0, gone)
        assert again.verify().ok
        assert again.verify(events=20).ok
    serial = tl.run_serial(Count, log.without(failed))
    assert (serial.digest, serial.left_out) == (failed.digest, gone)


def test_a_stored_run_finds_its_log_again(log: tl.Log, failed: Run, tmp_path: Path) -> None:
    tl.replay(Count, log.without(failed), tmp_path / "run", slices=2, spark=False)
    opened = Run.open(tmp_path / "run", program=Count())
    assert opened.verify().ok
    assert opened.state("n", at=20) == failed.state("n", at=20)
    assert tl.Log.open(log.path).without(tmp_path / "run").left_out == tuple(failed.left_out)


def test_it_is_another_log(log: tl.Log, failed: Run) -> None:
    one, two = log.without([3]), log.without([4])
    assert len({log.id, one.id, two.id}) == 3
    assert one.without([4]).id == two.without([3]).id == log.without([3, 4]).id
    assert log.without([]).id == log.id
    assert "without 1 event" in repr(one)


def test_files_that_list_seqs(log: tl.Log, tmp_path: Path) -> None:
    pq.write_table(pa.table({"seq": [9, 2], "why": ["a", "b"]}), tmp_path / "gone.parquet")
    (tmp_path / "gone.csv").write_text("why,seq\na,9\nb,2\n")
    (tmp_path / "gone.txt").write_text("9\n2\n")
    for name in ("gone.parquet", "gone.csv", "gone.txt"):
        assert log.without(tmp_path / name).left_out == (2, 9)


@pytest.mark.parametrize("what", [[COUNT], [-1], [1.5], [True], 7, "nowhere.txt"])
def test_what_says_no_events_is_refused(log: tl.Log, what: Any) -> None:
    with pytest.raises(LogError, match="TL409"):
        log.without(what)


def test_a_run_over_another_log_is_refused(failed: Run, tmp_path: Path) -> None:
    other = tl.Log.from_events(tmp_path / "other", [made(i) for i in range(COUNT + 1)], [Move, Ping])
    for what in (failed, failed.path):
        with pytest.raises(LogError, match="another log"):
            other.without(what)
    with pytest.raises(LogError, match="no run"):
        other.without(tmp_path)


class Words(tl.Program):
    n: tl.Counter[str]

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.n[m.word] += 1
        self.emit(Out(who=m.who, n=self.n[m.word]))


def test_compiled_and_on_spark(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where text is read as dictionaries, of which some values are left out altogether."""
    events = [Move(who=i, word=f"w{i % 5}", ts=i) for i in range(3000)]
    log = tl.Log.from_events(tmp_path / "words", events, block=500)
    gone = [i for i in range(3000) if i % 5 == 3 or 500 <= i < 1010 or i % 7 == 0]
    expected = tl.run_serial(Words, [e._at(e.ts, i) for i, e in enumerate(events) if i not in set(gone)])
    fewer = log.without(gone)
    for kernel in ("native", "python"):
        monkeypatch.setenv(SWITCH, kernel)
        for slices in (1, 3):
            run = tl.replay(Words, fewer, slices=slices, spark=False)
            assert (run.digest, run.state_digest) == (expected.digest, expected.state_digest)
    run = tl.replay(Words, fewer, slices=3, spark=spark)
    assert (run.digest, run.state_digest) == (expected.digest, expected.state_digest)
