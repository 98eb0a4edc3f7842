"""The server's routes."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.resources import files
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from uvicorn.protocols.utils import ClientDisconnected

from timelapse.decoding import decoded
from timelapse.env.scheduler import come_soon
from timelapse.errors import SourceError, StorageError, TimelapseError, UsageError
from timelapse.kinds.base import StateSpec
from timelapse.program.program import spec_of
from timelapse.store.parts import DAMAGED
from timelapse.streaming.following import Following, not_its_own
from timelapse.streaming.live import Live
from timelapse.streaming.serve.asking import Asking, read_row
from timelapse.streaming.serve.guard import Guard, Refused, tokens_at
from timelapse.streaming.serve.listening import Listening
from timelapse.streaming.serve.sending import MOST_BODY, Conversation, checked_key, rows_in
from timelapse.streaming.serve.status import metrics, status
from timelapse.streaming.serve.wire import Protocol
from timelapse.streaming.sources.push import Push
from timelapse.streaming.values import key_of, plain

MOST_QUESTION = 1 << 20
MOST_LISTED = 1000
STALLED = 30.0
"""Seconds that a sender may pause within a body: what it has sent is kept in memory."""
_CSP = "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'"
Handler = Callable[[Request], Awaitable[Response]]


class _Refiltering(msgspec.Struct, forbid_unknown_fields=True):
    """Filters to add and to remove; others stay."""

    add: list[str] = []
    remove: list[str] = []


class Server:
    """Serves a live run over HTTP until `close`. Raises as Listening does, where it is not given one."""

    def __init__(self, run: Live, listen: str | Listening) -> None:
        at = self._at = Listening(listen) if isinstance(listen, str) else listen
        self.tokens, self.address = tokens_at(run.place.local), at.address
        self._app = _App(run, Guard(self.tokens, at.host))
        config = uvicorn.Config(
            self._app.starlette(), log_level="warning", access_log=False, lifespan="off", ssl_certfile=at.certificate, ssl_keyfile=at.key,
            timeout_graceful_shutdown=2, server_header=False, http=Protocol, ws="websockets-sansio", ws_max_size=MOST_BODY,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="timelapse-serve", daemon=True)
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.01)

    def _serve(self) -> None:
        come_soon()
        asyncio.run(self._answer())

    async def _answer(self) -> None:
        # What hands requests to threads is loaded with the first of these, and all requests would wait for that.
        await run_in_threadpool(int)
        await self._server.serve([self._at.socket])

    def close(self) -> None:
        """Answer what was asked, and end."""
        self._app.asking.closed = True
        self._server.should_exit = True
        self._thread.join(5)
        self._at.close()


def _number(name: str, text: str) -> int:
    """What was given as a number. Raises ValueError."""
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} is a whole number, and {text!r:.60} is none") from None


def _limit(request: Request) -> int:
    """How many are asked for. Raises ValueError."""
    found = _number("limit", request.query_params.get("limit", "100"))
    if found < 0:
        raise ValueError(f"limit is 0 to {MOST_LISTED}")
    return min(MOST_LISTED, found)


class _App:
    def __init__(self, run: Live, guard: Guard) -> None:
        self._run, self._guard = run, guard
        self.asking = Asking(run.path)

    def starlette(self) -> Starlette:
        """The application."""
        routes = [
            self._route("/", self._page, None),
            self._route("/page.js", self._script, None),
            self._route("/health", self._health, None),
            self._route("/metrics", self._metrics, "read"),
            self._route("/api/status", self._status, "read"),
            self._route("/api/state/{name}", self._state, "read"),
            self._route("/api/outputs/{record}", self._outputs, "read"),
            self._route("/api/outputs/{record}/stream", self._follow, "read"),
            self._route("/api/why", self._why, "read", "POST"),
            self._route("/api/filters", self._filters, "operate", "POST"),
            self._route("/push/{type}", self._push, "push", "POST"),
            self._route("/push/{type}/{stream}", self._push, "push", "POST"),
            WebSocketRoute("/push/{type}", self._converse),
            WebSocketRoute("/push/{type}/{stream}", self._converse),
            self._route("/api/{what}", self._operate, "operate", "POST"),
        ]
        return Starlette(routes=routes)

    def _route(self, path: str, handler: Handler, right: str | None, method: str = "GET") -> Route:
        async def answer(request: Request) -> Response:
            try:
                self._guard.check(request, right)
                response = await handler(request)
            except Refused as refused:
                return refused.response()
            except ClientDisconnect:  # before the body's end: nobody is there to be answered
                return Response(status_code=400)
            except (UsageError, ValueError, LookupError) as error:
                return JSONResponse({"error": str(error)}, 400)
            except (SourceError, TimeoutError) as error:
                return JSONResponse({"error": str(error)}, 503)
            except TimelapseError as error:
                again = (
                    isinstance(error, StorageError) and error.code != DAMAGED
                )  # no room, or the store is away
                return JSONResponse({"error": str(error)}, 503 if again else 500)
            response.headers["Cache-Control"] = "no-store"
            response.headers["X-Content-Type-Options"] = "nosniff"
            return response

        return Route(path, answer, methods=[method])

    # --- the page -------------------------------------------------------------------------------------

    async def _page(self, request: Request) -> Response:
        text = files("timelapse.streaming.serve").joinpath("page.html").read_text("utf-8")
        return HTMLResponse(text, headers={"Content-Security-Policy": _CSP, "Referrer-Policy": "no-referrer"})

    async def _script(self, request: Request) -> Response:
        text = files("timelapse.streaming.serve").joinpath("page.js").read_text("utf-8")
        return Response(text, media_type="text/javascript")

    async def _health(self, request: Request) -> Response:
        health = self._run.health
        good = health.state in ("starting", "standby", "following", "running", "paused", "ended")
        return JSONResponse({"state": health.state, "ok": good}, 200 if good else 503)

    async def _metrics(self, request: Request) -> Response:
        return PlainTextResponse(
            await run_in_threadpool(metrics, self._run), media_type="text/plain; version=0.0.4"
        )

    async def _status(self, request: Request) -> Response:
        return JSONResponse(plain(await run_in_threadpool(status, self._run)))

    # --- reads ----------------------------------------------------------------------------------------

    async def _state(self, request: Request) -> Response:
        name = request.path_params["name"]
        declared = spec_of(self._run.program).declared
        if name not in declared:
            raise Refused(404, f"there is no state {name!r:.60}; states: {', '.join(declared)}")
        asked = request.query_params.get("key")
        if asked is not None:
            try:
                given = json.loads(asked)
            except (json.JSONDecodeError, RecursionError):
                raise ValueError("the key is no JSON: a text has quotes, a tuple is a list") from None
            keys: list[Any] = []

            def key(spec: StateSpec) -> Any:
                keys.append(key_of(spec, given))
                return keys[-1]

            # Mostly it is there once a piece of events is done: another thread would wait for that and for Python's lock, and this one for it.
            found = self._run.states.glance(name, key)
            if found is None:
                found = await run_in_threadpool(self._run.states.read, name, key)
            value, epoch = found
            return JSONResponse(
                {"state": name, "key": plain(keys[-1]), "value": plain(value), **_moment(epoch)}
            )
        limit = _limit(request)
        rows, more, epoch = await run_in_threadpool(self._run.listed, name, limit)
        listed = [{"key": plain(k), "value": plain(v)} for k, v in rows]
        return JSONResponse({"state": name, "rows": listed, "more": more, **_moment(epoch)})

    async def _outputs(self, request: Request) -> Response:
        record = request.path_params["record"]
        limit = _limit(request)
        early = None if self._run.early_results is None else self._run.early(record)
        try:
            table, epoch = await run_in_threadpool(self._run.latest, record, limit)
        except UsageError:
            if early is None:
                raise
            table, epoch = early.slice(0, 0), self._run.last_here  # none was put out yet
        found = {"record": record, "rows": plain(table.to_pylist()), **_moment(epoch)}
        if early is not None:
            found["early"] = plain(early.slice(max(0, early.num_rows - limit)).to_pylist()[::-1])
        return JSONResponse(found)

    async def _follow(self, request: Request) -> Response:
        record = request.path_params["record"]
        last = request.headers.get("last-event-id")
        after = (
            _number("Last-Event-ID", last)
            if last
            else _number("after", request.query_params.get("after", "-1"))
        )
        return StreamingResponse(self._events(request, record, after), media_type="text/event-stream")

    async def _events(self, request: Request, record: str, after: int) -> AsyncIterator[str]:
        """What epochs have published of such records, as server-sent events: rows that are retracted, then rows that are added. The last event of an
        epoch has its number as id, so who comes again with that misses nothing."""
        last = await run_in_threadpool(lambda: self._run.last)
        at = after if after >= 0 else 0 if last is None else last.number
        early = None
        while not await request.is_disconnected():
            found = await run_in_threadpool(self._run.published_after, record, at, 50)
            for at, added, retracted in found:
                if retracted is not None:
                    yield _event("" if added is not None else f"id: {at}\n", "retract", retracted)
                if added is not None:
                    yield _event(f"id: {at}\n", "outputs", added)
            if self._run.early_results is not None and self._run.early_results.now is not early:
                early = self._run.early_results.now  # all that came before is replaced
                yield _event("", "early", self._run.early(record))
            if not found:
                if self._run.health.state in ("ended", "stopped", "failed"):
                    return
                yield ": nothing new\n\n"
                await asyncio.sleep(0.2)

    async def _why(self, request: Request) -> Response:
        """Why a row that was put out was, from a replay of the journal in another process."""
        asked = read_row(await _body(request, MOST_QUESTION))
        found = await self.asking.ask(asked, request.is_disconnected)
        if found.error:
            raise ValueError(found.error)
        return JSONResponse({"text": found.text, "explanation": found.explanation})

    # --- rows and operations ----------------------------------------------------------------------------

    async def _push(self, request: Request) -> Response:
        push = self._push_of(request)
        if request.headers.get("content-encoding", "identity") != "identity":
            raise Refused(415, "send rows as they are: compressed ones are not read")
        body = await _body(request, MOST_BODY)
        kind = request.headers.get("content-type", "application/x-ndjson").partition(";")[0].strip()
        key = checked_key(request.headers.get("idempotency-key", ""))
        table = await run_in_threadpool(rows_in, push, body, kind)
        counted = await run_in_threadpool(push.send, table, id=key)
        return JSONResponse({"rows": table.num_rows, "counted": counted})

    def _push_of(self, request: HTTPConnection) -> Push:
        if isinstance(self._run, Following):
            raise Refused(409, not_its_own().message)
        push = self._run.push_of(request.path_params["type"], request.path_params.get("stream", ""))
        if push is None:
            raise Refused(404, "no stream of this name takes rows")
        return push

    async def _converse(self, socket: WebSocket) -> None:
        """Rows, message after message."""
        try:
            self._guard.check(socket, "push")
            conversation = Conversation(socket, self._push_of(socket))
        except Refused as refused:
            await socket.send_denial_response(refused.response())
            raise ClientDisconnected from None  # else uvicorn says in the terminal that nobody has answered
        await conversation.hold()

    async def _filters(self, request: Request) -> Response:
        """Which rows are put aside from the next epoch on."""
        try:
            asked = decoded(await _body(request, MOST_QUESTION), list[str] | _Refiltering)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(
                'send a list of filters, as ["Message: sender == 512"], or {"add": [...], "remove": [...]}: '
                f"{error}"
            ) from None
        if isinstance(asked, list):
            recorded = await run_in_threadpool(self._run.keep_out, *asked)
            return JSONResponse({"filters": asked, "recorded": recorded})
        if not asked.add and not asked.remove:
            raise ValueError("there is neither a filter to add nor one to remove")
        recorded = await run_in_threadpool(self._run.filter, asked.add, asked.remove)
        return JSONResponse({"filters": [f.text for f in self._run.filters], "recorded": recorded})

    async def _operate(self, request: Request) -> Response:
        what = request.path_params["what"]
        doing = {"pause": self._run.pause, "resume": self._run.resume, "stop": self._run.end}
        if what not in doing:
            raise Refused(404, f"there is no {what!r:.60}; pause, resume, stop")
        if isinstance(self._run, Following):
            raise not_its_own()
        doing[what]()
        return JSONResponse({"done": what})


def _event(head: str, kind: str, table: Any) -> str:
    return f"{head}event: {kind}\ndata: {json.dumps(plain(table.to_pylist()))}\n\n"


async def _body(request: Request, most: int) -> bytes:
    """A request's body. Raises Refused where it is longer, or stalls."""
    body = bytearray()
    try:
        async with asyncio.timeout(STALLED) as patience:
            async for part in request.stream():
                body += part
                if len(body) > most:
                    raise Refused(413, f"at most {most >> 20} MB at a time")
                patience.reschedule(asyncio.get_running_loop().time() + STALLED)
    except TimeoutError:
        raise Refused(408, f"nothing of the body came for {STALLED} s; nothing was taken") from None
    return bytes(body)


def _moment(epoch: Any) -> dict[str, Any]:
    """Which moment an answer is of."""
    if epoch is None:
        return {"epoch": 0, "complete": None, "age_seconds": None}
    age = max(0.0, time.time() - epoch.written / 1e6)
    return {"epoch": epoch.number, "complete": epoch.complete, "age_seconds": round(age, 3)}
