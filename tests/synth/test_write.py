"""Writing a generated network as a log: the same for any parallelism, whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from timelapse.errors import LogError
from timelapse.segments.manifest import read
from timelapse.synth import Network, generate
from timelapse.synth import write as synth_write
from timelapse.synth.network import BLOCK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_spark_and_this_process_write_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """The same log id and the same bytes in the files, three tasks or none."""
    network = Network.make(5 * BLOCK + 123, seed=7)
    assert generate(tmp_path / "a", network, spark=spark) == network.events
    generate(tmp_path / "b", network, spark=False)
    a, b = read(tmp_path / "a"), read(tmp_path / "b")
    assert a.id == b.id
    assert a.count == b.count == network.events
    assert len(a.segments) == 3
    for one, two in zip(a.segments, b.segments, strict=True):
        for file in one.files:
            left = tmp_path / "a" / "segments" / one.folder / file.name
            right = tmp_path / "b" / "segments" / two.folder / file.name
            assert left.read_bytes() == right.read_bytes()
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["manifest.json", "segments"]


def test_an_empty_log_is_a_log(tmp_path: Path) -> None:
    """No events: both types are declared, with none."""
    generate(tmp_path / "none", Network.make(0))
    assert [(t.name, t.count) for t in read(tmp_path / "none").types] == [("Friendship", 0), ("Message", 0)]


def test_what_is_there_stays(tmp_path: Path) -> None:
    """A folder with something in it is refused without overwrite, and replaced with it."""
    target = tmp_path / "log"
    generate(target, Network.make(100, seed=1))
    before = read(target).id
    with pytest.raises(LogError, match="already"):
        generate(target, Network.make(100, seed=2))
    assert read(target).id == before
    generate(target, Network.make(100, seed=2), overwrite=True)
    assert read(target).id != before
    assert [p.name for p in tmp_path.iterdir()] == ["log"]


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a block cannot be made, neither the log nor its staging folder is left."""

    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(synth_write, "block", broken)
    with pytest.raises(KeyboardInterrupt):
        generate(tmp_path / "log", Network.make(100))
    assert list(tmp_path.iterdir()) == []
