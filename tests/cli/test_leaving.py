"""A command ends with its exit code, whatever the destructors of libraries would do then."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_PROGRAM = """
import atexit, ctypes, sys, threading, time
c = ctypes.CDLL(None)
c.__cxa_atexit(c.abort, None, None)  # a library that aborts when the process ends
from timelapse.cli.main import main
atexit.register(lambda: print("at exit"))
threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
sys.argv = ["timelapse", *sys.argv[1:]]
main()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks for glibc's __cxa_atexit")
@pytest.mark.parametrize(("arguments", "code"), [(["--version"], 0), (["log", "nowhere"], 2)])
def test_it_ends_without_destructors(arguments: list[str], code: int) -> None:
    """Threads are waited for, and what is registered for the end is done."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ,
    )
    assert done.returncode == code, done.stderr
    assert "thread\n" in done.stdout
    assert done.stdout.endswith("at exit\n")
    if code:
        assert "TL403" in done.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="closes a pipe as a shell does")
def test_a_reader_that_has_gone_is_no_error() -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m timelapse help | head -1 > /dev/null; echo ${{PIPESTATUS[0]}}"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("0\n", "")
