"""A live run that is stopped while an epoch cannot be written: its rows are processed once, by who goes on."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.patience import LONG, until
from tests.streaming.test_live import FAST, Hit, Plain, hits, lines, put
from timelapse.run import run_serial
from timelapse.streaming.format import EPOCHS
from timelapse.streaming.place import LocalPlace
from timelapse.streaming.spread import Spread


@pytest.mark.parametrize("rows", [None, 1], ids=["kernel", "slices"])
@pytest.mark.parametrize("first", [0, 100])
def test_stopped_while_an_epoch_waits(
    rows: int | None, first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program in memory is an epoch ahead of what is committed: no checkpoint is made of that."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    (tmp_path / "hits").mkdir()
    options: dict[str, Any] = {**FAST, "slice_rows": rows}
    if first:
        put(tmp_path / "hits" / "0.jsonl", lines(hits(first)))
        with tl.live(Plain, {Hit: tmp_path / "hits"}, tmp_path / "out", once=True, **options) as run:
            assert run.wait(LONG)
    create = LocalPlace.create

    def refused(place: LocalPlace, name: str, data: bytes) -> None:
        if name.startswith(EPOCHS):
            raise OSError(errno.EDQUOT, "no")
        create(place, name, data)

    put(tmp_path / "hits" / "1.jsonl", lines(hits(60, first)))
    with monkeypatch.context() as patch:
        patch.setattr(LocalPlace, "create", refused)
        run = tl.live(Plain, {Hit: tmp_path / "hits"}, tmp_path / "out", **{**options, "idle": "10ms"})
        until(lambda: run.health.state == "waiting", run)
        run.stop()
    with tl.live(Plain, {Hit: tmp_path / "hits"}, tmp_path / "out", once=True, **options) as run:
        assert run.wait(LONG)
    assert run.digest == run_serial(Plain, hits(first + 60)).digest
    assert run.parity().same


def test_a_session_whose_jvm_is_gone_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark is a help that was there: without it the open kernel goes on."""
    from timelapse.env import spark_session

    def gone() -> None:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    monkeypatch.setattr(spark_session, "existing", gone)
    (tmp_path / "hits").mkdir()
    put(tmp_path / "hits" / "0.jsonl", lines(hits(50)))
    with tl.live(Plain, {Hit: tmp_path / "hits"}, tmp_path / "out", once=True, slice_rows=1, **FAST) as run:
        assert run.wait(LONG)
    assert run.digest == run_serial(Plain, hits(50)).digest
    assert "Connection refused" in run.sliced.why


def test_a_jvm_that_dies_among_slices_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked of it then fails with an error of py4j's own."""
    from py4j.protocol import Py4JError

    def dies(*_: Any) -> None:
        raise Py4JError("An error occurred while calling o41.sc")

    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    monkeypatch.setattr(Spread, "_run", dies)
    (tmp_path / "hits").mkdir()
    put(tmp_path / "hits" / "0.jsonl", lines(hits(50)))
    with tl.live(Plain, {Hit: tmp_path / "hits"}, tmp_path / "out", once=True, slice_rows=1, **FAST) as run:
        assert run.wait(LONG)
    assert run.digest == run_serial(Plain, hits(50)).digest
    assert "o41.sc" in run.sliced.why
