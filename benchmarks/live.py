"""Latency and throughput of a live run, from durable in the source to the epoch's commit, at a rate and a trigger.

    python -m benchmarks.live --rate 200000 --trigger 500ms --seconds 20
    python -m benchmarks.live --rate 20000 --trigger 10ms --program WindowedSpam
    python -m benchmarks.live --backlog 10000000
    python -m benchmarks.live --backlog 3000000 --program Scored --ways kernel,slices,auto --spark 'local[2]'

The generator is a thread that sends ready-made tables (`tl.Push`), from when the run takes rows on; its share of the processor is told, and how many rows a second it has sent, each time
once those before were durable. Rows of the last time sent wait for the next ones, so latency includes the pause between two sends (`--pause`).

`--reads`: so many keys a second are read beside it, by `Live.get` and over HTTP; a read's time counts from when it was due, and in `begun_p99_ms` from when its reader had a core and began it. `floor`: what the same client
gets from a server in another process that does nothing else. `--apart`: also over HTTP from `timelapse serve` in a process of its own, and how old its answers are.

The generator and whoever reads have the usual priority. The threads that process epochs give way to others that wake up, as in any live run (env/scheduler.py).

`--ways`: a backlog is caught up with several times, in the open kernel, as time slices, or as is chosen; clock and processor time of this process
and those below it (workers, the JVM) are told for each. `--ways` and `--backlog` tell medians of `--rounds`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shutil
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import timelapse as tl
from benchmarks.live_programs import Letter, Scored
from benchmarks.live_reads import Readers
from tests.programs.catalogue import CATALOGUE
from tests.programs.data import Columns, Mix, make, skewed, some
from timelapse.segments.types import event_types
from timelapse.store.scratch import process_folder


def tables_of(columns: Columns, classes: dict[str, type[tl.Event]]) -> dict[str, pa.Table]:
    """Each type's rows, with `ts`."""
    found = {}
    for place, (name, fields) in enumerate(columns.tables.items()):
        (kind,) = event_types([classes[name]])
        arrays = [pa.array(c, f.type.arrow) for c, f in zip(fields.values(), kind.fields, strict=True)]
        ts = pa.array(columns.ts[columns.kinds == place])
        found[name] = pa.table([ts, *arrays], ["ts", *(f.name for f in kind.fields)])
    return found


def cut(table: pa.Table, lo: int, hi: int) -> pa.Table:
    """The rows with lo <= ts < hi."""
    a, b = np.searchsorted(table.column("ts").to_numpy(), [lo, hi]).tolist()
    return table.slice(a, b - a)


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    count = args.backlog or int(args.rate * args.seconds)
    if args.program == "Scored":
        program: tl.Program = Scored()
        classes: dict[str, type[tl.Event]] = {"Letter": Letter}
        user = skewed(args.keys)
        fields = {"sender": user, "recipient": user, "length": some(0, 100)}
        columns = make(Mix({"Letter": (1.0, fields)}, 10_000), count)
    else:
        entry = next(e for e in CATALOGUE if e.name == args.program)
        classes, program = entry.classes(), entry.program()
        columns = make(entry.mix(args.keys), count)
    tables = tables_of(columns, classes)
    pushes = {name: tl.Push() for name in tables}
    streams = {classes[name]: push for name, push in pushes.items()}
    if args.ways:
        return ways(args, folder, program, classes, tables)
    if args.backlog:
        return backlog(args, folder, program, classes, tables)
    step = max(1, int(args.rate * args.pause))
    edges = [int(columns.ts[at]) for at in range(0, count, step)] + [int(columns.ts[-1]) + 1]
    edges = sorted(set(edges))
    sent: list[tuple[float, dict[str, int], int]] = []
    busy = 0.0

    def generate() -> None:
        nonlocal busy
        ends = dict.fromkeys(pushes, -1)
        begin = time.perf_counter()
        for number, (lo, hi) in enumerate(itertools.pairwise(edges)):
            left = begin + number * args.pause - time.perf_counter()
            if left > 0:
                time.sleep(left)
            mine = time.thread_time()
            rows = 0
            for name, push in pushes.items():
                part = cut(tables[name], lo, hi)
                if part.num_rows:
                    push.send(part)
                    ends[name] += part.num_rows
                    rows += part.num_rows
            busy += time.thread_time() - mine
            sent.append((time.perf_counter(), dict(ends), rows))
        for push in pushes.values():
            push.close()

    commits: list[tuple[float, dict[str, int]]] = []
    run = tl.live(
        program, streams, folder / "out", trigger=args.trigger, ahead=None, checkpoint=args.checkpoint, lateness=args.lateness,
        early=args.early or None,
    )  # fmt: skip
    waiting: list[int] = []
    shown: dict[int, float] = {}

    def follow(epoch: Any, sections: Any) -> None:
        names = {s.number: s.type for s in epoch.streams}
        waiting.append(epoch.held)
        if run.early_results is not None:
            shown[run.early_results.now.epoch] = run.early_results.now.seconds
        # A row counts when it is processed: rows that wait are not.
        commits.append(
            (
                time.perf_counter(),
                {"complete": epoch.complete or 0, **{names[p.stream]: p.position for p in epoch.partitions}},
            )
        )

    run.follow(follow)
    thread = threading.Thread(target=generate)
    readers = (
        Readers(run, args.keys, args.reads, apart=args.apart) if args.reads else contextlib.nullcontext()
    )
    # What it compiles is no load, and rows that are due meanwhile would come at once.
    while run.health.state == "starting":
        time.sleep(0.01)
    began = time.perf_counter()
    thread.start()
    run.until(lambda epoch: epoch.end_seq > 0, 60)
    own = time.process_time()
    with readers:
        thread.join()
    own = time.process_time() - own
    run.wait()
    took = time.perf_counter() - began
    latencies, weights, at = [], [], 0
    for moment, ends, rows in sent:
        last = max(int(tables[n].column("ts")[e].as_py()) for n, e in ends.items() if e >= 0)
        while at < len(commits) and commits[at][1]["complete"] < last:
            at += 1
        if at < len(commits):
            latencies.append(commits[at][0] - moment)
            weights.append(rows)
    order = np.argsort(latencies)
    share = np.cumsum(np.array(weights)[order]) / sum(weights)
    found = {
        f"p{int(q * 100)}_ms": round(1000 * latencies[order[int(np.searchsorted(share, q))]], 1)
        for q in (0.5, 0.9, 0.99)
    }
    same = run.parity() if args.parity else None
    assert same is None or same.same, same
    return {
        "program": args.program, "rate": args.rate, "trigger": args.trigger, "rows_per_second": round(count / took),
        "sent_per_second": round(sum(rows for _, _, rows in sent[1:]) / (sent[-1][0] - sent[0][0])), **found,
        "epochs": len(commits), "generator_share": round(busy / took, 3), "compiled": run.compiled,
        "parity": None if same is None else same.same, "checkpoints": run.health.checkpoints, "processor_seconds": round(own, 2),
        "waiting_rows": statistics.median(waiting),
        **({"early": {"computed": len(shown), "median_seconds": round(statistics.median(shown.values()), 2)}} if args.early else {}),
        **({"reads_of": readers.state, **readers.found} if isinstance(readers, Readers) else {}),
    }  # fmt: skip


WAYS: dict[str, int | None] = {"kernel": 0, "slices": 1, "auto": None}


class Processor:
    """What this process and those below it have used, also those that have ended meanwhile: workers come and go."""

    def __init__(self) -> None:
        import psutil

        self._own, self._errors, self._lock = psutil.Process(), psutil.Error, threading.Lock()
        self._seen: dict[tuple[int, float], float] = {}
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.seconds()
            time.sleep(0.25)

    def seconds(self) -> float:
        """So far."""
        with self._lock:
            for one in (self._own, *self._own.children(recursive=True)):
                with contextlib.suppress(self._errors):
                    self._seen[one.pid, one.create_time()] = sum(one.cpu_times()[:2])
            return sum(self._seen.values())


def ways(
    args: argparse.Namespace, folder: Path, program: Any, classes: Any, tables: dict[str, pa.Table]
) -> dict[str, Any]:
    """The same files caught up with in different ways, in turns."""
    streams = in_files(folder, classes, tables)
    few = in_files(folder / "few", classes, {name: table.slice(0, 20_000) for name, table in tables.items()})
    if args.spark:
        from timelapse.env.spark_session import session

        session(master=args.spark)
    processor = Processor()
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in args.ways.split(",")}
    told: dict[str, Any] = {}
    for number in range(args.rounds):
        for way, times in found.items():
            if args.spark:  # so that no way waits for workers that Spark starts, or has ended
                tl.live(program, few, folder / "begun", once=True, ahead=None, slice_rows=1).wait()
                shutil.rmtree(folder / "begun")
            out = folder / f"{way}-{number}"
            began, before = time.perf_counter(), processor.seconds()
            run = tl.live(
                program, streams, out, once=True, ahead=None, trigger=args.trigger, checkpoint=args.checkpoint, slice_rows=WAYS[way]
            )  # fmt: skip
            run.wait()
            times.append((time.perf_counter() - began, processor.seconds() - before))
            print(number, way, times[-1], file=sys.stderr)
            last = run.last
            assert last is not None
            told[way] = {
                "epochs": last.number,
                "sliced": run.sliced.epochs,
                "why": run.sliced.why,
                "digest": run.digest,
            }
            shutil.rmtree(out)
    assert len({one["digest"] for one in told.values()}) == 1, told
    return {
        "program": args.program, "rows": sum(t.num_rows for t in tables.values()), "kernel": os.environ["TIMELAPSE_KERNEL"],
        **{
            way: {
                "clock": round(statistics.median(t for t, _ in times), 2), "processor": round(statistics.median(t for _, t in times), 2),
                **{k: v for k, v in told[way].items() if k != "digest"},
            }
            for way, times in found.items()
        },
    }  # fmt: skip


def in_files(folder: Path, classes: Any, tables: dict[str, pa.Table]) -> dict[Any, Path]:
    """Rows in files of a million, a folder for each type."""
    import pyarrow.parquet as pq

    streams = {}
    for name, table in tables.items():
        (folder / name).mkdir(parents=True)
        for at in range(0, table.num_rows, 1_000_000):
            pq.write_table(table.slice(at, 1_000_000), folder / name / f"{at:012}.parquet")
        streams[classes[name]] = folder / name
    return streams


def backlog(
    args: argparse.Namespace, folder: Path, program: Any, classes: Any, tables: dict[str, pa.Table]
) -> dict[str, Any]:
    """Files that are there already: how fast they are caught up with, beside ingest and a replay of the same events.

    By turns, medians: who comes first in a process finds its memory and loads its machine code.
    """
    streams, rounds = in_files(folder, classes, tables), []
    for number in range(args.rounds):
        own = folder / str(number)
        own.mkdir()
        began = time.perf_counter()
        run = tl.live(
            program,
            streams,
            own / "out",
            once=True,
            ahead=None,
            trigger=args.trigger,
            checkpoint=args.checkpoint,
        )
        run.wait()
        caught_up = time.perf_counter()
        log = tl.Log.write(own / "log", streams)
        ingested = time.perf_counter()
        replayed = tl.replay(program, log, spark=False, cache=False)
        rounds.append((caught_up - began, ingested - caught_up, time.perf_counter() - ingested))
        assert replayed.digest == run.digest
        found = {"events": log.count, "compiled": run.compiled}
        shutil.rmtree(own)
    live, ingest, replay = (statistics.median(side) for side in zip(*rounds, strict=True))
    return {
        "program": args.program, **found, "live_seconds": round(live, 2), "first_live_seconds": round(rounds[0][0], 2),
        "ingest_seconds": round(ingest, 2), "replay_seconds": round(replay, 2), "of_ingest_and_replay": round((ingest + replay) / live, 2),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--program", default="IpSpam")
    parser.add_argument("--rate", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--trigger", default="500ms")
    parser.add_argument("--pause", type=float, default=0.02)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--checkpoint", default="10s")
    parser.add_argument("--backlog", type=int, default=0)
    parser.add_argument("--parity", action="store_true")
    parser.add_argument("--reads", type=float, default=0.0)
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--lateness", default="0s")
    parser.add_argument("--early", default="", help="compute early results so often meanwhile")
    parser.add_argument("--ways", default="")
    parser.add_argument("--kernel", default="native")
    parser.add_argument("--spark", default="")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    os.environ["TIMELAPSE_KERNEL"] = args.kernel
    folder = process_folder("live-bench", large=True)
    try:
        print(json.dumps(measure(args, folder)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
