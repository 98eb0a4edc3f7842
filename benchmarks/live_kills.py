"""A live run whose process is killed again and again, at random moments; at the end parity, and the serial loop over the same rows.

    python -m benchmarks.live_kills --kills 100 --seed 1

Every kill is a SIGKILL of the process that runs it; with `--standby` another one is always waiting to take over, and there are moments with two.
Rows come as files and in a file that grows.
"""

from __future__ import annotations

import argparse
import json
import random
import select
import shutil
import signal
import subprocess
import sys
import time

from timelapse.run import run_serial
from timelapse.store.scratch import process_folder
from timelapse.streaming.reading import Reading

CHILD = """
import sys, json, threading, time
import timelapse as tl
from benchmarks.live_kills_program import Tally, Web, App
folder, out, standby, early = sys.argv[1:5]
run = tl.live(Tally, {Web: folder + "/web", App: folder + "/app.jsonl"}, out, trigger="3ms", checkpoint="40ms", ahead=None, idle="200ms",
              lateness="30ms", standby=standby or None, early=early or None)
while run.health.state in ("starting", "standby"):
    time.sleep(0.002)
print("begun", flush=True)
try:
    run.wait()
except Exception as error:
    print(repr(error), file=sys.stderr)
    sys.exit(3)
"""


def waited(
    children: list[subprocess.Popen[bytes]], running: set[subprocess.Popen[bytes]]
) -> set[subprocess.Popen[bytes]]:
    """The processes that run the live run, or have: waits until there is one, at most half a minute."""
    found = {c for c in children if c in running}
    waiting = {c.stdout: c for c in children if c not in found and c.stdout is not None}
    ready, _, _ = select.select(list(waiting), [], [], 0 if found else 30)
    return found | {waiting[pipe] for pipe in ready}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--standby", action="store_true")
    parser.add_argument("--early", default="", help="compute early results so often meanwhile")
    parser.add_argument(
        "--pause", type=float, default=2.0, help="seconds at most between two looks at whom to kill"
    )
    args = parser.parse_args()
    rng = random.Random(args.seed)
    folder = process_folder("live-kills", large=True)
    (folder / "web").mkdir()
    out, ts, files, kills, lost = folder / "out", 1_000_000, 0, 0, 0
    app = (folder / "app.jsonl").open("a")

    def start(standby: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", CHILD, str(folder), str(out), standby, args.early],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    children = [start("")]
    began, running = time.monotonic(), set[subprocess.Popen[bytes]]()
    while kills < args.kills:
        for _ in range(rng.randint(1, 4)):
            ts += rng.randint(1, 2_000)
            if rng.random() < 0.5:
                aside = folder / "web" / f".{files:06}.jsonl"
                part = [(ts + n, rng.randint(0, 50), rng.randint(0, 9)) for n in range(rng.randint(1, 200))]
                aside.write_text(
                    "".join(json.dumps({"ts": t, "who": w, "size": s}) + "\n" for t, w, s in part)
                )
                aside.rename(folder / "web" / f"{files:06}.jsonl")
                files += 1
            else:
                for n in range(rng.randint(1, 100)):
                    app.write(json.dumps({"ts": ts + n, "who": rng.randint(0, 50)}) + "\n")
                app.flush()
        if args.standby and len(children) < 2:
            children.append(start("1s"))
        running = waited(children, running)
        time.sleep(rng.random() ** 2 * args.pause)
        if rng.random() < 0.5:
            victim = rng.choice([c for c in children if c in running] or children)
            children.remove(victim)
            victim.send_signal(signal.SIGKILL)
            _, said = victim.communicate()
            kills += 1
            lost += b"Overtaken" in said
        children = [c for c in children if c.poll() is None]
        if not children:
            children.append(start(""))
    for child in children:
        child.kill()
        child.communicate()
    app.close()
    time.sleep(0.3)
    import timelapse as tl
    from benchmarks.live_kills_program import App, Tally, Web

    with tl.live(
        Tally, {Web: folder / "web", App: folder / "app.jsonl"}, out, once=True, ahead=None, lateness="30ms"
    ) as run:
        run.wait()
    opened = Reading.open(out)
    parity = opened.parity()
    log, last = opened.journal(), opened.last
    assert last is not None
    whole = run_serial(Tally, log.events(Web, App), until=last.complete)
    count = sum(len(p.read_text().splitlines()) for p in (folder / "web").glob("*.jsonl")) + len(
        (folder / "app.jsonl").read_text().splitlines()
    )
    found = {
        "kills": kills, "overtaken": lost, "epochs": last.number, "rows": count, "journal": log.count, "late": sum(p.late for p in last.partitions),
        "outputs": sum(s.rows for s in last.outputs.values()), "parity": parity.same, "serial": whole.digest == opened.digest, "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    print(json.dumps(found))
    assert last.number > args.kills // 4, (
        "processes were killed before they had done anything: give a longer --pause"
    )
    assert parity.same
    assert whole.digest == opened.digest
    assert log.count + found["late"] == count
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
