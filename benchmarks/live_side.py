"""The same keyed program live, three times: files that appear, rows counted by address, flagged rows put out durably.

    python -m benchmarks.live_side timelapse FOLDER --rate 20000 --seconds 10 --trigger 500ms

`timelapse`, `structured` (Structured Streaming with transformWithStateInPandas), `bytewax`. Each is a process of its own, the generator another:
it has all files ready and renames one into place every tenth of a second. A file's latency is from that moment to the moment at which all
its rows are processed and what they put out is durable: for Timelapse the epoch's commit, for Structured Streaming the end of the
micro-batch that wrote its Parquet files, for Bytewax the fsync of its sink's file (its own state is in memory then: it is given no recovery store).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import timelapse as tl
from benchmarks.process import python_path

PAUSE = 0.1
"""Seconds between two files."""
LEAD = {"structured": 20.0}
"""Seconds between the first file, which starts everything and is not measured, and the second; for others 3."""
ADDRESSES = 2_000
START = 1_700_000_000_000_000
LEAST, SHARE = 5, 0.4


class Mail(tl.Event):
    id: int
    address: int
    email: int


class Flagged(tl.Record):
    id: int


class Spammy(tl.Program):
    """Messages from addresses of which more than two in five messages have an e-mail address in them."""

    sent: tl.Counter[int]
    emails: tl.Counter[int]

    @tl.on(Mail)
    def mail(self, e: Mail) -> None:
        self.sent[e.address] += 1
        self.emails[e.address] += e.email
        if self.sent[e.address] >= LEAST and 5 * self.emails[e.address] > 2 * self.sent[e.address]:
            self.emit(Flagged(id=e.id))


# --- the generator -------------------------------------------------------------------------------------------


def prepare(folder: Path, rate: int, seconds: float) -> list[int]:
    """Files to come, aside. Gives how many rows there are up to the end of each; one more row comes last, so that all is complete."""
    aside, rng = folder / "aside", np.random.default_rng(rate)
    aside.mkdir(parents=True)
    (folder / "in").mkdir()
    each = max(1, int(rate * PAUSE))
    ends, first = [], 0
    sizes = [each] * max(2, int(seconds / PAUSE) + 1)
    for number, rows in enumerate([*sizes, 1]):
        ids = np.arange(first, first + rows)
        table = pa.table({
            "ts": pa.array(START + ids), "id": ids, "address": rng.integers(0, ADDRESSES, rows),
            "email": (rng.random(rows) < 0.35).astype(np.int64),
        })  # fmt: skip
        pq.write_table(table, aside / f"{number:06d}.parquet")
        first += rows
        ends.append(first)
    return ends


def feed(folder: Path, lead: float) -> list[float]:
    """Renames file after file into place. Gives when each was there."""
    files = sorted((folder / "aside").iterdir())
    moments = []
    begin = time.time()
    for number, file in enumerate(files):
        due = begin + (lead + number * PAUSE if number else 0.0)
        time.sleep(max(0.0, due - time.time()))
        file.rename(folder / "in" / file.name)
        moments.append(time.time())
    return moments


# --- the candidates: each tells how many rows are done, and gives the ids that it flagged ----------------------

Done = Callable[[int], None]


def timelapse(folder: Path, total: int, trigger: str, done: Done) -> list[int]:
    """Timelapse, reading the folder itself."""
    run = tl.live(Spammy, {Mail: folder / "in"}, folder / "out", trigger=trigger, ahead=None)
    reached = threading.Event()

    def follow(epoch: Any, sections: Any) -> None:
        done(epoch.end_seq)
        if epoch.end_seq >= total - 1:  # the last row of all waits for a later one
            reached.set()

    run.follow(follow)
    reached.wait(300)
    run.stop()
    return sorted(run.outputs(Flagged).column("id").to_pylist())


def structured(folder: Path, total: int, trigger: str, done: Done) -> list[int]:
    """Structured Streaming: one keyed operator, RocksDB as its state store."""
    import pandas as pd
    from pyspark import cloudpickle
    from pyspark.sql.streaming.listener import StreamingQueryListener
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    from timelapse.env.spark_session import session

    store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark = session(
        master="local[2]", conf={
            "spark.driver.memory": "3g", "spark.sql.streaming.stateStore.providerClass": store, "spark.sql.shuffle.partitions": "2",
        },
    )  # fmt: skip
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

    class Running(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self._counts = handle.getValueState("counts", "a LONG, b LONG")

        def handleInputRows(  # noqa: N802
            self,
            key: Any,
            rows: Iterator[pd.DataFrame],
            timerValues: Any,  # noqa: N803
        ) -> Iterator[pd.DataFrame]:
            table = pd.concat(list(rows)).sort_values("id")
            a, b = self._counts.get() or (0, 0)
            sent = a + np.arange(1, len(table) + 1)
            emails = b + table["email"].cumsum()
            self._counts.update((int(sent[-1]), int(emails.iloc[-1])))
            yield table.loc[(sent >= LEAST) & (5 * emails.to_numpy() > 2 * sent), ["id"]]

        def close(self) -> None: ...

    cumulative, ended = 0, threading.Event()

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None: ...  # noqa: N802

        def onQueryTerminated(self, event: Any) -> None: ...  # noqa: N802

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            nonlocal cumulative
            progress = event.progress
            if not progress.numInputRows:
                return
            cumulative += progress.numInputRows
            begun = datetime.fromisoformat(progress.timestamp.replace("Z", "+00:00"))
            took = timedelta(milliseconds=progress.durationMs["triggerExecution"])
            done_at((begun + took).timestamp(), cumulative)
            if cumulative >= total:
                ended.set()

    def done_at(moment: float, rows: int) -> None:
        done(rows, moment)  # type: ignore[call-arg]

    spark.streams.addListener(Listener())
    rows = spark.readStream.schema("ts LONG, id LONG, address LONG, email LONG").parquet(str(folder / "in"))
    flagged = rows.groupBy("address").transformWithStateInPandas(Running(), "id LONG", "Append", "None")
    writer = flagged.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    amount = (
        float(trigger.removesuffix("ms")) / 1000
        if trigger.endswith("ms")
        else float(trigger.removesuffix("s"))
    )
    query = writer.trigger(processingTime=f"{amount} seconds").start(str(folder / "out"))
    (folder / "ready").touch()
    ended.wait(300)
    query.stop()
    found = spark.read.parquet(str(folder / "out")).select("id").toArrow()["id"].to_pylist()
    spark.stop()
    return sorted(found)


def bytewax(folder: Path, total: int, trigger: str, done: Done) -> list[int]:
    """Bytewax, one worker; it has no triggers."""
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.inputs import DynamicSource, StatelessSourcePartition
    from bytewax.outputs import DynamicSink, StatelessSinkPartition
    from bytewax.testing import run_main

    class Files(StatelessSourcePartition):  # type: ignore[misc]
        def __init__(self) -> None:
            self._seen, self._rows = set[str](), 0

        def next_batch(self) -> list[Any]:
            if self._rows >= total:
                raise StopIteration
            found: list[Any] = []
            for name in sorted(os.listdir(folder / "in")):
                if name not in self._seen:
                    self._seen.add(name)
                    table = pq.read_table(folder / "in" / name)
                    self._rows += table.num_rows
                    columns = (table.column(c).to_pylist() for c in ("address", "id", "email"))
                    found += [(str(a), (i, e)) for a, i, e in zip(*columns, strict=True)]
            if not found:
                time.sleep(0.005)
            return found

    class Source(DynamicSource):  # type: ignore[misc]
        def build(self, step_id: str, worker_index: int, worker_count: int) -> Files:
            return Files()

    flagged: list[int] = []
    count = 0

    class Out(StatelessSinkPartition):  # type: ignore[misc]
        def __init__(self) -> None:
            self._file = (folder / "flagged.txt").open("w")

        def write_batch(self, items: list[Any]) -> None:
            nonlocal count
            own = [number for _, (number, is_flagged) in items if is_flagged]
            if own:
                self._file.write("".join(f"{n}\n" for n in own))
                self._file.flush()
                os.fsync(self._file.fileno())
                flagged.extend(own)
            count += len(items)
            done(count)

    class Sink(DynamicSink):  # type: ignore[misc]
        def build(self, step_id: str, worker_index: int, worker_count: int) -> Out:
            return Out()

    def step(state: Any, row: tuple[int, int]) -> Any:
        a, b = state or (0, 0)
        a, b = a + 1, b + row[1]
        return (a, b), (row[0], a >= LEAST and 5 * b > 2 * a)

    flow = Dataflow("spammy")
    rows = op.input("rows", flow, Source())
    judged = op.stateful_map("judge", rows, step)
    op.output("out", judged, Sink())
    run_main(flow)
    return sorted(flagged)


CANDIDATES: dict[str, Callable[[Path, int, str, Done], list[int]]] = {
    "timelapse": timelapse, "structured": structured, "bytewax": bytewax
}  # fmt: skip


# --- one measurement -----------------------------------------------------------------------------------------


def expected(folder: Path, total: int) -> list[int]:
    """What is flagged: counted here, row by row."""
    sent: dict[int, int] = {}
    emails: dict[int, int] = {}
    found = []
    for file in sorted((folder / "in").iterdir()):
        table = pq.read_table(file)
        for number, address, email in zip(
            *(table.column(c).to_pylist() for c in ("id", "address", "email")), strict=True
        ):
            if number >= total - 1:
                break
            sent[address] = sent.get(address, 0) + 1
            emails[address] = emails.get(address, 0) + email
            if sent[address] >= LEAST and 5 * emails[address] > 2 * sent[address]:
                found.append(number)
    return found


def measure(name: str, folder: Path, rate: int, seconds: float, trigger: str) -> dict[str, Any]:
    """Latency per row in milliseconds (p50, p99), and whether all kept up: `behind` is how long after the last file all was done."""
    ends = prepare(folder, rate, seconds)
    total = ends[-1]
    steps: list[tuple[float, int]] = []

    def done(rows: int, moment: float | None = None) -> None:
        steps.append((time.time() if moment is None else moment, rows))

    feeder: list[subprocess.Popen[bytes]] = []

    def begin() -> None:
        while name == "structured" and not (folder / "ready").exists():
            time.sleep(0.05)
        command = [
            sys.executable,
            "-m",
            "benchmarks.live_side",
            "feed",
            str(folder),
            "--lead",
            str(LEAD.get(name, 3.0)),
        ]
        with (folder / "moments.json").open("wb") as out:
            feeder.append(
                subprocess.Popen(command, stdout=out, env={**os.environ, "PYTHONPATH": python_path()})
            )

    threading.Thread(target=begin).start()
    used = time.process_time()
    flagged = [n for n in CANDIDATES[name](folder, total, trigger, done) if n < total - 1]
    used = time.process_time() - used
    feeder[0].wait()
    moments = json.loads((folder / "moments.json").read_text())
    latencies, at = [], 0
    for end, moment in zip(ends[1:-1], moments[1:-1], strict=True):
        while at < len(steps) and steps[at][1] < end:
            at += 1
        latencies.append(steps[at][0] - moment if at < len(steps) else float("inf"))
    low, high = np.percentile(latencies, [50, 99])
    return {
        "p50_ms": round(1000 * float(low), 1), "p99_ms": round(1000 * float(high), 1), "behind": round(latencies[-1], 2),
        "flagged": len(flagged), "right": flagged == expected(folder, total), "processor": round(used, 2),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("candidate", choices=[*CANDIDATES, "feed"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--trigger", default="500ms")
    parser.add_argument(
        "--lead", type=float, default=3.0, help="of `feed`: seconds between the first two files"
    )
    args = parser.parse_args()
    if args.candidate == "feed":
        print(json.dumps(feed(args.folder, args.lead)))
        return
    os.environ.setdefault("TIMELAPSE_KERNEL", "native")
    print(json.dumps(measure(args.candidate, args.folder, args.rate, args.seconds, args.trigger)))


if __name__ == "__main__":
    main()
