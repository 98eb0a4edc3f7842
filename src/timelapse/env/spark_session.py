"""The Spark session: the user's where there is one, otherwise a local one with settings that fit the machine."""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timelapse.env import spark_classes
from timelapse.env.java import Java, find
from timelapse.env.machine import GIB, cores, memory_bytes
from timelapse.env.master import check_master, unreachable, wanted
from timelapse.env.spark_start import begun, hush
from timelapse.errors import SetupError
from timelapse.store.scratch import process_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkFailed(SetupError):
    """Spark does not start."""

    code = "TL702"


def existing() -> SparkSession | None:
    """The session that this process already has, in whatever thread it was made; one that is being started (spark_start.py) is waited for."""
    early = begun()
    if early is not None:
        return early
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if SparkContext._active_spark_context is not None:
        return SparkSession.builder.getOrCreate()  # another thread's; no option is given, so none is changed
    return None


def session(
    spark: SparkSession | None = None, *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """The session to work with: `spark` if given, else the active one, both as they are; else a new local one.

    `master` (default: the one that is wanted, else `local[*]`) and `conf` only matter for a new one. Raises SetupError when Java or Spark fail,
    and for a master that is none or does not answer.
    """
    found = spark or begun() or existing()
    if found is not None:
        workers_python(found)
        return found
    return started(master, conf or {})


def started(master: str | None, conf: Mapping[str, str]) -> SparkSession:
    """A new session. Raises as `session` does."""
    master = master or wanted() or "local[*]"
    check_master(master)
    java = find()
    from pyspark.sql import SparkSession

    # py4j logs a traceback for whatever it cannot send; what matters of that is raised too.
    logging.getLogger().addFilter(_not_py4j)
    settings = _settings(java, master, conf)
    before = {name: os.environ.get(name) for name in ("JAVA_HOME", "PYSPARK_PYTHON")}
    if java.origin != "JAVA_HOME":  # also where JAVA_HOME names one that does not do
        os.environ["JAVA_HOME"] = str(java.home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("timelapse")
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        made = builder.getOrCreate()
    except Exception as error:
        for name, old in before.items():
            if old is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = old
        text = str(error)
        if master.startswith("spark://") and any(sign in text for sign in _GIVEN_UP):
            raise unreachable(master, "Spark tried for a while and gave up") from error
        raise SparkFailed(
            f"Spark does not start: {type(error).__name__}: {_without_stack(text)}",
            hint=f"Java {java.text} in {java.home} ({java.origin}); `timelapse doctor` checks the machine",
        ) from error
    _hush_accumulators(made)
    return made


def _hush_accumulators(spark: SparkSession) -> None:
    """Where the JVM dies, the thread that takes its counts prints a traceback. That it died is told by the call that waits for it."""
    server = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is None:
        return
    told = server.handle_error

    def handle_error(request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            told(request, client_address)

    server.handle_error = handle_error


_GIVEN_UP = ("stopped SparkContext", "masters are unresponsive")
"""What Spark says where no master has taken its application."""


def _without_stack(text: str) -> str:
    """What Java says, without where in its code."""
    lines = itertools.takewhile(lambda line: not line.lstrip().startswith("at "), text.splitlines())
    return "\n      ".join(line.strip() for line in list(lines)[:_SHOWN])


_SHOWN = 6
"""Lines of an error of Java's."""
_WORKERS = "spark.sql.execution.pyspark.python"
"""Which Python workers run, where it is not PYSPARK_PYTHON of the server."""
_HERE = ("localhost", "127.0.0.1", "::1", "[::1]")


def workers_python(spark: SparkSession) -> None:
    """Have workers on this machine run this Python, unless the session or PYSPARK_PYTHON says which.

    A session that a user has made takes `python3` where PYSPARK_PYTHON is not set, and a server of Spark Connect what its own
    environment has: that has no Timelapse, or another. Workers on other machines are left as they are: this path means nothing
    there (TL513 says what to do).
    """
    said = spark.conf.get(_WORKERS, None)
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        if said is None and getattr(spark.client, "host", None) in _HERE:
            spark.conf.set(_WORKERS, sys.executable)
        return
    context = spark.sparkContext
    if context.pythonExec != _ANY_PYTHON:
        return
    if said is not None:  # of queries: other jobs do not read it
        context.pythonExec = said
    elif (context.master or "").startswith("local"):
        context.pythonExec = sys.executable  # of jobs that are no queries
        spark.conf.set(_WORKERS, sys.executable)


_ANY_PYTHON = "python3"
"""What PySpark has workers run where PYSPARK_PYTHON says nothing."""


def _not_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def stop() -> None:
    """Stop the session that this process has, if it has one. Its JVM may be gone."""
    with suppress(Exception):
        found = existing()
        if found is not None:
            # What tasks still say to a scheduler that is ending would be told as errors, with stack traces.
            with suppress(Exception):
                found.sparkContext.setLogLevel("OFF")
            hush(found)
            found.stop()


def driver_memory_mib() -> int:
    """Heap for a local session in MiB: a third of the memory, 1 to 16 GiB. The rest is for Python and the disk cache."""
    return max(1024, min(16 * GIB, memory_bytes() // 3) >> 20)


_SELDOM_OPTIMIZED = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
    " -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""Java's second compiler takes what is called ten times as often as usual. On two cores its time is that of the tasks: 0.2 to 0.7 s of each of the
first ten replays, of what runs only a few thousand times in each. Ingests of 1 and 5 million rows take as long as before, or less. An executor's Java has the same core as its tasks, and fewer calls than the
driver's: 0.3 to 1.2 s of single replays, after ten of them still."""


def _settings(java: Java, master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """What a new session is started with: ours, then `conf`. Java takes the last of options that say the same, so those of `conf` come last."""
    found = {**_defaults(master), **conf}
    for name, options in spark_classes.settings(java, master, conf).items():
        found[name] = f"{options} {found[name]}" if name in found else options
    return found


def _defaults(master: str) -> dict[str, str]:
    warehouse = str(process_folder("warehouse", large=True))
    atexit.register(shutil.rmtree, warehouse, ignore_errors=True)
    log4j = Path(__file__).with_name("log4j2.properties").as_uri()
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        spark_classes.DRIVER: f"-Dlog4j2.configurationFile={log4j} -Dderby.system.home={warehouse} {_SELDOM_OPTIMIZED}",
        spark_classes.EXECUTOR: _SELDOM_OPTIMIZED,
        "spark.driver.memory": f"{driver_memory_mib()}m",
        "spark.sql.warehouse.dir": warehouse,
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(max(4, 2 * cores())),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        # workers begin in the driver's folder, where a user's profile.py or types.py would pass for the library's
        "spark.executorEnv.PYTHONSAFEPATH": "1",
        # else queries and other jobs have workers of their own: each would import all once more
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        # about 40 ms less for every job with Python in it
        "spark.python.unix.domain.socket.enabled": "true",
    }
    if master.startswith("local"):
        # a laptop's own name often does not resolve, and nobody else should reach a local session
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
    return settings
