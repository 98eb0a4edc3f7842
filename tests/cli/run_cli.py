"""Running the command line in the tests' process."""

from __future__ import annotations

import io
import json
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
