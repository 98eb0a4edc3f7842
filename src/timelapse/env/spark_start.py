"""A session that starts while this process does what needs none: a JVM takes seconds, and so do imports, analysis and planning."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_WORKERS = 64


class _Starting:
    """A session that is being started in a thread of its own."""

    def __init__(self, master: str | None, module: str) -> None:
        self._session: SparkSession | None = None
        self._error: BaseException | None = None
        self._there = threading.Event()
        self.thread = threading.Thread(
            target=self._start, args=(master, module), name="timelapse-spark", daemon=True
        )
        self.thread.start()

    def _start(self, master: str | None, module: str) -> None:
        from timelapse.env.spark_session import started

        try:
            self._session = started(master, {})
        except BaseException as error:
            self._error = error
        finally:
            self._there.set()
        if self._session is not None:
            with suppress(Exception):  # it is only earlier: the first real task would tell
                _warm(self._session, module)

    def session(self) -> SparkSession:
        """The session, once it is there. Raises what its start has raised."""
        self._there.wait()
        if self._error is not None:
            raise self._error
        assert self._session is not None
        return self._session


_starting: _Starting | None = None
_ends = False


def ends_with_command(ends: bool) -> None:
    """Whether a session of this process is its command's own, and ends with it."""
    global _ends
    _ends = ends


def hush(spark: SparkSession) -> None:
    """What Spark's processes on this machine still say goes nowhere, if they end with the command: a worker that is begun as its task is
    cancelled, or still writes as the session stops, has nobody to report to, and PySpark's daemon prints that as a traceback.

    Java gives System.err's file away to /dev/null when it is closed, so that whatever holds the stream goes on.
    """
    if _ends:
        with suppress(Exception):  # Spark Connect has no JVM here, or it is gone
            jvm: Any = spark._jvm
            jvm.java.lang.System.err.close()


def begin(master: str | None, module: str) -> None:
    """Begin to start a session, if this process has none; `session` and `existing` (spark_session.py) wait for it. Its workers import `module`,
    which has what tasks do."""
    global _starting
    from timelapse.env.spark_session import existing

    if _starting is None and existing() is None:
        _starting = _Starting(master, module)


def is_starting() -> bool:
    """Whether a session is being started that nobody has asked for yet."""
    return _starting is not None


def begun() -> SparkSession | None:
    """The session that was begun, once it is there; None where none was, or somebody has it already. Raises as `session` does."""
    global _starting
    if _starting is None or threading.current_thread() is _starting.thread:
        return None
    found = _starting
    try:
        return found.session()
    finally:
        _starting = None


def _warm(spark: SparkSession, module: str) -> None:
    """Have the session's workers begin and import what tasks do: a job of Spark's own."""
    context = spark.sparkContext
    count = min(_MOST_WORKERS, int(context.defaultParallelism))
    before: Any = context.getLocalProperty("spark.job.description")
    context.setLocalProperty("spark.job.description", "timelapse: workers start")

    def imported(numbers: Iterable[int]) -> Iterator[int]:
        importlib.import_module(module)
        yield from numbers

    try:
        context.parallelize(range(count), count).mapPartitions(imported).collect()
    finally:
        context.setLocalProperty("spark.job.description", before)
