"""`timelapse demo --live`: a generator, the program live, a page, a kill and a recovery, parity at the end."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from timelapse.cli.console import line

if TYPE_CHECKING:
    from timelapse.streaming.format import Epoch

_USERS, _SPAMMERS, _PER_SECOND = 2_000, 40, 2_000


class _Generator:
    """Appends friendships and messages with today's time to two files, until it is told to stop."""

    def __init__(self, folder: Path) -> None:
        self._messages = (folder / "messages.jsonl").open("a")
        self._friends = (folder / "friendships.jsonl").open("a")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go, daemon=True)
        self.rows = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._messages.close()
        self._friends.close()

    def _go(self) -> None:
        rng = random.Random(7)
        while not self._over.wait(0.1):
            now = time.time_ns() // 1000
            count = _PER_SECOND // 10
            for n in range(count):
                ts, user = now + n * 100_000 // count, rng.randrange(_USERS)
                if user >= _SPAMMERS and rng.random() < 0.3:
                    self._put(self._friends, {"ts": ts, "a": user, "b": (user + rng.randint(1, 5)) % _USERS})
                    continue
                is_spam = user < _SPAMMERS
                to = rng.randrange(_USERS) if is_spam else (user + rng.randint(1, 5)) % _USERS
                text = "write to me@spam.example" if is_spam and rng.random() < 0.6 else "see you"
                ip = f"10.0.0.{user % 20}" if is_spam else f"10.1.{user % 250}.{user % 200}"
                self._put(
                    self._messages,
                    {"ts": ts, "id": self.rows, "sender": user, "recipient": to, "ip": ip, "text": text},
                )
            # Both files say that time has come so far.
            self._put(self._friends, {"ts": now + 100_000, "a": 0, "b": 1})
            self._messages.flush()
            self._friends.flush()

    def _put(self, file: IO[str], row: dict[str, object]) -> None:
        file.write(json.dumps(row) + "\n")
        self.rows += 1


def run(program: Path, name: str, out: Path, seconds: float) -> bool:
    """The demo. Returns whether parity holds."""
    from timelapse.streaming.reading import Reading

    folder, place = out / "in", out / "live"
    for old in (folder, place):
        shutil.rmtree(old, ignore_errors=True)
    folder.mkdir(parents=True)
    with _Generator(folder) as generator:
        line(f"a generator appends about {_PER_SECOND:,} rows a second to {folder}")
        command = [
            sys.executable, "-m", "timelapse.cli.main", "live", f"{program}:{name}", str(place), f"Friendship={folder / 'friendships.jsonl'}",
            f"Message={folder / 'messages.jsonl'}", "--listen", "0", "--trigger", "200ms", "--lateness", "300ms", "--checkpoint", "3s", "--ahead", "any",
        ]  # fmt: skip
        line(("timelapse " + " ".join(command[3:]), "dim"))
        child = _started(command, place)
        before = _watched(place, child, seconds / 2)
        line(("killing the process (SIGKILL)", "bold red"))
        child.send_signal(signal.SIGKILL)
        child.communicate()
        before = Reading.open(place).last or before
        line(f"epoch {before.number:,} was its last; the same command again:")
        began = time.monotonic()
        child = _started(command, place)
        while (last := Reading.open(place).last) is None or last.number <= before.number:
            time.sleep(0.05)
        line(
            f"it goes on behind that epoch: {time.monotonic() - began:.1f} s from the start of the process to the next epoch"
        )
        _watched(place, child, seconds / 2)
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=60)
    opened = Reading.open(place)
    last = opened.last
    assert last is not None
    line(
        f"{generator.rows:,} rows were generated, {last.end_seq:,} processed in {last.number:,} epochs, {last.held:,} wait for later ones"
    )
    for record, rows in sorted(last.outputs.items()):
        line(f"  {record}: {rows.rows:,}")
    found = opened.parity()
    line((found.text, "bold green" if found.same else "bold red"))
    line((f"timelapse live ... goes on; the journal is a log: timelapse log {place / 'journal'}", "dim"))
    return found.same


def _started(command: list[str], place: Path) -> subprocess.Popen[str]:
    """Start the run and wait for its page. Raises RuntimeError with what it said where it ends."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    said: list[str] = []
    for text in child.stderr:
        said.append(text)
        if text.startswith("http"):
            address = text.split()[0]
            tokens = json.loads((place / "tokens.json").read_text())
            line((f"page: {address}", "bold"), f"   token for reading: {tokens['read']}")
            threading.Thread(target=child.stderr.read, daemon=True).start()
            return child
    child.wait()
    raise RuntimeError("".join(said))


def _watched(place: Path, child: subprocess.Popen[str], seconds: float) -> Epoch:
    """Say how it goes, until there is an epoch in any case: a slow machine takes its time to begin. Returns the last one.

    Raises RuntimeError where the process ends."""
    from timelapse.streaming.reading import Reading

    end, said = time.monotonic() + seconds, 0
    last: Epoch | None = None
    while last is None or time.monotonic() < end:
        time.sleep(min(2.0, max(0.1, end - time.monotonic())))
        if child.poll() is not None:
            raise RuntimeError(f"the live run has ended, with exit code {child.returncode}")
        last = Reading.open(place).last
        if last is not None and last.number != said:
            said = last.number
            behind = time.time() - (last.complete or 0) / 1e6
            outputs = sum(row.rows for row in last.outputs.values())
            line(
                f"  epoch {last.number:,}  {last.end_seq:,} rows  {outputs:,} outputs  {behind:.1f} s behind the clock (300 ms of it lateness)"
            )
    return last
