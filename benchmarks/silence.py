"""How long each command leaves a terminal without a word: the largest gap, and what stood on the screen before it.

    python -m benchmarks.silence [--events N] [--only COMMAND ...]

Each command runs with a pseudo-terminal as its standard streams, over a log of its own making. A gap is a time in which nothing is written: from
the start to the first output, between two outputs, from the last one to the end. Beside its seconds stands the processor time that the command
and its children took in it: on a busy machine a gap is longer than the work in it. Commands may be silent for two seconds.
"""

from __future__ import annotations

import argparse
import errno
import itertools
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import timelapse as tl
from benchmarks.process import python_path
from timelapse.store.scratch import temporary_folder

ALLOWED_SECONDS = 2.0
RULES = Path(__file__).parents[1] / "examples" / "antispam.py"
FEATURES = '''

class Known(tl.Record, key="id"):
    id: int
    sent: int
    to: int


class Features(tl.Program):
    """What is known of a sender at each message."""

    sent: tl.Counter[int]
    last_to: tl.Value[int, int | None]

    @tl.on(Message)
    def see(self, e):
        self.emit(Known(id=e.id, sent=self.sent[e.sender], to=self.last_to[e.sender] or 0))
        self.sent[e.sender] += 1
        self.last_to[e.sender] = e.recipient
'''

FLAGS = """
import timelapse as tl


class Flag(tl.Event):
    message: int
    sender: int
"""


def write_raw(folder: Path, events: int) -> None:
    """The files that are ingested, and labels of some messages."""
    rng = np.random.default_rng(7)
    messages = events * 9 // 10
    (folder / "raw").mkdir()

    def users(count: int) -> Any:
        return rng.zipf(1.3, count) % 200_000

    for kind, count, columns in (
        ("Friendship", events - messages, ("a", "b")),
        ("Message", messages, ("sender", "recipient")),
    ):
        found = {name: users(count) for name in columns}
        if kind == "Message":
            ids = np.arange(count)
            found |= {
                "id": ids,
                "ip": [f"10.0.{n >> 8 & 255}.{n & 255}" for n in ids],
                "text": ["hello" if n % 7 else "me@example.org" for n in ids],
            }
        found["ts"] = 1_760_000_000_000_000 + np.sort(rng.integers(0, 20 * 86_400_000_000, count))
        pyarrow.csv.write_csv(pa.table(found), folder / "raw" / f"{kind}.csv")
    flags = pa.table({"message": np.arange(messages), "label": rng.random(messages) < 0.2})
    pyarrow.parquet.write_table(flags, folder / "labels.parquet")


@dataclass(frozen=True)
class Gap:
    """The longest time without output of one command."""

    command: str
    seconds: float
    """Of the whole command."""
    gap: float
    cpu: float
    """Processor time in it."""
    after: str
    code: int


def spoken(
    args: Sequence[str], folder: Path, seconds: float
) -> tuple[list[tuple[float, float, str]], float, int]:
    """When a command wrote, with the processor time until then and what it wrote; its end, and its exit code."""
    leader, follower = pty.openpty()
    env = {**os.environ, "PYTHONPATH": python_path(), "COLUMNS": "120", "TERM": "xterm"}
    began = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-m", "timelapse", *args], stdin=follower, stdout=follower, stderr=follower, cwd=folder, env=env,
        start_new_session=True,
    )  # fmt: skip
    os.close(follower)
    process, heard = psutil.Process(child.pid), [(0.0, 0.0, "")]
    cpu = 0.0
    while True:
        with suppress(psutil.Error):
            times = [p.cpu_times() for p in (process, *process.children(recursive=True))]
            cpu = max(
                cpu, sum(t.user + t.system for t in times) + times[0].children_user + times[0].children_system
            )
        if select.select([leader], [], [], 0.05)[0]:
            try:
                part = os.read(leader, 1 << 16)
            except OSError as error:  # Linux says so when the other end has been closed
                if error.errno != errno.EIO:
                    raise
                break
            if not part:
                break
            heard.append((time.monotonic() - began, cpu, part.decode("utf-8", "replace")))
        elif child.poll() is not None:
            break
        if time.monotonic() - began > seconds:
            child.terminate()
    code = child.wait()
    os.close(leader)
    heard.append((time.monotonic() - began, cpu, ""))
    return heard, heard[-1][0], code


def gap_of(args: Sequence[str], folder: Path, seconds: float) -> Gap:
    """The longest silence of a command."""
    heard, whole, code = spoken(args, folder, seconds)
    gaps = [(b[0] - a[0], b[1] - a[1], _last_line(a[2])) for a, b in itertools.pairwise(heard)]
    gap, cpu, after = max(gaps)
    return Gap(" ".join(args[:2] if args[0] == "state" else args[:1]), whole, gap, cpu, after, code)


def _last_line(text: str) -> str:
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "\n")
    return next((line.strip()[:50] for line in reversed(plain.split("\n")) if line.strip()), "(the start)")


def commands(events: int) -> list[tuple[str, ...]]:
    """In this order: each finds what those before it have made."""
    rules = "rules.py:Antispam"
    return [
        ("synth", "--events", str(events), "--out", "made-up"),
        ("init", "raw/Message.csv", "--out", "made"),
        ("ingest", "rules.py", "log", "Message=raw/Message.csv", "Friendship=raw/Friendship.csv", "--ts", "ts", "--unit", "us"),
        ("log", "log"),
        ("log", "log", "--types", "Message", "--where", "sender == 3"),
        ("log", "log", "--profile"),
        ("explain", rules, "log"),
        ("explain", rules, "log", "--critical-path"),
        ("explain", rules, "log", "--scale", "1,2,4"),
        ("replay", rules, "log", "--out", "runs/a", "--local", "--set", "ratio=3.0"),
        ("replay", rules, "log", "--out", "runs/b", "--local", "--set", "ratio=2.0", "--strategy", "iterate"),
        ("verify", "runs/a"),
        ("verify", "runs/a", "--files"),
        ("diff", "runs/a", "runs/b"),
        ("diff", "runs/a", "runs/b", "--labels", "labels.parquet", "--label-key", "message"),
        ("sweep", rules, "log", "ratio=2,3,4", "--local"),
        ("report", "runs/a", "--out", "a.html"),
        ("report", "runs/a", "runs/b", "--out", "ab.html"),
        ("features", "rules.py:Features", "log", "--out", "rows.parquet", "--local"),
        ("why", "runs/a", "Spam:FIRST"),
        ("why-not", "runs/a", "17"),
        ("state", "runs/a", "to_others"),
        ("state", "runs/a", "to_others", "--key", "3"),
        ("state checkpoint", "runs/a", "stand"),
        ("check", rules, "log", "--local"),
        ("derive", "flags.py", "derived", "runs/a", "Flag=Spam"),
        ("live", rules, "out/live", "Message=raw/Message.csv", "Friendship=raw/Friendship.csv", "--ts", "ts", "--unit", "us", "--once"),
        ("parity", "out/live"),
        ("shadow", rules, "out/live", "--once"),
        ("runs",),
        ("cache",),
        ("doctor", "--no-spark"),
    ]  # fmt: skip


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--events", type=int, default=3_000_000)
    parser.add_argument(
        "--only", nargs="*", default=[], help="commands; what these need is made all the same"
    )
    parser.add_argument("--seconds", type=float, default=600, help="of a command at most")
    given = parser.parse_args()
    print(
        "| command | seconds | longest silence, s | processor time in it, s | after | exit code |\n|---|---:|---:|---:|---|---:|"
    )
    with temporary_folder("silence", large=True) as folder:
        (folder / "rules.py").write_text(RULES.read_text("utf-8") + FEATURES, encoding="utf-8")
        (folder / "flags.py").write_text(FLAGS, encoding="utf-8")
        write_raw(folder, given.events)
        for args in commands(given.events):
            needed = args[0] in ("ingest", "replay", "live")
            if given.only and args[0] not in given.only and not needed:
                continue
            if args[-1] == "Spam:FIRST":
                first = tl.Run.open(folder / "runs" / "a").table("Spam").column("message")[0].as_py()
                args = (*args[:-1], f"Spam:{first}")
            found = gap_of([*args[0].split(), *args[1:]], folder, given.seconds)
            mark = " !" if found.gap > ALLOWED_SECONDS else ""
            print(
                f"| {' '.join(args)[:60]} | {found.seconds:.1f} | {found.gap:.1f}{mark} | {found.cpu:.1f} | {found.after} | {found.code} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
