"""Timelapse: the program as a user writes it, in this process or on a running Spark session."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import timelapse as tl
from benchmarks.pinning import pin_executors
from benchmarks.stream_programs import (
    GrepSum,
    Ledger,
    LibraryLedger,
    Refused,
    Toll,
    TollProcessing,
    Total,
)
from benchmarks.tasks_seen import tasks_seen
from benchmarks.workloads import (
    Deviation,
    Ewma,
    IntAntispam,
    PythonAntispam,
    Scored,
    Spam,
    TextAntispam,
    WindowedSpam,
)
from timelapse.progress.notebook import default_progress
from timelapse.run.request import Settings
from timelapse.run.start import replay_as
from timelapse.store.scratch import temporary_folder

_FLAGS: dict[Any, tuple[type[tl.Record], str]] = {
    IntAntispam: (Spam, "message"), PythonAntispam: (Spam, "message"), TextAntispam: (Spam, "message"), Ewma: (Deviation, "reading"),
    WindowedSpam: (Scored, "score"), Ledger: (Refused, "move"), LibraryLedger: (Refused, "move"), GrepSum: (Total, "value"),
    TollProcessing: (Toll, "toll"),
}  # fmt: skip
"""For each program the records that are compared, and the field that is."""
_MOST_TASKS = 100
"""Tasks whose times are kept with a run."""
_IDLE = 30
"""Seconds after which workers may be gone at the next round: half of what Spark gives them."""
_COMPILED: set[tuple[str, int, str]] = set()


class Replay:
    """Replays, and gives the ids of what was flagged. `details` has the last run's plan and seconds by stage.

    The first call is as it comes: nothing compiled. The second is a warm-up, before which everything is compiled to
    disk, whatever the log's size: small logs do not wait for the compiler by themselves.
    """

    last = 0.0
    """When any of this process has used its session last."""

    def __init__(
        self,
        log: Path,
        program: type[tl.Program],
        spark: Any,
        options: dict[str, Any],
        settings: int = 1,
        report: bool = False,
        params: dict[str, Any] | None = None,
    ) -> None:
        self._log, self._program, self._spark, self._options = log, program, spark, options
        self._params = params
        self._settings = settings
        self._report = report
        self._run: tl.Run | None = None
        self.details: dict[str, Any] = {}
        self._calls = 0
        self._pauses: list[float] = []

    def ready(self, ratio: float) -> None:
        """Spark ends workers that had nothing to do for a minute, as other candidates' rounds take: replay once, not measured, and keep the seconds."""
        if self._spark is False or self._calls < 2 or time.monotonic() - Replay.last < _IDLE:
            return
        started = time.perf_counter()
        self(ratio)
        self._pauses.append(time.perf_counter() - started)

    def __call__(self, ratio: float = 2.0) -> Any:
        try:
            return self._answer(ratio)
        finally:
            if self._spark is not False:
                Replay.last = time.monotonic()
            self.details["seconds after a pause"] = self._pauses

    def _answer(self, ratio: float) -> Any:
        self._calls += 1
        if self._calls == 2 and os.environ["TIMELAPSE_KERNEL"] == "auto":
            self._compile()
        if self._settings > 1:
            return self._several(ratio)
        if self._report:
            return self._reported(ratio)
        flags = _FLAGS.get(self._program)
        with tasks_seen() as tasks:
            run = replay_as(self._made(ratio), tl.Log.open(self._log), None, self._spark, self._settings_of())
        self.details = {
            "tasks": tasks[:_MOST_TASKS],
            "cuts": list(run.manifest.cuts),
            "lead": run.manifest.certificate["leading_slices"],
            "engine": run.manifest.certificate["engine"],
            "mode": run.manifest.certificate["mode"],
            "slices": run.manifest.certificate["slices"],
            "by key": run.manifest.certificate["by_key"],
            "timings": run.manifest.timings,
            "repairs": run.manifest.certificate["repairs"],
            "passes": run.manifest.certificate["passes"],
            "seconds": run.manifest.seconds,
            "digest": run.digest,
        }
        return run.table(flags[0])[flags[1]].to_numpy() if flags else []

    def _settings_of(self) -> Settings:
        return Settings(progress=default_progress(), **self._options)

    def _made(self, ratio: float) -> tl.Program:
        if self._params is not None:
            return self._program(**self._params)
        return self._program(ratio=ratio) if self._program in _FLAGS else self._program()

    def _reported(self, ratio: float) -> Any:
        """The report of a run that is made once, at the first call."""
        if self._run is None:
            self._run = tl.replay(
                self._program(ratio=ratio), tl.Log.open(self._log), spark=self._spark, **self._options
            )
        made = tl.report(self._run)
        self.details = {"bytes": len(made.html.encode())}
        return self._run.table(Spam)["message"].to_numpy()

    def _several(self, ratio: float) -> Any:
        """Two versions and their differences, or many settings of the last rule; nothing is kept from before."""
        before = os.environ.get("TIMELAPSE_STATES")
        with temporary_folder("bench-states", large=True) as folder:
            os.environ["TIMELAPSE_STATES"] = str(folder)
            try:
                ratios = [ratio + n / 10 for n in range(self._settings)]
                found = tl.sweep(self._program, tl.Log.open(self._log), {"ratio": ratios}, spark=self._spark)
                first, second = (p.run for p in found.points[:2])
                if self._settings == 2:
                    tl.diff(first, second)
                self.details = {"needed": [p.source for p in found.points]}
                return first.table(Spam)["message"].to_numpy()
            finally:
                if before is None:
                    del os.environ["TIMELAPSE_STATES"]
                else:
                    os.environ["TIMELAPSE_STATES"] = before

    def _compile(self) -> None:
        forced: list[dict[str, Any]] = [{}, {"slices": 2, "strategy": "staged"}]
        key = (self._program.__name__, self._settings, repr(self._options))
        if key in _COMPILED:
            return
        _COMPILED.add(key)
        os.environ["TIMELAPSE_KERNEL"] = "native"
        if self._settings > 1:
            self._several(2.0)
            forced = []
        own = {name: value for name, value in self._options.items() if name != "lead"}
        for options in forced:
            tl.replay(
                self._made(2.0),
                tl.Log.open(self._log),
                spark=False,
                **{**own, **options, "cache": False, "engine": "auto"},
            )
        os.environ["TIMELAPSE_KERNEL"] = "auto"


def candidate(
    place: Path,
    *,
    text: bool,
    cores: int,
    spark: bool = True,
    slices: int | None = None,
    kernel: str = "auto",
    cache: bool = False,
    strategy: str | None = None,
    program: str | None = None,
    settings: int = 1,
    report: bool = False,
    params: dict[str, Any] | None = None,
    master: str | None = None,
    engine: str = "auto",
    executors: int = 0,
    lead: int | None = None,
    **_: Any,
) -> Callable[[float], Any]:
    """What replays the log at `place` and returns the flagged messages' ids. The session is started here.

    `executors`: how many a local cluster has; each is pinned to a core. `lead`: how many slices lead, where it is not to be chosen.
    """
    os.environ["TIMELAPSE_KERNEL"] = kernel
    session: Any = False
    if spark:
        from timelapse.env.spark_session import session as start

        conf = {"spark.driver.memory": "3g"}
        if master is not None:  # local-cluster: its workers are started by scripts below SPARK_HOME
            import pyspark

            os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
            conf["spark.executor.memory"] = "1g"
        session = start(master=master or f"local[{cores}]", conf=conf)
        session.range(1).count()
        if executors:
            pin_executors(executors)
    chosen: type[tl.Program] = TextAntispam if text else IntAntispam
    own = {one.__name__: one for one in _FLAGS}
    if program in own:
        chosen = own[program]
    elif program is not None:
        from timelapse.program.load import load_program

        chosen = load_program(program)
    options: dict[str, Any] = {
        "slices": slices,
        "strategy": strategy,
        "cache": cache,
        "engine": engine,
        **({} if lead is None else {"lead": lead}),
    }
    return Replay(place / "log", chosen, session, options, settings, report, params)
