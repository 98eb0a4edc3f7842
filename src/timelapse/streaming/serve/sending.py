"""Rows that senders give over HTTP: in a request, or message after message over a WebSocket."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import Future
from typing import Any

import msgspec
import pyarrow as pa
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.websockets import WebSocket, WebSocketDisconnect

from timelapse.decoding import decoded
from timelapse.errors import TimelapseError
from timelapse.streaming.serve.guard import Refused
from timelapse.streaming.sources.push import Push

MOST_BODY = 32 << 20
"""Bytes of a request, and of a message."""
MOST_KEY = 200
_MOST_WAITING = 64
"""Messages of one sender that are not durable yet; it is not listened to beyond."""
_WAIT = 60.0


def checked_key(text: str) -> str:
    """An Idempotency-Key. Raises Refused for one that is too long."""
    if len(text) > MOST_KEY:
        raise Refused(400, f"an Idempotency-Key has at most {MOST_KEY} characters")
    return text


def rows_in(push: Push, body: bytes, kind: str) -> pa.Table:
    """The rows of a request or message. Raises ValueError: nothing of it counts then."""
    if kind == "application/vnd.apache.arrow.stream":
        try:
            with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
                table = reader.read_all()
            table.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"the Arrow stream cannot be read: {error}") from None
        return table
    if kind == "application/json":
        try:
            found = decoded(body, Any)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(f"the body is no JSON: {error}") from None
        rows = found if isinstance(found, list) else [found]
        body = b"\n".join(map(msgspec.json.encode, rows))
    elif kind not in ("application/x-ndjson", "application/jsonl", "text/plain"):
        raise Refused(
            415, "send application/json, application/x-ndjson or application/vnd.apache.arrow.stream"
        )
    return push.parsed(body)


class Conversation:
    """One sender's WebSocket: each message has rows, JSON lines as text or an Arrow stream as bytes, and each gets an answer, in order,
    once its rows are durable.

    With an Idempotency-Key its messages are numbered from `first` on, and a message of the same key and number counts once: who was cut
    off sends again what was not answered.
    """

    def __init__(self, socket: WebSocket, push: Push) -> None:
        self._socket, self._push = socket, push
        self._key = checked_key(socket.headers.get("idempotency-key", ""))
        self._number = _first(socket.query_params)
        self._answers: asyncio.Queue[tuple[int, Future[int] | str] | None] = asyncio.Queue(_MOST_WAITING)

    async def hold(self) -> None:
        """Until the sender leaves."""
        await self._socket.accept()
        answering = asyncio.create_task(self._answer())
        try:
            while not answering.done():
                message = await self._socket.receive()
                if message["type"] == "websocket.disconnect":
                    break
                text = message.get("text")
                body = message["bytes"] if text is None else text.encode()
                kind = "application/vnd.apache.arrow.stream" if text is None else "application/x-ndjson"
                await self._wait((self._number, await run_in_threadpool(self._take, body, kind)), answering)
                self._number += 1
        finally:
            answering.cancel()

    async def _wait(self, taken: tuple[int, Future[int] | str], answering: asyncio.Task[None]) -> None:
        """Have a message wait for its answer; not once nobody answers, since the sender has left while the most waited."""
        putting = asyncio.create_task(self._answers.put(taken))
        await asyncio.wait((putting, answering), return_when=asyncio.FIRST_COMPLETED)
        putting.cancel()

    def _take(self, body: bytes, kind: str) -> Future[int] | str:
        """Have the rows of a message written; or why not."""
        try:
            table = rows_in(self._push, body, kind)
            return self._push.sending(table, id=f"{self._key}\0{self._number}" if self._key else "")
        except (TimelapseError, ValueError, TimeoutError) as error:
            return str(error)

    async def _answer(self) -> None:
        try:
            while (waiting := await self._answers.get()) is not None:
                number, done = waiting
                await self._socket.send_text(json.dumps({"message": number, **await _outcome(done)}))
        except (WebSocketDisconnect, RuntimeError):  # the sender has left
            return


async def _outcome(done: Future[int] | str) -> dict[str, Any]:
    if isinstance(done, str):
        return {"error": done}
    try:
        return {"counted": await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(done)), _WAIT)}
    except Exception as error:  # whatever it is, the sender hears of it
        return {"error": str(error) or "it was not durable within a minute: send it again"}


def _first(asked: QueryParams) -> int:
    text = asked.get("first", "1")
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise Refused(400, f"first={text:.20} is no number of a message")
    return int(text)
