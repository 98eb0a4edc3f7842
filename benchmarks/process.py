"""A candidate's process, as the benchmark sees it: start, run, time, memory, end."""

from __future__ import annotations

import importlib.util
import json
import os
import select
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

import benchmarks
import timelapse
from benchmarks.candidates import Candidate
from benchmarks.data import Made

I64 = npt.NDArray[np.int64]
_SAMPLE_SECONDS = 0.1
_WORKER = "pyspark.daemon"


class Failed(Exception):
    """A candidate said why it cannot run, or its process ended."""


class OutOfTime(Failed):
    """The time at which all is to end has come."""


_end = float("inf")
_others: tuple[Any, float] | None = None
"""Who had the alarm before, and the seconds that it had left."""


def end_at(when: float) -> None:
    """No answer is waited for beyond this time (time.monotonic): the process is killed then, and OutOfTime raised.

    What is measured in this process is stopped too, by a signal, where the system has one and this is the main thread.
    """
    global _end, _others
    _end = when
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        return
    if when == float("inf"):
        if _others is not None:
            handler, left = _others
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)
            signal.setitimer(signal.ITIMER_REAL, left)
            _others = None
        return
    # A second later than children are killed: who waits for one says what became of it.
    left = signal.setitimer(signal.ITIMER_REAL, 0)[0]
    handler = signal.signal(signal.SIGALRM, _out_of_time)
    signal.setitimer(signal.ITIMER_REAL, max(0.0, when - time.monotonic()) + 1.0)
    _others = _others or (handler, left)


def _out_of_time(*_: object) -> None:
    raise OutOfTime("the time was spent")


def seconds_left() -> float | None:
    """How long is left until then; None where there is no such time."""
    return None if _end == float("inf") else max(0.0, _end - time.monotonic())


def python_path() -> str:
    """PYTHONPATH for processes that import Timelapse, as it is imported here, and these benchmarks."""
    found = [str(Path(module.__file__ or "").resolve().parents[1]) for module in (timelapse, benchmarks)]
    return os.pathsep.join([*found, *filter(None, [os.environ.get("PYTHONPATH", "")])])


@dataclass
class Once:
    """One run: wall and CPU seconds (None where psutil is missing), the result."""

    seconds: float
    cpu: float | None
    found: I64
    details: dict[str, Any] | None = None
    workers: float = 0.0
    """Of the CPU seconds those of Spark's Python workers."""


@dataclass
class Process:
    """A process for one candidate, or for some that share a session; use as a context manager."""

    name: str
    python: str
    cores: int
    scratch: Path
    env: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self.started = time.perf_counter()
        self._log = (self.scratch / f"{self.name}.log").open("wb")
        self._child = subprocess.Popen(
            [self.python, str(Path(__file__).with_name("worker.py"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, encoding="utf-8",
            env={**os.environ, "PYTHONPATH": python_path(), "PYTHONDONTWRITEBYTECODE": "", **self.env}, start_new_session=True,
        )  # fmt: skip
        self._send({"cores": self.cores})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, Failed):
            self.kill()  # Ctrl-C, or a bug: nobody waits for its orderly end
        self.close()

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    def make(self, candidate: Candidate, made: Made) -> None:
        """Get a candidate ready: imports, sessions. Raises Failed with what it said."""
        data = made.dataset
        options = {
            "text": data.text, "events": data.events, "users": made.users, "addresses": made.addresses,
            **candidate.options,
        }  # fmt: skip
        place = str(made.path.resolve())
        self._ask({"name": candidate.name, "file": str(candidate.path), "place": place, "options": options})

    def run(self, candidate: Candidate, ratio: float = 2.0) -> Once:
        """Run it once, with this value of the last rule's threshold. Raises Failed with what it said."""
        out = self.scratch / f"{candidate.name}.out"
        self._ask({"name": candidate.name, "ready": True, "ratio": ratio})
        before = self._cpu()
        reply = self._ask({"name": candidate.name, "out": str(out), "ratio": ratio})
        after = self._cpu()
        cpu, workers = (
            (None, 0.0) if before is None or after is None else (after[0] - before[0], after[1] - before[1])
        )
        return Once(reply["seconds"], cpu, np.fromfile(out, np.int64), reply.get("details"), workers)

    def close(self) -> None:
        """End the process, and what it started. It has some seconds to do so, unless all time is spent."""
        if seconds_left() == 0:
            self.kill()
        with suppress(BrokenPipeError):
            if self._child.stdin is not None:
                self._child.stdin.close()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._child.pid, signal.SIGKILL)  # its own session: what it started goes with it
            self._child.wait()
        if self._child.stdout is not None:
            self._child.stdout.close()
        self._log.close()

    def kill(self) -> None:
        """End the process and all that it started, at once."""
        tree = self._tree()
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        for one in tree:  # also those that went into groups of their own
            with suppress(Exception):
                one.kill()

    def _send(self, body: dict[str, Any]) -> None:
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):  # reading the answer tells why
            self._child.stdin.write(json.dumps(body) + "\n")
            self._child.stdin.flush()

    def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        assert self._child.stdout is not None
        if seconds_left() == 0:
            raise OutOfTime("the time was spent")
        self._send(body)
        # One line answers one question, so nothing is buffered that select would not see.
        if not select.select([self._child.stdout], [], [], seconds_left())[0]:
            self.kill()
            raise OutOfTime("the time was spent")
        line = self._child.stdout.readline()
        if not line:
            raise Failed(f"its process ended ({self._last_words()})")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise Failed(str(reply["error"]))
        return reply

    def _last_words(self) -> str:
        self._log.flush()
        lines = Path(self._log.name).read_text("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else "without a word"

    def _tree(self) -> list[Any]:
        if importlib.util.find_spec("psutil") is None:
            return []
        import psutil

        try:
            own = psutil.Process(self._child.pid)
            return [own, *own.children(recursive=True)]
        except psutil.Error:
            return []

    def _cpu(self) -> tuple[float, float] | None:
        """CPU seconds of the process and its children, those that have ended included; and of Spark's Python workers among them."""
        total, workers, tree = 0.0, 0.0, self._tree()
        for one in tree:
            try:
                spent = sum(one.cpu_times()[:4])
                total += spent
                workers += spent * (_WORKER in one.cmdline())
            except Exception:  # noqa: S112 it has ended between the two lines
                continue
        return (total, workers) if tree else None

    def memory(self) -> int | None:
        """Resident bytes of the process tree now. Pages that processes share count for each."""
        total, tree = 0, self._tree()
        for one in tree:
            try:
                total += int(one.memory_info().rss)
            except Exception:  # noqa: S112 it has ended between the two lines
                continue
        return total if tree else None


class Watching:
    """Samples a process's memory while something runs. Only in rounds that are not timed: it costs CPU."""

    def __init__(self, process: Process) -> None:
        self._process, self._end = process, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peak: int | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            found = self._process.memory()
            if found is not None:
                self.peak = max(found, self.peak or 0)
            if self._end.wait(_SAMPLE_SECONDS):
                return
