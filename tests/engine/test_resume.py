"""Going on where a replay was killed: on other cores and engines, with what is torn done again, and why not where not.

Kills at every operation, in random programs, are played in tests/simulation; processes are really killed by benchmarks/kills.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import timelapse as tl
from tests.engine.programs import A, B, Chained
from tests.engine.test_windows import Login, Message, Views
from timelapse.engine import resume
from timelapse.engine.publish import PartialRun
from timelapse.errors import UsageError
from timelapse.progress import Silent
from timelapse.run import Run, replay, run_serial, start
from timelapse.run import slices as cutting
from timelapse.run.files import check_files
from timelapse.store import parts
from timelapse.testing import random_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Killed(BaseException):
    """The process is gone."""


class Heard(Silent):
    """Keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def log(tmp_path: Path) -> tl.Log:
    made: tl.Log = tl.Log.from_events(tmp_path / "log", random_log([A, B], seed=5, count=120), [A, B])
    return made


def killed(program: Any, log: tl.Log, out: Path, marks: int, **options: Any) -> None:
    """Replay until so many slices of passes are done; then the process is gone, and has tidied nothing up."""
    with pytest.MonkeyPatch.context() as patch:
        write, left = parts.write_part, marks

        def dying(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            if not left:
                raise Killed
            left -= 1
            return write(*args, **kwargs)

        patch.setattr(resume, "write_part", dying)
        patch.setattr(PartialRun, "discard", lambda self: self._folder.close())
        with pytest.raises(Killed):
            replay(program, log, out=out, engine="local", **options)
    _died(out)


def _died(out: Path) -> None:
    """What was being made belongs to nobody now: to this process it did, which goes on to be the next one."""
    assert not out.exists()
    (left,) = (p for p in out.parent.iterdir() if p.name.startswith(f".{out.name}.partial-"))
    left.rename(out.parent / f".{out.name}.partial-left-1")


def test_finished_slices_are_taken_over_and_told(tmp_path: Path, log: tl.Log) -> None:
    """Passes ahead and final passes; the certificate and the notes say how many."""
    killed(Chained, log, tmp_path / "run", 9, slices=4, strategy="staged")
    heard = Heard()
    run = replay(
        Chained, log, out=tmp_path / "run", slices=4, strategy="staged", engine="local", progress=heard
    )
    taken = run.certificate["taken_over"]
    assert taken["slices"] + taken["passes"] == 9
    assert taken["torn"] == 0
    assert any(f"{taken['slices']} slices of the final pass" in note for note in heard.notes)
    assert (run.digest, run.state_digest) == digests(Chained, log)
    assert check_files(run).ok
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log", "run"]


def test_slices_that_one_task_took_are_taken_over_too(tmp_path: Path, log: tl.Log) -> None:
    """It goes on behind the last one that was done, with the states as this one left them; also where the planner would take a task for each now."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start, "in_threads", lambda plan: plan.mode == "staged")
        patch.setattr(cutting, "in_one_task", lambda *_: True)
        killed(Chained, log, tmp_path / "run", 2, slices=4, strategy="staged")
    run = replay(Chained, log, out=tmp_path / "run", slices=4, strategy="staged", engine="local")
    told = run.certificate
    assert (told["taken_over"]["slices"], told["taken_over"]["passes"]) == (2, 0)
    assert (told["mode"], told["leading_slices"], told["predicted_slices"]) == ("staged", 3, 0)
    assert (run.digest, run.state_digest) == digests(Chained, log)
    assert check_files(run).ok
    assert run.verify().ok


def digests(program: Any, log: tl.Log) -> tuple[str, str]:
    serial = run_serial(program, log)
    return serial.digest, serial.state_digest


def test_what_was_moved_into_the_run_already_counts(
    tmp_path: Path, log: tl.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed when all is done and the manifest is being written: nothing is done again."""

    def dying(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("timelapse.run.start.write_manifest", dying)
        patch.setattr(PartialRun, "discard", lambda self: self._folder.close())
        with pytest.raises(Killed):
            replay(Chained, log, out=tmp_path / "run", slices=3, strategy="staged", engine="local")
    _died(tmp_path / "run")
    run = replay(Chained, log, out=tmp_path / "run", slices=3, strategy="staged", engine="local")
    assert run.certificate["taken_over"]["slices"] == 3
    assert (run.digest, run.state_digest) == digests(Chained, log)


@pytest.mark.parametrize("how", ["cut", "altered", "gone", "swapped", "mark"])
def test_a_file_that_is_not_as_it_was_written_is_made_again(tmp_path: Path, log: tl.Log, how: str) -> None:
    killed(Chained, log, tmp_path / "run", 9, slices=4, strategy="staged")
    (left,) = (p for p in tmp_path.iterdir() if ".partial-" in p.name)
    files = sorted((left / "scratch" / "effects").iterdir())
    if how == "mark":
        path = next((left / "scratch" / "done").glob("pass-*"))
        path.write_bytes(path.read_bytes().replace(b'"slice":', b'"Slice":'))
    elif how == "cut":
        files[0].write_bytes(files[0].read_bytes()[:-8])
    elif how == "altered":
        data = bytearray(files[0].read_bytes())
        data[len(data) // 2] ^= 1
        files[0].write_bytes(bytes(data))
    elif how == "gone":
        files[0].unlink()
    else:
        first, second = files[0].read_bytes(), files[1].read_bytes()
        files[0].write_bytes(second)
        files[1].write_bytes(first + b"x")
    run = replay(Chained, log, out=tmp_path / "run", slices=4, strategy="staged", engine="local")
    taken = run.certificate["taken_over"]
    assert taken["slices"] + taken["passes"] < 9
    assert taken["torn"] or how == "mark"
    assert (run.digest, run.state_digest) == digests(Chained, log)


def test_a_chain_goes_on_at_its_slice(tmp_path: Path, log: tl.Log) -> None:
    killed(Chained, log, tmp_path / "run", 3, slices=5, strategy="chain")
    run = replay(Chained, log, out=tmp_path / "run", slices=5, strategy="chain", engine="local")
    assert run.certificate["taken_over"]["slices"] == 3
    assert (run.digest, run.state_digest) == digests(Chained, log)


def test_programs_that_look_back_go_on_in_slices(tmp_path: Path) -> None:
    """The rows that later slices look back on are files with checksums, too."""
    log = tl.Log.from_events(
        tmp_path / "log", random_log([Message, Login], seed=3, count=60), [Message, Login]
    )
    killed(Views, log, tmp_path / "run", 6, slices=3, strategy="staged")
    run = replay(Views, log, out=tmp_path / "run", slices=3, strategy="staged", engine="local")
    taken = run.certificate["taken_over"]
    assert taken is not None
    assert taken["slices"] + taken["passes"] > 3
    assert (run.digest, run.state_digest) == digests(Views, log)


def test_as_one_pass_they_begin_again_and_say_so(tmp_path: Path) -> None:
    log = tl.Log.from_events(
        tmp_path / "log", random_log([Message, Login], seed=3, count=60), [Message, Login]
    )
    with pytest.MonkeyPatch.context() as patch:

        def dying(*_: Any, **__: Any) -> None:
            raise Killed

        patch.setattr("timelapse.run.start.write_manifest", dying)
        patch.setattr(PartialRun, "discard", lambda self: self._folder.close())
        with pytest.raises(Killed):
            replay(Views, log, out=tmp_path / "run", slices=3, strategy="chain", engine="local")
    _died(tmp_path / "run")
    heard = Heard()
    with pytest.raises(UsageError, match="looks back") as caught:
        replay(
            Views,
            log,
            out=tmp_path / "run",
            slices=3,
            strategy="chain",
            engine="local",
            resume=True,
            progress=heard,
        )
    assert caught.value.code == "TL822"
    run = replay(Views, log, out=tmp_path / "run", slices=3, strategy="chain", engine="local", progress=heard)
    assert any("begins again" in note for note in heard.notes)
    assert run.certificate["taken_over"] is None
    assert (run.digest, run.state_digest) == digests(Views, log)


def test_only_the_same_replay_goes_on(tmp_path: Path, log: tl.Log) -> None:
    """Another parameter begins again, and says why; `resume=True` fails; `resume=False` begins again."""
    killed(Chained, log, tmp_path / "run", 9, slices=4, strategy="staged")
    with pytest.raises(UsageError, match="other parameters") as caught:
        replay(Chained(ratio=3.0), log, out=tmp_path / "run", slices=4, strategy="staged", resume=True)
    assert caught.value.code == "TL822"
    run = replay(
        Chained, log, out=tmp_path / "run", slices=4, strategy="staged", resume=False, engine="local"
    )
    assert run.certificate["taken_over"] is None
    with pytest.raises(UsageError, match="nothing to go on with"):
        replay(Chained, log, out=tmp_path / "other", resume=True)


@pytest.mark.spark
def test_on_spark_goes_on_what_began_in_one_process(spark: SparkSession, tmp_path: Path, log: tl.Log) -> None:
    killed(Chained, log, tmp_path / "run", 9, slices=4, strategy="staged")
    run = replay(Chained, log, out=tmp_path / "run", slices=4, strategy="staged", engine="spark", spark=spark)
    taken = run.certificate["taken_over"]
    assert taken["slices"] + taken["passes"] == 9
    assert run.certificate["engine"]["tasks"] > 0
    assert (run.digest, run.state_digest) == digests(Chained, log)
    assert Run.open(tmp_path / "run").digest == run.digest
