"""Failures, really made: drivers, executors and Python workers are killed at random moments, disks fill up, files are torn and swapped.

    python -m benchmarks.kills --runs 100 --seed 7
    python -m benchmarks.kills --runs 20 --seed 7 --engine cluster

Each run ends with a whole run whose digests are the serial loop's; until then every attempt ends with a kill, or with an error that has a
code and says what to do. With `--engine local` drivers replay and ingest in this machine's processes; with `cluster` on a session with
`local-cluster[2,1,1024]` (benchmarks/kills_cluster.py). One line of JSON for each run, and one with the sums.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import timelapse as tl

# Forked drivers find everything imported: what they are killed in is their work.
import timelapse.engine.thread_executor
import timelapse.ingest.making
import timelapse.ingest.write
import timelapse.kernels.choose
import timelapse.run.start
from benchmarks.kills_program import Lately, Tally, Trade
from timelapse.errors import TimelapseError
from timelapse.run.files import check_files
from timelapse.store.scratch import temporary_folder

PROGRAMS: tuple[type[tl.Program], ...] = (Tally, Lately)
MOST = 6
"""So many attempts meet with failures; the next one does not."""


class Wrong(AssertionError):
    """A wrong result, a folder that looks whole and is not, or an error that is not clean."""


# --- in processes of this machine -----------------------------------------------------------------------------


def files_in(place: Path) -> int:
    """How many files and folders there are: how far a process is that works there, whatever else the machine does."""
    return sum(len(folders) + len(files) for _, folders, files in os.walk(place))


def forked(
    work: Callable[[], object], say: Path, place: Path | None = None, kill_at: float | None = None
) -> tuple[str, int]:
    """Do something in a process of its own, which is killed when there are so many files in a place. Returns "done", "killed", or an
    error's code, and the largest number of files that was seen."""
    say.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, 2)
            work()
            code = 0
        except TimelapseError as error:
            say.write_text(error.code if error.hint else f"{error.code} without a hint")
        except BaseException:
            say.write_text(traceback.format_exc())
        finally:
            os._exit(code)
    most = 0
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        most = max(most, 0 if place is None else files_in(place))
        if kill_at is not None and most >= kill_at:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "killed", most
        time.sleep(0.001)
    if status == 0:
        return "done", most
    told = say.read_text() if say.is_file() else f"status {status}"
    if len(told) > 8:
        raise Wrong(f"an error that is not clean: {told}")
    return told, most


def _replay(
    program: type[tl.Program], log: Path, out: Path, how: dict[str, Any], most: int | None = None
) -> None:
    if most is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    tl.replay(program, str(log), out=out, engine="local", cache=False, **how)


def _ingest(files: list[Path], log: Path) -> None:
    tl.Log.write(log, {Trade: [str(f) for f in files]}, ts="ts", unit="us", spark=None)


def damage(folder: Path, rng: random.Random) -> str:
    """Cut, alter or remove a file of what a killed process left in a folder, or have two change places; "" where there is none."""
    left = [p for p in folder.iterdir() if ".partial-" in p.name and p.is_dir()]
    there = sorted(p for one in left for p in one.rglob("*") if p.is_file() and p.stat().st_size)
    if not there:
        return ""
    path, kind = rng.choice(there), rng.choice(["cut", "altered", "removed", "swapped"])
    data = bytearray(path.read_bytes())
    if kind == "swapped":
        other = rng.choice(there)
        path.write_bytes(other.read_bytes())
        other.write_bytes(data)
    elif kind == "removed":
        path.unlink()
    elif kind == "cut":
        path.write_bytes(data[: rng.randrange(len(data))])
    else:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
    return kind


class Local:
    """Kills drivers that replay and ingest on this machine."""

    def __init__(self, folder: Path, events: int) -> None:
        self.folder, self.say = folder, folder / "said"
        self.log = folder / "log"
        self.files = [folder / f"trades-{n}.parquet" for n in range(3)]
        known = folder / "known.json"
        self.must(forked(lambda: self._prepare(events, known), self.say)[0])
        self.digests: dict[str, list[str]] = json.loads(known.read_text())
        self.most = {"ingest": self._watched(lambda: _ingest(self.files, self.folder / "watched" / "log"))}
        """By what is done, and for replays by their slices, the number of files that there are before it ends."""

    def _watched(self, work: Callable[[], object]) -> int:
        place = self.folder / "watched"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        what, most = forked(work, self.say, place)
        self.must(what)
        return most

    def _prepare(self, events: int, known: Path) -> None:
        rng = random.Random(1)
        per = -(-events // len(self.files))
        for n, file in enumerate(self.files):
            pq.write_table(
                pa.table(
                    {
                        "ts": [(n * per + i) * 2_000_000 // 7 for i in range(per)],
                        "buyer": [rng.randrange(300) for _ in range(per)],
                        "seller": [rng.randrange(300) for _ in range(per)],
                        "amount": [rng.randrange(20) for _ in range(per)],
                    }
                ),
                file,
            )
        _ingest(self.files, self.log)
        log = tl.Log.open(self.log)
        digests = {}
        for program in PROGRAMS:
            serial = tl.run_serial(program, log)
            digests[program.__name__] = [serial.digest, serial.state_digest]
        known.write_text(json.dumps(digests))

    def must(self, what: str) -> None:
        if what != "done":
            raise Wrong(what)

    def run(self, rng: random.Random) -> dict[str, Any]:
        """One run: attempts that fail, then one that does not, and what it left is compared."""
        return self._ingested(rng) if rng.random() < 0.2 else self._replayed(rng)

    def _replayed(self, rng: random.Random) -> dict[str, Any]:
        program = rng.choice(PROGRAMS)
        how = {"slices": rng.choice([1, 3, 4, 6, 12]), "strategy": rng.choice(["staged", "staged", "chain"])}
        place = self.folder / "place"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        key = f"{program.__name__} {how}"
        if key not in self.most:
            self.most[key] = self._watched(
                lambda: _replay(program, self.log, self.folder / "watched" / "run", how)
            )
        out, said, torn = place / "run", Counter[str](), Counter[str]()
        for attempt in range(MOST + 1):
            if attempt == MOST:
                what, _ = forked(lambda: _replay(program, self.log, out, how), self.say)
            elif rng.random() < 0.2:
                most = int(10 ** rng.uniform(2.5, 5.5))
                what, _ = forked(lambda m=most: _replay(program, self.log, out, how, m), self.say)  # type: ignore[misc]
            else:
                at = rng.uniform(0, 1.1) * self.most[key]
                what, _ = forked(lambda: _replay(program, self.log, out, how), self.say, place, at)
            said[what] += 1
            if out.exists():
                break
            if what == "done":
                raise Wrong("a replay says that it is done, and there is nothing")
            if what == "killed" and rng.random() < 0.4:
                torn[damage(place, rng)] += 1
        taken = self.check(out, program)
        left = [p.name for p in place.iterdir() if p.name != "run"]
        return {
            "what": "replay",
            "program": program.__name__,
            **how,
            **said,
            **taken,
            "damage": dict(torn),
            "left": left,
        }

    def check(self, out: Path, program: type[tl.Program]) -> dict[str, int]:
        known = self.folder / "found.json"

        def look() -> None:
            run = tl.Run.open(out)
            found = check_files(run)
            taken = run.certificate["taken_over"] or {"slices": 0, "passes": 0, "torn": 0}
            same = [run.digest, run.state_digest] == self.digests[program.__name__]
            known.write_text(
                json.dumps(
                    {"ok": found.ok and not found.others and same, "why": f"{found} {same}", "taken": taken}
                )
            )

        self.must(forked(look, self.say)[0])
        found = json.loads(known.read_text())
        if not found["ok"]:
            raise Wrong(f"{out}: {found['why']}")
        return {f"taken over: {name}": count for name, count in found["taken"].items()}

    def check_log(self, log: Path, out: Path) -> dict[str, int]:
        """A log that was ingested has the events of the first one: a replay of it is the serial loop's."""

        def look() -> None:
            _replay(Tally, log, out, {"slices": 2})
            if tl.Log.open(log).count != tl.Log.open(self.log).count:
                raise Wrong("the log has another number of events")

        self.must(forked(look, self.say)[0])
        return self.check(out, Tally)

    def _ingested(self, rng: random.Random) -> dict[str, Any]:
        place = self.folder / "place"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        log, said = place / "log", Counter[str]()
        for attempt in range(MOST + 1):
            at = None if attempt == MOST else rng.uniform(0, 1.1) * self.most["ingest"]
            said[forked(lambda: _ingest(self.files, log), self.say, place, at)[0]] += 1
            if log.exists():
                break
        return {"what": "ingest", **said, **self.check_log(log, place / "run")}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--events", type=int, default=30_000)
    parser.add_argument("--engine", choices=["local", "cluster"], default="local")
    given = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    totals, bad = Counter[str](), 0
    with temporary_folder("kills", large=True) as folder:
        local = Local(folder, given.events)
        cluster = None
        if given.engine == "cluster":
            from benchmarks.kills_cluster import Cluster

            cluster = Cluster(local)
        try:
            for number in range(given.runs):
                rng = random.Random(given.seed * 1_000_003 + number)
                try:
                    found = (local if cluster is None else cluster).run(rng)
                except Wrong as wrong:
                    bad += 1
                    found = {"wrong": str(wrong)}
                print(json.dumps({"run": number, **found}), flush=True)
                totals.update(
                    {name: n for name, n in found.items() if isinstance(n, int) and name != "slices"}
                )
                totals.update({f"damage: {name}": n for name, n in found.get("damage", {}).items() if name})
        finally:
            if cluster is not None:
                cluster.close()
    print(
        json.dumps({"runs": given.runs, "seed": given.seed, "engine": given.engine, "wrong": bad, **totals})
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
