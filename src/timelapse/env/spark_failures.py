"""What went wrong with Spark, as errors that say what to do: its processes died, or its workers are not ours."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

from timelapse.errors import NoSpace, ReplayError, TimelapseError

_NOTHING = "nothing was published or written"
_OURS = ("timelapse", "pyarrow", "msgspec", "numpy", "pyspark", "cloudpickle")
_DIED = (
    "Python worker exited unexpectedly",
    "ExecutorLostFailure",
    "with code: 137",
    "reading the port number from pyspark.daemon",
)
"""How Spark says that a process was killed: 137 is what ends so, and a daemon that is killed at its start has no port."""
_UNANSWERED = re.compile(r"An error occurred while calling \S+")
"""What py4j says of a call that nobody answers. An answer that is an error says more."""
_SHOWN = 12
_FULL = ("No space left on device", "Disk quota exceeded", "File too large")
_RAISED = re.compile(
    r"^(?P<module>timelapse[\w.]*)\.(?P<name>\w+): (?P<code>TL\d{3}) (?P<said>.*(?:\n(?!\s|Traceback|During|The above).+)*)"
    r"(?P<hint>(?:\n {6}\S.*)*)", re.MULTILINE,
)  # fmt: skip
"""How an error of ours ends the traceback of a worker: `TimelapseError.__str__` behind the class's name."""


class SparkError(ReplayError):
    """Spark failed while it worked."""

    code = "TL507"


class WorkerDied(SparkError):
    """A worker process of Spark ended before its task did."""

    code = "TL511"


class SparkGone(SparkError):
    """Spark's driver, the JVM, is there no more."""

    code = "TL512"


class WrongPython(SparkError):
    """Spark's workers run a Python that does not have what the driver's has."""

    code = "TL513"


def explained(error: BaseException, what: str) -> TimelapseError:
    """The error that stands for what Spark or the connection to it raised during `what`."""
    if isinstance(error, TimelapseError):
        return error
    text = str(error).strip()
    if _is_gone(error, text):
        return SparkGone(
            f"Spark's Java process ended during {what}: it was killed, or its session was stopped",
            hint=f"{_NOTHING}. Where the system ended it for want of memory (`dmesg` tells), give it less to do at a time "
            "(--master 'local[1]') or the machine more; then run the command again",
        )  # fmt: skip
    if "PYTHON_VERSION_MISMATCH" in text or any(f"No module named '{name}" in text for name in _OURS):
        return WrongPython(
            f"Spark's workers run another Python than this one, or one without Timelapse: {_reason(text)}",
            hint=f"{_NOTHING}. The workers take the Python that PYSPARK_PYTHON names where Spark's driver starts; under Spark Connect that "
            f"is the server's own environment: PYSPARK_PYTHON={sys.executable} start-connect-server.sh, on its machine "
            "with what is installed here; or spark.conf.set('spark.sql.execution.pyspark.python', PATH) with a path there",
        )  # fmt: skip
    if any(sign in text for sign in _DIED):
        who = "an executor of Spark" if "ExecutorLostFailure" in text else "a Python worker of Spark"
        return WorkerDied(
            f"{who} died during {what}: it was killed, or crashed",
            hint=f"{_NOTHING}. Mostly the system ended it for want of memory (`dmesg` tells): run fewer tasks at a time "
            "(--master 'local[1]'), set TIMELAPSE_MEMORY, or run it again where there is more memory",
        )  # fmt: skip
    own = _raised_by_worker(text)
    if own is not None:
        return own
    full = next((line.strip() for line in text.splitlines() if any(sign in line for sign in _FULL)), None)
    if full is not None:
        return NoSpace(
            f"Spark had no room for its own files during {what}: {full}",
            hint=f"{_NOTHING}. Make room where Spark keeps what it sorts and sends (spark.local.dir, SPARK_LOCAL_DIRS; /tmp where nothing is said), or name another place",
        )  # fmt: skip
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    shown = "\n      ".join(lines[-_SHOWN:]) if lines else type(error).__name__
    return SparkError(
        f"Spark failed during {what}: {shown}", hint=f"{_NOTHING}; `timelapse doctor` checks the set-up"
    )


def _raised_by_worker(text: str) -> TimelapseError | None:
    """The error of ours that ended a worker's task, made anew from the traceback that Spark tells; None where there is none.

    Spark gives nothing but text. The place stays in front of the message, as it was printed.
    """
    known = {(cls.__module__, cls.__name__): cls for cls in _classes(TimelapseError)}
    for found in reversed(list(_RAISED.finditer(text))):
        cls = known.get((found["module"], found["name"]))
        if cls is not None:
            hint = "\n      ".join(line.strip() for line in found["hint"].splitlines() if line.strip())
            return cls(found["said"].rstrip(), hint=hint or None, code=found["code"])
    return None


def _classes(cls: type[TimelapseError]) -> Iterator[type[TimelapseError]]:
    yield cls
    for below in cls.__subclasses__():
        yield from _classes(below)


def is_sparks(error: BaseException) -> bool:
    """Whether an error came from Spark, or from the connection to it."""
    return any(cls.__module__.split(".")[0] in ("py4j", "pyspark") for cls in type(error).__mro__) or (
        isinstance(error, OSError | EOFError) and _through_py4j(error)
    )


def _is_gone(error: BaseException, text: str) -> bool:
    if isinstance(error, OSError | EOFError):
        return _through_py4j(error)
    name = type(error).__name__
    if name == "Py4JError" and _UNANSWERED.fullmatch(text):
        return True
    return name == "Py4JNetworkError" or any(
        sign in text
        for sign in (
            "SparkContext was shut down",
            "on a stopped SparkContext",
            "Answer from Java side is empty",
        )
    )


def _through_py4j(error: BaseException) -> bool:
    """Whether it was raised below py4j, which talks to the JVM through a socket."""
    trace: Any = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] == "py4j":
            return True
        trace = trace.tb_next
    return False


def _reason(text: str) -> str:
    signs = ("PYTHON_VERSION_MISMATCH", "No module named")
    return next((line.strip() for line in text.splitlines() if any(s in line for s in signs)), "")
