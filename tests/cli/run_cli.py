"""Running the command line in the tests' process."""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

from timelapse.cli.main import run


@dataclass(frozen=True)
class Result:
    """What a command left: exit code and both streams."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class _Stream(io.StringIO):
    """A stream that is no terminal, as a pipe."""

    def isatty(self) -> bool:
        return False


def cli(*args: object) -> Result:
    """Run `timelapse ARGS` in this process, as `main` does."""
    out, err = _Stream(), _Stream()
    with redirect_stdout(out), redirect_stderr(err):
        code = run([str(a) for a in args])
    return Result(code, out.getvalue(), err.getvalue())


def command(*args: object) -> Sequence[str]:
    """The same as a command line for a process of its own."""
    return [sys.executable, "-m", "timelapse.cli.main", *(str(a) for a in args)]


def with_loaded(modules: Sequence[str], *args: str) -> tuple[Result, list[str]]:
    """Run the command in a process of its own. What it left, and which of these modules it had loaded by its end."""
    code = (
        "import atexit, sys\nfrom timelapse.cli import main\n"
        f"sys.argv = {['timelapse', *args]!r}\n"
        f"atexit.register(lambda: print([m for m in {tuple(modules)!r} if m in sys.modules]))\n"
        "main.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    *_, last = done.stdout.splitlines()
    return Result(done.returncode, done.stdout, done.stderr), ast.literal_eval(last)
