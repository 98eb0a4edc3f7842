"""A replay that went on from another run and was killed goes on like any other: with the slices that it had done, behind those that it took over."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.depth import deep
from tests.engine.programs import A, B, Chained
from tests.engine.test_resume import Heard, killed
from tests.run.test_start_from import Watch, _hits, _same
from tests.run.test_start_from_changed import _append, _split
from tests.tuned import tune_cache
from timelapse.errors import UsageError
from timelapse.log import Log
from timelapse.model.events import Event
from timelapse.run import replay, run_serial
from timelapse.run.files import check_files
from timelapse.testing import random_log


@pytest.fixture(autouse=True)
def _cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_STATES", str(tmp_path / "cache"))
    tune_cache(tmp_path / "cache")


def _grown(tmp_path: Path, rng: random.Random, **options: Any) -> tuple[Log, Any]:
    """A log of which a run is made, and that has late events since."""
    events = list(random_log([A, B], seed=rng.randrange(99), count=160))
    late = set(rng.sample(range(80, 160), 9))
    first, rest = _split(events, late)
    log = Log.from_events(tmp_path / "log", first, [A, B])
    before = replay(Chained, log, tmp_path / "before", 6, engine="local", **options)
    return _append(log, rest), before


@pytest.mark.parametrize(
    ("named", "strategy"),
    [(False, None), (True, None), (True, "chain"), (True, "staged")],  # with a strategy no run is looked for
)
@pytest.mark.parametrize("seed", range(deep(2, 1)))
def test_it_goes_on_behind_the_slices_that_it_took_over(
    seed: int, strategy: str | None, named: bool, tmp_path: Path
) -> None:
    rng = random.Random(f"{seed} {strategy} {named}")
    log, before = _grown(tmp_path, rng)
    options: dict[str, Any] = {"slices": 5 if named else 8, "start_from": before if named else None}
    if strategy is not None:
        options["strategy"] = strategy
    killed(Chained, log, tmp_path / "run", rng.randrange(1, 4), **options)
    heard = Heard()
    run = replay(Chained, log, tmp_path / "run", engine="local", resume=True, progress=heard, **options)
    taken, told = run.certificate["taken_over"], run.certificate["start_from"]
    assert taken["slices"] + taken["passes"] > 0, heard.notes
    assert (told["run"], told["reason"]) == (str(before.path), "")
    assert told["slices"] > 0
    assert run.manifest.cuts[: told["slices"] + 1] == before.manifest.cuts[: told["slices"] + 1]
    _same(run_serial(Chained, list(log.events(A, B))), run, "resumed")
    assert check_files(run).ok
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []
    if not named:  # the next version goes on from it
        end = log.manifest.ts_last
        assert end is not None
        log = _append(
            log, [type(e)(*e._values(), ts=end + n) for n, e in enumerate(list(log.events(A))[:5], 1)]
        )
        last = replay(Chained, log, tmp_path / "last", engine="local")
        assert last.certificate["start_from"]["run"] == str(run.path)
        _same(run_serial(Chained, list(log.events(A, B))), last, "the next")


def test_programs_that_look_back_go_on_too(tmp_path: Path) -> None:
    hits: list[Event] = list(_hits(400))
    first, late = _split(hits, {250, 251, 390})
    log = Log.from_events(tmp_path / "log", first)
    before = replay(Watch, log, tmp_path / "before", 4, engine="local", resumable=True)
    log = _append(log, late)
    options: dict[str, Any] = {"slices": 6, "resumable": True}
    killed(Watch, log, tmp_path / "run", 2, **options)
    run = replay(Watch, log, tmp_path / "run", engine="local", resume=True, **options)
    assert run.certificate["taken_over"]["slices"] + run.certificate["taken_over"]["passes"] > 0
    assert run.certificate["start_from"]["run"] == str(before.path)
    _same(run_serial(Watch, list(log.events(type(hits[0])))), run, "looks back")


@pytest.mark.parametrize("how", ["gone", "altered", "replaced"])
def test_where_the_run_is_not_what_it_was_it_begins_again(how: str, tmp_path: Path) -> None:
    log, before = _grown(tmp_path, random.Random(7))
    killed(Chained, log, tmp_path / "run", 2, slices=8)
    assert before.path is not None
    if how == "gone":
        shutil.rmtree(before.path)
    elif how == "altered":
        path = next(iter(sorted((before.path / "state").rglob("*.arrow"))))
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.unlink()
        path.write_bytes(data)
    else:
        replay(
            Chained,
            Log.open(log.path, 1),
            before.path,
            3,
            engine="local",
            overwrite=True,
            cache=False,
            resume=False,
        )
    heard = Heard()
    with pytest.raises(UsageError, match=r"the run that it went on from, .*before") as caught:
        replay(Chained, log, tmp_path / "run", slices=8, engine="local", resume=True)
    assert caught.value.code == "TL822"
    run = replay(Chained, log, tmp_path / "run", slices=8, engine="local", progress=heard)
    assert any("begins again: the run that it went on from" in note for note in heard.notes)
    assert run.certificate["taken_over"] is None
    _same(run_serial(Chained, list(log.events(A, B))), run, how)


def test_a_process_that_is_gone_is_followed_by_another(tmp_path: Path) -> None:
    log, before = _grown(tmp_path, random.Random(9))
    code = (
        "import sys\n"
        "from tests.engine.dying import dying\n"
        "from tests.engine.programs import Chained\n"
        "from timelapse.engine import resume\n"
        "from timelapse.run import replay\n"
        "resume.write_part = dying(resume.write_part, 3)\n"
        "replay(Chained, sys.argv[1], sys.argv[2], slices=8, engine='local')\n"
    )
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", code, str(log.path), str(tmp_path / "run")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 9, done.stderr
    run = replay(Chained, log, tmp_path / "run", slices=8, engine="local")
    taken = run.certificate["taken_over"]
    assert taken["slices"] + taken["passes"] == 2
    assert run.certificate["start_from"]["run"] == str(before.path)
    _same(run_serial(Chained, list(log.events(A, B))), run, "another process")


def test_one_that_starts_from_another_run_begins_again(tmp_path: Path) -> None:
    log, before = _grown(tmp_path, random.Random(8))
    other = replay(Chained, Log.open(log.path, 1), tmp_path / "other", 3, engine="local", cache=False)
    killed(Chained, log, tmp_path / "run", 2, slices=5, start_from=before)
    with pytest.raises(UsageError, match="started from another run"):
        replay(Chained, log, tmp_path / "run", slices=5, engine="local", start_from=other, resume=True)
    run = replay(Chained, log, tmp_path / "run", slices=5, engine="local", start_from=other)
    assert run.certificate["taken_over"] is None
    _same(run_serial(Chained, list(log.events(A, B))), run, "another run")
    assert isinstance(run, tl.Run)
