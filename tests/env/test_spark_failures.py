"""What is said when Spark's processes are killed, and of masters that are none or do not answer."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.cli.run_cli import cli, command
from tests.patience import LONG
from timelapse.env.master import Unreachable, WrongMaster, check_master, local_cores
from timelapse.env.spark_failures import SparkError, WrongPython, explained, is_sparks
from timelapse.env.spark_session import _without_stack
from timelapse.errors import HandlerError, NoSpace, Place, StorageError, TimelapseError, UsageError
from timelapse.store.failures import writing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = """
import timelapse as tl


class Login(tl.Event):
    user: int
"""


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2,4]", "local-cluster[2,1,1024]"])
def test_local_masters_are_fine(master: str) -> None:
    check_master(master)


@pytest.mark.parametrize(
    "master", ["", "locl[2]", "local[0]", "local[two]", "spark:/host", "spark://", "spark://host:x", "http://host:80", "yarn"]
)  # fmt: skip
def test_what_is_no_master_is_said_at_once(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    with pytest.raises(WrongMaster) as caught:
        check_master(master)
    assert caught.value.code == "TL703"
    assert caught.value.hint


def test_a_master_that_does_not_answer_is_said_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]  # bound, and nobody listens
        for master in (
            f"spark://127.0.0.1:{port}",
            f"k8s://https://127.0.0.1:{port}",
            f"spark://127.0.0.1:{port},localhost:{port}",
        ):
            with pytest.raises(Unreachable, match=str(port)) as caught:
                check_master(master)
            assert caught.value.code == "TL704"
        with socket.socket() as open_:
            open_.bind(("127.0.0.1", 0))
            open_.listen()
            check_master(f"spark://127.0.0.1:{port},127.0.0.1:{open_.getsockname()[1]}")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "a web server"),
        (b"SSH-2.0-OpenSSH_9.6", "something that does not"),
    ],
)
def test_who_answers_and_is_no_master_is_said_at_once(answer: bytes, said: str) -> None:
    """Spark would try for 80 seconds, and then show a stack of Java's."""
    with _answering(answer) as port, pytest.raises(Unreachable, match=said) as caught:
        check_master(f"spark://127.0.0.1:{port}")
    assert caught.value.code == "TL704"


@pytest.mark.parametrize("answer", [b"", b"\0\0\0\0\0\0\0\x20\x08\0\0\0\x09timelapse", b"\x15\x03\x03\0\x02"])
def test_a_master_may_answer_or_end_the_connection(answer: bytes) -> None:
    """A frame of Spark's; one that wants a secret, or TLS, is not asked further."""
    with _answering(answer) as port:
        check_master(f"spark://127.0.0.1:{port}")


@contextmanager
def _answering(answer: bytes) -> Iterator[int]:
    """A port at which somebody answers so, twice, and ends the connection."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def serve() -> None:
            for _ in range(2):
                with suppress(OSError):
                    link, _ = server.accept()
                    with link:
                        link.settimeout(1)
                        with suppress(OSError):
                            link.recv(64)
                        link.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)  # it may have been asked once
        thread.join(LONG)


def test_what_java_says_is_told_without_its_stack() -> None:
    text = "An error occurred.\n: java.lang.Error: no\n\tat org.apache.A(B.scala:3)\n\tat org.apache.C(D.scala:4)"
    assert _without_stack(text) == "An error occurred.\n      : java.lang.Error: no"


def test_cores_of_local_masters() -> None:
    assert [local_cores(m) for m in ("local", "local[3]", "local-cluster[2,1,512]", "spark://h:1")] == [
        1,
        3,
        None,
        None,
    ]
    assert (local_cores("local[*]") or 0) >= 1


def test_the_command_line_asks_before_it_works(tmp_path: Path) -> None:
    (tmp_path / "events.py").write_text(EVENTS)
    (tmp_path / "logins.csv").write_text("time,user\n1,2\n")
    found = cli(
        "ingest",
        tmp_path / "events.py",
        tmp_path / "log",
        f"Login={tmp_path}/logins.csv",
        "--ts",
        "time",
        "--master",
        "locl[2]",
    )
    assert (found.code, "TL703" in found.err, "local[2]" in found.err) == (2, True, True)
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize(
    "text",
    [
        "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11",
        "Traceback (most recent call last):\n  File ...\nModuleNotFoundError: No module named 'timelapse'",
    ],
)
def test_workers_of_another_python_are_said(text: str) -> None:
    found = explained(RuntimeError(text), "final")
    assert isinstance(found, WrongPython)
    assert found.code == "TL513"
    assert "PYSPARK_PYTHON" in str(found.hint)
    assert text.splitlines()[-1].rpartition("]")[2].strip() in found.message


def test_other_errors_keep_their_last_lines_and_ours_stay() -> None:
    found = explained(RuntimeError("one\n\tat java.lang.Thread\ntwo"), "final")
    assert type(found) is SparkError
    assert found.code == "TL507"
    assert "one\n      two" in found.message
    own = UsageError("wrong")
    assert explained(own, "final") is own
    assert not is_sparks(OSError("disk"))
    assert not is_sparks(ValueError("x"))


def test_an_error_of_ours_in_a_worker_stays_what_it_is(spark: SparkSession, tmp_path: Path) -> None:
    """Spark tells it as text, in a traceback and with Java's stack: its class, code, text and hint come out of it again."""
    place = str(tmp_path / "a: file")

    def fail(what: str) -> Iterator[pa.RecordBatch]:
        if what == "full":
            with writing(place):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if what == "altered":
            try:
                raise ValueError("timelapse.errors.UsageError: TL803 what a log may contain")
            except ValueError as error:
                raise StorageError(
                    "two\nlines", place=Place(place), code="TL931", hint="first\n      second"
                ) from error
        raise HandlerError("it failed")

    for what, kind in (("full", NoSpace), ("altered", StorageError), ("failed", HandlerError)):
        with pytest.raises(Exception, match="TL") as caught:
            spark.range(1).mapInArrow(_doing(fail, what), "id long").collect()
        found = explained(caught.value, "a pass")
        assert type(found) is kind
        with pytest.raises(TimelapseError) as here:
            fail(what)
        assert _without_room(str(found)) == _without_room(str(here.value))
        assert found.code == here.value.code


def _doing(
    fail: Callable[[str], Iterator[pa.RecordBatch]], what: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    return lambda _: fail(what)


def _without_room(text: str) -> str:
    return re.sub(r"[\d,.]+ MB are free", "", text)


def test_a_name_that_is_no_error_of_ours_is_text() -> None:
    for text in ("timelapse.errors.Nothing: TL932 x", "see timelapse.errors.NoSpace: TL932 x", "timelapse.errors.Place: TL932 x"):  # fmt: skip
        assert type(explained(RuntimeError(text), "final")) is SparkError


def test_sparks_own_files_without_room() -> None:
    found = explained(
        RuntimeError("Job aborted\njava.io.IOException: No space left on device\n\tat java.io"), "final"
    )
    assert isinstance(found, NoSpace)
    assert "java.io.IOException: No space left on device" in found.message
    assert "SPARK_LOCAL_DIRS" in str(found.hint)


def test_a_call_that_nobody_answers_tells_that_java_is_gone() -> None:
    from py4j.protocol import Py4JError

    assert explained(Py4JError("An error occurred while calling o43.sc"), "final").code == "TL512"
    answered = Py4JError("An error occurred while calling o43.sc. Trace:\njava.lang.Oh: no\n\tat a.b")
    assert explained(answered, "final").code == "TL507"


KILLED = """
import os, signal, threading

from timelapse.env.spark_failures import explained
from timelapse.env.spark_session import started

spark = started("local[1]", {})
context = spark.sparkContext
context.parallelize([1, 2], 1).map(lambda x: x).collect()  # from here on Java sends counts
server, ended = context._accumulatorServer, threading.Event()
told = server.handle_error


def seen(*given):
    told(*given)
    ended.set()


server.handle_error = seen
os.kill(context._jvm.java.lang.ProcessHandle.current().pid(), signal.SIGKILL)
assert ended.wait(120)
try:
    context.defaultParallelism
except Exception as error:
    print(explained(error, "a test").code)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kills")
def test_a_java_process_that_dies_between_jobs_is_told_without_a_traceback() -> None:
    found = subprocess.run(
        [sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=LONG, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )  # fmt: skip
    assert (found.returncode, found.stdout.strip()) == (0, "TL512"), found.stderr
    assert "Traceback" not in found.stderr, found.stderr


def _descendants(pid: int) -> Iterator[tuple[int, str]]:
    """The processes that a process started, with their command lines."""
    todo = [pid]
    while todo:
        children: list[int] = []
        for thread in Path(f"/proc/{todo.pop()}/task").glob("*/children"):
            with suppress(OSError):  # it has ended
                children += map(int, thread.read_text().split())
        todo += children
        for child in children:
            with suppress(OSError):
                yield child, Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def _workers(pid: int) -> list[int]:
    return [p for p, text in _descendants(pid) if "pyspark.daemon" in text]


def _jvm(pid: int) -> list[int]:
    found = list(_descendants(pid))
    at_work = any("pyspark.daemon" in text for _, text in found)
    return [p for p, text in found if at_work and "java" in text.split(" ")[0]]


@pytest.mark.skipif(
    not Path(f"/proc/self/task/{os.getpid()}/children").exists(), reason="finds processes in /proc"
)
@pytest.mark.parametrize(("victims", "code"), [(_workers, "TL511"), (_jvm, "TL512")])
def test_killed_processes_have_errors_of_their_own(
    tmp_path: Path, victims: Callable[[int], list[int]], code: str
) -> None:
    (tmp_path / "events.py").write_text(EVENTS)
    (tmp_path / "logins.csv").write_text("time,user\n" + "".join(f"{n},{n % 90}\n" for n in range(300_000)))
    arguments = command(
        "ingest", tmp_path / "events.py", tmp_path / "log", f"Login={tmp_path}/logins.csv", "--ts", "time",
        "--unit", "s", "--master", "local[2]",
    )  # fmt: skip
    started = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )  # fmt: skip
    end = time.monotonic() + LONG
    while started.poll() is None and time.monotonic() < end:
        for pid in victims(started.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)
    try:
        _, err = started.communicate(timeout=LONG)
    finally:
        started.kill()
    assert started.returncode == 2, err
    assert code in err, err
    assert "memory" in err
    assert "\tat " not in err, err
    assert "Traceback" not in err, err
    assert not (tmp_path / "log").exists()
