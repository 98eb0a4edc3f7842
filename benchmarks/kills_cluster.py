"""Kills on a cluster of processes (`python -m benchmarks.kills --engine cluster`): `local-cluster[2,1,1024]` replays, ingests, and works in an object store.

At a random moment of an attempt an executor, a Python worker or the driver is killed, no file of executors or of the driver may grow beyond
a random size, or the way to the object store is shut for a while. What a killed driver left is cut, altered, removed or swapped.
"""

from __future__ import annotations

import json
import os
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import timelapse as tl
from benchmarks.kills import MOST, PROGRAMS, Local, Wrong, damage, forked
from tests.s3_server import Gate, S3Server

SPARK = "local-cluster[2,1,1024]"
LONG = 600
"""Seconds within which whatever is asked of a session ends."""

DRIVER = """
import json, sys
import timelapse as tl
from benchmarks.kills_program import Tally, Lately, Trade
from timelapse.env.spark_session import session
from timelapse.errors import TimelapseError
from timelapse.run.files import check_files
spark = session(master=sys.argv[1], conf={"spark.ui.enabled": "false", "spark.executor.memory": "1g", "spark.speculation": "true"})
print("session", flush=True)
for line in sys.stdin:
    program, source, out, how = json.loads(line)
    try:
        if program is None:
            tl.Log.write(out, {Trade: source}, spark=spark, ts="ts", unit="us")
            said = ["done"]
        else:
            run = tl.replay({"Tally": Tally, "Lately": Lately}[program], source, out=out, engine="spark", spark=spark, cache=False, **how)
            found = check_files(run)
            taken = run.certificate["taken_over"] or {"slices": 0, "passes": 0}
            said = [
                "done", run.digest, run.state_digest, found.ok and (not found.others or "://" in out),
                taken["slices"] + taken["passes"], run.certificate["again"],
            ]
    except TimelapseError as error:
        said = ["error", error.code, bool(error.hint)]
    print(json.dumps(said), flush=True)
"""


class Session:
    """A driver with a session of Spark, which does what it is told."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, SPARK], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, env={**os.environ, **environment},
        )  # fmt: skip
        if self.said(LONG) != "session":
            raise Wrong("no session of Spark")

    def said(self, seconds: float) -> str | None:
        """The next line; "" where the process is gone; None where there is none in time."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        return self.process.stdout.readline().strip() if ready else None

    def tell(self, what: list[Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def victims(self, kind: str) -> list[int]:
        """Executors or Python workers: processes below the driver's."""
        below: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    status = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                below.setdefault(int(status[1]), []).append(int(entry.name))
        found, waiting = [], [self.process.pid]
        while waiting:
            pid = waiting.pop()
            for child in below.get(pid, ()):
                waiting.append(child)
                try:
                    line = Path(f"/proc/{child}/cmdline").read_bytes().decode(errors="replace")
                except OSError:
                    continue
                wanted = "CoarseGrainedExecutorBackend" if kind == "executor" else "pyspark.daemon"
                if wanted in line:
                    found.append(child)
        return found

    def limit(self, where: str, most: int | None) -> None:
        """Let no file of the driver, or of executors and their workers, grow beyond so many bytes; None: any."""
        pids = [self.process.pid]
        if where != "driver":
            pids = [*self.victims("executor"), *self.victims("worker")]
        for pid in pids:
            with suppress(ProcessLookupError):
                hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard if most is None else most, hard))

    def kill(self) -> None:
        """Kill the driver and what it started."""
        pids = [*self.victims("executor"), *self.victims("worker")]
        self.process.kill()
        self.process.wait()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Cluster:
    """Has things go wrong while a cluster replays and ingests."""

    def __init__(self, local: Local) -> None:
        self._local = local
        self._session: Session | None = None
        self._takes: dict[str, float] = {}
        self._server = S3Server()
        self._server.start()
        self._gate = Gate(self._server.port)
        os.environ.update(self._server.environment())
        self._log = f"s3://{self._server.bucket()}/log"
        local.must(forked(self._put_log, local.say)[0])

    def _put_log(self) -> None:
        from benchmarks.kills_program import Trade

        tl.Log.write(self._log, {Trade: [str(f) for f in self._local.files]}, ts="ts", unit="us", spark=False)

    def run(self, rng: random.Random) -> dict[str, Any]:
        """One run: a replay between local folders or in an object store, or an ingest."""
        local, program = self._local, rng.choice(PROGRAMS)
        what = rng.choice(["replay", "replay", "replay", "objects", "ingest"])
        how = {"slices": rng.choice([3, 4, 6]), "strategy": "staged"}
        place = local.folder / "place"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        bucket = self._server.bucket() if what == "objects" else ""
        tasks: dict[str, list[Any]] = {
            "replay": [program.__name__, str(local.log), str(place / "run"), how],
            "objects": [program.__name__, self._log, f"s3://{bucket}/run", how],
            "ingest": [None, [str(f) for f in local.files], str(place / "log"), {}],
        }
        asked = tasks[what]
        said = Counter[str]()
        for attempt in range(MOST + 1):
            line = self._attempt(what, asked, rng, said, place, last=attempt == MOST)
            if line:
                found = json.loads(line)
                said[found[0] if found[0] == "done" else found[1]] += 1
                if found[0] == "done" and len(found) > 1:
                    said["taken over"] += found[4]
                    said["begun again"] += found[5]
                    if found[1:4] != [*local.digests[program.__name__], True]:
                        raise Wrong(f"not the serial loop's: {found}")
                elif found[0] != "done" and not found[2]:
                    raise Wrong(f"an error without a hint: {found}")
            if self._is_there(what, asked[2]):
                break
        if what == "ingest":
            local.check_log(Path(asked[2]), place / "run")
        elif what == "replay":
            local.check(Path(asked[2]), program)
        else:
            self._check_object(asked[2], program)
        return {"what": what, "program": program.__name__, **how, **said}

    def _is_there(self, what: str, out: str) -> bool:
        if what != "objects":
            return Path(out).exists()
        return forked(lambda: tl.Run.open(out), self._local.say)[0] == "done"

    def _check_object(self, out: str, program: type[tl.Program]) -> None:
        """A process that has not seen the run yet finds it whole."""

        def look() -> None:
            run = tl.Run.open(out)
            if [run.digest, run.state_digest] != self._local.digests[program.__name__]:
                raise Wrong("another digest")
            if not run.verify().ok:
                raise Wrong("not the serial meaning")

        self._local.must(forked(look, self._local.say)[0])

    def _attempt(
        self, what: str, asked: list[Any], rng: random.Random, said: Counter[str], place: Path, *, last: bool
    ) -> str | None:
        """Ask, and have something go wrong meanwhile. What the session said at the end; "" and None where it did not."""
        if self._session is None:
            self._session = Session(
                {"AWS_ENDPOINT_URL": self._gate.url, "TIMELAPSE_OBJECTS": str(self._local.folder / "copies")}
            )
        session = self._session
        kinds = ["executor", "executor", "worker", "worker", "driver", "full", ""]
        kind = "" if last else rng.choice([*kinds, "away", "away"] if what == "objects" else kinds)
        where = rng.choice(["driver", "executors"])
        if kind == "full":
            session.limit(where, int(10 ** rng.uniform(2.5, 5.5)))
            said[f"full: {where}"] += 1
        began = time.monotonic()
        session.tell(asked)
        line = session.said(rng.uniform(0, self._takes.get(what, 5.0)) if kind not in {"", "full"} else LONG)
        if line is None and kind == "driver":
            session.kill()
            said["driver killed"] += 1
            if what == "replay" and rng.random() < 0.4:
                said[f"damage: {damage(place, rng)}"] += 1
        elif line is None and kind == "away":
            self._gate.shut()
            threading.Timer(rng.uniform(0.2, 4), self._gate.open).start()
            said["store away"] += 1
            line = session.said(LONG)
        elif line is None and kind in {"executor", "worker"}:
            for pid in rng.sample(found := session.victims(kind), min(1, len(found))):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                said[f"{kind} killed"] += 1
            line = session.said(LONG)
        if kind == "full":
            session.limit(where, None)
        if line and json.loads(line)[0] == "done" and kind == "":
            self._takes[what] = max(1.0, time.monotonic() - began)
        if not line:
            if kind != "driver":
                said["driver died" if line == "" else "no answer"] += 1
                if line is None:
                    raise Wrong(f"no answer in {LONG} s")
            session.kill()
            self._session = None
        return line

    def close(self) -> None:
        if self._session is not None:
            self._session.kill()
        self._gate.shut()
        self._server.stop()
