"""What commands print: text on a terminal, JSON for programs, errors with code, place and hint.

Text from programs and logs is never markup here, and control characters in it are shown, not sent.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from timelapse.cli.quiet import before_output
from timelapse.display import clean, one_line
from timelapse.errors import TimelapseError

__all__ = ["clean", "console", "line", "one_line", "print_json", "show_error"]

OK, DIFFERENT, TROUBLE, INTERRUPTED = 0, 1, 2, 130
"""Exit codes, as diff(1) has them."""
UNREAD = 141
"""What a shell tells of a program whose reader has gone: of commands whose exit code is an answer, which was not come to."""
ANSWERING = frozenset({"bench", "check", "diff", "parity", "verify", "why-not"})


_answers: list[TextIO] = []
"""Where answers go, while `sys.stdout` is for what users' handlers print."""


def answers() -> TextIO:
    """The stream of answers."""
    return _answers[-1] if _answers else sys.stdout


@contextmanager
def answers_alone() -> Iterator[None]:
    """Nothing else goes to standard output: what a user's handler prints goes to standard error, so that JSON can be read."""
    _answers.append(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _answers.pop()


class _Console(Console):
    """Where the reader has gone, `main` ends quietly; rich would exit with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(stderr: bool = False) -> Console:
    """A console on which text is only text: no markup, no emoji codes, no guessed colours.

    Where the output is no terminal nothing is wrapped: lines are for grep.
    """
    stream = sys.stderr if stderr else answers()
    before_output(to=stream)
    width = None if stream.isatty() else int(os.environ.get("COLUMNS") or 200)
    return _Console(file=stream, markup=False, emoji=False, highlight=False, soft_wrap=False, width=width)


def line(*parts: str | tuple[str, str]) -> None:
    """Print one line on stdout; a part is a text, or (text, style)."""
    text = Text()
    for part in parts:
        if isinstance(part, tuple):
            text.append(clean(part[0]), style=part[1])
        else:
            text.append(clean(part))
    console().print(text, soft_wrap=True)


def print_json(value: object) -> None:
    """One JSON document on stdout. Infinite and missing numbers become texts, for JSON has none."""
    before_output(to=answers())
    answers().write(json.dumps(_plain(value), indent=2, ensure_ascii=True, allow_nan=False) + "\n")


def _plain(value: object) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes | bytearray):
        return [_plain(v) for v in value]
    return value.hex() if isinstance(value, bytes | bytearray) else str(value)


_BOTH = re.compile(
    r"""(?<![\w.(])([a-z_]+)(=(?:"[^"]*"|'[^']*'|[^\s()]*))? \((--([a-z][a-z-]*)(?: [^()\s]+)*)\)"""
)


def as_options(text: str) -> str:
    """An error's text for the command line: of an argument that is named both ways, `sep= (--sep)`, the option alone.

    A word without `=` is an argument where it is the option's name: in `not (--without FILE)` it is none.
    """
    return _BOTH.sub(lambda m: m[3] if m[2] or m[1].replace("_", "-") == m[4] else m[0], text)


def show_error(error: TimelapseError, *, as_json: bool) -> None:
    """The error on stderr: code, place, message, hint, and the user's own traceback where there is one."""
    trace = getattr(error, "user_traceback", "")
    message, hint = as_options(error.message), error.hint and as_options(error.hint)
    before_output()
    if as_json:
        body = {
            "code": error.code, "place": str(error.place), "message": message, "hint": hint,
            "traceback": trace or None,
        }  # fmt: skip
        sys.stderr.write(json.dumps({"error": body}, ensure_ascii=True) + "\n")
        return
    text = Text()
    text.append(error.code, style="bold red")
    place = str(error.place)
    if place:
        text.append(f" {clean(place)}:", style="bold")
    text.append(f" {clean(message)}")
    if trace:
        for row in clean(trace).rstrip().splitlines():
            text.append(f"\n      {row}", style="dim")
    if hint:
        text.append(f"\n      {clean(hint)}", style="cyan")
    text.append(f"\n      timelapse help {error.code}", style="dim")
    console(stderr=True).print(text, soft_wrap=True)
