"""`state restore`: a live run as it stood after an epoch, in another place, goes on as if nothing had been."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from tests.depth import deep
from tests.patience import LONG
from tests.s3_server import S3Server
from tests.streaming.test_live import FAST, Hit, Mark, Watch, hits, lines, marks, put
from timelapse.errors import RunError, StorageError
from timelapse.streaming import chain
from timelapse.streaming.chain import newest
from timelapse.streaming.format import CHECKPOINTS, EPOCHS, RUN
from timelapse.streaming.place import LocalPlace
from timelapse.streaming.reading import Reading
from timelapse.streaming.restoring import restore


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")


def _go(sources: Path, out: str | Path, **options: Any) -> tl.Live:
    streams = {Mark: sources / "marks", Hit: sources / "hits"}
    with tl.live(Watch, streams, out, **{"once": True, **FAST, **options}) as run:
        assert run.wait(LONG)
    return run


def _history(tmp_path: Path, rng: random.Random, *, parts: int = 4, **options: Any) -> tl.Live:
    """A run that was stopped and begun again: an epoch, or several, for each part of its input."""
    sources = tmp_path / "in"
    for name in ("marks", "hits"):
        (sources / name).mkdir(parents=True)
    cuts = [0, *sorted(rng.sample(range(1, 150), parts - 1)), 150]
    for number, (lo, hi) in enumerate(itertools.pairwise(cuts)):
        own = hits(150)[lo:hi]
        until = own[-1].ts
        others = [m for m in marks(12) if (hits(150)[lo].ts if lo else 0) <= m.ts <= until]
        if options.get("late") == "correct":
            rng.shuffle(own)
        put(sources / "hits" / f"{number}.jsonl", lines(own))
        put(sources / "marks" / f"{number}.jsonl", lines(others))
        run = _go(sources, tmp_path / "out", checkpoint="1ms", **options)
    return run


@pytest.mark.parametrize("seed", range(deep(4)))
@pytest.mark.parametrize("late", ["side", "correct"])
def test_from_any_epoch_it_goes_on_to_the_same(tmp_path: Path, seed: int, late: str) -> None:
    """Outputs, states and journal are those of the run that was never copied, to the last bit; parity holds."""
    rng = random.Random(seed)
    run = _history(tmp_path, rng, late=late)
    assert run.parity().same
    last = newest(LocalPlace(tmp_path / "out"))
    for number in rng.sample(range(1, last + 1), min(3, last)):
        into = tmp_path / f"copy-{number}"
        found = restore(tmp_path / "out", into, epoch=number)
        assert (found.epoch, found.left) == (number, last - number)
        copy = Reading.open(into)
        assert copy.last is not None
        assert copy.last.number == number
        again = _go(tmp_path / "in", into, late=late)
        assert again.digest == run.digest
        assert again.parity().same
        assert again.state("n") == run.state("n")


def test_into_a_store_and_back(tmp_path: Path, bucket: str, s3: S3Server) -> None:
    run = _history(tmp_path, random.Random(1))
    restore(tmp_path / "out", f"{bucket}/copy")
    restore(f"{bucket}/copy", tmp_path / "back")
    for folder in (EPOCHS, CHECKPOINTS):
        one, other = (sorted((tmp_path / at / folder).iterdir()) for at in ("out", "back"))
        assert [p.name for p in one] == [p.name for p in other]
        assert [p.read_bytes() for p in one] == [p.read_bytes() for p in other]
    for place in (f"{bucket}/copy", tmp_path / "back"):
        assert _go(tmp_path / "in", place).digest == run.digest


def test_rows_that_were_sent_are_not_lost(tmp_path: Path) -> None:
    """What a sender was promised after the epoch comes with the copy."""
    sent, marked = tl.Push(), tl.Push()
    with tl.live(Watch, {Mark: marked, Hit: sent}, tmp_path / "out", **FAST) as run:
        sent.send(hits(40))
        marked.send(marks(2))
        run.until(lambda e: e.end_seq > 0)
        first = newest(LocalPlace(tmp_path / "out"))
        sent.send(hits(40, 40))
        run.stop()
    restore(tmp_path / "out", tmp_path / "copy", epoch=first)
    digests = []
    for out in ("out", "copy"):
        sent, marked = tl.Push(), tl.Push()
        with tl.live(Watch, {Mark: marked, Hit: sent}, tmp_path / out, **FAST) as again:
            sent.close()
            marked.close()
            assert again.wait(LONG), again.health
            digests.append(again.digest)
    assert digests[0] == digests[1]


def test_a_time_names_the_epoch_before_it(tmp_path: Path) -> None:
    run = _history(tmp_path, random.Random(2), parts=6)
    place = LocalPlace(tmp_path / "out")
    ends = [chain.read_about(place, n).complete for n in range(1, newest(place) + 1)]
    for number, end in enumerate(ends, 1):
        assert end is not None
        later = [n for n, other in enumerate(ends, 1) if other is not None and other < end + 1]
        into = tmp_path / f"at-{number}"
        assert restore(tmp_path / "out", into, at=end + 1).epoch == max(later)
    with pytest.raises(RunError, match="the first epoch goes beyond"):
        restore(tmp_path / "out", tmp_path / "none", at=0)
    assert run.digest
    assert not (tmp_path / "none").exists()


def test_a_copy_that_was_not_finished_is_none_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after any file: no run is there; the same command again makes it, and what another one left is refused."""
    run = _history(tmp_path, random.Random(3))
    total = [0]
    create = LocalPlace.create

    def dying(at: int) -> Any:
        count = [0]

        def one(self: LocalPlace, name: str, data: bytes) -> None:
            total[0] = count[0] = count[0] + 1
            if count[0] > at:
                raise KeyboardInterrupt
            create(self, name, data)

        return one

    for at in range(40):
        into = tmp_path / f"copy-{at}"
        monkeypatch.setattr(LocalPlace, "create", dying(at))
        try:
            restore(tmp_path / "out", into)
        except KeyboardInterrupt:
            assert not (into / RUN).exists()
            monkeypatch.setattr(LocalPlace, "create", create)
            restore(tmp_path / "out", into)
        else:
            break
        finally:
            monkeypatch.setattr(LocalPlace, "create", create)
        assert Reading.open(into).digest == run.digest
    assert at > 4
    left = tmp_path / "left"
    (left / EPOCHS).mkdir(parents=True)
    (left / EPOCHS / ("0" * 19 + "1")).write_bytes(b"of another")
    with pytest.raises(RunError, match="not empty"):
        restore(tmp_path / "out", left)


def test_altered_files(tmp_path: Path) -> None:
    """An altered epoch is an error that names it, and nothing is there; an altered checkpoint is left out, and told."""
    run = _history(tmp_path, random.Random(4))
    checkpoint = max((tmp_path / "out" / CHECKPOINTS).iterdir())
    data = bytearray(checkpoint.read_bytes())
    data[-3] ^= 1
    checkpoint.write_bytes(bytes(data))
    found = restore(tmp_path / "out", tmp_path / "copy")
    assert any(checkpoint.name in problem for problem in found.problems)
    assert _go(tmp_path / "in", tmp_path / "copy").digest == run.digest
    epoch = min((tmp_path / "out" / EPOCHS).iterdir())
    data = bytearray(epoch.read_bytes())
    data[-3] ^= 1
    epoch.write_bytes(bytes(data))
    with pytest.raises(StorageError, match=epoch.name) as refused:
        restore(tmp_path / "out", tmp_path / "other")
    assert refused.value.code == "TL931"
    assert not (tmp_path / "other" / RUN).exists()


def test_the_command(tmp_path: Path) -> None:
    run = _history(tmp_path, random.Random(5))
    last = newest(LocalPlace(tmp_path / "out"))
    done = cli("state", "restore", tmp_path / "out", tmp_path / "copy", "--epoch", last - 1)
    assert done.code == 0
    assert f"epoch {last - 1:,}" in done.out
    assert "TL946" in done.out
    assert cli("state", "restore", tmp_path / "out", tmp_path / "copy").code == 2
    both = cli("state", "restore", tmp_path / "out", tmp_path / "x", "--epoch", 1, "--at", "2020-01-01")
    assert both.code == 2
    assert "--epoch" in both.err
    assert _go(tmp_path / "in", tmp_path / "copy").digest == run.digest


def test_a_place_that_has_something_else_is_left_alone(tmp_path: Path, bucket: str, s3: S3Server) -> None:
    """As `tl.live` does it: a file, a folder with somebody's files, in a store too."""
    _history(tmp_path, random.Random(5))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    s3.client.put_object(Bucket=bucket.removeprefix("s3://"), Key="full/letter.txt", Body=b"dear")
    for place in (tmp_path / "full", tmp_path / "full" / "letter.txt", f"{bucket}/full"):
        with pytest.raises(RunError, match="already something") as error:
            restore(tmp_path / "out", place)
        assert (error.value.code, bool(error.value.hint)) == ("TL940", True)
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["letter.txt"]
    assert s3.keys(bucket.removeprefix("s3://")) == ["full/letter.txt"]
