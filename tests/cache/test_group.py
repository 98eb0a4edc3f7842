"""Programs that find the same states: their output parts run beside the first one's replay, and give what their own give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.cache.programs import events, written
from tests.cache.test_reads import NATIVE
from tests.cache.test_states import same
from tests.tuned import tune_cache, tuned
from timelapse.cache.reads import OutputDriver
from timelapse.compare.sweeps import sweep_as
from timelapse.errors import HandlerError
from timelapse.kernels.tuning import KernelTuning, NativeTuning
from timelapse.run.tuning import USUAL, Tuning

LIMITS = [-4000, 1, 2, 10]


@pytest.fixture(autouse=True)
def _compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_STATES", str(tmp_path / "cache"))
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    tune_cache(tmp_path / "cache")
    monkeypatch.setattr("timelapse.run.planning.usable_cores", lambda: 3)


class Taken:
    """Which slices of how many programs were known before their own replay."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slices: list[int] = []
        known = OutputDriver.known

        def taken(own: OutputDriver, reports: Any, *rest: Any) -> Any:
            self.slices.append(len(reports))
            return known(own, reports, *rest)

        monkeypatch.setattr(OutputDriver, "known", taken)
        monkeypatch.setattr(OutputDriver, "outputs", None)  # nobody runs an output part by itself


def _compare(
    module: Any, log: tl.Log, limits: list[int], cls: str = "Talk", tuning: Tuning = USUAL
) -> tl.Sweep:
    program = getattr(module, cls)
    found = sweep_as(program, log, {"limit": limits}, None, None, False, "auto", None, {}, tuning)
    for point in found.points:
        same(point.run, tuned(tuning)(program(**point.values), log, spark=False, cache=False))
        assert point.run.verify().ok
    return found


@pytest.mark.parametrize(("slices", "piece"), [(1, 32_768), (3, 32_768), (2, 7)])
def test_points_beside_the_first(
    slices: int, piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where what was read for a chunk comes in many parts."""
    taken = Taken(monkeypatch)
    with written(tmp_path / "p", program=NATIVE) as module:
        log = tl.Log.from_events(tmp_path / "log", events(module), [module.Join, module.Say], block=64)
        kernels = KernelTuning(native=NativeTuning(piece_events=piece))
        tuning = Tuning(kernels, interpreted_events=10, compiled_events=-(-log.count // slices))
        found = _compare(module, log, LIMITS, tuning=tuning)
        assert taken.slices == [slices] * 3
        assert [p.source for p in found.points] == ["replay", *["last rules"] * 3]


def test_points_beside_the_first_on_spark(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same task: the others start none of their own."""
    monkeypatch.setitem(spark.sparkContext.environment, "TIMELAPSE_KERNEL", "native")
    taken = Taken(monkeypatch)
    with written(tmp_path / "p", program=NATIVE) as module:
        log = tl.Log.from_events(tmp_path / "log", events(module), [module.Join, module.Say], block=64)
        found = tl.sweep(module.Talk, log, {"limit": LIMITS}, spark=spark)
        assert taken.slices == [1] * 3
        assert [p.run.manifest.certificate["engine"]["tasks"] for p in found.points[:1]] == [1]
        for point in found.points:
            same(point.run, tl.replay(module.Talk(**point.values), log, spark=False, cache=False))


def test_no_more_than_so_many_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one goes through the log again, and takes others along."""
    taken = Taken(monkeypatch)
    tune_cache(tmp_path / "cache", most_beside=1)
    with written(tmp_path / "p", program=NATIVE) as module:
        log = tl.Log.from_events(tmp_path / "log", events(module), [module.Join, module.Say], block=64)
        found = _compare(module, log, LIMITS)
        assert [p.source for p in found.points] == ["replay", "last rules", "replay", "last rules"]
        assert taken.slices == [1, 1]


def test_one_that_fails_is_replayed_by_itself(tmp_path: Path) -> None:
    """And says what it says alone; those before it are done."""
    program = (
        NATIVE.replace("limit: int = 3\n", "limit: int = 3\n    divisor: int = 1\n")
        + """
    @tl.on(Say)
    def divided(self, e):
        self.emit(Loud(id=e.id // self.divisor, score=self.n[e.who]))
"""
    )
    with written(tmp_path / "p", program=program) as module:
        log = tl.Log.from_events(tmp_path / "log", events(module), [module.Join, module.Say], block=64)
        with pytest.raises(HandlerError) as alone:
            tl.replay(module.Talk(divisor=0), log, spark=False, cache=False)
        out = tmp_path / "sweep"
        with pytest.raises(HandlerError) as several:
            tl.sweep(module.Talk, log, {"divisor": [1, 2, 0, 3]}, out, spark=False)
        assert str(several.value) == str(alone.value)
        assert len([p for p in out.iterdir() if p.name[0] != "."]) == 2
        again = tl.sweep(module.Talk, log, {"divisor": [1, 2, 3]}, out, spark=False)
        assert [p.resumed for p in again.points] == [True, True, False]
        for point in again.points:
            same(point.run, tl.replay(module.Talk(**point.values), log, spark=False, cache=False))


def test_a_pass_that_ends_as_python_takes_nobody_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had recorded until then is not taken for the whole, now or by a later run."""
    tuning = Tuning(KernelTuning(native=NativeTuning(burst=20)))
    step = "        self.n[e.who] += e.id - 100\n"
    more = "        self.n[e.to] += 1 if e.id < 60 else e.id * 4611686018427387904 % 5\n"
    with written(tmp_path / "p", program=NATIVE.replace(step, step + more)) as module:
        log = tl.Log.from_events(tmp_path / "log", events(module), [module.Join, module.Say], block=64)
        first = _compare(module, log, LIMITS, tuning=tuning)
        assert next(p.source for p in first.points) == "replay"
        for limit in (3, 4):
            kept = tuned(tuning)(module.Talk(limit=limit), log, spark=False)
            same(kept, tuned(tuning)(module.Talk(limit=limit), log, spark=False, cache=False))


def test_results_that_are_not_written_fail_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is no reason to go on without: nothing is left behind."""

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with written(tmp_path / "p", program=NATIVE) as module:
        log = tl.Log.from_events(tmp_path / "log", events(module), [module.Join, module.Say], block=64)
        with monkeypatch.context() as patch:
            patch.setattr("timelapse.engine.tasks.keep_beside", full)
            with pytest.raises(OSError, match=r"TL932 .*no space"):
                tl.sweep(module.Talk, log, {"limit": LIMITS}, tmp_path / "sweep", spark=False)
        assert not list((tmp_path / "sweep").rglob("run.json"))
        assert not [p for p in (tmp_path / "sweep").iterdir() if "decoded" in p.name]


def test_states_that_cannot_be_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then each is replayed by itself."""

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("timelapse.cache.group.hold", full)
    with written(tmp_path / "p", program=NATIVE) as module:
        log = tl.Log.from_events(tmp_path / "log", events(module), [module.Join, module.Say], block=64)
        assert [p.source for p in _compare(module, log, LIMITS).points][:2] == ["replay", "replay"]
