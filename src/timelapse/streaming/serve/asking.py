"""Why a live run put out a row, for its server: answered in a process of its own, so that the run is not held up.

That process replays the journal up to now, which takes as long as a replay of it, and looks into the run. One question is answered at a
time, for as long as who has asked waits. As a program it reads a Question as JSON, and prints an Answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from timelapse.decoding import decoded
from timelapse.env.leaving import leave
from timelapse.errors import RunError, TimelapseError
from timelapse.progress import Silent
from timelapse.streaming.reading import Reading
from timelapse.streaming.serve.guard import Refused
from timelapse.streaming.values import plain

_MOST_WAITING = 4
_LOOK = 0.5
_NICE = 10
_PLACE = ("ts", "phase", "seq", "ordinal")


class Row(msgspec.Struct, forbid_unknown_fields=True):
    """An output in question: a row as `/api/outputs` gives it."""

    record: str
    row: dict[str, Any]
    depth: int = 1
    last: int = 3


class Question(msgspec.Struct):
    path: str
    asked: Row


class Answer(msgspec.Struct, omit_defaults=True):
    """`error`: why there is none."""

    text: str = ""
    explanation: Any = None
    error: str = ""


def read_row(body: bytes) -> Row:
    """A question as it is sent. Raises ValueError."""
    try:
        asked = decoded(body, Row)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"send {{'record': ..., 'row': a row of /api/outputs}}: {error}") from None
    if any(type(asked.row.get(name)) is not int for name in _PLACE):
        raise ValueError(f"the row has to have {', '.join(_PLACE)}, as /api/outputs gives them")
    if not (0 <= asked.depth <= 3 and 0 <= asked.last <= 20):
        raise ValueError("depth is 0 to 3, last is 0 to 20")
    return asked


def answer(question: Question) -> Answer:
    """Replay the journal, and say why the row was put out."""
    asked = question.asked
    try:
        run = Reading.open(question.path).replay(spark=False, progress=Silent())
        found = run.why(
            f"{asked.record}@{asked.row['ts']}#{_number(run, asked)}", depth=asked.depth, last=asked.last
        )
    except TimelapseError as error:
        return Answer(error=str(error))
    return Answer(found.text, plain(found.to_json()))


def _number(run: Any, asked: Row) -> int:
    """Which of the records of its time it is, from 1: where late rows were corrected, its seq and ordinal may be others now."""
    row = asked.row
    rows = (
        [plain(r) for r in run.stored(asked.record, at=row["ts"]).to_pylist()]
        if asked.record in run.counts
        else []
    )
    fields = {name: value for name, value in row.items() if name not in _PLACE}
    same = [
        (
            found["phase"] == row["phase"],
            found["seq"] == row["seq"],
            found["ordinal"] == row["ordinal"],
            -place,
        )
        for place, found in enumerate(rows)
        if all(name in found and found[name] == value for name, value in fields.items())
    ]
    if not same:
        raise RunError(
            f"the newest version of the journal does not put out this {asked.record}", code="TL609",
            hint="it was retracted since: look at the feed of additions and retractions",
        )  # fmt: skip
    return 1 - max(same)[-1]


class Asking:
    """Has such questions answered, one at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn: asyncio.Lock | None = None
        self._waiting = 0
        self.closed = False
        """Whether the server ends: questions are answered no more, whichever thread says so."""

    async def ask(self, asked: Row, gone: Callable[[], Awaitable[bool]]) -> Answer:
        """The answer. `gone`: whether nobody waits for it any more. Raises Refused."""
        if self._waiting >= _MOST_WAITING:
            raise Refused(503, "other questions are being answered: ask again later")
        self._turn = self._turn or asyncio.Lock()
        self._waiting += 1
        try:
            async with self._turn:
                return await self._answered(asked, gone)
        finally:
            self._waiting -= 1

    async def _answered(self, asked: Row, gone: Callable[[], Awaitable[bool]]) -> Answer:
        self._check_open()
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", __name__, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL
        )
        body = msgspec.json.encode(Question(str(self._path), asked))
        talk = asyncio.ensure_future(child.communicate(body))
        try:
            while not (await asyncio.wait([talk], timeout=_LOOK))[0]:
                self._check_open()
                if await gone():
                    raise Refused(499, "nobody waits for the answer")
            found, _ = await talk
        finally:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
                await asyncio.wait([talk])
        if child.returncode:
            raise Refused(
                500,
                f"the process that looked into the run ended with {child.returncode}: ask with timelapse why",
            )
        return decoded(found, Answer)

    def _check_open(self) -> None:
        if self.closed:
            raise Refused(503, "the run is served no longer")


def main() -> None:
    """Answer the question on standard input."""
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    out, sys.stdout = sys.stdout, sys.stderr  # what the user's program prints is no answer
    question = decoded(sys.stdin.buffer.read(), Question)
    out.buffer.write(msgspec.json.encode(answer(question)))
    out.flush()
    leave(0)


if __name__ == "__main__":
    main()
